"""A hundred members of one group in one event loop: they join, settle, send heartbeats and commit, and leave.

Each member has a connection of its own with one request in flight. Two protocols: the classic one (JoinGroup,
SyncGroup, Heartbeat) and that of KIP-848 (ConsumerGroupHeartbeat), in the versions that a current client speaks.
A group has settled when every member holds its part in one and the same generation, and the parts cover the
topic's partitions, each once. Answers that belong to a rebalance (a member id is needed, a rebalance is under
way) are no errors; any other error code raises ValueError.
"""

from __future__ import annotations

import asyncio
import struct
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from headrace.model.topics import TopicId
from headrace.testing.process import HOST
from headrace.testing.raw_client import frame, request_header
from headrace.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from headrace.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from headrace.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from headrace.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from headrace.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from headrace.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from headrace.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from headrace.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from headrace.wire.schema import Request, Response

SESSION_TIMEOUT_MS = 45_000
REBALANCE_TIMEOUT_MS = 60_000
SETTLE_TIMEOUT_S = 60.0
PACE_S = 0.05
"""How long a member that has nothing to answer waits before its next heartbeat while the group settles."""
MEMBER_ID_REQUIRED, REBALANCE_IN_PROGRESS = 79, 27
LEAVING = -1
COMMITTED_OFFSET = 1
PROTOCOL_TYPE, ASSIGNOR = "consumer", "range"
VERSIONS: dict[type[Request], int] = {
    FindCoordinatorRequest: 3,
    OffsetFetchRequest: 7,
    JoinGroupRequest: 9,
    SyncGroupRequest: 5,
    HeartbeatRequest: 4,
    LeaveGroupRequest: 5,
    OffsetCommitRequest: 9,
    ConsumerGroupHeartbeatRequest: 1,
}
"""All of them flexible: the header ends with tagged fields."""

R = TypeVar("R", bound=Response)


def encoded(request: Request) -> bytes:
    """The frame of a request. All have the same correlation id: a connection has one in flight."""
    version = VERSIONS[type(request)]
    return frame(request_header(request.api_key, version, 1, "bench") + b"\0" + request.encode(version))


def decoded(kind: type[R], request: type[Request], answer: bytes) -> R:
    return kind.decode(answer, VERSIONS[request], 5)


class Link(asyncio.Protocol):
    """A connection with one request in flight."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._waiting: asyncio.Future[bytes] | None = None
        self._on_answer: Callable[[bytes], None] = _ignore

    @staticmethod
    async def open(port: int) -> Link:
        _, link = await asyncio.get_running_loop().create_connection(Link, HOST, port)
        return link

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(ConnectionResetError("the broker closed the connection"))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if len(self._buffer) < 4:
            return
        end = 4 + int.from_bytes(self._buffer[:4], "big")
        if len(self._buffer) >= end:
            answer = bytes(self._buffer[4:end])
            del self._buffer[:end]
            self._on_answer(answer)

    def _begin(self, on_answer: Callable[[bytes], None]) -> tuple[asyncio.Transport, asyncio.Future[bytes]]:
        assert self._transport is not None, "the connection is not open"
        self._on_answer = on_answer
        self._waiting = asyncio.get_running_loop().create_future()
        return self._transport, self._waiting

    async def ask(self, request: Request, kind: type[R]) -> R:
        return decoded(kind, type(request), await self.exchange(encoded(request)))

    async def exchange(self, request: bytes) -> bytes:
        """The answer to one frame."""
        transport, waiting = self._begin(self._answered)
        transport.write(request)
        return await waiting

    def _answered(self, answer: bytes) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(answer)

    async def repeat(self, request: bytes, end: float, error_of: Callable[[bytes], int]) -> Exchanges:
        """Sends the same request again and again until `end` (perf_counter)."""
        found = Exchanges()
        sent = 0.0

        def next_one(answer: bytes) -> None:
            nonlocal sent
            now = time.perf_counter()
            found.take(now - sent, answer, error_of)
            if now >= end:
                self._answered(answer)
                return
            sent = now
            transport.write(request)

        transport, waiting = self._begin(next_one)
        sent = time.perf_counter()
        transport.write(request)
        await waiting
        return found


def _ignore(answer: bytes) -> None:
    """An answer that nobody waits for any more."""


@dataclass(slots=True)
class Exchanges:
    """What repeating a request gave. An answer equal to one that was good is not decoded again."""

    seconds: list[float] = field(default_factory=list)
    error_codes: list[int] = field(default_factory=list)
    good: bytes = b""

    def take(self, seconds: float, answer: bytes, error_of: Callable[[bytes], int]) -> None:
        self.seconds.append(seconds)
        if answer == self.good:
            return
        if code := error_of(answer):
            self.error_codes.append(code)
        else:
            self.good = answer


@dataclass(frozen=True, slots=True)
class Part:
    """What one member holds: a generation, or member epoch, and partitions."""

    generation: int
    partitions: tuple[int, ...]


def is_settled(parts: Mapping[int, Part], members: int) -> bool:
    """All members hold one partition each in the same generation; the topic has as many partitions as members.

    One each, because a first member that holds everything while the others joined with nothing covers it too.
    """
    if len(parts) < members or len({part.generation for part in parts.values()}) > 1:
        return False
    held = sorted(part.partitions for part in parts.values())
    return held == [(number,) for number in range(members)]


class Group(ABC):
    """Members of one group, one per link, and what each of them holds."""

    def __init__(self, name: str, topic: str, links: Sequence[Link]) -> None:
        self.name = name
        self.topic = topic
        self.links = links
        self.member_ids = [""] * len(links)
        self.parts: dict[int, Part] = {}
        self._settled_at = 0.0

    async def settle(self) -> float:
        """Seconds from the first member's join until the group has settled."""
        await wait_for_coordinator(self.links[0], self.name)
        started = time.perf_counter()
        lives = (self._live(number, link) for number, link in enumerate(self.links))
        await asyncio.wait_for(asyncio.gather(*lives), SETTLE_TIMEOUT_S)
        return self._settled_at - started

    @property
    def settled(self) -> bool:
        return self._settled_at > 0

    def _hold(self, number: int, part: Part) -> None:
        if self.parts.get(number) != part:
            self.parts[number] = part
            if not self.settled and is_settled(self.parts, len(self.links)):
                self._settled_at = time.perf_counter()

    @abstractmethod
    async def _live(self, number: int, link: Link) -> None:
        """Joins and stays a member until the whole group has settled."""

    @abstractmethod
    def heartbeat(self, number: int) -> Request:
        """A heartbeat of a settled member that has nothing new to say."""

    @abstractmethod
    def heartbeat_error(self, answer: bytes) -> int: ...

    @abstractmethod
    async def leave(self) -> None:
        """All members leave, so that no session runs out during a later measurement."""


