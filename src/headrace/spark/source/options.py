"""The options of the source: those of Spark's `kafka` format, and some of our own.

Names are compared without case. Rules:

- exactly one of `assign`, `subscribe` and `subscribePattern`, and `kafka.bootstrap.servers`, must be given;
- a start in time for all partitions goes before one for each, and that before `startingOffsets`; the ends
  likewise;
- a stream starts at `latest` and has no ending options; a batch starts at `earliest`, which may not be `latest`,
  and ends at `latest`, which may not be `earliest`;
- the limits per trigger mean nothing in a batch and are ignored there;
- settings of a Kafka consumer that would change what is read or how it is decoded are refused, with the reason;
  others that have no use here are ignored, as are those the consumer does not know;
- an unknown name is an error when it is close to a known one, because it is probably a typo that would
  silently change what is read. Any other is ignored, as in Spark, which passes options of its own to every format.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from headrace.client.address import parse_bootstrap
from headrace.client.security import ClientSecurity
from headrace.model.topics import HIDDEN_TOPICS, TopicPartition
from headrace.spark.option_table import GivenOptions, OptionError, near_name
from headrace.spark.security_options import SECURITY_PREFIXES, parse_security
from headrace.spark.source.exact_times import OPTION as EXACT_TIMESTAMPS
from headrace.spark.source.exact_times import ExactTimes
from headrace.spark.source.option_names import (
    CHOICES,
    CONSUMER_SETTINGS,
    KNOWN_CONSUMER_SETTINGS,
    REFUSED_SETTINGS,
    SOURCE_OPTIONS,
)
from headrace.spark.source.positions import (
    AT_EARLIEST,
    AT_LATEST,
    Position,
    PositionKind,
    Positions,
    TimestampStrategy,
    parse_offsets,
    parse_timestamp,
    parse_timestamps,
)
from headrace.spark.source.ranges import DEFAULT_TARGET_BYTES, Splitting
from headrace.spark.source.rate_limit import DEFAULT_MAX_TRIGGER_DELAY_MS, RateLimits

__all__ = [
    "Isolation",
    "OptionError",
    "Retries",
    "SourceOptions",
    "TopicChoice",
    "parse_source_options",
]

BOOTSTRAP = "kafka.bootstrap.servers"
DEFAULT_CLIENT_ID = "headrace-spark"
DEFAULT_POLL_TIMEOUT_MS = 120_000
DEFAULT_REQUEST_TIMEOUT_MS = 30_000
DEFAULT_FETCH_MAX_BYTES = 8 * 1024 * 1024


class Isolation(IntEnum):
    """As on the wire."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


@dataclass(frozen=True, slots=True)
class TopicChoice:
    """Which partitions to read: exactly one of the three is set."""

    assign: Mapping[str, tuple[int, ...]] | None = None
    subscribe: tuple[str, ...] | None = None
    pattern: str | None = None

    def wants(self, topic: str) -> bool:
        """Whether a topic of the cluster is read. A pattern may match any part of the name, as in Spark, and never
        stands for the cluster's own topics."""
        if self.pattern is not None:
            return topic not in HIDDEN_TOPICS and re.search(self.pattern, topic) is not None
        return topic in (self.names() or ())

    def names(self) -> tuple[str, ...] | None:
        """The topics to ask the cluster about; None is all of them."""
        if self.assign is not None:
            return tuple(sorted(self.assign))
        return self.subscribe

    def partitions(self, partition_counts: Mapping[str, int]) -> list[TopicPartition]:
        """The partitions to read now, sorted: those chosen that exist."""
        return sorted(
            TopicPartition(topic, partition)
            for topic, count in partition_counts.items()
            if self.wants(topic)
            for partition in range(count)
            if self.assign is None or partition in self.assign[topic]
        )

    def missing(self, partition_counts: Mapping[str, int]) -> list[str]:
        """What was named and is not there, as `topic` or `topic-partition`."""
        absent = [topic for topic in self.names() or () if topic not in partition_counts]
        for topic, partitions in sorted((self.assign or {}).items()):
            if topic in partition_counts:
                absent += [f"{topic}-{one}" for one in partitions if one >= partition_counts[topic]]
        return absent


