"""What an operator asks about transactions, and does to them: KIP-664 and KIP-939 as a client sees them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from headrace.client.address import Address
from headrace.client.cluster import Cluster
from headrace.client.connection import ClientConnection
from headrace.client.errors import kafka_error
from headrace.client.transaction_requests import TRANSACTION_COORDINATOR
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicPartition
from headrace.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducerState,
    TopicRequest,
)
from headrace.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from headrace.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from headrace.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from headrace.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from headrace.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

T = TypeVar("T")
LAST_END_THAT_KEEPS_THE_EPOCH = 4
"""The last version of EndTxn that keeps the epoch. From the epoch, the owner of a transaction can tell that
somebody else has ended it: Spark's sink does."""
KEEPS_PREPARED_SINCE = 6
NO_TRANSACTION = -1
TIMEOUT_MS = 60_000
"""The transaction timeout in an operator's InitProducerId, which begins no transaction."""


class TransactionEntry(NamedTuple):
    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


class TransactionFilters(NamedTuple):
    states: Sequence[str] = ()
    producer_ids: Sequence[int] = ()
    longer_than_ms: int = -1
    pattern: str | None = None


class OpenTransaction(NamedTuple):
    """An open transaction of a producer, as a partition knows it."""

    partition: TopicPartition
    producer: ProducerState


async def list_transactions(cluster: Cluster, filters: TransactionFilters) -> list[TransactionEntry]:
    """The transactions that match all filters, by name. UNSUPPORTED_VERSION if a broker does not support one of
    the filters."""
    view = await cluster.metadata([])
    request = ListTransactionsRequest(
        state_filters=list(filters.states),
        producer_id_filters=list(filters.producer_ids),
        duration_filter=filters.longer_than_ms,
        transactional_id_pattern=filters.pattern,
    )

    async def attempt(broker_id: int) -> list[TransactionEntry]:
        connection = await cluster.broker(broker_id)
        version = connection.version_for(ListTransactionsRequest)
        if (filters.longer_than_ms >= 0 and version < 1) or (filters.pattern and version < 2):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, f"{connection.address} does not support this filter of transactions"
            )
        response = await connection.request(request, ListTransactionsResponse)
        if response.error_code:
            raise kafka_error(response.error_code)
        if response.unknown_state_filters:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"There is no state {response.unknown_state_filters[0]}")
        return [
            TransactionEntry(one.transactional_id, one.producer_id, one.transaction_state, broker_id)
            for one in response.transaction_states
        ]

    answers = await asyncio.gather(*(cluster.retrying(partial(attempt, broker_id)) for broker_id in view.brokers))
    return sorted(entry for answer in answers for entry in answer)


async def describe_transaction(cluster: Cluster, transactional_id: str) -> tuple[TransactionState, Address]:
    """The state of an id and its coordinator; TRANSACTIONAL_ID_NOT_FOUND if it is unknown."""

    async def ask(connection: ClientConnection) -> tuple[TransactionState, Address]:
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        (state,) = (await connection.request(request, DescribeTransactionsResponse)).transaction_states
        if state.error_code:
            raise kafka_error(state.error_code)
        return state, connection.address

    return await _at_coordinator(cluster, transactional_id, ask)


async def abort_transaction(cluster: Cluster, transactional_id: str) -> None:
    """Abort the open transaction of this id, and fence its producer (KIP-939's forced end)."""
    await _init(cluster, transactional_id, keep=False)


async def end_prepared(cluster: Cluster, transactional_id: str, commit: bool) -> None:
    """End the open transaction of this id as its owner would. Taking it over fences the owner first."""
    taken = await _init(cluster, transactional_id, keep=True)
    if taken.ongoing_txn_producer_id == NO_TRANSACTION:
        raise KafkaError(ErrorCode.INVALID_TXN_STATE, f"No transaction of {transactional_id} is open")

    async def ask(connection: ClientConnection) -> None:
        request = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=taken.producer_id,
            producer_epoch=taken.producer_epoch,
            committed=commit,
        )
        response = await connection.request(request, EndTxnResponse, highest=LAST_END_THAT_KEEPS_THE_EPOCH)
        if response.error_code:
            raise kafka_error(response.error_code)

    await _at_coordinator(cluster, transactional_id, ask)


