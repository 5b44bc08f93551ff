"""The broker's settings for groups: for the state machines, and for the shell around them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from headrace.config.broker_config import BrokerConfig
from headrace.config.group_config import GroupLimits
from headrace.groups.settings import GroupSettings, MigrationPolicy
from headrace.metadata.image import MetadataImage

MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class ShellSettings:
    codec: int
    """The codec of batches: offsets.topic.compression.codec."""
    commit_timeout_ms: int
    load_buffer_bytes: int
    append_linger_ms: int = -1
    """group.coordinator.append.linger.ms; -1 collects what one turn of the loop brings."""


def group_settings(config: BrokerConfig) -> GroupSettings:
    assignors = config.value("group.consumer.assignors")
    assert isinstance(assignors, tuple)
    return GroupSettings(
        min_session_timeout_ms=config.integer("group.min.session.timeout.ms"),
        max_session_timeout_ms=config.integer("group.max.session.timeout.ms"),
        initial_rebalance_delay_ms=config.integer("group.initial.rebalance.delay.ms"),
        max_size=config.integer("group.max.size"),
        consumer_session_timeout_ms=config.integer("group.consumer.session.timeout.ms"),
        consumer_heartbeat_interval_ms=config.integer("group.consumer.heartbeat.interval.ms"),
        consumer_assignment_interval_ms=config.integer("group.consumer.assignment.interval.ms"),
        consumer_max_size=config.integer("group.consumer.max.size"),
        consumer_assignors=assignors,
        migration_policy=MigrationPolicy((config.text("group.consumer.migration.policy") or "").lower()),
        offset_metadata_max_bytes=config.integer("offset.metadata.max.bytes"),
        offsets_retention_ms=config.integer("offsets.retention.minutes") * MINUTE_MS,
    )


class GroupConfigsFeed:
    """The settings of groups that have their own, rebuilt on the first use after they changed."""

    def __init__(self, config: BrokerConfig, image: Callable[[], MetadataImage]) -> None:
        self._limits = GroupLimits(config)
        self._common = group_settings(config)
        self._image = image
        self._configs: Mapping[str, Mapping[str, str]] = {}
        self._settings: Mapping[str, GroupSettings] = {}

    def current(self) -> Mapping[str, GroupSettings]:
        """The settings of groups that have their own. The same object until they change."""
        configs = self._image().group_configs
        if configs is not self._configs:
            self._configs = configs
            self._settings = {group_id: self._of(overrides) for group_id, overrides in configs.items()}
        return self._settings

    def _of(self, overrides: Mapping[str, str]) -> GroupSettings:
        own = self._limits.config_of(overrides)
        return replace(
            self._common,
            consumer_session_timeout_ms=own.session_timeout_ms,
            consumer_heartbeat_interval_ms=own.heartbeat_interval_ms,
            consumer_assignment_interval_ms=own.assignment_interval_ms,
        )


def shell_settings(config: BrokerConfig) -> ShellSettings:
    return ShellSettings(
        codec=config.integer("offsets.topic.compression.codec"),
        commit_timeout_ms=config.integer("offsets.commit.timeout.ms"),
        load_buffer_bytes=config.integer("offsets.load.buffer.size"),
        append_linger_ms=config.integer("group.coordinator.append.linger.ms"),
    )
