"""Reading ranges of offsets as chunks of record batches; with `bootstrap`, from a real broker of either kind."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

import pytest

from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicPartition
from headrace.records.batch import parse_header
from headrace.records.reader import read_records
from headrace.spark.client.cluster import BlockingCluster, ClusterSettings
from headrace.spark.client.fetching import Chunk, read_chunks
from headrace.wire.api_keys import ApiKey
from tests.unit.spark.client.fake_cluster import FakeCluster

T0 = TopicPartition("t", 0)


@pytest.fixture
def fake() -> Iterator[FakeCluster]:
    with FakeCluster(brokers=2) as cluster:
        cluster.create("t", 1)
        cluster.logs[T0].fill(100)
        yield cluster


def client(fake: FakeCluster) -> BlockingCluster:
    return BlockingCluster(ClusterSettings(fake.bootstrap, request_timeout_s=60.0, connect_timeout_s=60.0))


def offsets(chunks: Iterable[Chunk]) -> list[int]:
    return [record.offset for chunk in chunks for batch in batches(chunk.data) for record in read_records(batch)]


def batches(data: memoryview) -> Iterator[memoryview]:
    while data:
        size = parse_header(data).size
        yield data[:size]
        data = data[size:]


# --- with a real broker


# --- the way it reads


def test_records_are_not_copied(fake: FakeCluster) -> None:
    (chunk,) = read_chunks(client(fake), T0, 0, 100, isolation=0)
    assert isinstance(chunk.data, memoryview)
    assert isinstance(chunk.data.obj, bytearray)
    assert len(chunk.data.obj) > len(chunk.data)


def test_the_next_request_is_under_way_while_a_chunk_is_used(fake: FakeCluster) -> None:
    reading = read_chunks(client(fake), T0, 0, 100, isolation=0, max_bytes=300)
    next(reading)
    for _ in range(6000):
        if fake.count(ApiKey.FETCH) == 2:
            break
        time.sleep(0.01)
    assert fake.count(ApiKey.FETCH) == 2
    assert offsets(reading)[0] > 0


def test_a_batch_that_is_cut_off_is_left_out_and_read_next(fake: FakeCluster) -> None:
    size = len(fake.logs[T0].batches[1])
    chunks = list(read_chunks(client(fake), T0, 0, 100, isolation=0, max_bytes=size + size // 2))
    assert [len(chunk.data) for chunk in chunks][1:] == [size] * 9
    assert [chunk.start for chunk in chunks] == list(range(0, 100, 10))
    assert offsets(chunks) == list(range(100))


def test_a_batch_larger_than_asked_for(fake: FakeCluster) -> None:
    """An old broker cuts even the first batch: ask for more until it fits."""
    log = fake.logs[T0]
    size = len(log.batches[0])
    original = log.read
    log.read = lambda offset, max_bytes: original(offset, max_bytes)[:max_bytes]  # type: ignore[method-assign]
    chunks = list(read_chunks(client(fake), T0, 0, 100, isolation=0, max_bytes=size // 3))
    assert offsets(chunks) == list(range(100))


def test_reading_begins_inside_a_batch_and_ends_inside_one(fake: FakeCluster) -> None:
    (chunk,) = read_chunks(client(fake), T0, 15, 16, isolation=0)
    assert chunk.start == 15
    assert offsets([chunk])[0] == 10


def test_offsets_that_compaction_removed_end_a_range(fake: FakeCluster) -> None:
    """The log ends at 100, but its last records are gone: nothing more can come."""
    log = fake.logs[T0]
    end = log.end
    del log.batches[5:]
    type(log).end = property(lambda self: end)  # type: ignore[method-assign, assignment]
    try:
        assert offsets(read_chunks(client(fake), T0, 0, 100, isolation=0)) == list(range(50))
    finally:
        type(log).end = property(  # type: ignore[method-assign, assignment]
            lambda self: parse_header(self.batches[-1]).next_offset if self.batches else 0
        )


def test_records_that_become_visible_while_waiting(fake: FakeCluster) -> None:
    log = fake.logs[T0]
    log.visible_end = 50
    seen = []
    for chunk in read_chunks(client(fake), T0, 0, 100, isolation=0, wait_ms=3000):
        seen += offsets([chunk])
        log.visible_end = None
    assert seen == list(range(100))


@pytest.mark.parametrize(
    "trouble", ["drop", "lose", ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR]
)
def test_trouble_that_passes_loses_and_repeats_nothing(fake: FakeCluster, trouble: ErrorCode | str) -> None:
    fetches = 0

    def interfere(broker: int, key: int) -> ErrorCode | str | None:
        nonlocal fetches
        fetches += key == ApiKey.FETCH
        return trouble if key == ApiKey.FETCH and fetches % 3 == 2 else None

    fake.interfere = interfere
    size = len(fake.logs[T0].batches[0])
    assert offsets(read_chunks(client(fake), T0, 0, 100, isolation=0, max_bytes=size)) == list(range(100))
    assert fetches > 12


def test_a_leader_that_moves_in_the_middle(fake: FakeCluster) -> None:
    size = len(fake.logs[T0].batches[0])
    seen = []
    for number, chunk in enumerate(read_chunks(client(fake), T0, 0, 100, isolation=0, max_bytes=size)):
        seen += offsets([chunk])
        fake.leaders[T0] = 1 + number // 3 % 2
    assert seen == list(range(100))


def test_trouble_that_stays_is_an_error(fake: FakeCluster) -> None:
    fake.interfere = lambda broker, key: ErrorCode.LEADER_NOT_AVAILABLE if key == ApiKey.FETCH else None
    cluster = BlockingCluster(ClusterSettings(fake.bootstrap, request_timeout_s=0.4))
    with pytest.raises(KafkaError, match="LEADER_NOT_AVAILABLE: partition t-0 at offset 0"):
        list(read_chunks(cluster, T0, 0, 100, isolation=0))


def test_a_reader_that_stops_early_leaves_no_answer_behind(fake: FakeCluster) -> None:
    cluster = client(fake)
    reading = read_chunks(cluster, T0, 0, 100, isolation=0, max_bytes=300)
    next(reading)
    reading.close()  # type: ignore[attr-defined]  # it is a generator
    for _ in range(3):
        assert offsets(read_chunks(cluster, T0, 0, 100, isolation=0)) == list(range(100))


def test_a_batch_with_an_impossible_length(fake: FakeCluster) -> None:
    log = fake.logs[T0]
    log.batches[3] = log.batches[3][:8] + b"\0\0\0\1" + log.batches[3][12:]
    with pytest.raises(KafkaError, match="CORRUPT_MESSAGE: a record batch of partition t-0 states 1 bytes"):
        list(
            read_chunks(
                BlockingCluster(ClusterSettings(fake.bootstrap, request_timeout_s=60.0)), T0, 0, 100, isolation=0
            )
        )
