"""Members of groups, of both protocols: they join, stay, and commit offsets that only grow.

A group has several members, each with a partition of its own to commit for, so that one's return is the other's
rebalance. Now and then a member asks what is committed, and compares.

A commit whose answer did not come may take effect later. So a member whose commit is unknown changes its identity
before it commits again: a classic one joins under another id, which begins another generation; one of the new
protocol leaves for certain and comes back under another id.
"""

from __future__ import annotations

from abc import abstractmethod

from headrace.client.connection import ClientConnection
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicPartition
from headrace.testing.sim.clients import FAILURES, Known, SimClient
from headrace.testing.sim.world import World
from headrace.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from headrace.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from headrace.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from headrace.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from headrace.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from headrace.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

BY_NAME = 9
"""The last version of OffsetCommit and OffsetFetch that names topics."""
SESSION_MS = 10_000
REBALANCE_MS = 2_500
"""Less than what a member waits for its answer."""
LEAVE_EPOCH = -1
COMMIT_SECONDS = 0.3
LOOK_CHANCE = 0.2


class GroupMember(SimClient):
    """What both kinds share: a group, and the partition that it commits for."""

    def __init__(self, world: World, name: str, known: Known, group: str, place: TopicPartition) -> None:
        super().__init__(world, name, known)
        self.group = group
        self.place = place
        self.member_id = ""
        self.epoch = -1
        """The generation, or the member epoch."""

    async def run(self) -> None:
        offset = 0
        is_member = False
        while not self.stopping:
            try:
                if not is_member:
                    await self.join(await self.coordinator(self.group))
                    is_member = True
                offset += 1
                is_member = await self._commit(offset)
                if self.rng.random() < LOOK_CHANCE:
                    await self._look()
            except FAILURES:
                is_member = False
                await self.leave_entry()
            if not is_member:
                self.forget()
            await self.wait(COMMIT_SECONDS)

    @abstractmethod
    async def join(self, coordinator: ClientConnection) -> None:
        """Become a member."""

    @abstractmethod
    async def stay(self, coordinator: ClientConnection) -> None:
        """Send a heartbeat; raises if it is no longer a member."""

    def forget_identity(self) -> None:
        """What it sent may arrive later: it must not be taken for what this member sends from now on."""

    async def _commit(self, offset: int) -> bool:
        """Whether it is still a member."""
        coordinator = await self.coordinator(self.group)
        await self.stay(coordinator)
        place = self.place
        commits = self.history.commits_of(self.group, place)
        commits.attempted = offset
        part = OffsetCommitRequestPartition(
            partition_index=place.partition, committed_offset=offset, committed_metadata=""
        )
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self.epoch,
            member_id=self.member_id,
            topics=[OffsetCommitRequestTopic(name=place.topic, partitions=[part])],
        )
        try:
            response = await self.ask(coordinator, request, OffsetCommitResponse, BY_NAME)
        except FAILURES:
            self.forget_identity()
            raise
        code = response.topics[0].partitions[0].error_code
        if code:
            self.world.count(f"commit {ErrorCode(code).name}")
            return False
        commits.acknowledge(offset, self.world.loop.time())
        self.world.count("commits")
        return True

    async def _look(self) -> None:
        """Compare what is committed with what was acknowledged."""
        asked = self.world.loop.time()
        offset = await self._fetch_committed()
        if offset is not None:
            self.world.count("commits looked at")
            self.history.committed_offset_was(self.group, self.place, offset, asked)

    async def committed(self) -> int:
        """What the coordinator says, however long it takes."""
        while True:
            try:
                offset = await self._fetch_committed()
                if offset is not None:
                    return offset
            except FAILURES:
                pass
            await self.leave_entry()
            await self.pause()

    async def _fetch_committed(self) -> int | None:
        """None if the coordinator could not say."""
        coordinator = await self.coordinator(self.group)
        topic = OffsetFetchRequestTopics(name=self.place.topic, partition_indexes=[self.place.partition])
        group = OffsetFetchRequestGroup(group_id=self.group, topics=[topic])
        request = OffsetFetchRequest(groups=[group], require_stable=True)
        response = await self.ask(coordinator, request, OffsetFetchResponse, BY_NAME)
        found = response.groups[0]
        part = found.topics[0].partitions[0] if not found.error_code else None
        return part.committed_offset if part is not None and not part.error_code else None


class ClassicMember(GroupMember):
    def forget_identity(self) -> None:
        self.member_id = ""

    async def join(self, coordinator: ClientConnection) -> None:
        response = await self._join(coordinator)
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            response = await self._join(coordinator)
        if response.error_code:
            self.member_id = ""
            raise KafkaError(ErrorCode(response.error_code))
        self.member_id, self.epoch = response.member_id, response.generation_id
        plan = [
            SyncGroupRequestAssignment(member_id=member.member_id, assignment=b"all")
            for member in response.members
        ]
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.epoch,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=plan,
        )
        _check((await self.ask(coordinator, request, SyncGroupResponse)).error_code)

    async def _join(self, coordinator: ClientConnection) -> JoinGroupResponse:
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\0\xff\xff\xff\xff")],
        )
        return await self.ask(coordinator, request, JoinGroupResponse)

    async def stay(self, coordinator: ClientConnection) -> None:
        request = HeartbeatRequest(group_id=self.group, generation_id=self.epoch, member_id=self.member_id)
        _check((await self.ask(coordinator, request, HeartbeatResponse)).error_code)


class ConsumerMember(GroupMember):
    """KIP-848."""

    def __init__(self, world: World, name: str, known: Known, group: str, place: TopicPartition) -> None:
        super().__init__(world, name, known, group, place)
        self._lives = 0

    async def join(self, coordinator: ClientConnection) -> None:
        if self.member_id:
            code = (await self._beat(coordinator, LEAVE_EPOCH)).error_code
            if code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND):
                raise KafkaError(ErrorCode(code))
        self._lives += 1
        self.member_id = f"{self.name}-{self._lives}"
        response = await self._beat(coordinator, 0)
        _check(response.error_code)
        self.epoch = response.member_epoch

    async def stay(self, coordinator: ClientConnection) -> None:
        response = await self._beat(coordinator, self.epoch)
        _check(response.error_code)
        self.epoch = response.member_epoch

    async def _beat(self, coordinator: ClientConnection, epoch: int) -> ConsumerGroupHeartbeatResponse:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=epoch,
            rebalance_timeout_ms=REBALANCE_MS if epoch == 0 else -1,
            subscribed_topic_names=["orders"] if epoch == 0 else None,
            topic_partitions=[] if epoch == 0 else None,
        )
        return await self.ask(coordinator, request, ConsumerGroupHeartbeatResponse)


def _check(code: int) -> None:
    if code:
        raise KafkaError(ErrorCode(code))
