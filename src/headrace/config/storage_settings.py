"""The rows of the table of broker settings that are about the safety of stored data."""

from __future__ import annotations

from headrace.config.setting import ConfigType, Importance, Setting

DATA_SAFETY: tuple[Setting, ...] = (
    Setting(
        "headrace.stray.retention.ms",
        ConfigType.LONG,
        "604800000",
        Importance.MEDIUM,
        "How long logs and files set aside at startup (names ending in -stray) are kept; -1 keeps them forever.",
        -1,
    ),
    Setting(
        "headrace.moved.retention.ms",
        ConfigType.LONG,
        "3600000",
        Importance.MEDIUM,
        (
            "How long logs of partitions that moved to other brokers (names ending in -moved) are kept; "
            "-1 keeps them forever."
        ),
        -1,
    ),
    Setting(
        "headrace.scrub.bytes.per.second",
        ConfigType.LONG,
        "0",
        Importance.MEDIUM,
        (
            "Bytes per second at which a scrub re-reads stored logs to find damage, reported in the log "
            "and as a metric; 0 is off."
        ),
        0,
    ),
    Setting(
        "headrace.scrub.interval.ms",
        ConfigType.LONG,
        "604800000",
        Importance.LOW,
        "Time from the start of one scrub of all logs to the next.",
        1,
    ),
)
