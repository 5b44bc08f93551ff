"""OffsetCommit (8): store a group's positions.

v2-4 carry a retention time that brokers ignore; v6 leader epoch of the position; v7 static members (KIP-345);
v8 flexible; v9 usable by KIP-848 groups; v10 topics by id.
"""

from __future__ import annotations

from headrace.model.topics import TopicId
from headrace.wire.primitives import INT16, INT32, INT64, STRING, UUID
from headrace.wire.schema import Request, Response, Struct, array, field


class OffsetCommitRequestPartition(Struct):
    partition_index: int = field(INT32)
    committed_offset: int = field(INT64)
    committed_leader_epoch: int = field(INT32, since=6, default=-1)
    committed_metadata: str | None = field(STRING, nullable=0)


class OffsetCommitRequestTopic(Struct):
    name: str = field(STRING, until=9)
    topic_id: TopicId = field(UUID, since=10)
    partitions: list[OffsetCommitRequestPartition] = field(array(OffsetCommitRequestPartition))


class OffsetCommitRequest(Request, key=8, versions=range(2, 11), flexible=8):
    group_id: str = field(STRING)
    generation_id_or_member_epoch: int = field(INT32, default=-1)
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, since=7, nullable=0, default=None, ignorable=False)
    retention_time_ms: int = field(INT64, until=4, default=-1)
    topics: list[OffsetCommitRequestTopic] = field(array(OffsetCommitRequestTopic))


class OffsetCommitResponsePartition(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)


class OffsetCommitResponseTopic(Struct):
    name: str = field(STRING, until=9)
    topic_id: TopicId = field(UUID, since=10)
    partitions: list[OffsetCommitResponsePartition] = field(array(OffsetCommitResponsePartition))


class OffsetCommitResponse(Response, key=8, versions=range(2, 11), flexible=8):
    throttle_time_ms: int = field(INT32, since=3)
    topics: list[OffsetCommitResponseTopic] = field(array(OffsetCommitResponseTopic))
