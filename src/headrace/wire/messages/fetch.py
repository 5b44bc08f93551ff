"""Fetch (1): read record batches, as a consumer or as a follower.

v4 isolation level; v5 log start offset; v7 incremental sessions (KIP-227); v9 leader epoch of the reader
(KIP-320); v10 zstd; v11 rack and preferred replica (KIP-392); v12 flexible, last fetched epoch and divergence
(KIP-595); v13 topics by id (KIP-516); v15 replica state as a tagged field (KIP-903); v16 leader addresses
(KIP-951); v17 directory id; v18 high watermark of the follower (KIP-1166). The broker's hot path reads and
writes these bytes by hand; this schema serves clients and tests.
"""

from __future__ import annotations

from headrace.model.topics import TopicId
from headrace.wire.primitives import INT8, INT16, INT32, INT64, RECORDS, STRING, UUID
from headrace.wire.schema import Request, Response, Struct, array, field


class ReplicaState(Struct):
    replica_id: int = field(INT32, default=-1)
    replica_epoch: int = field(INT64, default=-1)


class FetchPartition(Struct):
    partition: int = field(INT32)
    current_leader_epoch: int = field(INT32, since=9, default=-1)
    fetch_offset: int = field(INT64)
    last_fetched_epoch: int = field(INT32, since=12, default=-1, ignorable=False)
    log_start_offset: int = field(INT64, since=5, default=-1)
    partition_max_bytes: int = field(INT32)
    replica_directory_id: bytes = field(UUID, since=17, tag=0)
    high_watermark: int = field(INT64, since=18, tag=1, default=(1 << 63) - 1)


class FetchTopic(Struct):
    topic: str = field(STRING, until=12)
    topic_id: TopicId = field(UUID, since=13)
    partitions: list[FetchPartition] = field(array(FetchPartition))


class ForgottenTopic(Struct):
    topic: str = field(STRING, until=12)
    topic_id: TopicId = field(UUID, since=13)
    partitions: list[int] = field(array(INT32))


class FetchRequest(Request, key=1, versions=range(4, 19), flexible=12):
    cluster_id: str | None = field(STRING, since=12, nullable=0, tag=0, default=None)
    replica_id: int = field(INT32, until=14, default=-1, ignorable=False)
    replica_state: ReplicaState = field(ReplicaState, since=15, tag=1, ignorable=False)
    max_wait_ms: int = field(INT32)
    min_bytes: int = field(INT32)
    max_bytes: int = field(INT32, default=(1 << 31) - 1)
    isolation_level: int = field(INT8)
    session_id: int = field(INT32, since=7)
    session_epoch: int = field(INT32, since=7, default=-1)
    topics: list[FetchTopic] = field(array(FetchTopic))
    forgotten_topics_data: list[ForgottenTopic] = field(array(ForgottenTopic), since=7, ignorable=False)
    rack_id: str = field(STRING, since=11)


class EpochEndOffset(Struct):
    epoch: int = field(INT32, default=-1)
    end_offset: int = field(INT64, default=-1)


class LeaderIdAndEpoch(Struct):
    leader_id: int = field(INT32, default=-1)
    leader_epoch: int = field(INT32, default=-1)


class SnapshotId(Struct):
    end_offset: int = field(INT64, default=-1)
    epoch: int = field(INT32, default=-1)


class AbortedTransaction(Struct):
    producer_id: int = field(INT64)
    first_offset: int = field(INT64)


class PartitionData(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    high_watermark: int = field(INT64)
    last_stable_offset: int = field(INT64, default=-1)
    log_start_offset: int = field(INT64, since=5, default=-1)
    diverging_epoch: EpochEndOffset = field(EpochEndOffset, since=12, tag=0, ignorable=False)
    current_leader: LeaderIdAndEpoch = field(LeaderIdAndEpoch, since=12, tag=1, ignorable=False)
    snapshot_id: SnapshotId = field(SnapshotId, since=12, tag=2, ignorable=False)
    aborted_transactions: list[AbortedTransaction] | None = field(array(AbortedTransaction), nullable=0)
    preferred_read_replica: int = field(INT32, since=11, default=-1, ignorable=False)
    records: bytes | None = field(RECORDS, nullable=0)


class FetchableTopicResponse(Struct):
    topic: str = field(STRING, until=12)
    topic_id: TopicId = field(UUID, since=13)
    partitions: list[PartitionData] = field(array(PartitionData))


class NodeEndpoint(Struct):
    node_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    rack: str | None = field(STRING, nullable=0, default=None)


class FetchResponse(Response, key=1, versions=range(4, 19), flexible=12):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16, since=7)
    session_id: int = field(INT32, since=7, ignorable=False)
    responses: list[FetchableTopicResponse] = field(array(FetchableTopicResponse))
    node_endpoints: list[NodeEndpoint] = field(array(NodeEndpoint), since=16, tag=0, ignorable=False)
