"""Where reading starts and ends: what the options say, and what it means on a cluster.

`startingOffsets` and `endingOffsets` are one of

- `earliest`, `latest`;
- JSON per partition, `{"topic": {"0": 23, "1": -1}}`: an offset, -2 for earliest, -1 for latest, or any of the
  other words here as a string. Partitions it does not name start at the earliest record and end at the latest.
  An offset out of a checkpoint can be pasted here as it is;
- how long ago: `-10m`, `-36h`, `-7d`;
- a moment in ISO 8601: `2026-01-31`, `2026-01-31T12:00:00Z`; UTC when it names no zone.

`startingTimestamp` is one moment for all partitions, `startingOffsetsByTimestamp` one for each: milliseconds
since 1970, or a moment in ISO 8601. The ending ones likewise.

A moment means the first record at or after it. Where no record is that new, an end is the end of the log, and a
start follows the strategy: an error, or the end of the log.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from typing import NamedTuple, Protocol

from headrace.model.topics import TopicPartition
from headrace.spark.option_table import OptionError, parse_duration_ms
from headrace.spark.source.offsets import RESERVED_KEYS

LATEST = -1
EARLIEST = -2


class PositionKind(Enum):
    """How a position is given."""

    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    TIMESTAMP = "timestamp"
    AGO = "ago"


class Position(NamedTuple):
    """Where to start or end in one partition."""

    kind: PositionKind
    value: int = 0  # the offset, the timestamp in ms, or how many ms ago


AT_EARLIEST = Position(PositionKind.EARLIEST)
AT_LATEST = Position(PositionKind.LATEST)


class TimestampStrategy(Enum):
    """What a start by time means where no record is that new."""

    ERROR = "error"
    LATEST = "latest"


class Found(Protocol):
    """An answer of ListOffsets."""

    @property
    def offset(self) -> int: ...


Ask = Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, "Found | None"]]
"""ListOffsets: LATEST, EARLIEST or a timestamp in ms per partition; None where no record is that new."""


@dataclass(frozen=True, slots=True)
class Positions:
    """The position of every partition that is named, and the one of all others."""

    option: str  # where they come from, for messages
    default: Position
    named: Mapping[TopicPartition, Position] = field(default_factory=dict)

    def of(self, partition: TopicPartition) -> Position:
        return self.named.get(partition, self.default)


class NoSuchTimestamp(Exception):
    """No record is as new as the start asked for, and the strategy is `error`."""

    def __init__(self, option: str, partitions: Mapping[TopicPartition, int]) -> None:
        super().__init__(option, dict(partitions))
        self.option = option
        self.partitions = dict(partitions)

    def __str__(self) -> str:
        where = ", ".join(f"{partition} ({_moment_text(ms)})" for partition, ms in sorted(self.partitions.items()))
        return (
            f"option {self.option}: no record is at or after the time asked for in {where}; to start at the end "
            f"of such partitions set startingOffsetsByTimestampStrategy to latest"
        )


class UnknownPartitions(Exception):
    """Offsets are given for partitions that are not read."""

    def __init__(self, option: str, partitions: Iterable[TopicPartition], read: Iterable[TopicPartition]) -> None:
        self.option = option
        self.partitions = tuple(sorted(partitions))
        self.read = tuple(sorted(read))
        super().__init__(option, self.partitions, self.read)

    def __str__(self) -> str:
        named = ", ".join(map(str, self.partitions))
        read = ", ".join(map(str, self.read)) or "none"
        return (
            f"option {self.option}: it gives a position for {named}, which this query does not read (it reads "
            f"{read}); remove it, or read that topic too"
        )


def parse_offsets(option: str, text: str, *, ending: bool) -> Positions:
    """The value of startingOffsets or endingOffsets."""
    others = AT_LATEST if ending else AT_EARLIEST
    if text.startswith("{"):
        return Positions(option, others, _parse_json(option, text, _offset_position))
    return Positions(option, _word_position(option, text))


def parse_timestamp(option: str, text: str) -> Positions:
    """The value of startingTimestamp or endingTimestamp."""
    value: object = int(text) if text.lstrip("-").isdecimal() else text
    return Positions(option, _time_position(option, value))


def parse_timestamps(option: str, text: str, *, ending: bool) -> Positions:
    """The value of startingOffsetsByTimestamp or endingOffsetsByTimestamp."""
    return Positions(option, AT_LATEST if ending else AT_EARLIEST, _parse_json(option, text, _time_position))


def resolve(
    positions: Positions,
    partitions: Iterable[TopicPartition],
    ask: Ask,
    *,
    now_ms: int,
    strategy: TimestampStrategy,
) -> dict[TopicPartition, int]:
    """The offset of every partition, sorted. For ends pass the strategy LATEST.

    Raises UnknownPartitions and NoSuchTimestamp. The ends of the log are asked for before the times: a record that
    comes between the two questions is then read, not missed.
    """
    wanted = {partition: positions.of(partition) for partition in sorted(partitions)}
    unknown = positions.named.keys() - wanted.keys()
    if unknown:
        raise UnknownPartitions(positions.option, unknown, wanted)
    edges = {
        partition: EARLIEST if position.kind is PositionKind.EARLIEST else LATEST
        for partition, position in wanted.items()
        if position.kind is not PositionKind.OFFSET
    }
    times = {
        partition: moment
        for partition, position in wanted.items()
        if (moment := _moment(position, now_ms)) is not None
    }
    at_edges = ask(edges) if edges else {}
    at_times = ask(times) if times else {}
    too_new = {partition: moment for partition, moment in times.items() if at_times[partition] is None}
    if too_new and strategy is TimestampStrategy.ERROR:
        raise NoSuchTimestamp(positions.option, too_new)
    return {
        partition: _offset(position, at_times.get(partition) or at_edges.get(partition))
        for partition, position in wanted.items()
    }


def _offset(position: Position, found: Found | None) -> int:
    if position.kind is PositionKind.OFFSET:
        return position.value
    assert found is not None, "a partition always has a first and a last offset"
    return found.offset


def _moment(position: Position, now_ms: int) -> int | None:
    """The timestamp to ask for, if the position is one in time."""
    if position.kind is PositionKind.TIMESTAMP:
        return position.value
    if position.kind is PositionKind.AGO:
        return max(now_ms - position.value, 0)
    return None


def _parse_json(option: str, text: str, read: Callable[[str, object], Position]) -> dict[TopicPartition, Position]:
    example = 'write it as {"topicA": {"0": 23, "1": -1}, "topicB": {"0": -2}}'
    try:
        given = json.loads(text)
    except json.JSONDecodeError as error:
        raise OptionError(option, f"{text!r} is not JSON ({error})", example) from None
    if not isinstance(given, dict):
        raise OptionError(option, f"{text!r} is not a JSON object", example)
    named: dict[TopicPartition, Position] = {}
    for topic, partitions in given.items():
        if topic in RESERVED_KEYS:
            continue  # an offset of this source, from a checkpoint
        if not isinstance(partitions, dict):
            raise OptionError(option, f"topic {topic} has {partitions!r} instead of its partitions", example)
        for partition, value in partitions.items():
            if not partition.isdecimal():
                raise OptionError(option, f"{partition!r} is not a partition of topic {topic}", example)
            named[TopicPartition(topic, int(partition))] = read(option, value)
    return named


def _offset_position(option: str, value: object) -> Position:
    if isinstance(value, str):
        return _word_position(option, value.strip())
    if isinstance(value, bool) or not isinstance(value, int):
        raise OptionError(option, f"{value!r} is not an offset", "offsets are whole numbers")
    if value == EARLIEST:
        return AT_EARLIEST
    if value == LATEST:
        return AT_LATEST
    if value < 0:
        raise OptionError(option, f"{value} is not an offset", "write -2 for earliest and -1 for latest")
    return Position(PositionKind.OFFSET, value)


def _word_position(option: str, text: str) -> Position:
    if text.lower() == "earliest":
        return AT_EARLIEST
    if text.lower() == "latest":
        return AT_LATEST
    if text.startswith("-") and not text[1:].strip().isdecimal():
        ago_ms = parse_duration_ms(text[1:])
        if ago_ms is not None:
            return Position(PositionKind.AGO, ago_ms)
    moment = None if text.lstrip("-").isdecimal() else _iso_ms(text)
    if moment is not None:
        return Position(PositionKind.TIMESTAMP, moment)
    advice = 'write earliest, latest, {"topic": {"0": 23}}, -10m or 2026-01-31T12:00:00Z'
    raise OptionError(option, f"{text!r} is not a position", advice)


def _time_position(option: str, value: object) -> Position:
    if isinstance(value, str):
        moment = _iso_ms(value.strip())
    else:
        moment = value if isinstance(value, int) and not isinstance(value, bool) else None
    if moment is None or moment < 0:
        advice = "write milliseconds since 1970, or a moment as 2026-01-31T12:00:00Z"
        raise OptionError(option, f"{value!r} is not a point in time", advice)
    return Position(PositionKind.TIMESTAMP, moment)


def _iso_ms(text: str) -> int | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(round(moment.timestamp() * 1000), 0)


def _moment_text(moment_ms: int) -> str:
    try:
        return datetime.fromtimestamp(moment_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return f"{moment_ms} ms"
