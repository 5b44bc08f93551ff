"""What the readers answer Spark, with a cluster that is a table."""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Iterable, Mapping
from typing import Any, cast

import pytest

pytest.importorskip("pyspark")
from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import BinaryType, StructField, StructType

from headrace.client.address import Address
from headrace.client.errors import RequestTimedOut
from headrace.model.topics import TopicPartition
from headrace.spark.client.cluster import EARLIEST, LATEST, BlockingCluster, FoundOffset, TopicInfo
from headrace.spark.errors import SourceError
from headrace.spark.source import batch_reader, stream_reader
from headrace.spark.source.filters import NOTHING_PUSHED, Narrowing
from headrace.spark.source.options import parse_source_options
from headrace.spark.source.reading import ReadTask

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
VALUE = StructType([StructField("value", BinaryType())])
GIVEN = {"kafka.bootstrap.servers": "h:1", "subscribe": "a", "fetchOffset.numRetries": "0"}


class TableCluster:
    """Partitions with their bounds; a time is an offset here."""

    def __init__(self, **bounds: tuple[int, int]) -> None:
        self.bounds = {TopicPartition(name[0], int(name[1:])): found for name, found in bounds.items()}
        self.commits: list[dict[TopicPartition, int]] = []
        self.commit_fails = False

    def topics(self, names: Iterable[str] | None = None) -> dict[str, TopicInfo]:
        counts: dict[str, int] = {}
        for one in self.bounds:
            counts[one.topic] = counts.get(one.topic, 0) + 1
        return {name: TopicInfo(name, f"id-{name}", count, {}) for name, count in counts.items()}

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], *, isolation: int = 0
    ) -> dict[TopicPartition, FoundOffset | None]:
        def find(one: TopicPartition, moment: int) -> FoundOffset | None:
            start, end = self.bounds[one]
            if moment in (EARLIEST, LATEST):
                return FoundOffset(start if moment == EARLIEST else end, -1)
            return FoundOffset(max(start, moment), moment) if moment < end else None

        return {one: find(one, moment) for one, moment in wanted.items()}

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        if self.commit_fails:
            raise RequestTimedOut(Address("h", 1), "OffsetCommit", 5)
        self.commits.append(dict(offsets))

    def is_passing(self, error: Exception) -> bool:
        return False


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> TableCluster:
    table = TableCluster(a0=(0, 10), a1=(5, 5))
    for module in (batch_reader, stream_reader):
        monkeypatch.setattr(module, "shared_cluster", lambda settings: table)
    monkeypatch.setattr(stream_reader, "IDLE_POLL_S", 0.0)
    return table


def stream(**more: str) -> stream_reader.HeadraceStreamReader:
    return stream_reader.HeadraceStreamReader({**GIVEN, **more}, VALUE)


def latest(reader: stream_reader.HeadraceStreamReader, start: dict[str, Any]) -> dict[str, Any]:
    """As Spark asks, with the limit it was told; offsets go through JSON."""
    answer: dict[str, Any] = json.loads(
        json.dumps(reader.latestOffset(json.loads(json.dumps(start)), reader.getDefaultReadLimit()))
    )
    return answer


def plan(cluster: TableCluster, narrowing: Narrowing = NOTHING_PUSHED, **more: str) -> list[ReadTask]:
    options = parse_source_options({**GIVEN, **more}, streaming=False)
    return batch_reader.plan_tasks(cast("BlockingCluster", cluster), options, narrowing)


def test_a_batch_up_to_latest_is_open_at_its_end(cluster: TableCluster) -> None:
    """Also where nothing is yet: the table of a join may be filled later."""
    assert plan(cluster) == [
        ReadTask(A0, 0, 10, from_earliest=True, open_end=True),
        ReadTask(A1, 5, 5, from_earliest=True, open_end=True),
    ]
    parts = plan(cluster, maxRecordsPerPartition="4")
    assert [(part.start, part.end, part.open_end) for part in parts if part.partition == A0] == [
        (0, 3, False),
        (3, 6, False),
        (6, 10, True),
    ]


def test_a_batch_with_a_given_end_is_closed(cluster: TableCluster) -> None:
    tasks = plan(cluster, startingOffsets='{"a": {"0": 2, "1": 5}}', endingOffsets='{"a": {"0": 8, "1": 5}}')
    assert tasks == [ReadTask(A0, 2, 8)]


def test_filters_narrow_a_batch(cluster: TableCluster) -> None:
    assert plan(cluster, Narrowing(first_offset=3, last_offset=6, partitions=frozenset({0}))) == [
        ReadTask(A0, 3, 7, from_earliest=True)
    ]
    late = plan(cluster, Narrowing(from_ms=8))
    assert [(task.start, task.end, task.open_end) for task in late] == [(8, 10, True), (5, 5, True)]
    assert plan(cluster, Narrowing(topics=frozenset({"b"}))) == []


