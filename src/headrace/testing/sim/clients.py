"""The users of the cluster: producers, readers, members of groups, and an administrator of topics.

Each is a process on a host of its own and speaks the protocol over the simulated network. Producers with acks=all
are idempotent and retry a batch, with the same sequence number, until they know its outcome.
"""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from headrace.client.address import Address
from headrace.client.cluster import Cluster
from headrace.client.connection import ClientConnection, ClientSettings
from headrace.client.errors import ClientError
from headrace.client.protocol import NO_VERSION_LIMIT
from headrace.client.requests import GROUP_COORDINATOR
from headrace.client.view import ClusterView
from headrace.metadata.image import NO_LEADER
from headrace.model.errors import ErrorCode, KafkaError, ProtocolError
from headrace.model.topics import TopicPartition
from headrace.records.batch import parse_header
from headrace.records.builder import NO_PRODUCER, NewRecord, ProducerStamp, build_batch
from headrace.records.reader import read_records
from headrace.storage.scan import split_batches
from headrace.testing.sim.brokers import PORT, Machine
from headrace.testing.sim.checks import Checks
from headrace.testing.sim.disk import MachineDisk, ProcessDisk
from headrace.testing.sim.history import History
from headrace.testing.sim.loop import Process
from headrace.testing.sim.world import World
from headrace.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from headrace.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from headrace.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from headrace.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from headrace.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from headrace.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headrace.wire.schema import Request, Response

R = TypeVar("R", bound=Response)

FAILURES = (ClientError, KafkaError, ProtocolError, OSError)
ACKS_ALL, ACKS_LEADER = -1, 1
BY_NAME_PRODUCE = 12
BY_NAME_FETCH = 12
REQUEST_SECONDS = 4.0
PRODUCE_TIMEOUT_MS = 3_000
RETRY_SECONDS = 0.15
VIEW_SECONDS = 1.0
IMPOSSIBLE = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_RECORD,
    }
)
"""Errors that an idempotent producer that does everything right must never get."""


@dataclass(frozen=True, slots=True)
class Known:
    """The arguments of every client."""

    machines: Sequence[Machine]
    checks: Checks
    history: History
    places: Sequence[TopicPartition]
    """The partitions to which producers write and from which readers read."""


class SimClient(ABC):
    def __init__(self, world: World, name: str, known: Known) -> None:
        self.world = world
        self.name = name
        self.checks = known.checks
        self.history = known.history
        self.places = known.places
        self.rng = world.fork()
        self.process = Process(name, name)
        disk = ProcessDisk(MachineDisk(random.Random(0), lambda: 0), lambda: None)
        env = world.env(self.process, disk, 1.0 + self.rng.uniform(-0.01, 0.01), self.rng.uniform(0, 1000))
        brokers = [Address(machine.host, PORT) for machine in known.machines]
        self.rng.shuffle(brokers)
        settings = ClientSettings(client_id=name, connect_timeout_s=1.0, request_timeout_s=REQUEST_SECONDS)
        self.cluster = Cluster(env, tuple(brokers), settings)
        self._views: dict[str, tuple[float, ClusterView]] = {}
        self._coordinators: dict[tuple[str, int], tuple[float, int]] = {}
        """The coordinators that it found, by key, and until when it uses them."""
        self._named: dict[TopicPartition, int] = {}
        """The leaders that answers have named since it last read metadata."""
        self.stopping = False
        self.task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        self.task = self.world.loop.create_task(self.run(), context=self.process.context)

    @abstractmethod
    async def run(self) -> None:
        """Run until it is told to stop."""

    async def view(self, topic: str) -> ClusterView:
        """A topic's metadata. As in real clients, a copy is used for a while, and read again after a failure."""
        until, view = self._views.get(topic, (0.0, None))
        if view is None or until < self.world.loop.time():
            view = await self.cluster.metadata([topic])
            self._views[topic] = self.world.loop.time() + VIEW_SECONDS, view
            self._named.clear()
        return view

    async def leader(self, place: TopicPartition) -> int:
        view = await self.view(place.topic)
        return self._named.get(place, view.leader(place))

    def follow_hint(self, place: TopicPartition, answer: PartitionProduceResponse) -> None:
        """As librdkafka does: also the hint of a success, with which a stopping leader names its successor."""
        if answer.current_leader.leader_id != NO_LEADER:
            self.world.count("leaders named with a success" if not answer.error_code else "leaders named")
            self._named[place] = answer.current_leader.leader_id

    async def coordinator(self, key: str, kind: int = GROUP_COORDINATOR) -> ClientConnection:
        until, broker = self._coordinators.get((key, kind), (0.0, -1))
        if until >= self.world.loop.time():
            return await self.cluster.broker(broker)
        found = await self.cluster.coordinator(key, kind)
        broker = next(broker for broker, one in self.cluster._connections.items() if one is found)
        self._coordinators[key, kind] = self.world.loop.time() + VIEW_SECONDS, broker
        return found

    def forget(self) -> None:
        """Forget its copies, which may be outdated."""
        self._views.clear()
        self._named.clear()
        self._coordinators.clear()

    async def pause(self, seconds: float = RETRY_SECONDS) -> None:
        """Wait before another attempt."""
        self.forget()
        await self.wait(seconds)

    async def wait(self, seconds: float) -> None:
        await asyncio.sleep(seconds * self.rng.uniform(0.5, 1.5))

    async def ask(
        self, connection: ClientConnection, request: Request, answer: type[R], highest: int = NO_VERSION_LIMIT
    ) -> R:
        """Send a request. A connection that owes an answer is not used again: the next request would get it."""
        try:
            return await connection.request(request, answer, highest=highest)
        except FAILURES:
            connection.close()
            raise

    async def leave_entry(self) -> None:
        """Ask another broker next time: the last one may not be up to date."""
        self.forget()
        if self.cluster._entry is not None:
            self.cluster._entry.close()
            self.cluster._entry = None


