"""CreateTopics (19): make topics, with given or chosen placement and settings.

v4 -1 asks for the broker's default counts (KIP-464); v5 flexible, resulting settings in the answer (KIP-525);
v6 may answer THROTTLING_QUOTA_EXCEEDED (KIP-599); v7 topic ids in the answer.
"""

from __future__ import annotations

from headrace.model.topics import TopicId
from headrace.wire.primitives import BOOL, INT8, INT16, INT32, STRING, UUID
from headrace.wire.schema import Request, Response, Struct, array, field


class CreatableReplicaAssignment(Struct):
    partition_index: int = field(INT32)
    broker_ids: list[int] = field(array(INT32))


class CreatableTopicConfig(Struct):
    name: str = field(STRING)
    value: str | None = field(STRING, nullable=0)


class CreatableTopic(Struct):
    name: str = field(STRING)
    num_partitions: int = field(INT32)
    replication_factor: int = field(INT16)
    assignments: list[CreatableReplicaAssignment] = field(array(CreatableReplicaAssignment))
    configs: list[CreatableTopicConfig] = field(array(CreatableTopicConfig))


class CreateTopicsRequest(Request, key=19, versions=range(2, 8), flexible=5):
    topics: list[CreatableTopic] = field(array(CreatableTopic))
    timeout_ms: int = field(INT32, default=60000)
    validate_only: bool = field(BOOL)


class CreatableTopicConfigs(Struct):
    name: str = field(STRING)
    value: str | None = field(STRING, nullable=0)
    read_only: bool = field(BOOL)
    config_source: int = field(INT8, default=-1)
    is_sensitive: bool = field(BOOL)


class CreatableTopicResult(Struct):
    name: str = field(STRING)
    topic_id: TopicId = field(UUID, since=7)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0)
    topic_config_error_code: int = field(INT16, since=5, tag=0)
    num_partitions: int = field(INT32, since=5, default=-1)
    replication_factor: int = field(INT16, since=5, default=-1)
    configs: list[CreatableTopicConfigs] | None = field(array(CreatableTopicConfigs), since=5, nullable=0)


class CreateTopicsResponse(Response, key=19, versions=range(2, 8), flexible=5):
    throttle_time_ms: int = field(INT32)
    topics: list[CreatableTopicResult] = field(array(CreatableTopicResult))
