"""Transactions for a Spark process: begun, prepared and ended by name, with each request sent to its coordinator.

    transactions = TransactionClient(cluster)
    begun = transactions.begin("my-id", timeout_ms)            # aborts what is open under the name
    producer = BatchProducer(cluster)
    producer.begin(InTransaction("my-id", begun.identity))     # then send, flush
    prepared = transactions.prepare("my-id", begun.identity)   # no timeout from here on
    transactions.end("my-id", prepared.identity, commit=True)  # as often as need be

A producer is an *identity*, a producer id and an epoch. Beginning, taking over and preparing each return a new
one, and the previous one is refused from then on. Transient errors (a coordinator that moves, an end in progress)
are retried.

`take_over` and `prepare` need explicit prepare (KIP-939 as Headrace has it, docs/transactions.md). Where a cluster
has none they raise `NoTwoPhaseCommit`; the rest works with any broker. Partitions join a transaction by
AddPartitionsToTxn, and an end keeps the epoch (transactions version 1), which every Kafka since 0.11 understands.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple, TypeVar

from headrace.client.errors import ClientError, kafka_error
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicPartition
from headrace.spark.client.cluster import BlockingCluster
from headrace.spark.client.connection import BlockingConnection
from headrace.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from headrace.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from headrace.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from headrace.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from headrace.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

TRANSACTION_COORDINATOR = 1
TWO_PHASE_SINCE = 6
"""InitProducerId: from here on it can keep and prepare transactions."""
CLASSIC_INIT = 5
CLASSIC_ADD = 3
"""AddPartitionsToTxn: what clients send."""
CLASSIC_END = 4
"""EndTxn: the end leaves the epoch alone."""
PATTERNS_SINCE = 2
"""ListTransactions: from here on the broker filters by name."""
OPEN = "Ongoing"
COMMITTED = frozenset({"PrepareCommit", "CompleteCommit"})
"""States of a transaction that is committed, or will be whatever happens."""
NO_PRODUCER_ID = -1
LOST = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
    }
)
"""Another has the name by now, or nothing is open under it."""

T = TypeVar("T")


class Identity(NamedTuple):
    """A producer that may use a transactional id."""

    producer_id: int
    epoch: int


NOBODY = Identity(NO_PRODUCER_ID, -1)


class Begun(NamedTuple):
    """The answer to InitProducerId."""

    identity: Identity
    """The one to continue with."""
    ongoing: Identity = NOBODY
    """Whose records are in the transaction that stays open; nobody's if there is none."""


class InTransaction(NamedTuple):
    """For a `BatchProducer`: the transaction that its batches belong to."""

    transactional_id: str
    identity: Identity


class NoTwoPhaseCommit(Exception):
    """The cluster cannot keep a prepared transaction open."""


