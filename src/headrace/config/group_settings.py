"""The rows of the table of broker settings that are about consumer groups and their offsets."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from headrace.config.setting import INT_MAX, ConfigError, ConfigType, Importance, Setting

HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
INT, LONG, SHORT = ConfigType.INT, ConfigType.LONG, ConfigType.SHORT
STRING, LIST = ConfigType.STRING, ConfigType.LIST


def _not_empty(text: str) -> str | None:
    return None if text else "it must have at least one entry"


class Bounds(NamedTuple):
    """The names of a broker setting of consumer groups and of what it, and a group's own, may be."""

    least: str
    value: str
    most: str


BOUNDS = {
    "consumer.session.timeout.ms": Bounds(
        "group.consumer.min.session.timeout.ms",
        "group.consumer.session.timeout.ms",
        "group.consumer.max.session.timeout.ms",
    ),
    "consumer.heartbeat.interval.ms": Bounds(
        "group.consumer.min.heartbeat.interval.ms",
        "group.consumer.heartbeat.interval.ms",
        "group.consumer.max.heartbeat.interval.ms",
    ),
    "consumer.assignment.interval.ms": Bounds(
        "group.consumer.min.assignment.interval.ms",
        "group.consumer.assignment.interval.ms",
        "group.consumer.max.assignment.interval.ms",
    ),
}
"""By the name of the group's own setting."""


def _limits(of: str, meaning: str, least: int, most: int, minimum: int) -> tuple[Setting, Setting]:
    meaning = f"{meaning} of consumer groups (KIP-848)"
    return (
        Setting(BOUNDS[of].least, INT, str(least), MEDIUM, f"Minimum {meaning}.", minimum),
        Setting(BOUNDS[of].most, INT, str(most), MEDIUM, f"Maximum {meaning}.", minimum),
    )


def check_group_limits(integer: Callable[[str], int]) -> None:
    """Raise ConfigError unless the settings of consumer groups agree with each other, as Kafka wants it."""
    for least, name, most in BOUNDS.values():
        if integer(most) < integer(least):
            raise ConfigError(f"{most} must be greater than or equal to {least}")
        if integer(name) < integer(least):
            raise ConfigError(f"{name} must be greater than or equal to {least} ({integer(least)})")
        if integer(name) > integer(most):
            raise ConfigError(f"{name} must be less than or equal to {most} ({integer(most)})")
    session, heartbeat = "group.consumer.session.timeout.ms", "group.consumer.heartbeat.interval.ms"
    if integer(heartbeat) >= integer(session):
        raise ConfigError(f"{heartbeat} must be less than {session}")


CONSUMER_GROUPS: tuple[Setting, ...] = (
    Setting(
        "group.initial.rebalance.delay.ms",
        INT,
        "3000",
        MEDIUM,
        "How long the first rebalance of an empty group waits for more members to join.",
        0,
    ),
    Setting(
        "group.min.session.timeout.ms",
        INT,
        "6000",
        MEDIUM,
        "The shortest session timeout that a member of a classic group may ask for.",
    ),
    Setting(
        "group.max.session.timeout.ms",
        INT,
        "1800000",
        MEDIUM,
        "The longest session timeout that a member of a classic group may ask for.",
    ),
    Setting(
        "group.max.size",
        INT,
        str(INT_MAX),
        MEDIUM,
        "Maximum number of members of a classic group.",
        1,
    ),
    Setting(
        "group.consumer.session.timeout.ms",
        INT,
        "45000",
        MEDIUM,
        "How long a member of a consumer group (KIP-848) may be silent before it is removed from the group.",
        1,
    ),
    Setting(
        "group.consumer.heartbeat.interval.ms",
        INT,
        "5000",
        MEDIUM,
        "How often members of consumer groups (KIP-848) send heartbeats.",
        1,
    ),
    *_limits("consumer.session.timeout.ms", "session timeout", 45_000, 60_000, 1),
    *_limits("consumer.heartbeat.interval.ms", "heartbeat interval", 5_000, 15_000, 1),
    Setting(
        "group.consumer.assignment.interval.ms",
        INT,
        "1000",
        MEDIUM,
        "Minimum time between two assignments of a consumer group (KIP-848); members that join in between wait.",
        0,
    ),
    *_limits("consumer.assignment.interval.ms", "assignment interval", 0, 15_000, 0),
    Setting(
        "group.coordinator.append.linger.ms",
        INT,
        "-1",
        MEDIUM,
        (
            "How long a coordinator collects writes before it appends them together; -1 collects only "
            "concurrent ones."
        ),
        -1,
    ),
    Setting(
        "group.consumer.max.size",
        INT,
        str(INT_MAX),
        MEDIUM,
        "Maximum number of members of a consumer group (KIP-848).",
        1,
    ),
    Setting(
        "group.consumer.assignors",
        LIST,
        "uniform,range",
        MEDIUM,
        "The assignors that consumer groups (KIP-848) may use; the first is the default.",
        allowed=("uniform", "range"),
        check=_not_empty,
    ),
    Setting(
        "group.consumer.migration.policy",
        STRING,
        "bidirectional",
        MEDIUM,
        "Which way a group with members may change its protocol: to the consumer protocol (upgrade), back to the "
        "classic one (downgrade), both, or neither.",
        allowed=("disabled", "upgrade", "downgrade", "bidirectional"),
    ),
    Setting(
        "offset.metadata.max.bytes",
        INT,
        "4096",
        HIGH,
        "Maximum length of the metadata committed with an offset.",
    ),
    Setting(
        "offsets.retention.minutes",
        INT,
        "10080",
        HIGH,
        "How long offsets are kept after their group became empty, or after the commit for consumers without one.",
        1,
    ),
    Setting(
        "offsets.retention.check.interval.ms",
        LONG,
        "600000",
        HIGH,
        "How often expired offsets are removed.",
        1,
    ),
    Setting(
        "offsets.commit.timeout.ms",
        INT,
        "5000",
        HIGH,
        "How long a commit may wait for the replicas of the offsets topic.",
        1,
    ),
    Setting(
        "offsets.load.buffer.size",
        INT,
        "5242880",
        HIGH,
        "How many bytes of the offsets topic are read at a time when a coordinator takes over.",
        1,
    ),
    Setting(
        "offsets.topic.num.partitions",
        INT,
        "50",
        HIGH,
        "Number of partitions of the offsets topic; do not change it once the topic exists.",
        1,
    ),
    Setting(
        "offsets.topic.replication.factor",
        SHORT,
        "3",
        HIGH,
        "Number of replicas of the offsets topic; fewer if there are fewer brokers.",
        1,
    ),
    Setting(
        "offsets.topic.segment.bytes",
        INT,
        "104857600",
        HIGH,
        "The size of the offsets topic's segments, at least 1 MB: small ones are compacted and loaded sooner.",
        1,
    ),
    Setting(
        "offsets.topic.compression.codec",
        INT,
        "0",
        HIGH,
        "The codec of what coordinators write: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
        0,
        4,
    ),
)
