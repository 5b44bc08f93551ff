"""Transactions of the asyncio client, against a broker in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headrace.client.address import parse_bootstrap
from headrace.client.admin import NewTopic, create_topics
from headrace.client.cluster import Cluster
from headrace.client.fetching import FetchLimits, RecordReader
from headrace.client.offsets import READ_COMMITTED, offset_ranges
from headrace.client.transaction_requests import FENCED
from headrace.client.transactional_producer import TransactionalProducer
from headrace.env.real import real_env
from headrace.model.errors import KafkaError
from headrace.model.topics import TopicPartition
from headrace.records.builder import NewRecord
from headrace.testing.in_process import running_node

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with (
        running_node(tmp_path) as address,
        Cluster(real_env(), parse_bootstrap(address)) as cluster,
    ):
        await create_topics(cluster, [NewTopic("t", 2)])
        yield cluster


async def values(cluster: Cluster) -> dict[TopicPartition, list[bytes | None]]:
    """What a read_committed reader has seen once it is at the end of everything."""
    ends = await offset_ranges(cluster, [FIRST, SECOND])
    reader = RecordReader(cluster, {FIRST: 0, SECOND: 0}, FetchLimits(isolation=READ_COMMITTED))
    found: dict[TopicPartition, list[bytes | None]] = {FIRST: [], SECOND: []}
    while any(reader.positions[one] < ends[one][1] for one in ends):
        for fetched in await reader.poll():
            found[fetched.partition] += [record.value for record in fetched.records()]
    return found


async def test_what_is_committed_is_seen_and_what_is_aborted_is_not(cluster: Cluster) -> None:
    producer = TransactionalProducer(cluster, "writer")
    await producer.start()
    await producer.send({FIRST: [NewRecord(b"1")], SECOND: [NewRecord(b"2"), NewRecord(b"3")]})
    assert producer.is_open
    await producer.send({FIRST: [NewRecord(b"4")]})
    await producer.commit()
    assert not producer.is_open
    await producer.send({FIRST: [NewRecord(b"lost")]})
    await producer.abort()
    await producer.send({FIRST: [NewRecord(b"5")]})
    await producer.commit()
    assert await values(cluster) == {FIRST: [b"1", b"4", b"5"], SECOND: [b"2", b"3"]}


async def test_whoever_starts_last_has_the_id(cluster: Cluster) -> None:
    first, second = TransactionalProducer(cluster, "same"), TransactionalProducer(cluster, "same")
    await first.start()
    await first.send({FIRST: [NewRecord(b"left open")]})
    await second.start()
    with pytest.raises(KafkaError) as refused:
        await first.send({SECOND: [NewRecord(b"stale")]})
    assert refused.value.code in FENCED
    with pytest.raises(KafkaError) as refused:
        await first.commit()
    assert refused.value.code in FENCED
    await second.send({FIRST: [NewRecord(b"new")]})
    await second.commit()
    assert await values(cluster) == {FIRST: [b"new"], SECOND: []}


async def test_a_partition_that_a_broker_does_not_know_yet(cluster: Cluster) -> None:
    """The coordinator or the leader of a new topic may hear of it last."""
    producer = TransactionalProducer(cluster, "writer")
    await producer.start()
    sent = asyncio.ensure_future(producer.send({TopicPartition("new", 0): [NewRecord(b"1")]}))
    await asyncio.sleep(0)
    await create_topics(cluster, [NewTopic("new", 1)])
    await sent
    await producer.commit()


async def test_a_commit_of_nothing_is_nothing(cluster: Cluster) -> None:
    producer = TransactionalProducer(cluster, "idle")
    await producer.start()
    await producer.commit()
    await producer.abort()
    assert await values(cluster) == {FIRST: [], SECOND: []}