class Producer(SimClient):
    """Sends one batch at a time, to partitions in turn."""

    acks = ACKS_ALL

    async def run(self) -> None:
        stamp = await self._begin() if self.acks == ACKS_ALL else None
        sequences = dict.fromkeys(self.places, 0)
        number = 0
        while not self.stopping:
            place = self.rng.choice(self.places)
            count = self.rng.choice((1, 1, 1, 2, 5))
            values = [f"{self.name}:{number + index}".encode() for index in range(count)]
            number += count
            if stamp is None:
                await self._send_once(place, values)
            else:
                await self._send(place, values, ProducerStamp(stamp.id, stamp.epoch, sequences[place]))
                sequences[place] += count
            await asyncio.sleep(self.rng.expovariate(10.0))

    def record(self, value: bytes) -> NewRecord:
        return NewRecord(value, timestamp=0)

    async def _begin(self) -> ProducerStamp:
        while True:
            try:
                entry = await self.cluster.entry()
                request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
                response = await entry.request(request, InitProducerIdResponse)
                if not response.error_code:
                    return ProducerStamp(response.producer_id, response.producer_epoch, 0)
            except FAILURES:
                pass
            await self.leave_entry()
            await self.pause()

    async def _send(self, place: TopicPartition, values: list[bytes], stamp: ProducerStamp) -> None:
        """Send a batch until it is known to be stored."""
        batch = build_batch([self.record(value) for value in values], producer=stamp)
        leader = -1
        while True:
            try:
                if leader < 0:
                    leader = await self.leader(place)
                answer = await self._produce(leader, place, bytes(batch))
            except FAILURES:
                self.world.count("produce unknown")
                leader = -1
                await self.leave_entry()
                await self.pause()
                continue
            if answer.error_code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                offset = answer.base_offset if not answer.error_code else -1
                self.history.acknowledged(place, values, offset)
                if offset >= 0:
                    self.checks.acknowledged(place, offset, values)
                return
            self.world.count(f"produce {ErrorCode(answer.error_code).name}")
            if answer.error_code in IMPOSSIBLE and self.checks.leads(place, leader):
                code = ErrorCode(answer.error_code).name
                self.world.violated(f"{self.name} got {code} for {values} on {place}: {answer.error_message}")
                return
            if answer.error_code not in (
                ErrorCode.NOT_ENOUGH_REPLICAS,
                ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
            ):
                leader = -1
            if self.rng.random() < 0.3:
                await self.leave_entry()
            await self.pause()

    async def _send_once(self, place: TopicPartition, values: list[bytes]) -> None:
        batch = build_batch([self.record(value) for value in values], producer=NO_PRODUCER)
        try:
            leader = await self.leader(place)
            asked = self.world.loop.time()
            answer = await self._produce(leader, place, bytes(batch))
        except FAILURES:
            await self.leave_entry()
            await self.pause()
            return
        if not answer.error_code:
            self.checks.answered_as_leader(place, leader, asked)
            self.history.acknowledged_lossy(place, values)
        else:
            await self.leave_entry()
            await self.pause()

    async def _produce(self, leader: int, place: TopicPartition, batch: bytes) -> PartitionProduceResponse:
        connection = await self.cluster.broker(leader)
        data = PartitionProduceData(index=place.partition, records=batch)
        request = ProduceRequest(
            acks=self.acks,
            timeout_ms=PRODUCE_TIMEOUT_MS,
            topic_data=[TopicProduceData(name=place.topic, partition_data=[data])],
        )
        response = await self.ask(connection, request, ProduceResponse, BY_NAME_PRODUCE)
        answer = response.responses[0].partition_responses[0]
        self.follow_hint(place, answer)
        return answer


