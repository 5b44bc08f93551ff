"""Writes records to one topic: batches built here, one per partition and call, with sequences when idempotent.

Batches of one partition go out one after the other; different partitions at the same time. A retriable error is
tried again; an idempotent producer cannot write a batch twice by that (R-PRO-3).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headrace.client.cluster import Cluster
from headrace.client.connection import ClientConnection
from headrace.client.errors import kafka_error
from headrace.client.partitioner import partition_for_key
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicPartition
from headrace.records.builder import NO_PRODUCER, NewRecord, ProducerStamp, build_batch
from headrace.records.compression import Codec
from headrace.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

LAST_VERSION_BY_NAME = 12
"""From v13 on Produce names topics by id."""

ALL_IN_SYNC = -1
SEQUENCES = 1 << 31
MAX_BATCH_RECORDS = 10_000
MAX_BATCH_BYTES = 900_000
"""Below the megabyte that a broker accepts by default."""
RECORD_OVERHEAD = 32


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    acks: int = ALL_IN_SYNC
    codec: Codec = Codec.NONE
    partition: int | None = None
    """All records to this one."""
    idempotent: bool = True


PlacedRecord = tuple[int | None, NewRecord]
"""A record, and the partition it must go to; None where its key decides."""


class WrittenBatch(NamedTuple):
    partition: int
    base_offset: int
    """-1 when the broker was not asked to answer."""
    record_count: int


async def send_batch(
    connection: ClientConnection, partition: TopicPartition, batch: bytes | bytearray, acks: int, timeout_s: float
) -> int:
    """One batch to the broker that leads the partition; its base offset, -1 with acks=0."""
    request = ProduceRequest(
        acks=acks,
        timeout_ms=int(timeout_s * 1000),
        topic_data=[
            TopicProduceData(
                name=partition.topic,
                partition_data=[PartitionProduceData(index=partition.partition, records=bytes(batch))],
            )
        ],
    )
    if acks == 0:
        connection.post(request, highest=LAST_VERSION_BY_NAME)
        return -1
    response = await connection.request(request, ProduceResponse, highest=LAST_VERSION_BY_NAME)
    (answer,) = response.responses[0].partition_responses
    if answer.error_code:
        raise kafka_error(answer.error_code, answer.error_message or f"partition {partition}")
    return int(answer.base_offset)


class Producer:
    def __init__(self, cluster: Cluster, topic: str, settings: ProducerSettings | None = None) -> None:
        self._cluster = cluster
        self._topic = topic
        self._settings = settings or ProducerSettings()
        self._partition_count = 0
        self._next_without_key = 0
        self._stamp = NO_PRODUCER
        self._sequences: dict[int, int] = {}
        self._leaders: dict[int, ClientConnection] = {}

    async def start(self) -> None:
        view = await self._cluster.metadata([self._topic])
        self._partition_count = len(view.topic(self._topic).partitions)
        if self._settings.partition is not None and not 0 <= self._settings.partition < self._partition_count:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"{self._topic} has the partitions 0 to {self._partition_count - 1} only",
            )
        self._next_without_key = self._cluster.env.rng.randrange(self._partition_count)
        if self._settings.idempotent and self._settings.acks == ALL_IN_SYNC:
            self._stamp = await self._cluster.retrying(self._producer_id)

    async def _producer_id(self) -> ProducerStamp:
        from headrace.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
        response = await (await self._cluster.entry()).request(request, InitProducerIdResponse, highest=5)
        if response.error_code:
            raise kafka_error(response.error_code, "no producer id")
        return ProducerStamp(response.producer_id, response.producer_epoch, 0)

    @property
    def partition_count(self) -> int:
        return self._partition_count

    async def send(self, records: Iterable[NewRecord]) -> list[WrittenBatch]:
        """Write the records and wait until they are acknowledged. Those without a key stay together."""
        return await self.send_placed((None, record) for record in records)

    async def send_placed(self, records: Iterable[PlacedRecord]) -> list[WrittenBatch]:
        """The same for records that may name their partition."""
        without_key = self._next_without_key
        self._next_without_key = (without_key + 1) % self._partition_count
        placed: dict[int, list[NewRecord]] = {}
        for partition, record in records:
            if partition is None:
                partition = self._place(record, without_key)
            placed.setdefault(partition, []).append(record)
        results = await asyncio.gather(*(self._write(index, mine) for index, mine in placed.items()))
        return [written for result in results for written in result]

    async def flush(self) -> None:
        """With acks=0 nothing says that the records were taken: make sure of it before the connections close."""
        if self._settings.acks == 0:
            await asyncio.gather(*(leader.flush() for leader in set(self._leaders.values())))

    def _place(self, record: NewRecord, without_key: int) -> int:
        if self._settings.partition is not None:
            return self._settings.partition
        return without_key if record.key is None else partition_for_key(record.key, self._partition_count)

    async def _write(self, index: int, records: Sequence[NewRecord]) -> list[WrittenBatch]:
        return [await self._write_batch(index, part) for part in split(records)]

    async def _write_batch(self, index: int, records: Sequence[NewRecord]) -> WrittenBatch:
        sequence = self._sequences.get(index, 0)
        stamp = self._stamp
        if stamp is not NO_PRODUCER:
            stamp = ProducerStamp(stamp.id, stamp.epoch, sequence)
        batch = build_batch(records, codec=self._settings.codec, producer=stamp)
        partition = TopicPartition(self._topic, index)

        async def attempt() -> int:
            timeout_s = self._cluster.settings.request_timeout_s
            try:
                return await send_batch(
                    await self._leader(partition), partition, batch, self._settings.acks, timeout_s
                )
            except KafkaError:
                self._leaders.pop(index, None)
                raise

        base_offset = await self._cluster.retrying(attempt)
        self._sequences[index] = (sequence + len(records)) % SEQUENCES
        return WrittenBatch(index, base_offset, len(records))

    async def _leader(self, partition: TopicPartition) -> ClientConnection:
        known = self._leaders.get(partition.partition)
        if known is None or known.closed:
            (leader,) = await self._cluster.by_leader([partition])
            known = self._leaders[partition.partition] = await self._cluster.broker(leader)
        return known


def split(records: Sequence[NewRecord]) -> list[Sequence[NewRecord]]:
    """Into runs that make batches of an acceptable size; a record that is too large goes alone."""
    parts: list[Sequence[NewRecord]] = []
    start, size = 0, 0
    for position, record in enumerate(records):
        weight = RECORD_OVERHEAD + len(record.key or b"") + len(record.value or b"")
        weight += sum(len(name) + len(value or b"") + 4 for name, value in record.headers)
        if position > start and (size + weight > MAX_BATCH_BYTES or position - start >= MAX_BATCH_RECORDS):
            parts.append(records[start:position])
            start, size = position, 0
        size += weight
    if records[start:]:
        parts.append(records[start:])
    return parts
