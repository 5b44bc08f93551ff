"""The sink's options: those of Spark's `kafka` sink, and `delivery`.

`kafka.*` are a producer's settings. Those with a meaning here are in the tables below; those that only tune a Java
producer are accepted without effect; those that would change what is written are refused, as by Spark's own sink.
An unknown name is left alone, unless it looks like a typo.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.client.address import parse_bootstrap
from headrace.model.errors import KafkaError
from headrace.model.topics import check_topic_name
from headrace.records.compression import CODEC_NAMES, Codec
from headrace.spark.client.connection import ClusterSettings
from headrace.spark.client.creating import AS_THE_BROKER_HAS_IT, TopicShape
from headrace.spark.client.producing import ALL_IN_SYNC, DELIVERY_TIMEOUT_S, MAX_IN_FLIGHT, MAX_REQUEST_BYTES
from headrace.spark.option_table import GivenOptions, Option, OptionError, near_name
from headrace.spark.security_options import SECURITY_PREFIXES, parse_security
from headrace.spark.sink.job_names import Job, parse_job
from headrace.spark.sink.once.names import LEGAL_SINK_ID, sink_id_of
from headrace.spark.sink.once.plan import SinkSettings

BOOTSTRAP = "kafka.bootstrap.servers"
AT_LEAST_ONCE = "at-least-once"
EXACTLY_ONCE = "exactly-once"
DEFAULT_BATCH_BYTES = 900_000
"""The size of one record batch, before compression: below the megabyte that a broker accepts by default."""
DEFAULT_REQUEST_TIMEOUT_MS = 30_000
DEFAULT_TRANSACTION_TIMEOUT_MS = 900_000
"""The maximum that brokers allow by default (transaction.max.timeout.ms)."""
DEFAULT_CLIENT_ID = "headrace-spark"

SINK_OPTIONS = (
    Option("topic", "", "Topic for all rows. Overrides a column `topic`."),
    Option(
        "delivery",
        f"`{EXACTLY_ONCE}` in a stream to a Headrace cluster, else `{AT_LEAST_ONCE}`",
        "What a failed task or a restart means for records already written.",
    ),
    Option(
        "sinkId",
        "derived from `checkpointLocation`",
        "Names the sink in the cluster, the same for every run of the query: letters, digits, `.`, `_` and `-`.",
        "stream",
    ),
    Option(
        "jobId",
        "",
        "Names a batch write: all of its rows become visible together, and a job that is done is not written "
        "again. `name/7` is number 7 of a series; later numbers replace earlier ones in the sink's log.",
        "batch",
    ),
    Option("includeHeaders", "`true`", "Whether a column `headers` is written."),
    Option(
        "create.partitions",
        "",
        "Create missing topics with this many partitions; -1: the broker's default.",
    ),
    Option("create.replication", "`-1`", "How many replicas such topics get; -1: the broker's default."),
    Option("create.config.*", "", "Settings of such topics, as `create.config.retention.ms`."),
)
CREATE_CONFIG = "create.config."
PRODUCER_SETTINGS = (
    Option(BOOTSTRAP, "", "Bootstrap brokers, as `host:9092,other:9092`. Required."),
    Option("kafka.acks", "`all`", "Acknowledgement required for a write: `all`, `1` or `0`."),
    Option("kafka.enable.idempotence", "`true`", "No duplicates from retries. Needs `kafka.acks=all`."),
    Option("kafka.compression.type", "`none`", "`none`, `gzip`, `snappy`, `lz4` or `zstd`."),
    Option("kafka.batch.size", f"`{DEFAULT_BATCH_BYTES}`", "Maximum bytes of a record batch, uncompressed."),
    Option("kafka.max.request.size", f"`{MAX_REQUEST_BYTES}`", "Bytes of one request; a batch always fits."),
    Option(
        "kafka.max.in.flight.requests.per.connection",
        f"`{MAX_IN_FLIGHT}`",
        "Maximum requests in flight per broker.",
    ),
    Option("kafka.request.timeout.ms", f"`{DEFAULT_REQUEST_TIMEOUT_MS}`", "How long to wait for a response."),
    Option("kafka.delivery.timeout.ms", f"`{DELIVERY_TIMEOUT_S * 1000:.0f}`", "How long records are retried."),
    Option(
        "kafka.transaction.timeout.ms",
        f"`{DEFAULT_TRANSACTION_TIMEOUT_MS}`",
        "How long a task may write before its transaction is aborted.",
    ),
    Option("kafka.client.id", f"`{DEFAULT_CLIENT_ID}`", "Client id that the broker sees."),
)
WITHOUT_EFFECT = frozenset(
    {
        "buffer.memory",
        "client.dns.lookup",
        "connections.max.idle.ms",
        "linger.ms",
        "max.block.ms",
        "metadata.max.age.ms",
        "metadata.max.idle.ms",
        "receive.buffer.bytes",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "retries",
        "retry.backoff.max.ms",
        "retry.backoff.ms",
        "send.buffer.bytes",
        "socket.connection.setup.timeout.max.ms",
        "socket.connection.setup.timeout.ms",
    }
)
_AS_IS = "key and value are written as the bytes they are"
REFUSED = {
    "key.serializer": (_AS_IS, "remove it, and give the column key as string or binary"),
    "value.serializer": (_AS_IS, "remove it, and give the column value as string or binary"),
    "transactional.id": ("the sink names its transactions itself", "remove it"),
    "partitioner.class": (
        "Java classes cannot be loaded here",
        "give a column partition to choose partitions yourself",
    ),
    "interceptor.classes": ("Java classes cannot be loaded here", "remove it"),
}
ACKS = {"all": ALL_IN_SYNC, "-1": ALL_IN_SYNC, "1": 1, "0": 0}


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Everything the writers need, checked. Sent to the tasks."""

    client: ClusterSettings
    topic: str | None
    include_headers: bool
    acks: int
    idempotent: bool
    codec: Codec
    batch_bytes: int
    request_bytes: int
    max_in_flight: int
    delivery_timeout_s: float
    delivery: str | None = None
    """The delivery option; None: exactly once in a stream, where the cluster has explicit prepare."""
    sink: SinkSettings | None = None
    """The sink for exactly once; None where the options name no sink, or exclude it."""
    job: Job | None = None
    """The batch write that is done only once, if it has a name."""
    create: TopicShape | None = None
    """How missing topics are created; None: they are an error."""