class TransactionClient:
    """`patience_s`: how long each operation is tried again; the cluster's request timeout if it is None."""

    def __init__(self, cluster: BlockingCluster, patience_s: float | None = None) -> None:
        self._cluster = cluster
        self._patience_s = patience_s

    def begin(self, transactional_id: str, timeout_ms: int) -> Begun:
        """Returns a new identity, after aborting what is open under the name."""
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
        return self._at_coordinator(transactional_id, lambda to: _init(to, request, CLASSIC_INIT))

    def take_over(self, transactional_id: str, timeout_ms: int) -> Begun:
        """Returns a new identity, which can end the transaction that is open under the name."""
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=timeout_ms, keep_prepared_txn=True
        )
        return self._at_coordinator(transactional_id, lambda to: _keep(to, request))

    def prepare(self, transactional_id: str, identity: Identity) -> Begun:
        """Lift the timeout of the transaction, to which nothing is added any more; the new identity may end it.

        KafkaError PRODUCER_FENCED if it is not open any more, or another has the name.
        """
        named = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=0,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            enable2_pc=True,
            keep_prepared_txn=True,
        )
        anonymous = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=0,
            enable2_pc=True,
            keep_prepared_txn=True,
        )
        request = named

        def ask(connection: BlockingConnection) -> Begun:
            nonlocal request
            try:
                return _keep(connection, request)
            except ClientError:
                request = anonymous  # it may have succeeded: then an unknown identity has the name
                raise

        prepared = self._at_coordinator(transactional_id, ask)
        if prepared.ongoing != identity:
            raise KafkaError(
                ErrorCode.PRODUCER_FENCED,
                f"the transaction of {transactional_id} was ended before it was prepared",
            )
        return prepared

    def add_partitions(self, transaction: InTransaction, partitions: Iterable[TopicPartition]) -> None:
        """Before the first batch for them."""
        topics: dict[str, list[int]] = {}
        for partition in partitions:
            topics.setdefault(partition.topic, []).append(partition.partition)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transaction.transactional_id,
            v3_and_below_producer_id=transaction.identity.producer_id,
            v3_and_below_producer_epoch=transaction.identity.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in topics.items()
            ],
        )
        self._at_coordinator(transaction.transactional_id, lambda to: _add(to, request))

    def end(self, transactional_id: str, identity: Identity, *, commit: bool) -> None:
        """Commit or abort; can be repeated. Returns when the outcome is certain."""
        request = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            committed=commit,
        )

        def ask(connection: BlockingConnection) -> None:
            response = connection.request(request, EndTxnResponse, highest=CLASSIC_END)
            if response.error_code:
                what = "committed" if commit else "aborted"
                raise kafka_error(response.error_code, f"the transaction of {transactional_id} cannot be {what}")

        self._at_coordinator(transactional_id, ask)

    def describe(self, transactional_id: str) -> TransactionState | None:
        """None if no coordinator knows the id."""

        def ask(connection: BlockingConnection) -> TransactionState:
            request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
            (state,) = connection.request(request, DescribeTransactionsResponse).transaction_states
            if state.error_code:
                raise kafka_error(state.error_code, f"transactional id {transactional_id}")
            return state

        try:
            return self._at_coordinator(transactional_id, ask)
        except KafkaError as error:
            if error.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                return None
            raise

    def open_ids(self, prefix: str) -> list[str]:
        """The transactional ids with this prefix that have an open transaction, prepared or not."""
        found: set[str] = set()
        for broker_id in self._cluster.broker_ids():
            found.update(self._retrying(partial(self._open_at, broker_id, prefix)))
        return sorted(found)

    def _open_at(self, broker_id: int, prefix: str) -> list[str]:
        with self._cluster.borrow(broker_id) as connection:
            request = ListTransactionsRequest(state_filters=[OPEN])
            if connection.version_for(ListTransactionsRequest) >= PATTERNS_SINCE:
                request.transactional_id_pattern = f"{re.escape(prefix)}.*"
            response = connection.request(request, ListTransactionsResponse)
        if response.error_code:
            raise kafka_error(response.error_code, "the broker does not list its transactions")
        names = (one.transactional_id for one in response.transaction_states)
        return [name for name in names if name.startswith(prefix)]

    # --- at the coordinator

    def _at_coordinator(self, transactional_id: str, ask: Callable[[BlockingConnection], T]) -> T:
        def attempt() -> T:
            known = self._cluster.coordinators
            broker_id = known.get(transactional_id)
            if broker_id is None:
                broker_id = known[transactional_id] = self._cluster.coordinator(
                    transactional_id, TRANSACTION_COORDINATOR
                )
            try:
                with self._cluster.borrow(broker_id) as connection:
                    return ask(connection)
            except (KafkaError, ClientError):
                known.pop(transactional_id, None)
                raise

        return self._retrying(attempt)

    def _retrying(self, attempt: Callable[[], T]) -> T:
        return self._cluster.retrying(attempt, within_s=self._patience_s)


def can_prepare(cluster: BlockingCluster) -> bool:
    """Whether it supports two-phase commit (KIP-939), according to its versions."""
    with cluster.entry() as connection:
        return connection.version_for(InitProducerIdRequest) >= TWO_PHASE_SINCE


def _init(connection: BlockingConnection, request: InitProducerIdRequest, highest: int) -> Begun:
    response = connection.request(request, InitProducerIdResponse, highest=highest)
    if response.error_code:
        raise kafka_error(response.error_code, f"no producer for the transactional id {request.transactional_id}")
    return Begun(
        Identity(response.producer_id, response.producer_epoch),
        Identity(response.ongoing_txn_producer_id, response.ongoing_txn_producer_epoch),
    )


def _keep(connection: BlockingConnection, request: InitProducerIdRequest) -> Begun:
    if connection.version_for(InitProducerIdRequest) < TWO_PHASE_SINCE:
        raise NoTwoPhaseCommit(f"{connection.address} has no two-phase commit")
    try:
        return _init(connection, request, TWO_PHASE_SINCE)
    except KafkaError as error:
        if error.code is ErrorCode.UNSUPPORTED_VERSION:
            raise NoTwoPhaseCommit(f"{connection.address} has no two-phase commit: {error}") from error
        raise


def _add(connection: BlockingConnection, request: AddPartitionsToTxnRequest) -> None:
    response = connection.request(request, AddPartitionsToTxnResponse, highest=CLASSIC_ADD)
    for topic in response.results_by_topic_v3_and_below:
        for one in topic.results_by_partition:
            if one.partition_error_code not in (ErrorCode.NONE, ErrorCode.OPERATION_NOT_ATTEMPTED):
                place = TopicPartition(topic.name, one.partition_index)
                raise kafka_error(one.partition_error_code, f"partition {place} cannot join the transaction")
