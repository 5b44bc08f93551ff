"""Partitions ask the coordinator before a transaction begins in them (KIP-890).

A transactional batch for a partition where none of its producer's transactions is open may be a late one, of a
transaction that has ended: it would stay open forever. So the partition's leader first asks the coordinator
whether the partition is in the transaction (clients up to transactions version 1, which add partitions
themselves), or has it added (version 2). What several requests ask of one broker at the same time goes together in
one AddPartitionsToTxn.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import NamedTuple

from headrace.client.errors import ClientError
from headrace.env import Env
from headrace.metadata.image import NO_LEADER
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicPartition
from headrace.services.groups.locks import GroupLocks
from headrace.services.transactions.service import TransactionService
from headrace.services.transactions.shard import DecisionTold
from headrace.transactions.decision import TransactionDecision
from headrace.transactions.transaction import BUMPS_EPOCH, ProducerIdentity
from headrace.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

MAX_TRANSACTIONS_PER_REQUEST = 1000

UNKNOWN_PRODUCER = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING})
"""It is not, or not any more, the epoch that the coordinator knows."""

PartitionErrors = dict[TopicPartition, ErrorCode]
AskCoordinator = Callable[[int, AddPartitionsToTxnRequest], Awaitable[AddPartitionsToTxnResponse]]


class Verification(NamedTuple):
    """What one request asks about one transaction."""

    transactional_id: str
    producer: ProducerIdentity
    partitions: frozenset[TopicPartition]
    adds: bool
    """Whether they are added, or only looked for."""


class _Question:
    __slots__ = ("answer", "verification")

    def __init__(self, verification: Verification) -> None:
        self.verification = verification
        self.answer: asyncio.Future[PartitionErrors] = asyncio.get_running_loop().create_future()


class PartitionVerifier:
    def __init__(
        self,
        env: Env,
        transactions: TransactionService,
        broker_id: int,
        ask: AskCoordinator,
        verifies: Callable[[], bool],
    ) -> None:
        """`verifies`: transaction.partition.verification.enable, as it is now."""
        self._env = env
        self._transactions = transactions
        self._broker_id = broker_id
        self._ask = ask
        self._verifies = verifies
        self._turns = GroupLocks()
        """By transactional id: one request at a time, as if each were a change of a group."""
        self._queues: dict[int, list[_Question]] = {}
        self._busy: set[int] = set()
        """Coordinators with a request under way."""

    def turn(self, transactional_id: str) -> AbstractAsyncContextManager[None]:
        """Requests of one transactional id that have to wait do so in their order.

        From this call on, not only once it is entered, those that come later have to wait as well.
        """
        entered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def enter() -> None:
            if entered.done():  # it was cancelled while it waited
                self.leave(transactional_id)
            else:
                entered.set_result(None)

        self._turns.acquire(transactional_id, shared=False, run=enter)
        return self._in_turn(transactional_id, entered)

    @asynccontextmanager
    async def _in_turn(self, transactional_id: str, entered: asyncio.Future[None]) -> AsyncIterator[None]:
        try:
            await entered
            yield
        finally:
            if not entered.cancelled():
                self.leave(transactional_id)

    def enter(self, transactional_id: str) -> None:
        """The same at once, where nobody waits; `leave` ends it."""
        assert not self.is_waited_for(transactional_id)
        self._turns.acquire(transactional_id, shared=False, run=_go_on)

    def leave(self, transactional_id: str) -> None:
        self._turns.release(transactional_id)

    def is_waited_for(self, transactional_id: str) -> bool:
        """Whether requests of the id wait: one that need not wait itself must not overtake them."""
        return self._turns.is_changing(transactional_id)

    def quick_verify(self, asked: Verification) -> PartitionErrors | None:
        """The answer about partitions that are only looked for; None if it has to be waited for."""
        assert not asked.adds
        if not self._verifies():
            return dict.fromkeys(asked.partitions, ErrorCode.NONE)
        return self._verified_here(asked) if self._is_coordinated_here(asked) else None

    def quick_add(self, asked: Verification, told: DecisionTold) -> TransactionDecision | None:
        """Add them; None, with nothing done, if something has to be waited for first."""
        assert asked.adds
        if not self._is_coordinated_here(asked):
            return None
        producer, partitions = asked.producer, asked.partitions
        return self._transactions.quick_add(asked.transactional_id, producer, partitions, BUMPS_EPOCH, told)

    def _is_coordinated_here(self, asked: Verification) -> bool:
        coordinator = self._transactions.coordinator_partition(asked.transactional_id)
        return coordinator is not None and coordinator.leader == self._broker_id

    async def verify(self, verification: Verification) -> PartitionErrors:
        """The coordinator's answer for each partition; NETWORK_EXCEPTION where there was none."""
        if not verification.adds and not self._verifies():
            return dict.fromkeys(verification.partitions, ErrorCode.NONE)
        coordinator = self._transactions.coordinator_partition(verification.transactional_id)
        if coordinator is None or coordinator.leader == NO_LEADER:
            return dict.fromkeys(verification.partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if coordinator.leader == self._broker_id:
            return await self._here(verification)
        question = _Question(verification)
        self._queues.setdefault(coordinator.leader, []).append(question)
        if coordinator.leader not in self._busy:
            self._busy.add(coordinator.leader)
            name = f"Asking broker {coordinator.leader} about transactions"
            self._env.background.start(name, self._drain(coordinator.leader))
        return await question.answer

    async def _here(self, asked: Verification) -> PartitionErrors:
        if not asked.adds:
            return self._verified_here(asked)
        error = await self._transactions.add_partitions(
            asked.transactional_id, asked.producer, asked.partitions, BUMPS_EPOCH
        )
        return dict.fromkeys(asked.partitions, error)

    def _verified_here(self, asked: Verification) -> PartitionErrors:
        return self._transactions.verify_partitions(asked.transactional_id, asked.producer, asked.partitions)

    async def _drain(self, broker_id: int) -> None:
        try:
            while questions := self._taken(broker_id):
                await self._put(broker_id, questions)
        finally:
            self._busy.discard(broker_id)

    def _taken(self, broker_id: int) -> list[_Question]:
        """In order, each transactional id once: a request names a transaction once."""
        queue = self._queues.pop(broker_id, [])
        taken: dict[str, _Question] = {}
        left: list[_Question] = []
        for question in queue:
            transactional_id = question.verification.transactional_id
            if transactional_id in taken or len(taken) == MAX_TRANSACTIONS_PER_REQUEST:
                left.append(question)
            else:
                taken[transactional_id] = question
        if left:
            self._queues[broker_id] = left
        return list(taken.values())

    async def _put(self, broker_id: int, questions: list[_Question]) -> None:
        request = AddPartitionsToTxnRequest(transactions=[_transaction(item.verification) for item in questions])
        try:
            response = await self._ask(broker_id, request)
            failure = ErrorCode(response.error_code)
        except KafkaError as error:
            response, failure = AddPartitionsToTxnResponse(), error.code
        except ClientError:
            response, failure = AddPartitionsToTxnResponse(), ErrorCode.NETWORK_EXCEPTION
        except BaseException:
            for question in questions:
                question.answer.cancel()
            raise
        codes = {
            (result.transactional_id, topic.name, one.partition_index): one.partition_error_code
            for result in response.results_by_transaction
            for topic in result.topic_results
            for one in topic.results_by_partition
        }
        if failure is ErrorCode.NONE:
            failure = ErrorCode.UNKNOWN_SERVER_ERROR  # for what was not answered
        for question in questions:
            if not question.answer.done():
                asked = question.verification
                code_of = partial(_code, codes, asked.transactional_id, failure)
                question.answer.set_result({partition: code_of(partition) for partition in asked.partitions})


def _go_on() -> None:
    """Whoever entered at once does so itself."""


def _code(
    codes: dict[tuple[str, str, int], int], transactional_id: str, failure: ErrorCode, partition: TopicPartition
) -> ErrorCode:
    return ErrorCode(codes.get((transactional_id, *partition), failure))


def _transaction(asked: Verification) -> AddPartitionsToTxnTransaction:
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(asked.partitions):
        topics.setdefault(topic, []).append(index)
    return AddPartitionsToTxnTransaction(
        transactional_id=asked.transactional_id,
        producer_id=asked.producer.producer_id,
        producer_epoch=asked.producer.epoch,
        verify_only=not asked.adds,
        topics=[AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in topics.items()],
    )
