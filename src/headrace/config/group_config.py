"""The settings that a consumer group (KIP-848) may have of its own: over those of the broker, within limits.

The three are `consumer.<what>.ms`; `group.consumer.<what>.ms` of the broker gives the default, and
`group.consumer.min.<what>.ms` and `group.consumer.max.<what>.ms` the limits. A group's setting is checked when it
is made. A broker that is started with narrower limits later keeps to its limits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.config.broker_config import BrokerConfig
from headrace.config.group_settings import BOUNDS, Bounds
from headrace.config.setting import Importance
from headrace.config.settings import ConfigError, ConfigType, Setting, Synonym, unknown_name

SESSION_TIMEOUT = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL = "consumer.heartbeat.interval.ms"
ASSIGNMENT_INTERVAL = "consumer.assignment.interval.ms"


def _row(name: str, default: int, minimum: int, doc: str) -> Setting:
    synonyms = (Synonym(BOUNDS[name].value),)
    return Setting(name, ConfigType.INT, str(default), Importance.MEDIUM, doc, minimum, synonyms=synonyms)


GROUP_SETTINGS: Mapping[str, Setting] = {
    SESSION_TIMEOUT: _row(
        SESSION_TIMEOUT,
        45_000,
        1,
        "How long a member of the group may be silent before it is removed from the group.",
    ),
    HEARTBEAT_INTERVAL: _row(HEARTBEAT_INTERVAL, 5_000, 1, "How often members of the group send heartbeats."),
    ASSIGNMENT_INTERVAL: _row(
        ASSIGNMENT_INTERVAL,
        1_000,
        0,
        "Minimum time between two assignments of the group; members that join in between wait.",
    ),
}


@dataclass(frozen=True, slots=True)
class ConsumerGroupConfig:
    """What holds for one group."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int


@dataclass(frozen=True, slots=True)
class _Range:
    names: Bounds
    least: int
    default: int
    most: int

    def check(self, name: str, value: int) -> None:
        if value < self.least:
            raise ConfigError(f"{name} must be greater than or equal to {self.names.least} ({self.least})")
        if value > self.most:
            raise ConfigError(f"{name} must be less than or equal to {self.names.most} ({self.most})")

    def nearest(self, value: int) -> int:
        return min(max(value, self.least), self.most)


class GroupLimits:
    """What a broker allows its groups."""

    def __init__(self, config: BrokerConfig) -> None:
        self._ranges = {
            name: _Range(bounds, *(config.integer(bound) for bound in bounds)) for name, bounds in BOUNDS.items()
        }

    def check(self, overrides: Mapping[str, str]) -> None:
        """Raise ConfigError unless a group may have these settings."""
        for name in overrides:
            if name not in GROUP_SETTINGS:
                raise unknown_name("group", name, GROUP_SETTINGS)
        values = self._values(overrides)
        for name, value in values.items():
            self._ranges[name].check(name, value)
        if values[SESSION_TIMEOUT] <= values[HEARTBEAT_INTERVAL]:
            raise ConfigError(f"{SESSION_TIMEOUT} must be greater than {HEARTBEAT_INTERVAL}")

    def config_of(self, overrides: Mapping[str, str]) -> ConsumerGroupConfig:
        """What holds for a group with these settings: within the limits, whatever they were when it was made."""
        values = {name: self._ranges[name].nearest(value) for name, value in self._values(overrides).items()}
        if values[SESSION_TIMEOUT] <= values[HEARTBEAT_INTERVAL]:
            for name in (SESSION_TIMEOUT, HEARTBEAT_INTERVAL):
                values[name] = self._ranges[name].default
        return ConsumerGroupConfig(
            values[SESSION_TIMEOUT], values[HEARTBEAT_INTERVAL], values[ASSIGNMENT_INTERVAL]
        )

    def _values(self, overrides: Mapping[str, str]) -> dict[str, int]:
        values = {name: limits.default for name, limits in self._ranges.items()}
        for name, setting in GROUP_SETTINGS.items():
            if name in overrides:
                value = setting.parse(overrides[name])
                assert isinstance(value, int)
                values[name] = value
        return values
