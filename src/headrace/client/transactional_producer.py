"""Writes records to any partitions in transactions: all of one become visible to read_committed readers, or none.

    producer = TransactionalProducer(cluster, "shop-copy")
    await producer.start()              # fences whoever had the id, and ends what it left open
    await producer.send({TopicPartition("orders", 0): [NewRecord(b"1")]})
    await producer.commit()

A producer that has failed cannot be used any more: another `start` begins again and aborts what was open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

from headrace.client.cluster import Cluster
from headrace.client.connection import ClientConnection
from headrace.client.errors import kafka_error
from headrace.client.producer import ALL_IN_SYNC, SEQUENCES, split
from headrace.client.transaction_requests import (
    HIGHEST_ADD_PARTITIONS,
    HIGHEST_END_TXN,
    HIGHEST_INIT_PRODUCER_ID,
    HIGHEST_PRODUCE,
    TRANSACTION_COORDINATOR,
    add_request,
    check_added,
    check_ended,
    end_request,
    init_request,
    producer_of,
)
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicPartition
from headrace.records.batch import TRANSACTIONAL
from headrace.records.builder import NO_PRODUCER, NewRecord, ProducerStamp, build_batch
from headrace.records.compression import Codec
from headrace.wire.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from headrace.wire.messages.end_txn import EndTxnResponse
from headrace.wire.messages.init_producer_id import InitProducerIdResponse
from headrace.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

T = TypeVar("T")
DEFAULT_TIMEOUT_MS = 60_000


@contextmanager
def _soon_known() -> Iterator[None]:
    """Whoever names a partition has seen it: a broker that does not know it will hear of it in a moment."""
    try:
        yield
    except KafkaError as error:
        if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, error.message) from error


class TransactionalProducer:
    def __init__(
        self,
        cluster: Cluster,
        transactional_id: str,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        codec: Codec = Codec.NONE,
    ) -> None:
        self._cluster = cluster
        self._id = transactional_id
        self._timeout_ms = timeout_ms
        self._codec = codec
        self._stamp = NO_PRODUCER
        self._sequences: dict[TopicPartition, int] = {}
        self._added: set[TopicPartition] = set()
        self._leaders: dict[TopicPartition, int] = {}
        self._coordinator: ClientConnection | None = None

    @property
    def producer_id(self) -> int:
        return self._stamp.id

    @property
    def is_open(self) -> bool:
        """Whether something was sent that is neither committed nor aborted."""
        return bool(self._added)

    async def start(self) -> None:
        async def ask(connection: ClientConnection) -> ProducerStamp:
            request = init_request(self._id, self._timeout_ms)
            response = await connection.request(request, InitProducerIdResponse, highest=HIGHEST_INIT_PRODUCER_ID)
            return producer_of(response, self._id)

        self._stamp = await self._at_coordinator(ask)
        self._sequences.clear()
        self._added.clear()

    async def use_timeout(self, timeout_ms: int) -> None:
        """How long a transaction may take from now on, before any is begun."""
        assert not self._added
        if timeout_ms != self._timeout_ms:
            self._timeout_ms = timeout_ms
            await self.start()

    async def send(self, records: Mapping[TopicPartition, Sequence[NewRecord]]) -> None:
        """Write them as part of the open transaction, or of a new one, and wait until they are acknowledged."""
        new = [partition for partition, mine in records.items() if mine and partition not in self._added]
        if new:
            await self._add(new)
        written = await asyncio.gather(
            *(self._write(partition, mine) for partition, mine in records.items()), return_exceptions=True
        )
        for outcome in written:
            if outcome is not None:
                raise outcome

    async def commit(self) -> None:
        """Once this returns, the transaction is decided; it becomes visible soon after."""
        await self._end(commit=True)

    async def abort(self) -> None:
        await self._end(commit=False)

    async def _add(self, partitions: Sequence[TopicPartition]) -> None:
        async def ask(connection: ClientConnection) -> None:
            request = add_request(self._id, self._stamp, partitions)
            response = await connection.request(
                request, AddPartitionsToTxnResponse, highest=HIGHEST_ADD_PARTITIONS
            )
            with _soon_known():
                check_added(response)

        await self._at_coordinator(ask)
        self._added.update(partitions)

    async def _end(self, commit: bool) -> None:
        if not self._added:
            return

        async def ask(connection: ClientConnection) -> None:
            request = end_request(self._id, self._stamp, commit)
            check_ended(await connection.request(request, EndTxnResponse, highest=HIGHEST_END_TXN), self._id)

        await self._at_coordinator(ask)
        self._added.clear()

    async def _write(self, partition: TopicPartition, records: Sequence[NewRecord]) -> None:
        for part in split(records):
            await self._write_batch(partition, part)

    async def _write_batch(self, partition: TopicPartition, records: Sequence[NewRecord]) -> None:
        sequence = self._sequences.get(partition, 0)
        stamp = ProducerStamp(self._stamp.id, self._stamp.epoch, sequence)
        batch = build_batch(records, codec=self._codec, attributes=TRANSACTIONAL, producer=stamp)
        request = ProduceRequest(
            transactional_id=self._id,
            acks=ALL_IN_SYNC,
            timeout_ms=int(self._cluster.settings.request_timeout_s * 1000),
            topic_data=[
                TopicProduceData(
                    name=partition.topic,
                    partition_data=[PartitionProduceData(index=partition.partition, records=bytes(batch))],
                )
            ],
        )

        async def attempt() -> None:
            try:
                connection = await self._leader(partition)
                response = await connection.request(request, ProduceResponse, highest=HIGHEST_PRODUCE)
                (answer,) = response.responses[0].partition_responses
                if answer.error_code not in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                    with _soon_known():
                        raise kafka_error(answer.error_code, answer.error_message or f"partition {partition}")
            except BaseException:
                self._leaders.pop(partition, None)
                raise

        await self._cluster.retrying(attempt)
        self._sequences[partition] = (sequence + len(records)) % SEQUENCES

    async def _leader(self, partition: TopicPartition) -> ClientConnection:
        leader = self._leaders.get(partition)
        if leader is None:
            with _soon_known():
                (leader,) = await self._cluster.by_leader([partition])
            self._leaders[partition] = leader
        return await self._cluster.broker(leader)

    async def _at_coordinator(self, ask: Callable[[ClientConnection], Awaitable[T]]) -> T:
        async def attempt() -> T:
            connection = self._coordinator
            if connection is None or connection.closed:
                connection = await self._cluster.coordinator(self._id, TRANSACTION_COORDINATOR)
            self._coordinator = None
            answer = await ask(connection)
            self._coordinator = connection  # only while it answers without an error
            return answer

        return await self._cluster.retrying(attempt)
