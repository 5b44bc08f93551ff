"""AlterPartition (56), v2-3. A leader asks the controller for another in-sync set (KIP-497); brokers only.

v3 the members come with their broker epochs, so that one that restarted is not added by mistake (KIP-903).
"""

from __future__ import annotations

from headrace.handlers.context import Context, cluster_action
from headrace.handlers.registry import api
from headrace.metadata.image import PartitionImage
from headrace.metadata.partition_decisions import InSyncOutcome, InSyncWish
from headrace.model.errors import KafkaError
from headrace.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionData,
    PartitionDataResult,
    TopicData,
    TopicDataResult,
)

EPOCHS_SINCE = 3
UNKNOWN_EPOCH = -1


@api(AlterPartitionRequest, AlterPartitionResponse, versions=range(2, 4), authorize=cluster_action)
async def alter_partition(ctx: Context, request: AlterPartitionRequest) -> AlterPartitionResponse:
    """Changes the in-sync sets of partitions, as their leader proposes."""
    wishes = [_wish(topic, part, ctx.version) for topic in request.topics for part in topic.partitions]
    try:
        outcomes = await ctx.broker.controller.alter_in_sync(request.broker_id, request.broker_epoch, wishes)
    except KafkaError as error:
        return AlterPartitionResponse(error_code=error.code)
    topics: dict[bytes, TopicDataResult] = {}
    for wish, outcome in outcomes:
        topic = topics.setdefault(wish.topic_id, TopicDataResult(topic_id=wish.topic_id, partitions=[]))
        topic.partitions.append(_result(wish, outcome))
    return AlterPartitionResponse(topics=list(topics.values()))


def _wish(topic: TopicData, part: PartitionData, version: int) -> InSyncWish:
    if version >= EPOCHS_SINCE:
        members = [(member.broker_id, member.broker_epoch) for member in part.new_isr_with_epochs]
    else:
        members = [(broker, UNKNOWN_EPOCH) for broker in part.new_isr]
    return InSyncWish(topic.topic_id, part.partition_index, part.leader_epoch, part.partition_epoch, members)


def _result(wish: InSyncWish, outcome: InSyncOutcome) -> PartitionDataResult:
    if isinstance(outcome, KafkaError):
        return PartitionDataResult(partition_index=wish.partition, error_code=outcome.code)
    assert isinstance(outcome, PartitionImage)
    return PartitionDataResult(
        partition_index=wish.partition,
        leader_id=outcome.leader,
        leader_epoch=outcome.leader_epoch,
        isr=list(outcome.isr),
        partition_epoch=outcome.partition_epoch,
    )
