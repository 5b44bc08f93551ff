"""The broker settings of compaction, and the defaults that it gives to compacted topics."""

from __future__ import annotations

from headrace.config.setting import LONG_MAX, ConfigType, Importance, Setting, UpdateMode

MEDIUM = Importance.MEDIUM
INT, LONG, BOOLEAN = ConfigType.INT, ConfigType.LONG, ConfigType.BOOLEAN
_DYNAMIC = UpdateMode.CLUSTER_WIDE

COMPACTION: tuple[Setting, ...] = (
    Setting(
        "log.cleaner.enable",
        BOOLEAN,
        "true",
        MEDIUM,
        "Whether compacted topics are compacted at all; without it they only grow.",
    ),
    Setting(
        "log.cleaner.threads",
        INT,
        "1",
        MEDIUM,
        "How many logs are compacted at the same time, each by a process of its own.",
        0,
    ),
    Setting(
        "log.cleaner.dedupe.buffer.size",
        LONG,
        "134217728",
        MEDIUM,
        "The memory for the keys of the logs being compacted, shared by all workers; a key takes about 28 bytes.",
        1048576,
        update_mode=_DYNAMIC,
    ),
    Setting(
        "log.cleaner.io.max.bytes.per.second",
        ConfigType.DOUBLE,
        "1.7976931348623157E308",
        MEDIUM,
        "How many bytes compaction may read and write in a second, all workers together.",
        1,
        update_mode=_DYNAMIC,
    ),
    Setting(
        "log.cleaner.backoff.ms",
        LONG,
        "15000",
        MEDIUM,
        "How long compaction sleeps when no log is dirty enough.",
        0,
        update_mode=_DYNAMIC,
    ),
    Setting(
        "log.cleaner.delete.retention.ms",
        LONG,
        "86400000",
        MEDIUM,
        "How long tombstones stay readable in a compacted topic.",
        0,
        update_mode=_DYNAMIC,
    ),
    Setting(
        "log.cleaner.max.compaction.lag.ms",
        LONG,
        str(LONG_MAX),
        MEDIUM,
        "The longest time that a record may stay uncompacted in a compacted topic.",
        1,
        update_mode=_DYNAMIC,
    ),
    Setting(
        "log.cleaner.min.cleanable.ratio",
        ConfigType.DOUBLE,
        "0.5",
        MEDIUM,
        "The share of uncompacted bytes from which a compacted log is worth compacting again.",
        0,
        1,
        update_mode=_DYNAMIC,
    ),
    Setting(
        "log.cleaner.min.compaction.lag.ms",
        LONG,
        "0",
        MEDIUM,
        "The shortest time that a record stays uncompacted in a compacted topic.",
        0,
        update_mode=_DYNAMIC,
    ),
)
