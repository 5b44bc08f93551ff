"""Tasks: what they do where records are missing, and which range they read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark")
from pyspark.sql.datasource import InputPartition

from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicPartition
from headrace.records.builder import NewRecord, build_batch
from headrace.spark.client.connection import ClusterSettings
from headrace.spark.client.fetching import Chunk, RangeUnavailable
from headrace.spark.errors import SourceError
from headrace.spark.source import reading
from headrace.spark.source.data_loss import PartitionBounds
from headrace.spark.source.exact_times import ExactTimes
from headrace.spark.source.positions import Position, PositionKind, Positions
from headrace.spark.source.reading import Reading, ReadTask

A0 = TopicPartition("a", 0)
OUT_OF_RANGE = KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, "out of range")


def chunk(first: int, end: int) -> Chunk:
    """A batch with the offsets from `first` up to `end`."""
    batch = build_batch([NewRecord(b"x")] * (end - first), base_offset=first)
    return Chunk(memoryview(batch), (), first, 0, end, end)


class Log:
    """Answers of `read_chunks`, in turn: for each call the chunks, and the error that ends them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers: list[tuple[list[Chunk], Exception | None]] = []
        self.asked: list[tuple[int, int]] = []
        self.bounds = PartitionBounds(0, 10)
        self.streaming = False
        monkeypatch.setattr(reading, "read_chunks", self._read)
        monkeypatch.setattr(reading, "find_bounds", lambda cluster, partitions, isolation: {A0: self.bounds})
        monkeypatch.setattr(reading, "shared_cluster", lambda settings: None)
        monkeypatch.setattr(reading, "in_streaming_query", lambda: self.streaming)

    def _read(self, cluster: object, partition: TopicPartition, start: int, end: int, **_: int) -> Iterator[Chunk]:
        self.asked.append((start, end))
        chunks, error = self.answers.pop(0)
        yield from chunks
        if error is not None:
            raise error


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    return Log(monkeypatch)


def read(task: InputPartition, *, fail: bool = True) -> list[int]:
    shared = Reading(ClusterSettings("h:1"), ("offset",), 1, fail, 1 << 20, 1000)
    return [offset.as_py() for rows in shared.read(task) for offset in rows.column(0)]


def test_a_range_is_read_as_planned(log: Log) -> None:
    log.answers = [([chunk(2, 5), chunk(5, 9)], None)]
    assert read(ReadTask(A0, 3, 8)) == [3, 4, 5, 6, 7]
    assert read(InputPartition(None)) == [], "Spark's stand-in for no partitions"
    assert log.asked == [(3, 8)]


def test_an_open_end_is_followed_in_a_streaming_query_only(log: Log) -> None:
    task = ReadTask(A0, 3, 5, open_end=True)
    log.answers = [([chunk(3, 5)], None), ([chunk(3, 10)], None)]
    read(task)
    log.streaming = True
    read(task)
    assert log.asked == [(3, 5), (3, 10)]


def test_the_beginning_of_the_log_may_have_moved(log: Log) -> None:
    log.bounds = PartitionBounds(4, 10)
    log.answers = [([chunk(4, 8)], None)]
    assert read(ReadTask(A0, 0, 8, from_earliest=True)) == [4, 5, 6, 7]
    assert read(ReadTask(A0, 0, 4, from_earliest=True)) == [], "all of it is gone"


def test_records_that_age_while_they_are_read(log: Log) -> None:
    lost = ([chunk(0, 3)], OUT_OF_RANGE)
    log.bounds = PartitionBounds(6, 10)
    log.answers = [lost]
    with pytest.raises(
        SourceError, match=r"offsets 3 to 9 of partition a-0 .* holds offsets 6 to 9 now.*failOnDataLoss"
    ):
        read(ReadTask(A0, 0, 10))
    log.answers = [lost, ([chunk(6, 10)], None)]
    assert read(ReadTask(A0, 0, 10), fail=False) == [0, 1, 2, 6, 7, 8, 9]
    assert log.asked[-2:] == [(0, 10), (6, 10)]


@pytest.mark.parametrize(
    "error",
    [OUT_OF_RANGE, KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "gone"), RangeUnavailable(A0, 3, 10, 3)],
    ids=lambda error: type(error).__name__ + str(error)[:8],
)
def test_a_log_that_ends_too_early(log: Log, error: Exception) -> None:
    """Cut off, deleted, or shorter: there is nothing to go on with."""
    log.bounds = PartitionBounds(0, 3)
    log.answers = [([chunk(0, 3)], error)]
    with pytest.raises(SourceError, match=r"Records are lost: .*a-0"):
        read(ReadTask(A0, 0, 10))
    log.answers = [([chunk(0, 3)], error)]
    assert read(ReadTask(A0, 0, 10), fail=False) == [0, 1, 2]


def test_other_errors_fail_whatever_the_option_says(log: Log) -> None:
    log.answers = [([], KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "not yours"))]
    with pytest.raises(SourceError, match="TOPIC_AUTHORIZATION_FAILED: not yours"):
        read(ReadTask(A0, 0, 10), fail=False)


def at(*times_ms: int) -> Chunk:
    batch = build_batch([NewRecord(b"x", timestamp=time_ms) for time_ms in times_ms], base_offset=0)
    return Chunk(memoryview(batch), (), 0, 0, len(times_ms), len(times_ms))


@pytest.mark.parametrize("columns", [("offset",), ("timestamp", "offset")])
def test_exact_times_choose_records_out_of_order(log: Log, columns: tuple[str, ...]) -> None:
    """By offsets the range would end before offset 2, and have what is older in it."""
    log.answers = [([at(1000, 2000, 3000, 1500, 999, 2999)], None)]
    times = ExactTimes(
        Positions("startingTimestamp", Position(PositionKind.TIMESTAMP, 1000)),
        Positions("endingTimestamp", Position(PositionKind.TIMESTAMP, 3000)),
    )
    shared = Reading(ClusterSettings("h:1"), columns, 1, True, 1 << 20, 1000, times)
    found = [row["offset"] for rows in shared.read(ReadTask(A0, 0, 6)) for row in rows.to_pylist()]
    assert found == [0, 1, 3, 5]
    assert times.planned_end() == Positions("endingTimestamp", Position(PositionKind.LATEST))
