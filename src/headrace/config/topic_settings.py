"""The table of topic settings: Kafka's names, types, limits and defaults.

A topic that does not set one takes it from the broker settings named as its synonyms.
"""

from __future__ import annotations

from headrace.config.setting import LONG_MAX, ConfigType, Importance, Setting, Synonym

MEDIUM = Importance.MEDIUM
_MINUTE_MS = 60_000
_HOUR_MS = 3_600_000


def _no_tiered_storage(text: str) -> str | None:
    return "Headrace has no tiered storage" if text.lower() == "true" else None


def _throttled_replicas(text: str) -> str | None:
    if text in ("", "*"):
        return None
    for member in text.split(","):
        partition, _, broker = member.strip().partition(":")
        if not (partition.isdigit() and broker.isdigit()):
            return "it must be '*' or a list of partition:broker"
    return None


_ROWS: tuple[Setting, ...] = (
    Setting(
        "cleanup.policy",
        ConfigType.LIST,
        "delete",
        MEDIUM,
        "What happens to old segments: delete drops them after the retention time or size, compact keeps the last "
        "value of every key, and both may be given together.",
        allowed=("compact", "delete"),
        synonyms=(Synonym("log.cleanup.policy"),),
    ),
    Setting(
        "compression.gzip.level",
        ConfigType.INT,
        "-1",
        MEDIUM,
        "The gzip level where the broker compresses; -1 is gzip's own default.",
        minimum=-1,
        maximum=9,
        synonyms=(Synonym("compression.gzip.level"),),
        check=lambda text: "it must be -1 or from 1 to 9" if text == "0" else None,
    ),
    Setting(
        "compression.lz4.level",
        ConfigType.INT,
        "9",
        MEDIUM,
        "The lz4 level where the broker compresses.",
        minimum=1,
        maximum=17,
        synonyms=(Synonym("compression.lz4.level"),),
    ),
    Setting(
        "compression.type",
        ConfigType.STRING,
        "producer",
        MEDIUM,
        "The codec in which batches are stored; producer keeps them as they were sent, any other recompresses.",
        allowed=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        synonyms=(Synonym("compression.type"),),
    ),
    Setting(
        "compression.zstd.level",
        ConfigType.INT,
        "3",
        MEDIUM,
        "The zstd level where the broker compresses.",
        minimum=-131072,
        maximum=22,
        synonyms=(Synonym("compression.zstd.level"),),
    ),
    Setting(
        "delete.retention.ms",
        ConfigType.LONG,
        "86400000",
        MEDIUM,
        "How long tombstones stay readable in a compacted topic, so that slow readers still learn of a deletion.",
        minimum=0,
        synonyms=(Synonym("log.cleaner.delete.retention.ms"),),
    ),
    Setting(
        "file.delete.delay.ms",
        ConfigType.LONG,
        "60000",
        MEDIUM,
        "How long the files of a deleted segment are kept, renamed, before they are removed.",
        minimum=0,
        synonyms=(Synonym("log.segment.delete.delay.ms"),),
    ),
    Setting(
        "flush.messages",
        ConfigType.LONG,
        str(LONG_MAX),
        MEDIUM,
        "After how many records the log is forced to disk; 1 forces every batch before it is acknowledged.",
        minimum=1,
        synonyms=(Synonym("log.flush.interval.messages"),),
    ),
    Setting(
        "flush.ms",
        ConfigType.LONG,
        str(LONG_MAX),
        MEDIUM,
        "Maximum time a record may stay in the page cache only, before the log is forced to disk.",
        minimum=0,
        synonyms=(Synonym("log.flush.interval.ms"), Synonym("log.flush.scheduler.interval.ms")),
    ),
    Setting(
        "follower.replication.throttled.replicas",
        ConfigType.LIST,
        "",
        MEDIUM,
        "The replicas whose incoming replication traffic is throttled: partition:broker pairs, or * for all.",
        check=_throttled_replicas,
    ),
    Setting(
        "headrace.record.validation.enable",
        ConfigType.BOOLEAN,
        "false",
        MEDIUM,
        "Whether every record is validated before its batch is accepted. Otherwise only the header and checksum "
        "of a batch are, and its records only where another setting requires it.",
        synonyms=(Synonym("headrace.record.validation.enable"),),
    ),
    Setting(
        "index.interval.bytes",
        ConfigType.INT,
        "4096",
        MEDIUM,
        "Approximate bytes of log between two entries of the offset index.",
        minimum=0,
        synonyms=(Synonym("log.index.interval.bytes"),),
    ),
    Setting(
        "internal.segment.bytes",
        ConfigType.INT,
        None,
        MEDIUM,
        "Stands in for segment.bytes without its lower limit, so that tests can make small segments.",
        minimum=1,
        internal=True,
    ),
    Setting(
        "leader.replication.throttled.replicas",
        ConfigType.LIST,
        "",
        MEDIUM,
        "The replicas whose outgoing replication traffic is throttled: partition:broker pairs, or * for all.",
        check=_throttled_replicas,
    ),
    Setting(
        "local.retention.bytes",
        ConfigType.LONG,
        "-2",
        MEDIUM,
        "The size kept on the broker's own disk under tiered storage.",
        minimum=-2,
        synonyms=(Synonym("log.local.retention.bytes"),),
    ),
    Setting(
        "local.retention.ms",
        ConfigType.LONG,
        "-2",
        MEDIUM,
        "The time kept on the broker's own disk under tiered storage.",
        minimum=-2,
        synonyms=(Synonym("log.local.retention.ms"),),
    ),
    Setting(
        "max.compaction.lag.ms",
        ConfigType.LONG,
        str(LONG_MAX),
        MEDIUM,
        "Maximum time a record may stay uncompacted in a compacted topic.",
        minimum=1,
        synonyms=(Synonym("log.cleaner.max.compaction.lag.ms"),),
    ),
    Setting(
        "max.message.bytes",
        ConfigType.INT,
        "1048588",
        MEDIUM,
        "The largest record batch that is accepted, measured as it arrives, so after compression.",
        minimum=0,
        synonyms=(Synonym("message.max.bytes"),),
    ),
    Setting(
        "message.timestamp.after.max.ms",
        ConfigType.LONG,
        "3600000",
        MEDIUM,
        "How far a record's own timestamp may be ahead of the broker's clock before the record is refused.",
        minimum=0,
        synonyms=(Synonym("log.message.timestamp.after.max.ms"),),
    ),
    Setting(
        "message.timestamp.before.max.ms",
        ConfigType.LONG,
        str(LONG_MAX),
        MEDIUM,
        "How far a record's own timestamp may be behind the broker's clock before the record is refused.",
        minimum=0,
        synonyms=(Synonym("log.message.timestamp.before.max.ms"),),
    ),
    Setting(
        "message.timestamp.type",
        ConfigType.STRING,
        "CreateTime",
        MEDIUM,
        "Which clock sets timestamps: the producer's (CreateTime) or the broker's at append (LogAppendTime).",
        allowed=("CreateTime", "LogAppendTime"),
        synonyms=(Synonym("log.message.timestamp.type"),),
    ),
    Setting(
        "min.cleanable.dirty.ratio",
        ConfigType.DOUBLE,
        "0.5",
        MEDIUM,
        "Share of uncompacted bytes from which a log is compacted again.",
        minimum=0,
        maximum=1,
        synonyms=(Synonym("log.cleaner.min.cleanable.ratio"),),
    ),
    Setting(
        "min.compaction.lag.ms",
        ConfigType.LONG,
        "0",
        MEDIUM,
        "Minimum time a record stays uncompacted in a compacted topic.",
        minimum=0,
        synonyms=(Synonym("log.cleaner.min.compaction.lag.ms"),),
    ),
    Setting(
        "min.insync.replicas",
        ConfigType.INT,
        "1",
        MEDIUM,
        "How many replicas must be in sync for a write with acks=all to be accepted.",
        minimum=1,
        synonyms=(Synonym("min.insync.replicas"),),
    ),
    Setting(
        "preallocate",
        ConfigType.BOOLEAN,
        "false",
        MEDIUM,
        "Whether a new segment file is preallocated at its full size.",
        synonyms=(Synonym("log.preallocate"),),
    ),
    Setting(
        "remote.log.copy.disable",
        ConfigType.BOOLEAN,
        "false",
        MEDIUM,
        "Stops the copying to tiered storage; only false is possible.",
        check=_no_tiered_storage,
    ),
    Setting(
        "remote.log.delete.on.disable",
        ConfigType.BOOLEAN,
        "false",
        MEDIUM,
        "Deletes the tiered data when tiering is switched off; only false is possible.",
        check=_no_tiered_storage,
    ),
    Setting(
        "remote.storage.enable",
        ConfigType.BOOLEAN,
        "false",
        MEDIUM,
        "Switches tiered storage on; only false is possible.",
        check=_no_tiered_storage,
    ),
    Setting(
        "retention.bytes",
        ConfigType.LONG,
        "-1",
        MEDIUM,
        "The size of a partition above which its oldest segments are deleted; -1 is no limit.",
        synonyms=(Synonym("log.retention.bytes"),),
    ),
    Setting(
        "retention.ms",
        ConfigType.LONG,
        "604800000",
        MEDIUM,
        "The age after which a segment is deleted, counted from its newest record; -1 is no limit.",
        minimum=-1,
        synonyms=(
            Synonym("log.retention.ms"),
            Synonym("log.retention.minutes", _MINUTE_MS),
            Synonym("log.retention.hours", _HOUR_MS),
        ),
    ),
    Setting(
        "segment.bytes",
        ConfigType.INT,
        "1073741824",
        MEDIUM,
        "Size at which a segment is rolled.",
        minimum=1048576,
        synonyms=(Synonym("log.segment.bytes"),),
    ),
    Setting(
        "segment.index.bytes",
        ConfigType.INT,
        "10485760",
        MEDIUM,
        "The largest size of a segment's index files; a full index begins a new segment.",
        minimum=4,
        synonyms=(Synonym("log.index.size.max.bytes"),),
    ),
    Setting(
        "segment.jitter.ms",
        ConfigType.LONG,
        "0",
        MEDIUM,
        "Maximum random jitter subtracted from segment.ms, so that segments do not all roll at once.",
        minimum=0,
        synonyms=(Synonym("log.roll.jitter.ms"), Synonym("log.roll.jitter.hours", _HOUR_MS)),
    ),
    Setting(
        "segment.ms",
        ConfigType.LONG,
        "604800000",
        MEDIUM,
        "Age at which a segment is rolled even if it is not full.",
        minimum=1,
        synonyms=(Synonym("log.roll.ms"), Synonym("log.roll.hours", _HOUR_MS)),
    ),
    Setting(
        "unclean.leader.election.enable",
        ConfigType.BOOLEAN,
        "false",
        MEDIUM,
        "Whether a replica that is not in sync may become leader when no other is left, losing records.",
        synonyms=(Synonym("unclean.leader.election.enable"),),
    ),
)

TOPIC_SETTINGS: dict[str, Setting] = {row.name: row for row in _ROWS}

NOT_ACTED_ON: frozenset[str] = frozenset(
    {
        "local.retention.bytes",
        "local.retention.ms",
        "preallocate",
    }
)
"""Accepted, stored and shown, but nothing follows from them yet. A test compares this with what the code reads."""
