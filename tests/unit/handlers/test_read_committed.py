"""Fetch and ListOffsets under read_committed (R-CON-5): up to the last stable offset, aborted ones named."""

from __future__ import annotations

import asyncio
import os
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.client.fetching import Fetched, split_batches
from headrace.handlers.fetch import fetch
from headrace.model.topics import TopicPartition
from headrace.records.batch import TRANSACTIONAL, parse_header
from headrace.records.builder import NewRecord, ProducerStamp, build_batch
from headrace.records.markers import EndMarker
from headrace.services.fetching.parked import ParkedFetch
from headrace.services.reply import Pending, Reply
from headrace.storage.files import FileRange
from headrace.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from headrace.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

UNCOMMITTED, COMMITTED = 0, 1
LATEST = -1


class Writer:
    """Transactions on one topic, with the coordinator's consent to all of them."""

    def __init__(self, bench: Any, topic: str = "t") -> None:
        self.bench = bench
        self.topic = topic
        self.now_ms = bench.broker.env.clock.wall_ms()
        self._sequences: dict[int, int] = {}

    @property
    def partition(self) -> Any:
        return self.bench.partition(self.topic)

    def plain(self, value: str) -> int:
        batch = build_batch([NewRecord(value.encode(), timestamp=self.now_ms)])
        return int(self.partition.append(memoryview(batch), -1)[0])

    def write(self, producer_id: int, value: str) -> int:
        sequence = self._sequences.get(producer_id, 0)
        self._sequences[producer_id] = sequence + 1
        stamp = ProducerStamp(producer_id, 0, sequence)
        batch = build_batch(
            [NewRecord(value.encode(), timestamp=self.now_ms)], attributes=TRANSACTIONAL, producer=stamp
        )
        guard = self.partition.start_verification(producer_id, 0, sequence, bumps_epochs=False)
        return int(self.partition.append(memoryview(batch), -1, guard)[0])

    def end(self, producer_id: int, commit: bool) -> int:
        return int(self.partition.append_marker(EndMarker(producer_id, 0, commit, 0))) - 1


@pytest.fixture
async def writer(bench: Any) -> Writer:
    await bench.create_topic("t")
    return Writer(bench)


def ask(bench: Any, request: FetchRequest, version: int) -> Reply:
    for topic in request.topics:
        topic.topic_id = bench.image.topics[topic.topic].id
    channel: Any = SimpleNamespace(broker=bench.broker, listener="PLAINTEXT", principal="", client_host="")
    reply: Reply = fetch(channel, version, memoryview(request.encode(version)), 0)
    return reply


def answer(reply: Reply, version: int) -> FetchResponse:
    assert reply is not None
    body = reply.result() if isinstance(reply, Pending) else reply
    pieces = [body] if isinstance(body, bytes) else body
    data = b"".join(
        os.pread(piece.file.fd, piece.size, piece.position) if isinstance(piece, FileRange) else piece
        for piece in pieces
    )
    return FetchResponse.decode(data, version)


def want(offset: int, isolation: int = COMMITTED, max_bytes: int = 1 << 20, **fields: Any) -> FetchRequest:
    parts = [FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)]
    return FetchRequest(
        isolation_level=isolation, min_bytes=1, topics=[FetchTopic(topic="t", partitions=parts)], **fields
    )


def values(data: PartitionData, offset: int = 0) -> list[str]:
    """What a client makes of it, by the list of aborted transactions."""
    batches = tuple(split_batches(data.records or b""))
    aborted = data.aborted_transactions or []
    fetched = Fetched(TopicPartition("t", 0), offset, data.high_watermark, batches, aborted)
    return [(record.value or b"").decode() for record in fetched.records()]


def one(bench: Any, request: FetchRequest, version: int = 17) -> PartitionData:
    return answer(ask(bench, request, version), version).responses[0].partitions[0]


@pytest.mark.parametrize("version", range(4, 19))
async def test_a_reader_sees_what_is_committed(bench: Any, writer: Writer, version: int) -> None:
    writer.plain("a")
    writer.write(1, "b")
    writer.write(2, "c")
    writer.write(1, "d")
    writer.end(1, commit=True)
    writer.write(1, "e")
    writer.end(2, commit=False)
    writer.plain("f")
    data = one(bench, want(0), version)
    assert (data.high_watermark, data.last_stable_offset) == (8, 5)
    assert [(row.producer_id, row.first_offset) for row in data.aborted_transactions or []] == [(2, 2)]
    assert values(data) == ["a", "b", "d"]
    raw = one(bench, want(0, UNCOMMITTED), version)
    assert raw.aborted_transactions is None
    assert values(raw) == ["a", "b", "c", "d", "e", "f"]
    writer.end(1, commit=False)
    data = one(bench, want(0), version)
    assert data.last_stable_offset == 9
    assert values(data) == ["a", "b", "d", "f"]


