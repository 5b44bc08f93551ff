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
        "Whether the log cleaner runs; without it compacted topics only grow.",
    ),
    Setting(
        "log.cleaner.threads",
        INT,
        "1",
        MEDIUM,
        "How many logs are compacted at the same time, each by its own process.",
        0,
    ),
    Setting(
        "log.cleaner.dedupe.buffer.size",
        LONG,
        "134217728",
        MEDIUM,
        "Memory for the keys of the logs being compacted, shared by all workers; a key takes about 28 bytes.",
        1048576,
        update_mode=_DYNAMIC,
    ),
    Setting(
        "log.cleaner.io.max.bytes.per.second",
        ConfigType.DOUBLE,
        "1.7976931348623157E308",
        MEDIUM,
        "Maximum bytes per second that compaction reads and writes, over all workers.",
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
        "Maximum time a record may stay uncompacted in a compacted topic.",
        1,
        update_mode=_DYNAMIC,
    ),
    Setting(
        "log.cleaner.min.cleanable.ratio",
        ConfigType.DOUBLE,
        "0.5",
        MEDIUM,
        "Share of uncompacted bytes from which a log is compacted again.",
        0,
        1,
        update_mode=_DYNAMIC,
    ),
    Setting(
        "log.cleaner.min.compaction.lag.ms",
        LONG,
        "0",
        MEDIUM,
        "Minimum time a record stays uncompacted in a compacted topic.",
        0,
        update_mode=_DYNAMIC,
    ),
)
