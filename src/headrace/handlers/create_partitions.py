"""CreatePartitions (37), v0-3. Raises topics' partition counts (KIP-195).

Existing data does not move. The answer comes when this broker's own replicas of the partitions are ready.
"""

from __future__ import annotations

from headrace.handlers.context import Context, topic_alter
from headrace.handlers.forwarding import on_controller
from headrace.handlers.registry import api
from headrace.metadata.topic_decisions import NewPartitions, TopicOutcome
from headrace.model.errors import KafkaError
from headrace.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


@api(CreatePartitionsRequest, CreatePartitionsResponse, versions=range(4), authorize=topic_alter)
@on_controller(CreatePartitionsResponse)
async def create_partitions(ctx: Context, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    """Adds partitions to topics."""
    growths = [_growth(topic) for topic in request.topics]
    outcomes = await _create(ctx, growths, request.validate_only)
    # A name that is listed twice has the same outcome twice; it is returned once.
    by_name = dict(zip((growth.name for growth in growths), outcomes, strict=True))
    return CreatePartitionsResponse(results=[_result(*answer) for answer in by_name.items()])


async def _create(ctx: Context, growths: list[NewPartitions], validate_only: bool) -> list[TopicOutcome]:
    try:
        outcomes = await ctx.broker.controller.create_partitions(growths, validate_only)
    except KafkaError as error:
        return [error for _ in growths]
    await ctx.broker.replicas.settled()
    return outcomes


def _growth(topic: CreatePartitionsTopic) -> NewPartitions:
    assignments = topic.assignments
    chosen = None if assignments is None else [tuple(assignment.broker_ids) for assignment in assignments]
    return NewPartitions(topic.name, topic.count, chosen)


def _result(name: str, outcome: TopicOutcome) -> CreatePartitionsTopicResult:
    if isinstance(outcome, KafkaError):
        return CreatePartitionsTopicResult(name=name, error_code=outcome.code, error_message=outcome.message)
    return CreatePartitionsTopicResult(name=name)