def parse_sink_options(given: Mapping[str, str]) -> SinkOptions:
    """The options as given to Spark; OptionError for the first that is wrong."""
    options = GivenOptions(given)
    _check_names(options)
    acks, idempotent, in_flight = _acknowledgement(options)
    delivery = _delivery(options, idempotent)
    timeout_ms = options.integer("kafka.request.timeout.ms", minimum=1) or DEFAULT_REQUEST_TIMEOUT_MS
    delivery_ms = options.integer("kafka.delivery.timeout.ms", minimum=1)
    batch_bytes = options.integer("kafka.batch.size", minimum=1) or DEFAULT_BATCH_BYTES
    request_bytes = options.integer("kafka.max.request.size", minimum=1)
    return SinkOptions(
        client=ClusterSettings(
            _bootstrap(options),
            options.text("kafka.client.id") or DEFAULT_CLIENT_ID,
            timeout_ms / 1000,
            security=parse_security(options),
        ),
        topic=_topic(options),
        include_headers=options.boolean("includeHeaders", True),
        acks=acks,
        idempotent=idempotent,
        codec=_codec(options),
        batch_bytes=min(batch_bytes, request_bytes or batch_bytes),
        request_bytes=request_bytes or MAX_REQUEST_BYTES,
        max_in_flight=in_flight,
        delivery_timeout_s=DELIVERY_TIMEOUT_S if delivery_ms is None else delivery_ms / 1000,
        delivery=delivery,
        sink=None if delivery == AT_LEAST_ONCE else _sink(options),
        job=_job(options, delivery),
        create=_new_topic(options),
    )


def _check_names(options: GivenOptions) -> None:
    known = {option.name.lower() for option in (*SINK_OPTIONS, *PRODUCER_SETTINGS)}
    known |= {f"kafka.{setting}" for setting in WITHOUT_EFFECT}
    for name in options.names():
        if name.startswith("kafka.") and name.removeprefix("kafka.") in REFUSED:
            raise OptionError(name, *REFUSED[name.removeprefix("kafka.")])
        if name.startswith((*SECURITY_PREFIXES, CREATE_CONFIG)):
            continue
        if name not in known and (near := near_name(name, _spelled())) is not None:
            raise OptionError(name, "there is no such option", f"did you mean {near}?")
    if "path" in options:
        raise OptionError(
            "path", "a topic has no path", "use the option topic, and call save() or start() without an argument"
        )


def _spelled() -> list[str]:
    names = [option.name for option in (*SINK_OPTIONS, *PRODUCER_SETTINGS)]
    return names + [f"kafka.{setting}" for setting in (*WITHOUT_EFFECT, *REFUSED)]


