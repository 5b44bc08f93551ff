"""ElectLeaders (43): elect leaders of partitions.

v1 the kind of election, preferred or unclean (KIP-460), and an error for the whole answer; v2 flexible.
"""

from __future__ import annotations

from headrace.wire.primitives import INT8, INT16, INT32, STRING
from headrace.wire.schema import Request, Response, Struct, array, field


class TopicPartitions(Struct):
    topic: str = field(STRING)
    partitions: list[int] = field(array(INT32))


class ElectLeadersRequest(Request, key=43, versions=range(3), flexible=2):
    election_type: int = field(INT8, since=1, ignorable=False)
    topic_partitions: list[TopicPartitions] | None = field(array(TopicPartitions), nullable=0)
    timeout_ms: int = field(INT32, default=60000)


class PartitionResult(Struct):
    partition_id: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0)


class ReplicaElectionResult(Struct):
    topic: str = field(STRING)
    partition_result: list[PartitionResult] = field(array(PartitionResult))


class ElectLeadersResponse(Response, key=43, versions=range(3), flexible=2):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16, since=1, ignorable=False)
    replica_election_results: list[ReplicaElectionResult] = field(array(ReplicaElectionResult))