def test_only_the_pushdown_worker_gets_a_reader_with_filters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark refuses a reader with pushFilters when pushdown is off."""
    plain = batch_reader.make_batch_reader(GIVEN, VALUE)
    assert plain.pushFilters.__func__ is DataSourceReader.pushFilters  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pyspark.sql.worker.data_source_pushdown_filters", sys)
    assert isinstance(batch_reader.make_batch_reader(GIVEN, VALUE), batch_reader.PushdownBatchReader)


def test_the_first_batch_keeps_its_start_when_latest_has_moved(cluster: TableCluster) -> None:
    before = stream()
    initial = before.initialOffset()
    cluster.bounds[A0] = (0, 12)
    end = latest(before, initial)

    cluster.bounds[A0] = (0, 99)
    restarted = stream()
    assert restarted.initialOffset() != initial
    assert restarted.partitions(restarted.initialOffset(), end) == [ReadTask(A0, 10, 12)]
    assert latest(restarted, end)["a"] == {"0": 99, "1": 5}
    assert "@start" not in latest(restarted, end)


def test_a_start_that_moves_is_written_down_at_once(cluster: TableCluster) -> None:
    reader = stream()
    initial = reader.initialOffset()
    first = latest(reader, initial)
    assert first != initial, "an empty batch puts it into the checkpoint"
    assert reader.partitions(initial, first) == []
    assert latest(reader, first) == first
    steady = stream(startingOffsets='{"a": {"0": 10, "1": 5}}')
    assert latest(steady, steady.initialOffset()) == steady.initialOffset()


def test_nothing_new_is_the_same_text(cluster: TableCluster) -> None:
    reader = stream(startingOffsets="earliest", groupId="g")
    end = latest(reader, reader.initialOffset())
    assert json.dumps(latest(reader, end)) == json.dumps(end)
    assert reader.partitions(end, end) == []
    assert cluster.commits == [{A0: 0, A1: 5}, {A0: 10, A1: 5}], "once for each position"


def test_a_failed_commit_stops_nothing(cluster: TableCluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster.commit_fails = True
    reader = stream(startingOffsets="earliest", groupId="g")
    end = latest(reader, reader.initialOffset())
    reader.commit(end)
    assert end["a"] == {"0": 10, "1": 5}
    assert "The offsets of group g were not committed" in caplog.text


def test_a_run_to_the_end_stops_where_the_end_was(cluster: TableCluster) -> None:
    reader = stream(startingOffsets="earliest", maxOffsetsPerTrigger="6", minOffsetsPerTrigger="5")
    reader.prepareForTriggerAvailableNow()
    cluster.bounds[A0] = (0, 50)
    one = latest(reader, reader.initialOffset())
    two = latest(reader, one)
    assert [one["a"]["0"], two["a"]["0"]] == [6, 10]
    assert latest(reader, two) == two
    assert reader.reportLatestOffset() == {"a": {"0": 50, "1": 5}}


def test_before_read_limits_the_reader_remembers(cluster: TableCluster) -> None:
    """PySpark 4.0 and 4.1 ask latestOffset() without a start, and tell a restart by an empty range."""
    new = stream(startingOffsets="earliest", maxOffsetsPerTrigger="4")
    end = new.latestOffset()
    assert end["a"]["0"] == 10, "the only batch of an AvailableNow run must not leave anything"
    new.partitions(new.initialOffset(), end)
    cluster.bounds[A0] = (0, 30)
    assert new.latestOffset()["a"]["0"] == 14

    restarted = stream(startingOffsets="earliest", maxOffsetsPerTrigger="4")
    assert restarted.partitions(end, end) == []
    assert restarted.latestOffset()["a"]["0"] == 30, "the first of a run, again"
    cluster.bounds[A0] = (0, 50)
    assert restarted.latestOffset()["a"]["0"] == 14, "that batch was not planned"
    cluster.bounds[A0] = (0, 30)
    # An AvailableNow run asks before it knows; its answer must not start the stream anew.
    run = stream(startingOffsets="earliest")
    assert run.partitions(end, run.latestOffset()) == [ReadTask(A0, 10, 30)]


def test_mistakes_come_with_the_first_call(cluster: TableCluster) -> None:
    """An error of the constructor would be lost behind one of Spark's."""
    with pytest.raises(SourceError, match="endingOffsets"):
        stream(endingOffsets="latest").initialOffset()
    wrong = StructType([StructField("valeu", BinaryType())])
    with pytest.raises(SourceError, match="Did you mean 'value'"):
        stream_reader.HeadraceStreamReader(GIVEN, wrong).initialOffset()
    with pytest.raises(SourceError, match="Topic b does not exist on h:1"):
        stream(subscribe="b").initialOffset()


def test_readers_travel_to_the_tasks(cluster: TableCluster) -> None:
    reader = stream(startingOffsets="earliest")
    latest(reader, reader.initialOffset())
    assert pickle.loads(pickle.dumps(reader)).initialOffset() == reader.initialOffset()
    batch = batch_reader.make_batch_reader(GIVEN, VALUE)
    assert pickle.loads(pickle.dumps(batch)).partitions() == batch.partitions()