@dataclass(frozen=True, slots=True)
class Retries:
    """How often offsets are asked for again, and the pause between."""

    count: int = 3
    interval_ms: int = 1000


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Everything the readers need, checked."""

    bootstrap: str
    topics: TopicChoice
    start: Positions
    end: Positions  # of a batch; latest in a stream
    timestamp_strategy: TimestampStrategy  # for the start; an end by time that is not reached is always the latest
    limits: RateLimits
    splitting: Splitting
    retries: Retries
    isolation: Isolation
    fail_on_data_loss: bool
    include_headers: bool
    group_id: str | None  # the group whose offsets follow the stream; None: commit nothing
    stop_file: str | None  # nothing new is handed out while it is there
    offset_log: str | None  # of the query: says by which watermark a batch is judged
    client_id: str
    poll_timeout_ms: int
    fetch_max_bytes: int
    request_timeout_ms: int
    exact_times: ExactTimes | None = None  # of a batch: records are chosen by their time, not by offsets for it
    security: ClientSecurity | None = None


def parse_source_options(given: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """The options as given to Spark; OptionError for the first that is wrong."""
    options = GivenOptions(given)
    _check_names(options)
    bootstrap = _bootstrap(options)
    topics = _topics(options)
    start, strategy = _start(options, streaming)
    end = _end(options, streaming)
    _check_order(start, end)
    return SourceOptions(
        bootstrap=bootstrap,
        topics=topics,
        start=start,
        end=end,
        timestamp_strategy=strategy,
        exact_times=_exact_times(options, start, end, streaming),
        limits=_limits(options),
        splitting=_splitting(options),
        retries=_retries(options),
        isolation=_isolation(options),
        fail_on_data_loss=options.boolean("failOnDataLoss", True),
        include_headers=options.boolean("includeHeaders", False),
        group_id=options.text("groupId") or None,
        stop_file=options.text("stopFile") or None,
        offset_log=options.text("offsetLog") or None,
        client_id=options.text("kafka.client.id") or DEFAULT_CLIENT_ID,
        poll_timeout_ms=options.integer("kafkaConsumer.pollTimeoutMs", minimum=1) or DEFAULT_POLL_TIMEOUT_MS,
        fetch_max_bytes=options.integer("kafka.max.partition.fetch.bytes", minimum=1) or DEFAULT_FETCH_MAX_BYTES,
        request_timeout_ms=options.integer("kafka.request.timeout.ms", minimum=1) or DEFAULT_REQUEST_TIMEOUT_MS,
        security=parse_security(options),
    )


def _check_names(options: GivenOptions) -> None:
    own = {option.name.lower() for option in (*SOURCE_OPTIONS, *CONSUMER_SETTINGS)}
    for name in options.names():
        setting = name.removeprefix("kafka.")
        if setting in REFUSED_SETTINGS and setting != name:
            problem, advice = REFUSED_SETTINGS[setting]
            raise OptionError(name, problem, advice)
        if not name.startswith(SECURITY_PREFIXES) and name not in own and setting not in KNOWN_CONSUMER_SETTINGS:
            _check_slip(name)


def _check_slip(name: str) -> None:
    """An unknown name that is close to a known one is an error."""
    if name.startswith("kafka."):
        known = [option.name for option in CONSUMER_SETTINGS]
        known += [f"kafka.{setting}" for setting in (*KNOWN_CONSUMER_SETTINGS, *REFUSED_SETTINGS)]
    else:
        known = [option.name for option in SOURCE_OPTIONS]
    near = near_name(name, known)
    if near is not None:
        raise OptionError(name, "there is no such option", f"did you mean {near}?")


def _bootstrap(options: GivenOptions) -> str:
    text = options.text(BOOTSTRAP)
    if not text:
        problem = "it is required"
        if "bootstrap.servers" in options:
            raise OptionError(BOOTSTRAP, problem, "write kafka.bootstrap.servers instead of bootstrap.servers")
        raise OptionError(BOOTSTRAP, problem, "write the bootstrap brokers as host:9092,other:9092")
    try:
        parse_bootstrap(text)
    except ValueError as error:
        raise OptionError(BOOTSTRAP, str(error)) from None
    return text


def _topics(options: GivenOptions) -> TopicChoice:
    chosen = [name for name in CHOICES if name in options]
    if not chosen:
        hint = next(
            (f"subscribe instead of {name}" for name in ("topic", "topics", "path") if name in options), None
        )
        advice = f"did you mean {hint}?" if hint else "write subscribe=topic1,topic2, for example"
        raise OptionError(" | ".join(CHOICES), "one of them is required", advice)
    if len(chosen) > 1:
        raise OptionError(" | ".join(chosen), "they exclude each other", "keep one of them")
    name = chosen[0]
    text = options.text(name) or ""
    if name == "assign":
        return TopicChoice(assign=_assigned(text))
    if name == "subscribe":
        topics = tuple(sorted({topic.strip() for topic in text.split(",") if topic.strip()}))
        if not topics:
            raise OptionError(name, "it names no topic", "write topics separated by commas")
        return TopicChoice(subscribe=topics)
    return TopicChoice(pattern=_checked_pattern(text))


def _checked_pattern(text: str) -> str:
    if not text:
        raise OptionError("subscribePattern", "it is empty", "write a regular expression, as ^logs\\..*$")
    try:
        re.compile(text)
    except re.error as error:
        raise OptionError("subscribePattern", f"{text!r} is not a regular expression: {error}") from None
    return text


def _assigned(text: str) -> dict[str, tuple[int, ...]]:
    example = 'write it as {"topicA": [0, 1], "topicB": [0]}'
    try:
        given = json.loads(text)
    except json.JSONDecodeError as error:
        raise OptionError("assign", f"{text!r} is not JSON ({error})", example) from None
    if not isinstance(given, dict) or not given:
        raise OptionError("assign", f"{text!r} assigns no partitions", example)
    for topic, partitions in given.items():
        numbers = partitions if isinstance(partitions, list) else []
        if not numbers or not all(type(one) is int and one >= 0 for one in numbers):
            raise OptionError("assign", f"topic {topic} has {partitions!r} instead of its partitions", example)
    return {topic: tuple(sorted(set(partitions))) for topic, partitions in sorted(given.items())}


def _start(options: GivenOptions, streaming: bool) -> tuple[Positions, TimestampStrategy]:
    start = _positions(options, "starting", AT_LATEST if streaming else AT_EARLIEST)
    if not streaming:
        advice = "write earliest, an offset or a time"
        _refuse(start, PositionKind.LATEST, "a batch cannot start at latest", advice)
    text = options.text("startingOffsetsByTimestampStrategy")
    if text is None:
        by_time = start.option != "startingOffsets"
        return start, TimestampStrategy.ERROR if by_time else TimestampStrategy.LATEST
    try:
        return start, TimestampStrategy(text.lower())
    except ValueError:
        option = "startingOffsetsByTimestampStrategy"
        raise OptionError(option, f"{text!r} is neither error nor latest") from None


def _end(options: GivenOptions, streaming: bool) -> Positions:
    if streaming:
        for name in ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"):
            if name in options:
                advice = "remove it, or stop the query when it has read enough (trigger availableNow)"
                raise OptionError(name, "a stream has no end", advice)
    end = _positions(options, "ending", AT_LATEST)
    _refuse(end, PositionKind.EARLIEST, "a batch cannot end at earliest", "write latest, an offset or a time")
    return end


def _exact_times(options: GivenOptions, start: Positions, end: Positions, streaming: bool) -> ExactTimes | None:
    if not options.boolean(EXACT_TIMESTAMPS, False):
        return None
    if streaming:
        raise OptionError(EXACT_TIMESTAMPS, "a stream has no end", "remove it, and filter by the column timestamp")
    return ExactTimes(start, end)


def _positions(options: GivenOptions, side: str, default: Position) -> Positions:
    """The first of the three options that is given, in the order in which they go before each other."""
    ending = side == "ending"
    name = f"{side}Timestamp"
    if (text := options.text(name)) is not None:
        return parse_timestamp(name, text)
    name = f"{side}OffsetsByTimestamp"
    if (text := options.text(name)) is not None:
        return parse_timestamps(name, text, ending=ending)
    name = f"{side}Offsets"
    text = options.text(name)
    return Positions(name, default) if text is None else parse_offsets(name, text, ending=ending)


def _refuse(positions: Positions, kind: PositionKind, problem: str, advice: str) -> None:
    if positions.default.kind is kind:
        raise OptionError(positions.option, problem, advice)
    for partition, position in sorted(positions.named.items()):
        if position.kind is kind:
            raise OptionError(positions.option, f"{problem} (as {partition} does)", advice)


def _check_order(start: Positions, end: Positions) -> None:
    """Offsets and times of the same partition that can be compared without asking the cluster."""
    pairs = [("", start.default, end.default)]
    pairs += [(f"{one}: ", start.of(one), end.of(one)) for one in sorted(start.named.keys() | end.named.keys())]
    for where, first, last in pairs:
        if first.kind is last.kind and _is_after(first, last):
            problem = f"{where}the start {first.value} comes after the end {last.value}"
            raise OptionError(f"{start.option}, {end.option}", problem)


def _is_after(one: Position, other: Position) -> bool:
    if one.kind is PositionKind.AGO:
        return one.value < other.value
    return one.value > other.value


def _limits(options: GivenOptions) -> RateLimits:
    limits = RateLimits(
        max_offsets=options.integer("maxOffsetsPerTrigger", minimum=1),
        min_offsets=options.integer("minOffsetsPerTrigger", minimum=1),
        max_trigger_delay_ms=_or_default(options.duration_ms("maxTriggerDelay"), DEFAULT_MAX_TRIGGER_DELAY_MS),
        max_bytes=options.size_bytes("maxBytesPerTrigger"),
    )
    least, most = limits.min_offsets, limits.max_offsets
    if least is not None and most is not None and least > most:
        raise OptionError("minOffsetsPerTrigger", f"{least} is more than maxOffsetsPerTrigger, {most}")
    return limits


def _splitting(options: GivenOptions) -> Splitting:
    """Splitting by size is what happens when nothing else was asked for."""
    least = options.integer("minPartitions", minimum=1)
    most = options.integer("maxRecordsPerPartition", minimum=1)
    target = options.size_bytes("targetBytesPerTask")
    if target is None and least is None and most is None:
        target = DEFAULT_TARGET_BYTES
    return Splitting(min_partitions=least, max_records=most, target_bytes=target)


def _retries(options: GivenOptions) -> Retries:
    return Retries(
        count=_or_default(options.integer("fetchOffset.numRetries", minimum=0), Retries().count),
        interval_ms=_or_default(options.integer("fetchOffset.retryIntervalMs", minimum=0), Retries().interval_ms),
    )


def _isolation(options: GivenOptions) -> Isolation:
    name = "kafka.isolation.level"
    text = options.text(name) or "read_committed"
    try:
        return Isolation[text.upper()]
    except KeyError:
        raise OptionError(name, f"{text!r} is neither read_committed nor read_uncommitted") from None


def _or_default(value: int | None, default: int) -> int:
    return default if value is None else value