class ClassicGroup(Group):
    async def _live(self, number: int, link: Link) -> None:
        while not self.settled:
            joined = await link.ask(self._join_request(number), JoinGroupResponse)
            self.member_ids[number] = joined.member_id
            if joined.error_code == MEMBER_ID_REQUIRED:
                continue
            refuse(joined.error_code, "JoinGroup")
            synced = await link.ask(self._sync_request(joined), SyncGroupResponse)
            if synced.error_code == REBALANCE_IN_PROGRESS:
                continue
            refuse(synced.error_code, "SyncGroup")
            self._hold(number, Part(joined.generation_id, assigned_partitions(synced.assignment, self.topic)))
            await self._stay(number, link)

    async def _stay(self, number: int, link: Link) -> None:
        """Heartbeats until the group has settled or calls for a rebalance."""
        while not self.settled:
            code = (await link.ask(self.heartbeat(number), HeartbeatResponse)).error_code
            if code == REBALANCE_IN_PROGRESS:
                return
            refuse(code, "Heartbeat")
            await asyncio.sleep(PACE_S)

    def _join_request(self, number: int) -> JoinGroupRequest:
        protocol = JoinGroupRequestProtocol(name=ASSIGNOR, metadata=subscription(self.topic))
        return JoinGroupRequest(
            group_id=self.name,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=self.member_ids[number],
            protocol_type=PROTOCOL_TYPE,
            protocols=[protocol],
        )

    def _sync_request(self, joined: JoinGroupResponse) -> SyncGroupRequest:
        """With everyone's assignment if the member leads: only a leader was told the members."""
        total, count = len(self.links), len(joined.members)
        assignments = [
            SyncGroupRequestAssignment(
                member_id=member.member_id, assignment=assignment(self.topic, range(place, total, count))
            )
            for place, member in enumerate(joined.members)
        ]
        return SyncGroupRequest(
            group_id=self.name,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=ASSIGNOR,
            assignments=assignments,
        )

    def heartbeat(self, number: int) -> HeartbeatRequest:
        return HeartbeatRequest(
            group_id=self.name,
            generation_id=self.parts[number].generation,
            member_id=self.member_ids[number],
        )

    def heartbeat_error(self, answer: bytes) -> int:
        return decoded(HeartbeatResponse, HeartbeatRequest, answer).error_code

    def commit(self, number: int) -> OffsetCommitRequest:
        """A commit of the one partition that the member holds."""
        part = self.parts[number]
        place = OffsetCommitRequestPartition(
            partition_index=part.partitions[0], committed_offset=COMMITTED_OFFSET, committed_metadata=""
        )
        return OffsetCommitRequest(
            group_id=self.name,
            generation_id_or_member_epoch=part.generation,
            member_id=self.member_ids[number],
            topics=[OffsetCommitRequestTopic(name=self.topic, partitions=[place])],
        )

    async def missing_commits(self, members: int) -> int:
        """How many of the first members' commits the broker does not give back."""
        places = [self.parts[number].partitions[0] for number in range(members)]
        topic = OffsetFetchRequestTopic(name=self.topic, partition_indexes=places)
        request = OffsetFetchRequest(group_id=self.name, topics=[topic])
        answer = await self.links[0].ask(request, OffsetFetchResponse)
        refuse(answer.error_code, "OffsetFetch")
        stored = [place.committed_offset for found in answer.topics for place in found.partitions]
        return members - stored.count(COMMITTED_OFFSET)

    async def leave(self) -> None:
        members = [MemberIdentity(member_id=member_id) for member_id in self.member_ids]
        request = LeaveGroupRequest(group_id=self.name, members=members)
        refuse((await self.links[0].ask(request, LeaveGroupResponse)).error_code, "LeaveGroup")


