"""A Produce inside of a transaction: the coordinator is asked first, where it is not open yet (KIP-890).

Batches for partitions in which the transaction is open are appended at once. For others the request waits: clients
of transactions version 2 (Produce v12 on) have the partition added by us, older ones have added it, and we make
sure. Requests of one transactional id that wait do so in their order, and none overtakes them. What the
coordinator says becomes an error that the version of the request knows: NOT_ENOUGH_REPLICAS where older clients
should just try again.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager

from headrace.handlers.appending import Batches, append_all
from headrace.handlers.context import Channel
from headrace.handlers.later_produce import LaterProduce
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicPartition
from headrace.records.batch import HEADER_SIZE, TRANSACTIONAL, BatchHeader, parse_header
from headrace.replication.partition import Partition
from headrace.services.reply import Reply
from headrace.services.transactions.verification import UNKNOWN_PRODUCER, PartitionErrors, Verification
from headrace.storage.producer_state import VerificationGuard
from headrace.transactions.decision import TransactionDecision
from headrace.transactions.transaction import ProducerIdentity
from headrace.wire.produce import TOPIC_IDS, TopicData, parse_produce, transactional_id_of

ABORTABLE_SINCE = 11
"""From here on clients know TRANSACTION_ABORTABLE."""
ADDS_SINCE = 12
"""Transactions version 2: the client leaves it to us to add partitions."""

_TRY_AGAIN = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)


def append_in_transaction(
    channel: Channel, version: int, frame: memoryview, position: int, transactional_id: str, batches: Batches
) -> Reply:
    verifier = channel.broker.verifier
    if not verifier.is_waited_for(transactional_id):
        guards = _Guards(version)
        asked = guards.begin(transactional_id, _unverified(channel, version, batches[2]))
        if asked is None:
            return append_all(channel, version, frame, batches, guards)
        if asked.adds:
            adding = AddingProduce(channel, version, frame[:position], batches, guards)
            if adding.begin(asked):
                return adding.reply()
        elif (errors := verifier.quick_verify(asked)) is not None:
            guards.note(errors)
            return append_all(channel, version, frame, batches, guards)
    # The frame is used for the next request as soon as we return.
    turn = verifier.turn(transactional_id)
    pending = TransactionalProduce(channel, version, memoryview(bytes(frame)), position, turn)
    channel.broker.env.background.start("Verifying a transaction", pending.run())
    return pending if batches[0] != 0 else None


_Unverified = list[tuple[Partition, BatchHeader]]


def _unverified(channel: Channel, version: int, topics: list[TopicData]) -> _Unverified:
    """Transactional batches for partitions of this broker in which their transaction is not open."""
    replicas = channel.broker.replicas
    index_of_topics = replicas.by_id if version >= TOPIC_IDS else replicas.by_name
    found = []
    for _, key, partitions in topics:
        local = index_of_topics.get(key)
        for index, batch in partitions:
            partition = local.get(index) if local is not None else None
            if partition is None or not partition.is_leader or batch is None or len(batch) < HEADER_SIZE:
                continue
            header = parse_header(batch)
            if header.attributes & TRANSACTIONAL and partition.needs_verification(
                header.producer_id, header.producer_epoch
            ):
                found.append((partition, header))
    return found


def _copied(topic: TopicData) -> TopicData:
    echo, key, partitions = topic
    copies = [(index, None if batch is None else memoryview(bytearray(batch))) for index, batch in partitions]
    return echo, key, copies


class _Guards:
    """What the coordinator agreed to, and what it refused."""

    __slots__ = ("_errors", "_guards", "_version")

    def __init__(self, version: int) -> None:
        self._version = version
        self._guards: dict[TopicPartition, VerificationGuard] = {}
        self._errors: PartitionErrors = {}

    def begin(self, transactional_id: str, unverified: _Unverified) -> Verification | None:
        """What to ask the coordinator; None if there is nothing to ask."""
        adds = self._version >= ADDS_SINCE
        guards, errors = self._guards, self._errors
        producers: set[ProducerIdentity] = set()
        for partition, header in unverified:
            producer = ProducerIdentity(header.producer_id, header.producer_epoch)
            try:
                guard = partition.start_verification(*producer, header.base_sequence, adds)
            except KafkaError as error:
                errors[partition.topic_partition] = error.code
                continue
            if guard is not None:
                guards[partition.topic_partition] = guard
                producers.add(producer)
        if len(producers) > 1:
            errors |= dict.fromkeys(guards, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
            for guard in guards.values():
                guard.refused = True
            guards.clear()
        elif producers:
            return Verification(transactional_id, producers.pop(), frozenset(guards), adds)
        return None

    def note(self, errors: PartitionErrors) -> None:
        """What the coordinator said."""
        self._errors.update(errors)
        for place, guard in self._guards.items():
            guard.refused = errors.get(place) in UNKNOWN_PRODUCER

    def of(self, partition: Partition) -> VerificationGuard | None:
        error = self._errors.get(partition.topic_partition, ErrorCode.NONE)
        if error is not ErrorCode.NONE:
            raise KafkaError(_for_client(error, self._version), _explain(error))
        return self._guards.get(partition.topic_partition)


def _for_client(error: ErrorCode, version: int) -> ErrorCode:
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_SINCE:
        return ErrorCode.INVALID_TXN_STATE
    if error in _TRY_AGAIN or (error is ErrorCode.CONCURRENT_TRANSACTIONS and version < ADDS_SINCE):
        return ErrorCode.NOT_ENOUGH_REPLICAS
    return error


def _explain(error: ErrorCode) -> str:
    if error is ErrorCode.TRANSACTION_ABORTABLE:
        return "The partition is not in the transaction"
    return f"The coordinator did not confirm the transaction: {error.name}"


class AddingProduce(LaterProduce):
    """Its partitions are on their way into the transaction, in the log of the coordinator, which is here."""

    __slots__ = ("_asked", "_batches", "_guards", "_head")

    def __init__(
        self, channel: Channel, version: int, head: memoryview, batches: Batches, guards: _Guards
    ) -> None:
        super().__init__(channel, version)
        acks, timeout_ms, topics = batches
        # The frame is used for the next request as soon as we return.
        self._head = memoryview(bytes(head))
        self._batches = acks, timeout_ms, [_copied(topic) for topic in topics]
        self._guards = guards
        self._asked: Verification | None = None

    def begin(self, asked: Verification) -> bool:
        """Whether they are added without waiting for anything first."""
        self._asked = asked
        verifier = self._channel.broker.verifier
        verifier.enter(asked.transactional_id)
        decision = verifier.quick_add(asked, self._told)
        if decision is None:
            verifier.leave(asked.transactional_id)
        elif decision.changed is None:
            self._told(decision, ErrorCode.NONE)
        return decision is not None

    def reply(self) -> Reply:
        if self.done:
            return self.result()
        return self if self._batches[0] != 0 else None

    def _told(self, decision: TransactionDecision, stored: ErrorCode) -> None:
        """Never raises: the coordinator, who tells, must not be affected by what fails here."""
        asked = self._asked
        assert asked is not None
        error = decision.error if stored is ErrorCode.NONE else stored
        try:
            self._guards.note(dict.fromkeys(asked.partitions, error))
            reply = append_all(self._channel, self._version, self._head, self._batches, self._guards)
        except Exception as failure:
            self._fail(failure)
            reply = None
        self._channel.broker.verifier.leave(asked.transactional_id)
        self._answer(reply)


class TransactionalProduce(LaterProduce):
    __slots__ = ("_frame", "_position", "_turn")

    def __init__(
        self,
        channel: Channel,
        version: int,
        frame: memoryview,
        position: int,
        turn: AbstractAsyncContextManager[None],
    ) -> None:
        super().__init__(channel, version)
        self._turn = turn
        self._frame = frame
        self._position = position

    async def run(self) -> None:
        """Never raises: a failure only ends the connection."""
        try:
            reply = await self._verified_and_appended()
        except Exception as error:
            self._fail(error)
        except asyncio.CancelledError:
            self.hang_up()
            raise
        else:
            self._answer(reply)

    async def _verified_and_appended(self) -> Reply:
        version, frame = self._version, self._frame
        async with self._turn:
            _, acks, timeout_ms, topics = parse_produce(frame, self._position, version)
            transactional_id = transactional_id_of(frame, self._position, version)
            guards = _Guards(version)
            asked = guards.begin(transactional_id, _unverified(self._channel, version, topics))
            if asked is not None:
                guards.note(await self._channel.broker.verifier.verify(asked))
            return append_all(self._channel, version, frame, (acks, timeout_ms, topics), guards)