async def _init(cluster: Cluster, transactional_id: str, keep: bool) -> InitProducerIdResponse:
    async def ask(connection: ClientConnection) -> InitProducerIdResponse:
        if keep and connection.version_for(InitProducerIdRequest) < KEEPS_PREPARED_SINCE:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{connection.address} has no two-phase commit")
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=TIMEOUT_MS, keep_prepared_txn=keep
        )
        response = await connection.request(request, InitProducerIdResponse)
        aborting = response.error_code == ErrorCode.CONCURRENT_TRANSACTIONS and not keep
        if response.error_code and not aborting:  # a producer that should begin something would ask again
            raise kafka_error(response.error_code)
        return response

    return await _at_coordinator(cluster, transactional_id, ask)


async def describe_producers(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> list[tuple[TopicPartition, list[ProducerState]]]:
    """The producers that the leaders of the partitions remember."""

    async def ask(broker_id: int, held: list[TopicPartition]) -> list[tuple[TopicPartition, list[ProducerState]]]:
        topics: dict[str, list[int]] = {}
        for partition in held:
            topics.setdefault(partition.topic, []).append(partition.partition)
        request = DescribeProducersRequest(
            topics=[TopicRequest(name=name, partition_indexes=indexes) for name, indexes in topics.items()]
        )
        connection = await cluster.broker(broker_id)
        response = await connection.request(request, DescribeProducersResponse)
        found = []
        for topic in response.topics:
            for one in topic.partitions:
                if one.error_code:
                    raise kafka_error(one.error_code, one.error_message)
                found.append((TopicPartition(topic.name, one.partition_index), one.active_producers))
        return found

    wanted = list(partitions)

    async def attempt() -> list[tuple[TopicPartition, list[ProducerState]]]:
        led = await cluster.by_leader(wanted)
        answers = await asyncio.gather(*(ask(broker_id, held) for broker_id, held in led.items()))
        return sorted((one for answer in answers for one in answer), key=lambda found: found[0])

    return await cluster.retrying(attempt)


async def open_transactions(cluster: Cluster, partitions: Iterable[TopicPartition]) -> list[OpenTransaction]:
    return [
        OpenTransaction(partition, producer)
        for partition, producers in await describe_producers(cluster, partitions)
        for producer in producers
        if producer.current_txn_start_offset >= 0
    ]


async def write_abort_marker(cluster: Cluster, found: OpenTransaction) -> None:
    """End a transaction in one partition without its coordinator, which does not know it (KIP-664)."""
    name, index = found.partition
    marker = WritableTxnMarker(
        producer_id=found.producer.producer_id,
        producer_epoch=found.producer.producer_epoch,
        coordinator_epoch=max(found.producer.coordinator_epoch, 0),
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=name, partition_indexes=[index])],
    )

    async def attempt() -> None:
        (leader,) = await cluster.by_leader([found.partition])
        connection = await cluster.broker(leader)
        response = await connection.request(WriteTxnMarkersRequest(markers=[marker]), WriteTxnMarkersResponse)
        code = response.markers[0].topics[0].partitions[0].error_code
        if code:
            raise kafka_error(code)

    await cluster.retrying(attempt)


async def _at_coordinator(
    cluster: Cluster, transactional_id: str, ask: Callable[[ClientConnection], Awaitable[T]]
) -> T:
    async def attempt() -> T:
        return await ask(await cluster.coordinator(transactional_id, TRANSACTION_COORDINATOR))

    return await cluster.retrying(attempt)
