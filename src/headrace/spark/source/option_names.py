"""Which options the source has, and what each means: names are checked and docs are made from these tables."""

from __future__ import annotations

from headrace.spark.option_table import Option

CHOICES = ("assign", "subscribe", "subscribePattern")

SOURCE_OPTIONS: tuple[Option, ...] = (
    Option("subscribe", "", "Topics to read, separated by commas."),
    Option(
        "subscribePattern",
        "",
        "Regular expression; topics whose name matches anywhere are read, also those created later. "
        "`^logs\\..*$` matches whole names. The cluster's own topics never match.",
    ),
    Option("assign", "", 'Partitions to read, as JSON: `{"topicA": [0, 1], "topicB": [2]}`.'),
    Option(
        "startingOffsets",
        "`latest` in a stream, `earliest` in a batch",
        "Where to start: `earliest`, `latest` (not in a batch), how long ago (`-10m`), a moment "
        '(`2026-01-31T12:00:00Z`), or JSON per partition: `{"topicA": {"0": 23, "1": -2}}`, -2 for earliest and '
        "-1 for latest. Partitions that JSON leaves out start at earliest. A stream looks at it only when it "
        "starts without a checkpoint; partitions that appear later start at their beginning.",
    ),
    Option(
        "startingOffsetsByTimestamp",
        "",
        'Start of each partition by time, as JSON: `{"topicA": {"0": 1767225600000}}`, milliseconds since 1970 or '
        "a moment as text. Overrides `startingOffsets`.",
    ),
    Option(
        "startingTimestamp",
        "",
        "Start of all partitions by time: milliseconds since 1970, or a moment as text. Overrides both others.",
    ),
    Option(
        "startingOffsetsByTimestampStrategy",
        "`error`; `latest` for a time in `startingOffsets`",
        "What a start by time means in a partition where no record is that new: `error`, or `latest` for its end.",
    ),
    Option(
        "endingOffsets",
        "`latest`",
        "Where to end, exclusive; in the same forms as `startingOffsets`, except `earliest`. Partitions that JSON "
        "leaves out end at latest.",
        "batch",
    ),
    Option("endingOffsetsByTimestamp", "", "End of each partition by time, as JSON.", "batch"),
    Option(
        "endingTimestamp", "", "End of all partitions by time: before the first record at or after it.", "batch"
    ),
    Option(
        "exactTimestamps",
        "`false`",
        "Whether a start and an end by time choose records by their own time, whatever their order; without it "
        "they become offsets, and records out of order may be missed, or read although they are outside. "
        "Reads to the end of the log.",
        "batch",
    ),
    Option(
        "failOnDataLoss",
        "`true`",
        "Whether the query fails when records it should read are gone (topic deleted or created again, removed by "
        "retention, log cut off). With `false` it warns and continues at the nearest record.",
    ),
    Option(
        "maxOffsetsPerTrigger",
        "",
        "Maximum offsets in one batch, divided in proportion to what each partition has.",
        "stream",
    ),
    Option(
        "minOffsetsPerTrigger",
        "",
        "Delay a batch until this many offsets are available, or `maxTriggerDelay` has passed.",
        "stream",
    ),
    Option(
        "maxTriggerDelay",
        "`15m`",
        "Maximum time that `minOffsetsPerTrigger` delays a batch after the last one.",
        "stream",
    ),
    Option(
        "maxBytesPerTrigger",
        "",
        "Maximum bytes in one batch, by estimated record size: `64m`, `1g`. Headrace only.",
        "stream",
    ),
    Option(
        "minPartitions",
        "",
        "Approximate minimum number of tasks: large partitions are split in proportion. Without it and the next "
        "one, tasks are split by size.",
    ),
    Option("maxRecordsPerPartition", "", "Maximum offsets in one task: larger ranges are split evenly."),
    Option(
        "targetBytesPerTask",
        "`64m`",
        "Split ranges that are estimated to be larger. The default holds only when neither `minPartitions` nor "
        "`maxRecordsPerPartition` is given. Headrace only.",
    ),
    Option("includeHeaders", "`false`", "Whether the source has a column `headers`."),
    Option(
        "groupId",
        "",
        "A group under which the stream commits how far it has read, so that tools that show lag see it. It is "
        "never read: the position is in the checkpoint. Headrace only.",
        "stream",
    ),
    Option(
        "stopFile",
        "",
        "While this file is there on the driver's machine the stream delivers nothing new, so that a query "
        "can be stopped between two batches. Headrace only.",
        "stream",
    ),
    Option(
        "offsetLog",
        "",
        "The directory `offsets` in the query's checkpoint, on this machine. With it a schema may also name "
        "`batchWatermark timestamp` as its last column: rows whose event time is not after it are late in their "
        "batch. Headrace only.",
        "stream",
    ),
    Option("groupIdPrefix", "", "Accepted, without effect: no consumer group is joined."),
    Option("fetchOffset.numRetries", "`3`", "How often requests for offsets are retried."),
    Option("fetchOffset.retryIntervalMs", "`1000`", "The pause between retries."),
    Option("kafkaConsumer.pollTimeoutMs", "`120000`", "How long a task waits for records that should exist."),
    Option(
        "partition.metadata.cache.ttl.ms", "", "Accepted, without effect: partitions are looked up every time."
    ),
)

