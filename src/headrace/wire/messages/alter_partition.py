"""AlterPartition (56): a leader asks the controller to change its partition's in-sync set (KIP-497).

v2 topics by id; v3 members with their broker epochs, so that a restarted broker cannot be added by mistake
(KIP-903).
"""

from __future__ import annotations

from headrace.model.topics import TopicId
from headrace.wire.primitives import INT8, INT16, INT32, INT64, UUID
from headrace.wire.schema import Request, Response, Struct, array, field


class BrokerState(Struct):
    broker_id: int = field(INT32)
    broker_epoch: int = field(INT64, default=-1)


class PartitionData(Struct):
    partition_index: int = field(INT32)
    leader_epoch: int = field(INT32)
    new_isr: list[int] = field(array(INT32), until=2, ignorable=False)
    new_isr_with_epochs: list[BrokerState] = field(array(BrokerState), since=3, ignorable=False)
    leader_recovery_state: int = field(INT8)
    partition_epoch: int = field(INT32)


class TopicData(Struct):
    topic_id: TopicId = field(UUID)
    partitions: list[PartitionData] = field(array(PartitionData))


class AlterPartitionRequest(Request, key=56, versions=range(2, 4), flexible=0):
    broker_id: int = field(INT32)
    broker_epoch: int = field(INT64, default=-1)
    topics: list[TopicData] = field(array(TopicData))


class PartitionDataResult(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32)
    isr: list[int] = field(array(INT32))
    leader_recovery_state: int = field(INT8)
    partition_epoch: int = field(INT32)


class TopicDataResult(Struct):
    topic_id: TopicId = field(UUID)
    partitions: list[PartitionDataResult] = field(array(PartitionDataResult))


class AlterPartitionResponse(Response, key=56, versions=range(2, 4), flexible=0):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    topics: list[TopicDataResult] = field(array(TopicDataResult))
