"""Where reading starts and ends (R-SPK-1)."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from typing import NamedTuple

import pytest

from headrace.model.topics import TopicPartition
from headrace.spark.option_table import OptionError
from headrace.spark.source.offsets import initial_offset
from headrace.spark.source.positions import (
    AT_EARLIEST,
    AT_LATEST,
    EARLIEST,
    LATEST,
    NoSuchTimestamp,
    Position,
    PositionKind,
    Positions,
    TimestampStrategy,
    UnknownPartitions,
    parse_offsets,
    parse_timestamp,
    parse_timestamps,
    resolve,
)

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
NOON_MS = 1_769_860_800_000
HOUR_MS = 3_600_000


def at_offset(value: int) -> Position:
    return Position(PositionKind.OFFSET, value)


def at_time(value: int) -> Position:
    return Position(PositionKind.TIMESTAMP, value)


def ago(value: int) -> Position:
    return Position(PositionKind.AGO, value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", AT_EARLIEST),
        ("LATEST", AT_LATEST),
        ("-10m", ago(600_000)),
        ("-10min", ago(600_000)),
        ("- 36h", ago(36 * HOUR_MS)),
        ("-7d", ago(7 * 24 * HOUR_MS)),
        ("-500ms", ago(500)),
        ("2026-01-31", at_time(NOON_MS - 12 * HOUR_MS)),
        ("2026-01-31T12:00:00Z", at_time(NOON_MS)),
        ("2026-01-31T12:00:00", at_time(NOON_MS)),
        ("2026-01-31 12:00:00.001+00:00", at_time(NOON_MS + 1)),
        ("2026-01-31T12:00:00+02:00", at_time(NOON_MS - 2 * HOUR_MS)),
    ],
)
def test_one_word_for_all_partitions(text: str, expected: Position) -> None:
    assert parse_offsets("startingOffsets", text, ending=False) == Positions("startingOffsets", expected)


def test_json_names_partitions_and_others_get_a_default() -> None:
    text = '{"a": {"0": 23, "1": -1}, "b": {"0": -2, "1": "-10m", "2": "latest"}}'
    named = {
        A0: at_offset(23),
        A1: AT_LATEST,
        B0: AT_EARLIEST,
        TopicPartition("b", 1): ago(600_000),
        TopicPartition("b", 2): AT_LATEST,
    }
    assert parse_offsets("x", text, ending=False) == Positions("x", AT_EARLIEST, named)
    assert parse_offsets("x", text, ending=True) == Positions("x", AT_LATEST, named)


def test_offsets_out_of_a_checkpoint_can_be_pasted() -> None:
    text = json.dumps(initial_offset({A0: 5, B0: 6}, {"a": "A-id"}).to_json())
    assert parse_offsets("x", text, ending=False).named == {A0: at_offset(5), B0: at_offset(6)}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "oldest",
        "-10",
        "-1",
        "12",
        "-10x",
        "{",
        "{'a': {'0': 1}}",
        '{"a": 5}',
        '{"a": [0, 1]}',
        '{"a": {"x": 5}}',
        '{"a": {"-1": 5}}',
        '{"a": {"0": -3}}',
        '{"a": {"0": 1.5}}',
        '{"a": {"0": true}}',
        '{"a": {"0": null}}',
        '{"a": {"0": "oldest"}}',
    ],
)
def test_what_says_nothing_about_a_position_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_offsets("startingOffsets", text, ending=False)
    assert caught.value.option == "startingOffsets"
    assert caught.value.advice


@pytest.mark.parametrize("text", ["1769860800000", "2026-01-31T12:00:00Z"])
def test_one_moment_for_all_partitions(text: str) -> None:
    assert parse_timestamp("startingTimestamp", text) == Positions("startingTimestamp", at_time(NOON_MS))


def test_moments_per_partition() -> None:
    parsed = parse_timestamps("x", '{"a": {"0": 1769860800000, "1": "2026-01-31T12:00:00Z"}}', ending=False)
    assert parsed == Positions("x", AT_EARLIEST, {A0: at_time(NOON_MS), A1: at_time(NOON_MS)})
    assert parse_timestamps("x", "{}", ending=True).default == AT_LATEST


@pytest.mark.parametrize("text", ["", "noon", "-1", "-10m", "1.5"])
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(OptionError):
        parse_timestamp("startingTimestamp", text)


@pytest.mark.parametrize("value", ["-1", "-2", "true", '"latest"', "1.5", "null"])
def test_what_is_no_moment_in_json_is_refused(value: str) -> None:
    with pytest.raises(OptionError):
        parse_timestamps("startingOffsetsByTimestamp", f'{{"a": {{"0": {value}}}}}', ending=False)


class FoundOffset(NamedTuple):
    offset: int


class Log:
    """A cluster whose partitions hold one record per ten milliseconds, at offsets 5 to 14."""

    def __init__(self) -> None:
        self.asked: list[dict[TopicPartition, int]] = []
        self.end = 15

    def __call__(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, FoundOffset | None]:
        self.asked.append(dict(wanted))
        return {partition: self.find(time) for partition, time in wanted.items()}

    def find(self, time: int) -> FoundOffset | None:
        if time in (EARLIEST, LATEST):
            return FoundOffset(5 if time == EARLIEST else self.end)
        offset = max(-(-time // 10), 5)
        return FoundOffset(offset) if offset < self.end else None


def resolved(
    default: Position,
    named: dict[TopicPartition, Position] | None = None,
    strategy: TimestampStrategy = TimestampStrategy.ERROR,
) -> dict[TopicPartition, int]:
    positions = Positions("startingOffsets", default, named or {})
    return resolve(positions, [B0, A1, A0], Log(), now_ms=1000, strategy=strategy)


@pytest.mark.parametrize(
    ("position", "offset"),
    [
        (AT_EARLIEST, 5),
        (AT_LATEST, 15),
        (at_offset(3), 3),
        (at_time(0), 5),
        (at_time(91), 10),
        (at_time(140), 14),
        (ago(900), 10),
        (ago(10**9), 5),
    ],
)
def test_a_position_becomes_an_offset(position: Position, offset: int) -> None:
    assert resolved(position) == {A0: offset, A1: offset, B0: offset}


def test_each_partition_has_its_own_position_and_the_answer_is_sorted() -> None:
    offsets = resolved(AT_EARLIEST, {A1: AT_LATEST, A0: at_time(100)})
    assert list(offsets.items()) == [(A0, 10), (A1, 15), (B0, 5)]


def test_a_time_no_record_reaches_is_an_error_or_the_end() -> None:
    with pytest.raises(NoSuchTimestamp, match=r"startingOffsets: .* a-0 \(1970-01-01T00:00:00\.141\+00:00\)"):
        resolved(AT_EARLIEST, {A0: at_time(141)})
    assert resolved(AT_EARLIEST, {A0: at_time(141)}, TimestampStrategy.LATEST)[A0] == 15


def test_a_record_that_comes_between_the_questions_is_not_missed() -> None:
    class Growing(Log):
        def __call__(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, FoundOffset | None]:
            answer = super().__call__(wanted)
            self.end += 1
            return answer

    log = Growing()
    positions = Positions("startingOffsets", at_time(10**6))
    assert resolve(positions, [A0], log, now_ms=0, strategy=TimestampStrategy.LATEST) == {A0: 15}


def test_only_what_is_needed_is_asked_for() -> None:
    log = Log()
    positions = Positions("startingOffsets", at_offset(7), {A0: AT_EARLIEST})
    resolve(positions, [A0, A1], log, now_ms=0, strategy=TimestampStrategy.ERROR)
    assert log.asked == [{A0: EARLIEST}]


def test_a_position_for_a_partition_that_is_not_read_is_an_error() -> None:
    with pytest.raises(
        UnknownPartitions, match=r"for c-0, which this query does not read \(it reads a-0, a-1, b-0\)"
    ):
        resolved(AT_EARLIEST, {TopicPartition("c", 0): AT_LATEST})


@pytest.mark.parametrize(
    "error", [NoSuchTimestamp("x", {A0: 10**18}), UnknownPartitions("x", [A0], []), OptionError("x", "y", "z")]
)
def test_errors_survive_the_way_between_processes(error: Exception) -> None:
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