CONSUMER_SETTINGS: tuple[Option, ...] = (
    Option("kafka.bootstrap.servers", "", "Bootstrap brokers, as `host:9092,other:9092`. Required."),
    Option(
        "kafka.isolation.level",
        "`read_committed`",
        "`read_committed`: records of open and aborted transactions are not read. Spark's own default is "
        "`read_uncommitted`.",
    ),
    Option("kafka.client.id", "`headrace-spark`", "Client id that the broker sees."),
    Option("kafka.group.id", "", "Accepted, without effect: no consumer group is joined. See `groupId`."),
    Option("kafka.max.partition.fetch.bytes", "`8388608`", "Bytes to ask for in one fetch."),
    Option("kafka.request.timeout.ms", "`30000`", "How long a request is retried before it fails."),
    Option(
        "kafka.security.protocol",
        "`PLAINTEXT`",
        "`SSL`, `SASL_PLAINTEXT` or `SASL_SSL`, with `kafka.sasl.*` and `kafka.ssl.*` as clients have them "
        "([security](security.md#clients)).",
    ),
)

_DECODING = "records are read as bytes, so there is nothing to deserialize them with"

REFUSED_SETTINGS: dict[str, tuple[str, str]] = {
    "auto.offset.reset": (
        "where to read is decided by the query, not by a consumer",
        "write startingOffsets instead, and failOnDataLoss for offsets that are gone",
    ),
    "key.deserializer": (_DECODING, "cast or decode the column key in the query"),
    "value.deserializer": (_DECODING, "cast or decode the column value in the query"),
    "enable.auto.commit": (
        "how far a query has read is in its checkpoint, not in a consumer group",
        "write groupId to have the position committed for tools that show lag",
    ),
    "interceptor.classes": ("interceptors could change records, and run only in Java", "change rows in the query"),
}
"""Settings of a Kafka consumer that are refused: what is wrong, and what to do."""

KNOWN_CONSUMER_SETTINGS: frozenset[str] = frozenset(
    {
        "allow.auto.create.topics",
        "auto.commit.interval.ms",
        "check.crcs",
        "client.dns.lookup",
        "client.rack",
        "connections.max.idle.ms",
        "default.api.timeout.ms",
        "enable.metrics.push",
        "exclude.internal.topics",
        "fetch.max.bytes",
        "fetch.max.wait.ms",
        "fetch.min.bytes",
        "group.instance.id",
        "group.protocol",
        "group.remote.assignor",
        "heartbeat.interval.ms",
        "max.poll.interval.ms",
        "max.poll.records",
        "metadata.max.age.ms",
        "metadata.recovery.rebootstrap.trigger.ms",
        "metadata.recovery.strategy",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "partition.assignment.strategy",
        "receive.buffer.bytes",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "retry.backoff.max.ms",
        "retry.backoff.ms",
        "send.buffer.bytes",
        "session.timeout.ms",
        "socket.connection.setup.timeout.max.ms",
        "socket.connection.setup.timeout.ms",
    }
)
"""Settings of a Kafka consumer that are accepted and have no use here."""
