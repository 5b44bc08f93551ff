"""The consumer groups of this broker: one shard per partition of `__consumer_offsets` that it leads.

A group belongs to the partition that the hash of its id names, and the broker that leads the partition is its
coordinator. The topic is made when somebody first asks for a coordinator.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from typing import TypeVar

from headrace.config.broker_config import BrokerConfig
from headrace.config.dynamic import current_text
from headrace.config.naming import is_allowed
from headrace.env import Env
from headrace.groups.coordinator import GroupCoordinator
from headrace.groups.errors import GroupRequest, error_reply
from headrace.groups.messages import (
    CommitOffsets,
    CommitReply,
    ConsumerHeartbeat,
    GroupReply,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    OffsetToCommit,
    SyncGroup,
)
from headrace.metadata.cluster import ClusterMetadata
from headrace.metadata.image import MetadataImage, PartitionImage
from headrace.metadata.topic_decisions import TopicCreation
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import CONSUMER_OFFSETS_TOPIC, TopicPartition
from headrace.records.markers import EndMarker
from headrace.replication.partition import Partition
from headrace.replication.replica_set import ReplicaSet
from headrace.services.groups.answer import Answer
from headrace.services.groups.hashing import partition_of
from headrace.services.groups.quick_commit import AnswerOf, Member, QuickCommit
from headrace.services.groups.settings import GroupConfigsFeed, group_settings, shell_settings
from headrace.services.groups.shard import GroupShard, TransactionalCommit
from headrace.services.groups.topics import TopicsFeed, deleted_partitions
from headrace.services.shards import Shards, ShardState, TopicCreator, segment_bytes

log = logging.getLogger(__name__)

CONCURRENT_LOADS = 2
_OF_MEMBERS = (JoinGroup, SyncGroup, Heartbeat, LeaveGroup)
"""Refused without a group id wherever they arrive; offsets may be kept under an empty one."""

_MAKING_GROUPS = (JoinGroup, ConsumerHeartbeat, CommitOffsets)

R = TypeVar("R", bound=GroupReply)


class GroupService:
    def __init__(
        self,
        env: Env,
        config: BrokerConfig,
        metadata: ClusterMetadata,
        topics: TopicCreator,
        replicas: ReplicaSet,
    ) -> None:
        self._env = env
        self._config = config
        self._metadata = metadata
        self._group_settings = group_settings(config)
        self._shell_settings = shell_settings(config)
        self._topics = TopicsFeed(lambda: metadata.image)
        self._configs = GroupConfigsFeed(config, lambda: metadata.image)
        self._load_slots = asyncio.Semaphore(CONCURRENT_LOADS)
        self._shards = Shards(CONSUMER_OFFSETS_TOPIC, metadata, topics, replicas, self._new_shard)

    # -- keeping in step

    def follow(self, old: MetadataImage, new: MetadataImage) -> None:
        """This broker's partitions agree with `new`: load and unload shards accordingly."""
        deleted = deleted_partitions(old, new) if self._shards.follow(new) else None
        if deleted:
            for shard in self._shards:
                shard.forget_partitions(deleted)

    def _new_shard(self, partition: Partition) -> GroupShard:
        coordinator = GroupCoordinator(self._group_settings, self._topics.current(), self._new_id)
        return GroupShard(
            self._env,
            partition,
            coordinator,
            self._shell_settings,
            self._topics,
            self._configs,
            self._load_slots,
        )

    def _new_id(self) -> str:
        digits = self._env.rng.bytes(16).hex()
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))

    async def run(self) -> None:
        """Until cancelled: expire what is past its retention."""
        interval = self._config.integer("offsets.retention.check.interval.ms") / 1000
        while True:
            await self._env.clock.sleep(interval)
            for shard in self._shards:
                await shard.expire()

    def close(self) -> None:
        """The broker stops: waiting clients are told to look for another coordinator."""
        self._shards.close()

    # -- finding

    def coordinator_partition(self, group_id: str) -> PartitionImage | None:
        """Where the group is coordinated; None while the topic is not there."""
        return self._shards.partition(group_id)

    def offsets_partition(self, group_id: str) -> TopicPartition:
        """The partition of `__consumer_offsets`, which is there, that keeps the group."""
        count = len(self._metadata.image.topics[CONSUMER_OFFSETS_TOPIC].partitions)
        return TopicPartition(CONSUMER_OFFSETS_TOPIC, partition_of(group_id, count))

    async def ensure_topic(self) -> None:
        """Create `__consumer_offsets` if it is missing. KafkaError if that is impossible now."""
        await self._shards.ensure_topic(self.offsets_topic)

    def offsets_topic(self) -> TopicCreation:
        """How `__consumer_offsets` is to be created."""
        brokers = max(len(self._metadata.image.brokers), 1)
        return TopicCreation(
            CONSUMER_OFFSETS_TOPIC,
            self._config.integer("offsets.topic.num.partitions"),
            min(self._config.integer("offsets.topic.replication.factor"), brokers),
            configs={
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": segment_bytes(self._config, "offsets.topic.segment.bytes"),
            },
        )

    def shard(self, group_id: str) -> GroupShard:
        """The shard of a group; NOT_COORDINATOR if it is another broker's."""
        return self._shards.of(group_id)

    def coordinator(self, group_id: str) -> GroupCoordinator:
        """For reading a group; KafkaError if this broker does not know it, or not yet."""
        return self.shard(group_id).coordinator(group_id)

    def coordinators(self) -> Iterator[GroupCoordinator]:
        """All of this broker; KafkaError if one of them is not ready."""
        for shard in self._shards:
            yield shard.coordinator()

    def ready_coordinators(self) -> Iterator[GroupCoordinator]:
        """The groups that are loaded, for display."""
        for shard in self._shards:
            if shard.state is ShardState.ACTIVE:
                yield shard.coordinator()

    def _check_name(self, group_id: str, shard: GroupShard) -> None:
        """Refuse to make a group whose id the operator does not want; one that exists stays."""
        if shard.knows(group_id):
            return
        pattern = current_text(self._config, self._metadata.image.broker_configs, "headrace.group.name.pattern")
        if not is_allowed(pattern, group_id):
            shard.coordinator()
            detail = f"The group id '{group_id}' does not match headrace.group.name.pattern={pattern}"
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, detail)

    async def ask(self, request: GroupRequest, kind: type[R]) -> R:
        """The response to a request about one group, also if it is refused."""
        reply = self.begin(request)
        if type(reply) is Answer:
            reply = await reply
        assert isinstance(reply, kind), reply
        return reply

    def begin(self, request: GroupRequest) -> GroupReply | Answer:
        """The same without waiting: the response, if there is one at once."""
        group_id = request if isinstance(request, str) else request.group_id
        try:
            if not group_id and isinstance(request, _OF_MEMBERS):
                raise KafkaError(ErrorCode.INVALID_GROUP_ID)
            shard = self.shard(group_id)
            if isinstance(request, _MAKING_GROUPS):
                self._check_name(group_id, shard)
        except KafkaError as error:
            return error_reply(request, error.code, error.message)
        answer = shard.ask(request)
        return answer.result() if answer.done() else answer

    # -- transactions

    def transaction_partition(self, group_id: str) -> Partition:
        """The partition that the positions of a group are written to; KafkaError if they are not, or not yet."""
        shard = self.shard(group_id)
        shard.coordinator(group_id)
        return shard.partition

    async def commit_in_transaction(self, commit: TransactionalCommit) -> CommitReply:
        """Store offsets that count when their transaction is committed. The response, also if it is refused."""
        request = commit.request
        try:
            shard = self.shard(request.group_id)
            self._check_name(request.group_id, shard)
        except KafkaError as error:
            reply = error_reply(request, error.code, error.message)
        else:
            reply = await shard.commit_in_transaction(commit)
        assert isinstance(reply, CommitReply)
        return reply

    def end_transaction(self, index: int, marker: EndMarker) -> asyncio.Future[None]:
        """Write a marker into a partition of the topic; KafkaError, now or later, if that fails."""
        shard = self._shards.at(index)
        if shard is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return shard.end_transaction(marker)

    # -- heartbeats that change nothing

    def quick_heartbeat(self, group_id: str, generation: int, member_id: str, instance_id: str | None) -> bool:
        """Keep a classic member alive, if nothing else is to be done; otherwise `begin` has to be called."""
        shard = self._shards.find(group_id)
        return shard is not None and shard.quick_heartbeat(group_id, generation, member_id, instance_id)

    def quick_commit(
        self,
        member: Member,
        version: int,
        offsets: Sequence[OffsetToCommit],
        answer_of: AnswerOf,
    ) -> QuickCommit | None:
        """Store the commit of a valid member; None if `begin` has to be called."""
        shard = self._shards.find(member[0])
        return None if shard is None else shard.quick_commit(member, version, offsets, answer_of)

    def quick_consumer_heartbeat(
        self, group_id: str, member_id: str, member_epoch: int, client: tuple[str, str]
    ) -> int | None:
        """The same in a consumer group: the heartbeat interval, or None if `begin` has to be called."""
        shard = self._shards.find(group_id)
        if shard is None:
            return None
        return shard.quick_consumer_heartbeat(group_id, member_id, member_epoch, client)
