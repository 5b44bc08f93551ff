"""What the broker's settings mean to groups: to the state machines, and to the shell around them."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.config.broker_config import BrokerConfig
from headrace.groups.settings import GroupSettings, MigrationPolicy

MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class ShellSettings:
    codec: int
    """Of the batches: offsets.topic.compression.codec."""
    commit_timeout_ms: int
    load_buffer_bytes: int


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
        consumer_max_size=config.integer("group.consumer.max.size"),
        consumer_assignors=assignors,
        migration_policy=MigrationPolicy((config.text("group.consumer.migration.policy") or "").lower()),
        offset_metadata_max_bytes=config.integer("offset.metadata.max.bytes"),
        offsets_retention_ms=config.integer("offsets.retention.minutes") * MINUTE_MS,
    )


def shell_settings(config: BrokerConfig) -> ShellSettings:
    return ShellSettings(
        codec=config.integer("offsets.topic.compression.codec"),
        commit_timeout_ms=config.integer("offsets.commit.timeout.ms"),
        load_buffer_bytes=config.integer("offsets.load.buffer.size"),
    )
