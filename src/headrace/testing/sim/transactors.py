"""Transactional producers: every transaction writes one value to each of some partitions, and commits or aborts.

Some speak transactions version 2 (a Produce joins its partition, every end bumps the epoch), some version 1
(partitions are added first). Now and then one dies in the middle and a new one takes its transactional id over.
Now and then a Produce is given up while it is under way: it may arrive when its transaction has long ended. With
version 2 the producer goes on; with version 1, where that can join its next transaction (docs/guarantees.md), it
waits, and then begins a new epoch.

Each also commits a position of a group, its number. At the end, for a reader of committed records: a transaction
is there whole or not at all; one that was committed is there, one that was aborted or taken over is not; nothing
is listed twice; nothing is open any more; and the group's position is that of the last one.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from headrace.client.cluster import Cluster
from headrace.client.connection import ClientConnection
from headrace.client.fetching import FetchLimits, fetch_from
from headrace.model.errors import ErrorCode
from headrace.model.topics import TRANSACTION_STATE_TOPIC, TopicPartition
from headrace.records.batch import TRANSACTIONAL
from headrace.records.builder import NewRecord, ProducerStamp, build_batch
from headrace.services.groups.hashing import partition_of
from headrace.testing.sim.clients import FAILURES, Known, SimClient
from headrace.testing.sim.members import BY_NAME
from headrace.testing.sim.world import World
from headrace.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from headrace.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from headrace.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from headrace.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from headrace.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from headrace.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headrace.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

READ_COMMITTED = 1
STATE_PARTITIONS = 2
"""As many as `run.SETTINGS` gives the topic of the coordinators."""
TRANSACTION_COORDINATOR = 1
TIMEOUT_MS = 5_000
PRODUCE_TIMEOUT_MS = 2_000
LATE_SECONDS = 2.0
CALM_SECONDS = 30.0
"""After healing: by then everything that was open has timed out and ended."""
LOST = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    }
)
"""The transaction cannot go on: its time is over, or it was ended meanwhile."""


class Fate(Enum):
    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@dataclass
class Transaction:
    places: list[TopicPartition]
    fate: Fate = Fate.OPEN


@dataclass
class Ledger:
    """What every transaction wrote, and its outcome as far as its producer knows."""

    by_value: dict[bytes, Transaction] = field(default_factory=dict)

    def judge(self, world: World, found: dict[TopicPartition, list[bytes]]) -> None:
        seen: defaultdict[bytes, list[TopicPartition]] = defaultdict(list)
        for place, values in found.items():
            for value in values:
                seen[value].append(place)
        for value, transaction in self.by_value.items():
            there, wanted = sorted(seen.pop(value, [])), sorted(transaction.places)
            if transaction.fate is Fate.COMMITTED and there != wanted:
                world.violated(f"{value!r} was committed in {wanted}, readers find it in {there}")
            elif transaction.fate in (Fate.ABORTED, Fate.OPEN) and there:
                world.violated(f"{value!r} is {transaction.fate.value}, readers find it in {there}")
            elif there not in ([], wanted):
                world.violated(f"{value!r} is torn: written to {wanted}, readers find it in {there}")
            world.count(f"transactions {transaction.fate.value}")
        if seen:
            world.violated(f"readers find what nobody wrote: {dict(seen)}")


class Abandoned(Exception):
    """The transaction cannot go on; what became of it is in its fate."""


class Transactor(SimClient):
    def __init__(self, world: World, name: str, known: Known, ledger: Ledger, *, second: bool) -> None:
        super().__init__(world, name, known)
        self._ledger = ledger
        self._second = second
        """Transactions version 2."""
        self.group = f"group-{name}"
        self._stamp = ProducerStamp(-1, -1, 0)
        self._sequences: dict[TopicPartition, int] = {}
        self._strays: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        number = 0
        await self._take_over()
        while not self.stopping:
            number += 1
            value = f"{self.name}:{number}".encode()
            count = self.rng.randrange(1, len(self.places) + 1)
            transaction = self._ledger.by_value[value] = Transaction(self.rng.sample(list(self.places), count))
            try:
                await self._transact(transaction, value)
            except Abandoned:
                self.world.count("transactions abandoned")
                await self._take_over()
            await asyncio.sleep(self.rng.expovariate(5.0))
        for stray in self._strays:
            stray.cancel()

    async def _transact(self, transaction: Transaction, value: bytes) -> None:
        if not self._second:
            await self._add(transaction.places)
        for place in transaction.places:
            if self.rng.random() < 0.03:
                await self._die(transaction)
            if self.rng.random() < 0.05:
                self._send_and_forget(place, value)
                await self._end(transaction, commit=False)
                if not self._second:
                    await asyncio.sleep(LATE_SECONDS)
                    await self._take_over()
                return
            await self._send(place, value, transaction)
        await self._commit_position(transaction, int(value.rpartition(b":")[2]))
        if self.rng.random() < 0.03:
            await self._die(transaction)
        await self._end(transaction, commit=self.rng.random() < 0.8)

    async def _die(self, transaction: Transaction) -> None:
        """And come back: what is open is aborted by whoever takes over."""
        self.world.count("transactors died")
        transaction.fate = Fate.ABORTED
        raise Abandoned

    async def _take_over(self) -> None:
        request = InitProducerIdRequest(
            transactional_id=self.name, transaction_timeout_ms=TIMEOUT_MS, producer_id=-1, producer_epoch=-1
        )
        while True:
            try:
                answer = await self.ask(await self._coordinator(), request, InitProducerIdResponse, 5)
                if not answer.error_code:
                    self._begin_at(answer.producer_id, answer.producer_epoch)
                    return
                self.world.count(f"InitProducerId {ErrorCode(answer.error_code).name}")
            except FAILURES:
                await self.leave_entry()
            await self.pause()

    def _begin_at(self, producer_id: int, epoch: int) -> None:
        self._stamp = ProducerStamp(producer_id, epoch, 0)
        self._sequences = dict.fromkeys(self.places, 0)

    async def _coordinator(self) -> ClientConnection:
        return await self.coordinator(self.name, TRANSACTION_COORDINATOR)

    async def _add(self, places: list[TopicPartition]) -> None:
        topics = [AddPartitionsToTxnTopic(name=places[0].topic, partitions=[one.partition for one in places])]
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self._stamp.id,
            v3_and_below_producer_epoch=self._stamp.epoch,
            v3_and_below_topics=topics,
        )
        while True:
            try:
                answer = await self.ask(await self._coordinator(), request, AddPartitionsToTxnResponse, 3)
            except FAILURES:
                await self.leave_entry()
                await self.pause()
                continue
            results = answer.results_by_topic_v3_and_below[0].results_by_partition
            codes = {one.partition_error_code for one in results}
            if codes == {0}:
                return
            if codes & LOST:
                raise Abandoned
            await self.pause()

    async def _send(self, place: TopicPartition, value: bytes, transaction: Transaction) -> None:
        """Until it is known that it worked, or that it never will."""
        request = self._request(place, value)
        while True:
            try:
                connection = await self.cluster.broker(await self.leader(place))
                answer = await self.ask(connection, request, ProduceResponse, 12 if self._second else 11)
                code = answer.responses[0].partition_responses[0].error_code
            except FAILURES:
                await self.leave_entry()
                await self.pause()
                continue
            self.follow_hint(place, answer.responses[0].partition_responses[0])
            if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                self._sequences[place] += 1
                return
            self.world.count(f"transactional Produce {ErrorCode(code).name}")
            if code in LOST:
                transaction.fate = Fate.ABORTED
                raise Abandoned
            await self.pause()

    async def _commit_position(self, transaction: Transaction, number: int) -> None:
        """The number of the transaction, as the offset of a group of its own."""
        who: dict[str, Any] = {
            "transactional_id": self.name,
            "producer_id": self._stamp.id,
            "producer_epoch": self._stamp.epoch,
        }
        if not self._second:
            adding = AddOffsetsToTxnRequest(group_id=self.group, **who)

            async def add() -> int:
                return (await self.ask(await self._coordinator(), adding, AddOffsetsToTxnResponse, 3)).error_code

            await self._until_taken(transaction, "AddOffsetsToTxn", add)
        place = self.places[0]
        position = TxnOffsetCommitRequestPartition(
            partition_index=place.partition, committed_offset=number, committed_metadata=""
        )
        topics = [TxnOffsetCommitRequestTopic(name=place.topic, partitions=[position])]
        committing = TxnOffsetCommitRequest(group_id=self.group, topics=topics, **who)

        async def commit() -> int:
            coordinator = await self.coordinator(self.group)
            answer = await self.ask(coordinator, committing, TxnOffsetCommitResponse, 5 if self._second else 4)
            return answer.topics[0].partitions[0].error_code

        await self._until_taken(transaction, "TxnOffsetCommit", commit)

    async def _until_taken(
        self, transaction: Transaction, name: str, attempt: Callable[[], Awaitable[int]]
    ) -> None:
        """Until it is known that it worked, or that it never will."""
        while True:
            try:
                code = ErrorCode(await attempt())
            except FAILURES:
                await self.leave_entry()
            else:
                if code is ErrorCode.NONE:
                    return
                self.world.count(f"{name} {code.name}")
                if code in LOST:
                    transaction.fate = Fate.ABORTED
                    raise Abandoned
            await self.pause()

    def _send_and_forget(self, place: TopicPartition, value: bytes) -> None:
        """A request that nobody waits for any more: it arrives, if it does, some time later."""
        request = self._request(place, value)
        version = 12 if self._second else 11
        delay = self.rng.uniform(0.0, LATE_SECONDS)

        async def send() -> None:
            # On connections of its own: nothing that is done meanwhile waits for it.
            late = Cluster(self.cluster.env, self.cluster.bootstrap, self.cluster.settings)
            try:
                leader = (await late.metadata([place.topic])).leader(place)
                connection = await late.broker(leader)
                await asyncio.sleep(delay)
                await connection.request(request, ProduceResponse, highest=version)
            except FAILURES:
                pass
            finally:
                late.close()

        self.world.count("late Produces")
        task = asyncio.get_running_loop().create_task(send())
        self._strays.add(task)
        task.add_done_callback(self._strays.discard)

    def _request(self, place: TopicPartition, value: bytes) -> ProduceRequest:
        stamp = ProducerStamp(self._stamp.id, self._stamp.epoch, self._sequences[place])
        batch = build_batch([NewRecord(value, timestamp=0)], producer=stamp, attributes=TRANSACTIONAL)
        data = PartitionProduceData(index=place.partition, records=bytes(batch))
        return ProduceRequest(
            transactional_id=self.name,
            acks=-1,
            timeout_ms=PRODUCE_TIMEOUT_MS,
            topic_data=[TopicProduceData(name=place.topic, partition_data=[data])],
        )

    async def _end(self, transaction: Transaction, commit: bool) -> None:
        """Until it is known what became of it. An answer that is lost is asked for again: it must be the same."""
        request = EndTxnRequest(
            transactional_id=self.name,
            producer_id=self._stamp.id,
            producer_epoch=self._stamp.epoch,
            committed=commit,
        )
        asked = False
        while True:
            try:
                coordinator = await self._coordinator()
                answer = await self.ask(coordinator, request, EndTxnResponse, 5 if self._second else 4)
            except FAILURES:
                asked = True
                await self.leave_entry()
                await self.pause()
                continue
            code = ErrorCode(answer.error_code)
            if code is ErrorCode.NONE:
                transaction.fate = Fate.COMMITTED if commit else Fate.ABORTED
                if self._second:
                    self._begin_at(answer.producer_id, answer.producer_epoch)
                return
            self.world.count(f"EndTxn {code.name}")
            self._look_at_refusal(code, coordinator, request)
            if code in LOST:
                # Its time was over before it was asked for; or it is an answer to a repetition, which may be late.
                transaction.fate = Fate.UNKNOWN if asked and commit else Fate.ABORTED
                raise Abandoned
            await self.pause()

    def _look_at_refusal(self, code: ErrorCode, coordinator: ClientConnection, request: EndTxnRequest) -> None:
        """With version 2 every end has an epoch of its own, and what times out or is taken over is fenced.

        A commit that finds no transaction, or one that ended otherwise, means that the coordinator lost it.
        """
        if not self._second or code is not ErrorCode.INVALID_TXN_STATE:
            return
        brokers = [broker for broker, one in self.cluster._connections.items() if one is coordinator]
        place = TopicPartition(TRANSACTION_STATE_TOPIC, partition_of(self.name, STATE_PARTITIONS))
        if brokers and self.checks.leads(place, brokers[0]):
            self.world.violated(f"{self.name} got {code.name} from broker {brokers[0]} for {request}")

    # -- the end of a run

    async def check_position(self, found: dict[TopicPartition, list[bytes]]) -> None:
        """It is that of the last transaction that readers find."""
        name = self.name.encode()
        parts = [value.rpartition(b":") for values in found.values() for value in values]
        last = max((int(number) for who, _, number in parts if who == name), default=-1)
        place = self.places[0]
        topic = OffsetFetchRequestTopics(name=place.topic, partition_indexes=[place.partition])
        group = OffsetFetchRequestGroup(group_id=self.group, topics=[topic])
        request = OffsetFetchRequest(groups=[group], require_stable=True)
        while True:
            try:
                coordinator = await self.coordinator(self.group)
                (answer,) = (await self.ask(coordinator, request, OffsetFetchResponse, BY_NAME)).groups
                if not answer.error_code and not answer.topics[0].partitions[0].error_code:
                    break
            except FAILURES:
                pass
            await self.leave_entry()
            await self.pause()
        position = answer.topics[0].partitions[0].committed_offset
        if position != last:
            self.world.violated(f"{self.group} is at {position}, the last committed transaction is {last}")

    async def read_committed(self, place: TopicPartition, end: int) -> list[bytes]:
        """Everything that was committed below an offset. It is all there soon: nothing stays open."""
        found: list[bytes] = []
        offset = 0
        limits = FetchLimits(max_wait_ms=100, partition_max_bytes=1 << 16, isolation=READ_COMMITTED)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + CALM_SECONDS
        while offset < end:
            if loop.time() > deadline:
                self.world.violated(
                    f"{place}: a transaction is open at {offset}, {end - offset} records are held up"
                )
                break
            try:
                connection = await self.cluster.broker(await self.leader(place))
                (fetched,) = await fetch_from(connection, {place: offset}, limits)
            except FAILURES:
                await self.leave_entry()
                await self.pause()
                continue
            found += [bytes(record.value or b"") for record in fetched.records()]
            offset = fetched.next_offset
        return found
