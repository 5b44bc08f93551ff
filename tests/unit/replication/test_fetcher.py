"""A follower's polls: what is told again, what is left out, and answers that come too late."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from headrace.client.address import Address
from headrace.client.errors import ConnectionLost
from headrace.env.real import real_env
from headrace.metadata.image import BrokerImage, Endpoint, MetadataImage, PartitionImage
from headrace.model.backoff import backoff_seconds, worth_telling
from headrace.model.errors import ErrorCode
from headrace.model.topics import TopicId, TopicPartition
from headrace.records.batch import OFFSET_LENGTH_EPOCH
from headrace.records.builder import NewRecord, build_batch
from headrace.replication.fetcher import Fetcher, FetchSettings
from headrace.replication.host import PartitionHost
from headrace.replication.partition import Partition
from headrace.replication.peers import Peer, Peers
from headrace.replication.throttle import Side
from headrace.storage.loading import create_log
from headrace.storage.log_config import LogConfig
from headrace.storage.resources import StorageResources
from headrace.wire.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

TOPIC_ID = TopicId(bytes(range(16)))
LOCAL, LEADER = 1, 2
LENGTH_END = 12
"""Where the bytes begin that a batch's length counts."""


class ScriptedPeer:
    """A leader whose answers the test gives."""

    def __init__(self) -> None:
        self.closed = False
        self.requests: asyncio.Queue[tuple[FetchRequest, asyncio.Future[Any]]] = asyncio.Queue()

    async def request(self, message: Any, answer: Any, *, highest: int = 0, timeout_s: float | None = None) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.requests.put_nowait((message, future))
        return await future

    async def next(self) -> tuple[FetchRequest, asyncio.Future[Any]]:
        return await asyncio.wait_for(self.requests.get(), 60)

    def close(self) -> None:
        self.closed = True


def told(request: FetchRequest) -> list[tuple[int, int]]:
    """(partition, offset) of what a request names."""
    return [(part.partition, part.fetch_offset) for topic in request.topics for part in topic.partitions]


def forgotten(request: FetchRequest) -> list[int]:
    return [index for topic in request.forgotten_topics_data for index in topic.partitions]


def answer(*parts: PartitionData) -> FetchResponse:
    topics = [FetchableTopicResponse(topic_id=TOPIC_ID, partitions=list(parts))] if parts else []
    return FetchResponse(session_id=77, responses=topics)


def data(index: int, offset: int, count: int = 1, epoch: int = 5) -> PartitionData:
    batch = bytearray(build_batch([NewRecord(b"v")] * count))
    OFFSET_LENGTH_EPOCH.pack_into(batch, 0, offset, len(batch) - LENGTH_END, epoch)
    return PartitionData(partition_index=index, high_watermark=offset, log_start_offset=0, records=bytes(batch))


class Bench:
    def __init__(self, directory: Path) -> None:
        self.env = real_env()
        self.peer = ScriptedPeer()
        self._directory = directory
        self._resources = StorageResources.create(self.env, str(directory))
        self._host = PartitionHost(LOCAL, self.env.clock)
        self.epoch = 9

        self.reachable: asyncio.Future[None] | None = None
        """Until it is done nobody can connect."""

        async def connect(endpoint: Endpoint) -> Peer:
            if self.reachable is not None:
                await self.reachable
            return self.peer

        peers = Peers(connect, self.image, "PLAINTEXT")
        settings = FetchSettings(500, 1, 1 << 20, 1 << 20, 1.0)
        self.fetcher = Fetcher(self.env, LOCAL, LEADER, peers, settings, Side(self.env.clock, LOCAL, "follower"))
        self.env.background.run("Fetching", self.fetcher.run())

    def image(self) -> MetadataImage:
        endpoint = (Endpoint("PLAINTEXT", "here", 1, "PLAINTEXT"),)
        brokers = {LOCAL: BrokerImage(LOCAL, self.epoch, endpoint), LEADER: BrokerImage(LEADER, 1, endpoint)}
        return MetadataImage("c", brokers=brokers)

    def partition(self, index: int) -> Partition:
        name = TopicPartition("t", index)
        log = create_log(str(self._directory / str(name)), name, TOPIC_ID, LogConfig(), self._resources)
        partition = Partition(name, TOPIC_ID, log, self._host)
        partition.become_follower(PartitionImage((LEADER, LOCAL), LEADER, 5, (LEADER,)))
        return partition


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    await bench.env.background.close()


async def test_only_what_changed_is_named_again(bench: Bench) -> None:
    first, second = bench.partition(0), bench.partition(1)
    bench.fetcher.follow(first)
    bench.fetcher.follow(second)
    request, reply = await bench.peer.next()
    assert sorted(told(request)) == [(0, 0), (1, 0)]
    reply.set_result(answer(data(0, 0, 3)))
    request, reply = await bench.peer.next()
    assert told(request) == [(0, 3)]
    assert (request.session_id, request.session_epoch) == (77, 1)
    reply.set_result(answer())
    request, reply = await bench.peer.next()
    assert told(request) == []
    assert first.end_offset == 3


async def test_a_new_partition_does_not_wait_for_the_end_of_a_poll(bench: Bench) -> None:
    bench.fetcher.follow(bench.partition(0))
    _, reply = await bench.peer.next()
    reply.set_result(answer())
    _, waiting = await bench.peer.next()
    bench.fetcher.follow(bench.partition(1))
    request, second = await bench.peer.next()
    assert told(request) == [(1, 0)]
    waiting.set_result(answer())
    second.set_result(answer(data(1, 0)))
    request, _ = await bench.peer.next()
    assert told(request) == [(1, 1)]


