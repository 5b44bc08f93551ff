"""ListOffsets (2): the offset at a point in time, or at one of the log's landmarks.

v2 isolation level; v4 leader epochs; v6 flexible. Negative times name landmarks: -1 latest, -2 earliest, and
from v7 -3 the record with the largest timestamp (KIP-734), v8 -4 earliest on local disk (KIP-405), v9 -5 latest
in tiered storage (KIP-1005). v10 a timeout for remote storage (KIP-1075); v11 -6 earliest that waits for its
upload to tiered storage (KIP-1023).
"""

from __future__ import annotations

from headrace.wire.primitives import INT8, INT16, INT32, INT64, STRING
from headrace.wire.schema import Request, Response, Struct, array, field


class ListOffsetsPartition(Struct):
    partition_index: int = field(INT32)
    current_leader_epoch: int = field(INT32, since=4, default=-1)
    timestamp: int = field(INT64)


class ListOffsetsTopic(Struct):
    name: str = field(STRING)
    partitions: list[ListOffsetsPartition] = field(array(ListOffsetsPartition))


class ListOffsetsRequest(Request, key=2, versions=range(1, 12), flexible=6):
    replica_id: int = field(INT32)
    isolation_level: int = field(INT8, since=2, ignorable=False)
    topics: list[ListOffsetsTopic] = field(array(ListOffsetsTopic))
    timeout_ms: int = field(INT32, since=10)


class ListOffsetsPartitionResponse(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    timestamp: int = field(INT64, default=-1)
    offset: int = field(INT64, default=-1)
    leader_epoch: int = field(INT32, since=4, default=-1, ignorable=False)


class ListOffsetsTopicResponse(Struct):
    name: str = field(STRING)
    partitions: list[ListOffsetsPartitionResponse] = field(array(ListOffsetsPartitionResponse))


class ListOffsetsResponse(Response, key=2, versions=range(1, 12), flexible=6):
    throttle_time_ms: int = field(INT32, since=2)
    topics: list[ListOffsetsTopicResponse] = field(array(ListOffsetsTopicResponse))
