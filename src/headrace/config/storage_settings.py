"""The rows of the table of broker settings that are about the safety of stored data."""

from __future__ import annotations

from headrace.config.setting import ConfigType, Importance, Setting

DATA_SAFETY: tuple[Setting, ...] = (
    Setting(
        "headrace.stray.retention.ms",
        ConfigType.LONG,
        "604800000",
        Importance.MEDIUM,
        "How long logs and files that a start set aside (their names end in -stray) are kept; -1 is for ever.",
        -1,
    ),
    Setting(
        "headrace.moved.retention.ms",
        ConfigType.LONG,
        "3600000",
        Importance.MEDIUM,
        "How long logs whose partitions moved to other brokers (names in -moved) are kept; -1 is for ever.",
        -1,
    ),
    Setting(
        "headrace.scrub.bytes.per.second",
        ConfigType.LONG,
        "0",
        Importance.MEDIUM,
        "How fast a scrub reads stored logs again to find damage, reported in the log and as a metric; 0 is off.",
        0,
    ),
    Setting(
        "headrace.scrub.interval.ms",
        ConfigType.LONG,
        "604800000",
        Importance.LOW,
        "The time from the beginning of one scrub of all logs to that of the next.",
        1,
    ),
)
