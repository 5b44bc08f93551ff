"""ConsumerGroupHeartbeat (68): the one call of a KIP-848 member: join, report, learn the assignment, leave.

v1 subscription by regular expression, and the client makes its own member id (KIP-1082).
"""

from __future__ import annotations

from headrace.model.topics import TopicId
from headrace.wire.primitives import INT16, INT32, STRING, UUID
from headrace.wire.schema import Request, Response, Struct, array, field


class TopicPartitions(Struct):
    topic_id: TopicId = field(UUID)
    partitions: list[int] = field(array(INT32))


class ConsumerGroupHeartbeatRequest(Request, key=68, versions=range(2), flexible=0):
    max_elements = 50_000

    group_id: str = field(STRING)
    member_id: str = field(STRING)
    member_epoch: int = field(INT32)
    instance_id: str | None = field(STRING, nullable=0, default=None)
    rack_id: str | None = field(STRING, nullable=0, default=None)
    rebalance_timeout_ms: int = field(INT32, default=-1)
    subscribed_topic_names: list[str] | None = field(array(STRING), nullable=0, default=None)
    subscribed_topic_regex: str | None = field(STRING, since=1, nullable=0, default=None, ignorable=False)
    server_assignor: str | None = field(STRING, nullable=0, default=None)
    topic_partitions: list[TopicPartitions] | None = field(array(TopicPartitions), nullable=0, default=None)


class TopicPartitionsResult(Struct):
    topic_id: TopicId = field(UUID)
    partitions: list[int] = field(array(INT32))


class Assignment(Struct):
    topic_partitions: list[TopicPartitionsResult] = field(array(TopicPartitionsResult))


class ConsumerGroupHeartbeatResponse(Response, key=68, versions=range(2), flexible=0):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0, default=None)
    member_id: str | None = field(STRING, nullable=0, default=None)
    member_epoch: int = field(INT32)
    heartbeat_interval_ms: int = field(INT32)
    assignment: Assignment | None = field(Assignment, nullable=0, default=None)
