"""Produce (0): append record batches to partitions this broker leads.

v3 transactional id and record batch v2; v7 zstd; v8 errors per record (KIP-467); v9 flexible; v10 the new
leader and its address in the answer (KIP-951); v11-12 KIP-890; v13 topics by id instead of by name (KIP-516).
The broker's hot path reads and writes these bytes by hand; this schema serves clients and tests.
"""

from __future__ import annotations

from headrace.model.topics import TopicId
from headrace.wire.primitives import INT16, INT32, INT64, RECORDS, STRING, UUID
from headrace.wire.schema import Request, Response, Struct, array, field


class PartitionProduceData(Struct):
    index: int = field(INT32)
    records: bytes | None = field(RECORDS, nullable=0)


class TopicProduceData(Struct):
    name: str = field(STRING, until=12)
    topic_id: TopicId = field(UUID, since=13)
    partition_data: list[PartitionProduceData] = field(array(PartitionProduceData))


class ProduceRequest(Request, key=0, versions=range(3, 14), flexible=9):
    transactional_id: str | None = field(STRING, nullable=0, default=None)
    acks: int = field(INT16)
    timeout_ms: int = field(INT32)
    topic_data: list[TopicProduceData] = field(array(TopicProduceData))


class BatchIndexAndErrorMessage(Struct):
    batch_index: int = field(INT32)
    batch_index_error_message: str | None = field(STRING, nullable=0, default=None)


class LeaderIdAndEpoch(Struct):
    leader_id: int = field(INT32, default=-1)
    leader_epoch: int = field(INT32, default=-1)


class PartitionProduceResponse(Struct):
    index: int = field(INT32)
    error_code: int = field(INT16)
    base_offset: int = field(INT64)
    log_append_time_ms: int = field(INT64, default=-1)
    log_start_offset: int = field(INT64, since=5, default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = field(array(BatchIndexAndErrorMessage), since=8)
    error_message: str | None = field(STRING, since=8, nullable=0, default=None)
    current_leader: LeaderIdAndEpoch = field(LeaderIdAndEpoch, since=10, tag=0, ignorable=False)


class TopicProduceResponse(Struct):
    name: str = field(STRING, until=12)
    topic_id: TopicId = field(UUID, since=13)
    partition_responses: list[PartitionProduceResponse] = field(array(PartitionProduceResponse))


class NodeEndpoint(Struct):
    node_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    rack: str | None = field(STRING, nullable=0, default=None)


class ProduceResponse(Response, key=0, versions=range(3, 14), flexible=9):
    responses: list[TopicProduceResponse] = field(array(TopicProduceResponse))
    throttle_time_ms: int = field(INT32)
    node_endpoints: list[NodeEndpoint] = field(array(NodeEndpoint), since=10, tag=0, ignorable=False)
