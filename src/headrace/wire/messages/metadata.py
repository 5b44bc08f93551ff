"""Metadata (3): brokers, controller, topics and where their partitions lead.

v1 rack, controller and internal flag; null means all topics (in v0 the empty list does); v2 cluster id; v4 the
client says whether an unknown topic may be created; v5 offline replicas; v7 leader epochs; v8 authorized
operations (KIP-430); v9 flexible; v10 topic ids; v11 no cluster operations any more; v12 ask by topic id; v13
an error for the whole answer (KIP-1102).
"""

from __future__ import annotations

from headrace.model.topics import TopicId
from headrace.wire.primitives import BOOL, INT16, INT32, STRING, UUID
from headrace.wire.schema import Request, Response, Struct, array, field


class MetadataRequestTopic(Struct):
    topic_id: TopicId = field(UUID, since=10)
    name: str | None = field(STRING, nullable=10)


class MetadataRequest(Request, key=3, versions=range(14), flexible=9):
    topics: list[MetadataRequestTopic] | None = field(array(MetadataRequestTopic), nullable=1)
    allow_auto_topic_creation: bool = field(BOOL, since=4, default=True, ignorable=False)
    include_cluster_authorized_operations: bool = field(BOOL, since=8, until=10, ignorable=False)
    include_topic_authorized_operations: bool = field(BOOL, since=8, ignorable=False)


class MetadataResponseBroker(Struct):
    node_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    rack: str | None = field(STRING, since=1, nullable=0, default=None)


class MetadataResponsePartition(Struct):
    error_code: int = field(INT16)
    partition_index: int = field(INT32)
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32, since=7, default=-1)
    replica_nodes: list[int] = field(array(INT32))
    isr_nodes: list[int] = field(array(INT32))
    offline_replicas: list[int] = field(array(INT32), since=5)


class MetadataResponseTopic(Struct):
    error_code: int = field(INT16)
    name: str | None = field(STRING, nullable=12)
    topic_id: TopicId = field(UUID, since=10)
    is_internal: bool = field(BOOL, since=1)
    partitions: list[MetadataResponsePartition] = field(array(MetadataResponsePartition))
    topic_authorized_operations: int = field(INT32, since=8, default=-(1 << 31), ignorable=False)


class MetadataResponse(Response, key=3, versions=range(14), flexible=9):
    throttle_time_ms: int = field(INT32, since=3)
    brokers: list[MetadataResponseBroker] = field(array(MetadataResponseBroker))
    cluster_id: str | None = field(STRING, since=2, nullable=0, default=None)
    controller_id: int = field(INT32, since=1, default=-1)
    topics: list[MetadataResponseTopic] = field(array(MetadataResponseTopic))
    cluster_authorized_operations: int = field(INT32, since=8, until=10, default=-(1 << 31), ignorable=False)
    error_code: int = field(INT16, since=13)