def _delivery(options: GivenOptions, idempotent: bool) -> str | None:
    """The delivery guarantee: as given, or limited by the acknowledgements."""
    given = options.text("delivery")
    if given not in (None, AT_LEAST_ONCE, EXACTLY_ONCE):
        advice = f"write {EXACTLY_ONCE} or {AT_LEAST_ONCE}"
        raise OptionError("delivery", f"{given!r} is not a known delivery guarantee", advice)
    if not idempotent and given == EXACTLY_ONCE:
        advice = "remove kafka.acks and kafka.enable.idempotence"
        raise OptionError("delivery", f"{EXACTLY_ONCE} needs kafka.acks=all and idempotence", advice)
    return given if idempotent else AT_LEAST_ONCE


def _job(options: GivenOptions, delivery: str | None = None) -> Job | None:
    text = options.text("jobId")
    if text is None:
        return None
    if delivery == AT_LEAST_ONCE:
        advice = "remove it, or delivery, kafka.acks and kafka.enable.idempotence"
        raise OptionError("jobId", f"a job is written exactly once, not {AT_LEAST_ONCE}", advice)
    try:
        return parse_job(text)
    except ValueError as error:
        raise OptionError("jobId", str(error)) from None


def _sink(options: GivenOptions) -> SinkSettings | None:
    """The settings of the sink; None if nothing names it."""
    timeout_ms = options.integer("kafka.transaction.timeout.ms", minimum=1) or DEFAULT_TRANSACTION_TIMEOUT_MS
    job = _job(options)
    if job is not None:
        return SinkSettings(job.sink_id, timeout_ms, None)
    checkpoint = options.text("checkpointLocation") or None
    sink_id = options.text("sinkId")
    if sink_id is not None and not LEGAL_SINK_ID.fullmatch(sink_id):
        advice = "write at most 100 letters, digits, dots, dashes and underscores"
        raise OptionError("sinkId", f"{sink_id!r} is not a valid name", advice)
    if sink_id is None:
        if checkpoint is None:
            return None
        sink_id = sink_id_of(checkpoint)
    return SinkSettings(sink_id, timeout_ms, checkpoint)


def _bootstrap(options: GivenOptions) -> str:
    text = options.text(BOOTSTRAP)
    if not text:
        advice = "write brokers as host:9092,other:9092"
        if "bootstrap" in options:
            advice = f"write {BOOTSTRAP} instead of bootstrap"
        raise OptionError(BOOTSTRAP, "it is required", advice)
    try:
        parse_bootstrap(text)
    except ValueError as error:
        raise OptionError(BOOTSTRAP, str(error)) from None
    return text


def _topic(options: GivenOptions) -> str | None:
    name = options.text("topic")
    if name is None:
        return None
    try:
        check_topic_name(name)
    except KafkaError as error:
        raise OptionError("topic", error.message or "no topic can have this name") from None
    return name


def _new_topic(options: GivenOptions) -> TopicShape | None:
    partitions = options.integer("create.partitions", minimum=AS_THE_BROKER_HAS_IT)
    config = {name: options.text(name) or "" for name in options.names() if name.startswith(CREATE_CONFIG)}
    replication = options.integer("create.replication", minimum=AS_THE_BROKER_HAS_IT)
    if partitions is None:
        stray = next(iter(config), "create.replication" if replication is not None else None)
        if stray is not None:
            raise OptionError(stray, "it has no effect without create.partitions", "write create.partitions too")
        return None
    settings = tuple((name.removeprefix(CREATE_CONFIG), value) for name, value in config.items())
    return TopicShape(partitions, AS_THE_BROKER_HAS_IT if replication is None else replication, settings)


def _codec(options: GivenOptions) -> Codec:
    name = (options.text("kafka.compression.type") or "none").lower()
    if name not in CODEC_NAMES:
        known = "none, gzip, snappy, lz4 or zstd"
        raise OptionError("kafka.compression.type", f"there is no compression {name!r}", f"write {known}")
    return CODEC_NAMES[name]


def _acknowledgement(options: GivenOptions) -> tuple[int, bool, int]:
    """Acks, whether idempotent, and requests in flight: they depend on each other."""
    text = (options.text("kafka.acks") or "all").lower()
    if text not in ACKS:
        raise OptionError("kafka.acks", f"{text!r} is not all, 1 or 0", "write all")
    acks = ACKS[text]
    in_flight = options.integer("kafka.max.in.flight.requests.per.connection", minimum=1)
    idempotent = options.boolean("kafka.enable.idempotence", acks == ALL_IN_SYNC)
    if idempotent and acks != ALL_IN_SYNC:
        raise OptionError("kafka.enable.idempotence", f"it needs kafka.acks=all, not {text}", "remove one of them")
    if idempotent and (in_flight or 0) > MAX_IN_FLIGHT:
        name = "kafka.max.in.flight.requests.per.connection"
        raise OptionError(name, f"with idempotence it is {MAX_IN_FLIGHT} at most", "write a smaller number")
    return acks, idempotent, in_flight or MAX_IN_FLIGHT
