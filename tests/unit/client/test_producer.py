"""How records become batches."""

from __future__ import annotations

from typing import Literal

from headrace.client.address import Address
from headrace.client.cluster import Cluster
from headrace.client.producer import MAX_BATCH_BYTES, MAX_BATCH_RECORDS, Producer, ProducerSettings, split
from headrace.env.real import real_env
from headrace.records.builder import NewRecord, build_batch
from headrace.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from headrace.wire.messages.produce import ProduceRequest
from headrace.wire.schema import Response
from tests.unit.client.conftest import Serve, broker


def test_few_records_stay_together() -> None:
    records = [NewRecord(b"v")] * 10
    assert split(records) == [records]
    assert split([]) == []


def test_batches_stay_below_the_limit_and_lose_nothing() -> None:
    records = [
        NewRecord(bytes(size), b"key", 1, [("name", b"value")]) for size in (400_000, 450_000, 100, 899_000, 5)
    ]
    parts = split(records)
    assert [record for part in parts for record in part] == records
    assert [len(part) for part in parts] == [3, 2]
    assert all(len(build_batch(part)) < 1_000_000 for part in parts)


def test_a_record_that_is_too_large_goes_alone() -> None:
    small, large = NewRecord(b"s"), NewRecord(bytes(MAX_BATCH_BYTES * 2))
    assert split([small, large, small]) == [[small], [large], [small]]


def test_the_number_of_records_is_limited() -> None:
    assert [len(part) for part in split([NewRecord(None)] * (MAX_BATCH_RECORDS + 1))] == [MAX_BATCH_RECORDS, 1]


class SlowBroker:
    """Takes Produce without an answer, in its own time."""

    def __init__(self) -> None:
        self.address = Address("127.0.0.1", 1)
        self.batches = 0

    def answer(self, key: int, version: int, body: bytes) -> Response | Literal["silence"]:
        if key == 3:
            member = MetadataResponseBroker(node_id=1, host=self.address.host, port=self.address.port)
            partition = MetadataResponsePartition(partition_index=0, leader_id=1)
            topic = MetadataResponseTopic(name="t", partitions=[partition])
            return MetadataResponse(brokers=[member], topics=[topic])
        assert ProduceRequest.decode(body, version).acks == 0
        self.batches += 1
        return "silence"


async def test_without_acks_a_flush_waits_until_all_is_taken(serve: Serve) -> None:
    """R-PRO-1: acks=0 gives up the answer, not what is still in our own buffers when the connection closes."""
    slow = SlowBroker()
    slow.address = await serve(broker(slow.answer, {0: (3, 12), 3: (0, 12)}))
    async with Cluster(real_env(), (slow.address,)) as cluster:
        producer = Producer(cluster, "t", ProducerSettings(acks=0))
        await producer.start()
        for _ in range(20):
            await producer.send([NewRecord(bytes(800_000))])
        await producer.flush()
    assert slow.batches == 20