class Reader(SimClient):
    """Reads partitions from any replica, and checks the records."""

    def __init__(self, world: World, name: str, known: Known) -> None:
        super().__init__(world, name, known)
        self._epochs: dict[TopicPartition, int] = {}
        """The leader epochs of the last records that were read."""

    async def run(self) -> None:
        positions = dict.fromkeys(self.places, 0)
        while not self.stopping:
            place = self.rng.choice(self.places)
            try:
                view = await self.view(place.topic)
                partition = view.topic(place.topic).partitions[place.partition]
                broker = partition.leader if self.rng.random() < 0.5 else self.rng.choice(partition.replicas)
                records = await self.fetch(broker, place, positions[place])
                for offset, value in records:
                    self.checks.was_read(place, offset, value, f"broker {broker}")
                    positions[place] = offset + 1
                self.world.count("records read", len(records))
                if self.rng.random() < 0.3 and place in self._epochs:
                    await self.check_position(place, positions[place])
            except FAILURES:
                await self.leave_entry()
            await self.wait(RETRY_SECONDS)

    async def fetch(self, broker: int, place: TopicPartition, offset: int) -> list[tuple[int, bytes]]:
        connection = await self.cluster.broker(broker)
        wanted = FetchPartition(partition=place.partition, fetch_offset=offset, partition_max_bytes=1 << 16)
        request = FetchRequest(
            max_wait_ms=100, min_bytes=1, topics=[FetchTopic(topic=place.topic, partitions=[wanted])]
        )
        response = await self.ask(connection, request, FetchResponse, BY_NAME_FETCH)
        part = response.responses[0].partitions[0]
        if part.error_code:
            raise KafkaError(ErrorCode(part.error_code))
        data = memoryview(part.records or b"")
        self.checks.look()
        for position, _ in split_batches(data):
            self._epochs[place] = parse_header(data, position).leader_epoch
        return [
            (record.offset, bytes(record.value or b""))
            for position, size in split_batches(data)
            for record in read_records(data[position : position + size])
            if record.offset >= offset
        ]

    async def check_position(self, place: TopicPartition, position: int) -> None:
        """Check as clients do after an election (KIP-320): the leader must not say that what was read is gone."""
        partition = (await self.view(place.topic)).topic(place.topic).partitions[place.partition]
        epoch = self._epochs[place]
        if partition.leader_epoch < epoch:
            return  # What was read is newer than the view.
        asked = OffsetForLeaderPartition(
            partition=place.partition, current_leader_epoch=partition.leader_epoch, leader_epoch=epoch
        )
        request = OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[OffsetForLeaderTopic(topic=place.topic, partitions=[asked])]
        )
        connection = await self.cluster.broker(partition.leader)
        response = await self.ask(connection, request, OffsetForLeaderEpochResponse)
        answer = response.topics[0].partitions[0]
        if answer.error_code:
            raise KafkaError(ErrorCode(answer.error_code))
        self.world.count("positions checked")
        if answer.end_offset < position:
            self.world.violated(
                f"{place}: broker {partition.leader} says that epoch {epoch} ends at {answer.end_offset}, and "
                f"records of it below {position} were read"
            )

    async def read_all(self, place: TopicPartition, end: int) -> dict[int, bytes]:
        """All records below an offset, from the leader, however long it takes."""
        found: dict[int, bytes] = {}
        offset = 0
        while offset < end:
            try:
                records = await self.fetch(await self.leader(place), place, offset)
                found.update(records)
                offset = max(found, default=-1) + 1
            except FAILURES:
                await self.leave_entry()
                await self.pause()
        return found


class Administrator(SimClient):
    """Creates topics, and keeps creating and deleting others while the run lasts."""

    def __init__(self, world: World, name: str, known: Known) -> None:
        super().__init__(world, name, known)
        self.there: dict[str, bool | None] = {}
        """Topics by name: true if it exists, false if it is gone, None if that is unknown."""

    async def create(self, name: str, partitions: int, **configs: str) -> None:
        """Create a topic; returns when it exists."""
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=3,
            configs=[
                CreatableTopicConfig(name=key.replace("_", "."), value=text) for key, text in configs.items()
            ],
        )
        while True:
            self.there[name] = None
            try:
                entry = await self.cluster.entry()
                request = CreateTopicsRequest(topics=[topic], timeout_ms=3000)
                response = await entry.request(request, CreateTopicsResponse)
                code = response.topics[0].error_code
                if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    self.there[name] = True
                    return
                self.world.say(f"{self.name}: {name} could not be made: {ErrorCode(code).name}")
            except FAILURES as error:
                self.world.say(f"{self.name}: {name} could not be made: {error}")
            await self.leave_entry()
            await self.pause()

    async def delete(self, name: str) -> None:
        """Delete a topic; returns when it is gone."""
        while True:
            self.there[name] = None
            try:
                entry = await self.cluster.entry()
                request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=3000)
                response = await entry.request(request, DeleteTopicsResponse)
                code = response.responses[0].error_code
                if code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                    self.there[name] = False
                    return
            except FAILURES:
                pass
            await self.leave_entry()
            await self.pause()

    async def run(self) -> None:
        number = 0
        while not self.stopping:
            await asyncio.sleep(self.rng.expovariate(0.5))
            number += 1
            await self.create(f"churn-{number % 3}", self.rng.randrange(1, 3))
            await asyncio.sleep(self.rng.expovariate(1.0))
            if self.rng.random() < 0.7:
                await self.delete(f"churn-{number % 3}")