async def test_one_with_an_error_rests_outside_of_the_session(bench: Bench) -> None:
    bench.fetcher.follow(bench.partition(0))
    bench.fetcher.follow(bench.partition(1))
    _, reply = await bench.peer.next()
    refused = PartitionData(partition_index=0, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    reply.set_result(answer(refused))
    request, reply = await bench.peer.next()
    assert forgotten(request) == [0]
    reply.set_result(answer())
    while not told(request):
        request, reply = await bench.peer.next()
        reply.set_result(answer())
    assert told(request) == [(0, 0)]


async def test_an_answer_that_comes_after_an_error_is_not_taken(bench: Bench) -> None:
    """A regression: with two polls under way, data after an error ended the broker."""
    partition = bench.partition(0)
    bench.fetcher.follow(partition)
    _, reply = await bench.peer.next()
    reply.set_result(answer())
    _, first = await bench.peer.next()
    bench.fetcher.follow(bench.partition(1))
    _, second = await bench.peer.next()
    first.set_result(answer(PartitionData(partition_index=0, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)))
    second.set_result(answer(data(0, 0)))
    request, _ = await bench.peer.next()
    assert partition.end_offset == 0
    assert forgotten(request) == [0]


async def test_the_same_data_twice_is_stored_once(bench: Bench) -> None:
    partition = bench.partition(0)
    bench.fetcher.follow(partition)
    _, reply = await bench.peer.next()
    reply.set_result(answer())
    _, first = await bench.peer.next()
    bench.fetcher.follow(bench.partition(1))
    _, second = await bench.peer.next()
    first.set_result(answer(data(0, 0)))
    second.set_result(answer(data(0, 0)))
    request, _ = await bench.peer.next()
    assert partition.end_offset == 1
    assert told(request) == [(0, 1)]


async def test_where_the_logs_part_the_follower_goes_back(bench: Bench) -> None:
    partition = bench.partition(0)
    for offset, epoch in ((0, 1), (1, 2)):
        partition.log.append_as_follower(data(0, offset, epoch=epoch).records or b"")
    bench.fetcher.follow(partition)
    request, reply = await bench.peer.next()
    assert request.topics[0].partitions[0].last_fetched_epoch == 2
    parted = PartitionData(partition_index=0, diverging_epoch=EpochEndOffset(epoch=1, end_offset=1))
    reply.set_result(answer(parted))
    request, _ = await bench.peer.next()
    assert told(request) == [(0, 1)]
    assert request.topics[0].partitions[0].last_fetched_epoch == 1


async def test_after_registering_anew_all_are_named_with_the_new_epoch(bench: Bench) -> None:
    bench.fetcher.follow(bench.partition(0))
    request, reply = await bench.peer.next()
    assert request.replica_state.replica_epoch == 9
    bench.epoch = 10
    reply.set_result(answer())
    request, _ = await bench.peer.next()
    assert request.replica_state.replica_epoch == 10
    assert told(request) == [(0, 0)]


async def test_a_leader_whose_connection_ended_is_in_doubt_until_it_answers_or_another_leads(bench: Bench) -> None:
    followed = bench.partition(0)
    bench.fetcher.follow(followed)
    _, reply = await bench.peer.next()
    assert not bench.fetcher.doubts_leader
    refused = asyncio.get_running_loop().create_future()
    bench.reachable = refused
    bench.peer.closed = True
    reply.set_exception(ConnectionLost(Address("here", 1)))
    while not bench.fetcher.doubts_leader:
        await asyncio.sleep(0)
    bench.fetcher.leave((TOPIC_ID, 0))
    assert not bench.fetcher.doubts_leader
    bench.fetcher.follow(followed)
    assert bench.fetcher.doubts_leader
    bench.peer.closed = False
    refused.set_result(None)
    await bench.peer.next()
    assert not bench.fetcher.doubts_leader


async def test_a_leader_that_cannot_be_reached_for_long_is_tried_on(bench: Bench) -> None:
    """A link that is cut, or a disk that is full, for a quarter of an hour."""
    bench.fetcher.follow(bench.partition(0))
    _, reply = await bench.peer.next()
    bench.fetcher._failures = 5_000
    reply.set_exception(ConnectionLost(Address("here", 1)))
    async with asyncio.timeout(20):
        while bench.peer.requests.empty():
            bench.fetcher.stir((TOPIC_ID, 0))  # or it waits for a second
            await asyncio.sleep(0.01)
    assert [backoff_seconds(0.02, 1.0, failures) for failures in (0, 1, 2, 6, 7)] == [0.02, 0.04, 0.08, 1.0, 1.0]
    assert backoff_seconds(0.02, 1.0, 10_000) == 1.0


def test_a_partition_that_keeps_failing_does_not_fill_the_log() -> None:
    assert [failures for failures in range(1000) if worth_telling(failures)] == [4, 8, 16, 32, 64, 128, 256, 512]


async def test_a_refused_fetch_session_is_explained_once(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """Access rules took the right from this broker: its log filled with the number of the error."""
    with caplog.at_level(logging.INFO, "headrace.replication.fetcher"):
        bench.fetcher.follow(bench.partition(0))
        for _ in range(4):
            _, reply = await bench.peer.next()
            reply.set_result(FetchResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
        await bench.peer.next()
    first, fourth = [record.getMessage() for record in caplog.records]
    assert "CLUSTER_AUTHORIZATION_FAILED. " in first
    assert "`headrace acl add -u USER --cluster -o cluster-action`" in first
    assert "retrying in 0.02 s" in first
    assert "retrying in 0.16 s" in fourth
