"""OffsetFetch (9): read a group's stored positions.

v2 null means all topics, and the group's error; v3 throttle time; v5 leader epoch; v6 flexible; v7 require
stable (KIP-447); v8 many groups in one request; v9 the member's identity for KIP-848 groups; v10 topics by id.
"""

from __future__ import annotations

from headrace.model.topics import TopicId
from headrace.wire.primitives import BOOL, INT16, INT32, INT64, STRING, UUID
from headrace.wire.schema import Request, Response, Struct, array, field


class OffsetFetchRequestTopic(Struct):
    name: str = field(STRING)
    partition_indexes: list[int] = field(array(INT32))


class OffsetFetchRequestTopics(Struct):
    name: str = field(STRING, until=9)
    topic_id: TopicId = field(UUID, since=10)
    partition_indexes: list[int] = field(array(INT32))


class OffsetFetchRequestGroup(Struct):
    group_id: str = field(STRING)
    member_id: str | None = field(STRING, since=9, nullable=0, default=None)
    member_epoch: int = field(INT32, since=9, default=-1)
    topics: list[OffsetFetchRequestTopics] | None = field(array(OffsetFetchRequestTopics), nullable=0)


class OffsetFetchRequest(Request, key=9, versions=range(1, 11), flexible=6):
    group_id: str = field(STRING, until=7, ignorable=False)
    topics: list[OffsetFetchRequestTopic] | None = field(
        array(OffsetFetchRequestTopic), until=7, nullable=2, ignorable=False
    )
    groups: list[OffsetFetchRequestGroup] = field(array(OffsetFetchRequestGroup), since=8, ignorable=False)
    require_stable: bool = field(BOOL, since=7, ignorable=False)


class OffsetFetchResponsePartition(Struct):
    partition_index: int = field(INT32)
    committed_offset: int = field(INT64)
    committed_leader_epoch: int = field(INT32, since=5, default=-1)
    metadata: str | None = field(STRING, nullable=0)
    error_code: int = field(INT16)


class OffsetFetchResponseTopic(Struct):
    name: str = field(STRING)
    partitions: list[OffsetFetchResponsePartition] = field(array(OffsetFetchResponsePartition))


class OffsetFetchResponsePartitions(Struct):
    partition_index: int = field(INT32)
    committed_offset: int = field(INT64)
    committed_leader_epoch: int = field(INT32, default=-1)
    metadata: str | None = field(STRING, nullable=0)
    error_code: int = field(INT16)


class OffsetFetchResponseTopics(Struct):
    name: str = field(STRING, until=9)
    topic_id: TopicId = field(UUID, since=10)
    partitions: list[OffsetFetchResponsePartitions] = field(array(OffsetFetchResponsePartitions))


class OffsetFetchResponseGroup(Struct):
    group_id: str = field(STRING)
    topics: list[OffsetFetchResponseTopics] = field(array(OffsetFetchResponseTopics))
    error_code: int = field(INT16)


class OffsetFetchResponse(Response, key=9, versions=range(1, 11), flexible=6):
    throttle_time_ms: int = field(INT32, since=3)
    topics: list[OffsetFetchResponseTopic] = field(array(OffsetFetchResponseTopic), until=7, ignorable=False)
    error_code: int = field(INT16, since=2, until=7)
    groups: list[OffsetFetchResponseGroup] = field(array(OffsetFetchResponseGroup), since=8, ignorable=False)
