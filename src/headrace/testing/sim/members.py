"""Members of groups, of both protocols: they join, stay, and commit offsets that only grow.

A commit whose answer did not come may take effect later. So a member whose commit is unknown changes its identity
before it commits again: a classic one joins anew, which begins another generation; one of the new protocol leaves
for certain and comes back under another id.
"""

from __future__ import annotations

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
LEAVE_EPOCH = -1
COMMIT_SECONDS = 0.3


class GroupMember(SimClient):
    """What both kinds share: a group of its own, in which it commits."""

    def __init__(self, world: World, name: str, known: Known) -> None:
        super().__init__(world, name, known)
        self.group = f"group-{name}"
        self.member_id = ""
        self.epoch = -1
        """The generation, or the member epoch."""

    async def run(self) -> None:
        offset = 0
        is_member = False
        while not self.stopping:
            try:
                if not is_member:
                    await self.join(await self.cluster.coordinator(self.group))
                    is_member = True
                offset += 1
                is_member = await self._commit(offset)
            except FAILURES:
                is_member = False
                await self.leave_entry()
            await self.pause(COMMIT_SECONDS)

    async def join(self, coordinator: ClientConnection) -> None:
        raise NotImplementedError

    async def stay(self, coordinator: ClientConnection) -> None:
        raise NotImplementedError

    async def _commit(self, offset: int) -> bool:
        """Whether it is still a member."""
        coordinator = await self.cluster.coordinator(self.group)
        await self.stay(coordinator)
        place = self.places[0]
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
        response = await self.ask(coordinator, request, OffsetCommitResponse, BY_NAME)
        code = response.topics[0].partitions[0].error_code
        if code:
            self.world.count(f"commit {ErrorCode(code).name}")
            return False
        commits.acknowledged = offset
        self.world.count("commits")
        return True

    async def committed(self, place: TopicPartition) -> int:
        """What the coordinator says, however long it takes."""
        while True:
            try:
                coordinator = await self.cluster.coordinator(self.group)
                topic = OffsetFetchRequestTopics(name=place.topic, partition_indexes=[place.partition])
                group = OffsetFetchRequestGroup(group_id=self.group, topics=[topic])
                request = OffsetFetchRequest(groups=[group], require_stable=True)
                response = await self.ask(coordinator, request, OffsetFetchResponse, BY_NAME)
                found = response.groups[0]
                part = found.topics[0].partitions[0] if not found.error_code else None
                if part is not None and not part.error_code:
                    return part.committed_offset
            except FAILURES:
                pass
            await self.leave_entry()
            await self.pause()


class ClassicMember(GroupMember):
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
            rebalance_timeout_ms=SESSION_MS,
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

    def __init__(self, world: World, name: str, known: Known) -> None:
        super().__init__(world, name, known)
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
            rebalance_timeout_ms=SESSION_MS if epoch == 0 else -1,
            subscribed_topic_names=["orders"] if epoch == 0 else None,
            topic_partitions=[] if epoch == 0 else None,
        )
        return await self.ask(coordinator, request, ConsumerGroupHeartbeatResponse)


def _check(code: int) -> None:
    if code:
        raise KafkaError(ErrorCode(code))