async def test_from_the_middle_of_a_transaction(bench: Any, writer: Writer) -> None:
    for value in "abc":
        writer.write(1, value)
    writer.end(1, commit=False)
    writer.write(1, "d")
    writer.end(1, commit=True)
    for offset, expected in ((0, ["d"]), (1, ["d"]), (2, ["d"]), (3, ["d"]), (4, ["d"]), (5, [])):
        data = one(bench, want(offset))
        assert values(data, offset) == expected
        assert len(data.aborted_transactions or []) == (1 if offset < 4 else 0)


async def test_nothing_beyond_the_last_stable_offset(bench: Any, writer: Writer) -> None:
    writer.write(1, "a")
    writer.plain("b")
    data = one(bench, want(0))
    assert (data.records or b"", data.last_stable_offset, data.high_watermark) == (b"", 0, 2)
    assert data.aborted_transactions == []
    assert one(bench, want(1)).error_code == 0
    assert values(one(bench, want(0, UNCOMMITTED))) == ["a", "b"]


async def test_a_follower_copies_everything(bench: Any, writer: Writer) -> None:
    """Its own name counts, not the isolation level it may have sent."""
    writer.write(1, "a")
    writer.end(1, commit=False)
    writer.write(1, "b")
    view = writer.partition.read(0, 1 << 20, 2, True)
    assert view[3].size == writer.partition.size


@pytest.mark.parametrize("commit", [True, False])
async def test_a_waiting_fetch_wakes_when_the_transaction_ends(bench: Any, writer: Writer, commit: bool) -> None:
    writer.write(1, "a")
    reply = ask(bench, want(0, max_wait_ms=600_000), 17)
    assert isinstance(reply, ParkedFetch)
    writer.plain("b")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not reply.done, "the high watermark moved, but nothing is stable yet"
    writer.end(1, commit)
    for _ in range(5):
        await asyncio.sleep(0)
    assert reply.done
    assert values(answer(reply, 17).responses[0].partitions[0]) == (["a", "b"] if commit else ["b"])


async def test_min_bytes_counts_what_is_stable(bench: Any, writer: Writer) -> None:
    writer.plain("a" * 100)
    writer.write(1, "b" * 10_000)
    request = want(0, max_wait_ms=600_000)
    request.min_bytes = 5_000
    reply = ask(bench, request, 17)
    assert isinstance(reply, ParkedFetch)
    writer.end(1, commit=True)
    for _ in range(5):
        await asyncio.sleep(0)
    assert reply.done


async def test_a_session_tells_of_what_became_stable(bench: Any, writer: Writer) -> None:
    writer.write(1, "a")
    first = answer(ask(bench, want(0, session_epoch=0), 17), 17)
    assert first.session_id
    assert first.responses[0].partitions[0].records in (b"", None)
    again = FetchRequest(isolation_level=COMMITTED, min_bytes=1, session_id=first.session_id, session_epoch=1)
    assert answer(ask(bench, again, 17), 17).responses == []
    writer.end(1, commit=False)
    writer.plain("b")
    await asyncio.sleep(0)
    again.session_epoch = 2
    (topic,) = answer(ask(bench, again, 17), 17).responses
    assert values(topic.partitions[0]) == ["b"]
    assert len(topic.partitions[0].aborted_transactions or []) == 1


async def test_a_long_list_names_only_what_is_sent(bench: Any) -> None:
    await bench.create_topic("t", index_interval_bytes="1")
    writer = Writer(bench)
    for number in range(200):
        writer.write(1, f"{number}")
        writer.end(1, commit=False)
    offset, told = 0, 0
    while offset < 400:
        data = one(bench, want(offset, max_bytes=300))
        told = max(told, len(data.aborted_transactions or []))
        assert values(data, offset) == []
        offset = parse_header(list(split_batches(data.records or b""))[-1][1]).next_offset
    assert told <= 4


async def test_list_offsets_ends_at_the_last_stable_offset(bench: Any, writer: Writer) -> None:
    writer.plain("a")
    writer.write(1, "b")
    writer.plain("c")

    async def offset_of(timestamp: int, isolation: int) -> int:
        asked = [ListOffsetsPartition(partition_index=0, timestamp=timestamp)]
        topics = [ListOffsetsTopic(name="t", partitions=asked)]
        response = await bench.call(ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=topics), 7)
        return int(response.topics[0].partitions[0].offset)

    assert await offset_of(LATEST, UNCOMMITTED) == 3
    assert await offset_of(LATEST, COMMITTED) == 1
    assert await offset_of(writer.now_ms, COMMITTED) == 0
    writer.end(1, commit=True)
    assert await offset_of(LATEST, COMMITTED) == 4
