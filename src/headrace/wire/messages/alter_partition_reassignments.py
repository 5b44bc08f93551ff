"""AlterPartitionReassignments (45): move partitions to other replicas, or cancel a move (KIP-455).

v1 the request says whether the replication factor may change.
"""

from __future__ import annotations

from headrace.wire.primitives import BOOL, INT16, INT32, STRING
from headrace.wire.schema import Request, Response, Struct, array, field


class ReassignablePartition(Struct):
    partition_index: int = field(INT32)
    replicas: list[int] | None = field(array(INT32), nullable=0, default=None)


class ReassignableTopic(Struct):
    name: str = field(STRING)
    partitions: list[ReassignablePartition] = field(array(ReassignablePartition))


class AlterPartitionReassignmentsRequest(Request, key=45, versions=range(2), flexible=0):
    timeout_ms: int = field(INT32, default=60000)
    allow_replication_factor_change: bool = field(BOOL, since=1, default=True, ignorable=False)
    topics: list[ReassignableTopic] = field(array(ReassignableTopic))


class ReassignablePartitionResponse(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0)


class ReassignableTopicResponse(Struct):
    name: str = field(STRING)
    partitions: list[ReassignablePartitionResponse] = field(array(ReassignablePartitionResponse))


class AlterPartitionReassignmentsResponse(Response, key=45, versions=range(2), flexible=0):
    throttle_time_ms: int = field(INT32)
    allow_replication_factor_change: bool = field(BOOL, since=1, default=True)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0)
    responses: list[ReassignableTopicResponse] = field(array(ReassignableTopicResponse))