class ConsumerGroup(Group):
    """The protocol of KIP-848: the broker assigns, with its default assignor."""

    def __init__(self, name: str, topic: str, links: Sequence[Link]) -> None:
        super().__init__(name, topic, links)
        self.member_ids = [f"{name}-{number}" for number in range(len(links))]

    async def _live(self, number: int, link: Link) -> None:
        epoch, held = 0, dict[TopicId, list[int]]()
        while not self.settled:
            answer = await link.ask(self._report(number, epoch, held), ConsumerGroupHeartbeatResponse)
            refuse(answer.error_code, "ConsumerGroupHeartbeat")
            epoch = answer.member_epoch
            if answer.assignment is not None:
                held = {one.topic_id: one.partitions for one in answer.assignment.topic_partitions}
            self._hold(number, Part(epoch, tuple(place for places in held.values() for place in places)))
            if answer.assignment is None:
                await asyncio.sleep(PACE_S)  # a new assignment is confirmed at once, as clients do

    def _report(self, number: int, epoch: int, held: Mapping[TopicId, list[int]]) -> ConsumerGroupHeartbeatRequest:
        joining = epoch == 0
        return ConsumerGroupHeartbeatRequest(
            group_id=self.name,
            member_id=self.member_ids[number],
            member_epoch=epoch,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS if joining else -1,
            subscribed_topic_names=[self.topic] if joining else None,
            topic_partitions=[TopicPartitions(topic_id=topic, partitions=held[topic]) for topic in held],
        )

    def heartbeat(self, number: int) -> ConsumerGroupHeartbeatRequest:
        return self._bare_heartbeat(number, self.parts[number].generation)

    def heartbeat_error(self, answer: bytes) -> int:
        return decoded(ConsumerGroupHeartbeatResponse, ConsumerGroupHeartbeatRequest, answer).error_code

    def _bare_heartbeat(self, number: int, epoch: int) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(
            group_id=self.name, member_id=self.member_ids[number], member_epoch=epoch
        )

    async def leave(self) -> None:
        for number, link in enumerate(self.links):
            request = self._bare_heartbeat(number, LEAVING)
            refuse((await link.ask(request, ConsumerGroupHeartbeatResponse)).error_code, "leaving")


async def wait_for_coordinator(link: Link, group: str) -> None:
    """Until the broker is ready to coordinate the group."""
    deadline = time.monotonic() + SETTLE_TIMEOUT_S
    where = FindCoordinatorRequest(key=group)
    probe = OffsetFetchRequest(group_id=group, topics=[])
    while time.monotonic() < deadline:
        found = await link.ask(where, FindCoordinatorResponse)
        if found.error_code == 0 and (await link.ask(probe, OffsetFetchResponse)).error_code == 0:
            return
        await asyncio.sleep(PACE_S)
    raise TimeoutError(f"no coordinator for {group}")


def commit_error(answer: bytes) -> int:
    """The first error code in an answer to OffsetCommit."""
    topics = decoded(OffsetCommitResponse, OffsetCommitRequest, answer).topics
    codes = (partition.error_code for topic in topics for partition in topic.partitions)
    return next((code for code in codes if code), 0)


def refuse(code: int, what: str) -> None:
    if code:
        raise ValueError(f"{what} was answered with error {code}")


def subscription(topic: str) -> bytes:
    """What a consumer says in JoinGroup, version 0."""
    return struct.pack(">hih", 0, 1, len(topic)) + topic.encode() + struct.pack(">i", -1)


def assignment(topic: str, partitions: Iterable[int]) -> bytes:
    """What a leader says in SyncGroup for a member, version 0."""
    places = list(partitions)
    head = struct.pack(">hih", 0, 1, len(topic)) + topic.encode()
    return head + struct.pack(f">i{len(places)}ii", len(places), *places, -1)


def assigned_partitions(data: bytes, topic: str) -> tuple[int, ...]:
    """The partitions in an assignment of this one topic."""
    position = 8 + len(topic)
    (count,) = struct.unpack_from(">i", data, position)
    return struct.unpack_from(f">{count}i", data, position + 4)
