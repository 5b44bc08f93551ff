"""CreateTopics (19), v2-7. Makes topics, with given or chosen placement and settings.

-1 asks for the broker's default counts (KIP-464); v5 the topic's settings are in the answer (KIP-525); v7 also
its id. The answer comes when this broker's own replicas of the topics are ready.
"""

from __future__ import annotations

from headrace.config.describe import describe_topic
from headrace.config.topic_config import DynamicConfigs
from headrace.handlers.context import Context, topic_create
from headrace.handlers.forwarding import on_controller
from headrace.handlers.registry import api
from headrace.metadata.image import TopicImage
from headrace.metadata.topic_decisions import TopicCreation, TopicOutcome
from headrace.model.errors import KafkaError
from headrace.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)


@api(CreateTopicsRequest, CreateTopicsResponse, versions=range(2, 8), authorize=topic_create)
@on_controller(CreateTopicsResponse)
async def create_topics(ctx: Context, request: CreateTopicsRequest) -> CreateTopicsResponse:
    """Creates topics."""
    topics = [_new_topic(topic) async for topic in ctx.each(request.topics)]
    outcomes = await _create(ctx, topics, request.validate_only)
    # A name that is listed twice has the same outcome twice; it is returned once.
    by_name = dict(zip((topic.name for topic in topics), outcomes, strict=True))
    return CreateTopicsResponse(topics=[_result(ctx, *answer) async for answer in ctx.each(by_name.items())])


async def _create(ctx: Context, topics: list[TopicCreation], validate_only: bool) -> list[TopicOutcome]:
    try:
        outcomes = await ctx.broker.controller.create_topics(topics, validate_only)
    except KafkaError as error:
        return [error for _ in topics]
    await ctx.broker.replicas.settled()
    return outcomes


def _new_topic(topic: CreatableTopic) -> TopicCreation:
    return TopicCreation(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        [(assignment.partition_index, tuple(assignment.broker_ids)) for assignment in topic.assignments],
        {config.name: config.value for config in topic.configs},
    )


def _result(ctx: Context, name: str, outcome: TopicOutcome) -> CreatableTopicResult:
    if isinstance(outcome, KafkaError):
        return CreatableTopicResult(name=name, error_code=outcome.code, error_message=outcome.message)
    return CreatableTopicResult(
        name=name,
        topic_id=outcome.id,
        error_message=None,
        num_partitions=len(outcome.partitions),
        replication_factor=len(outcome.partitions[0].replicas),
        configs=_configs(ctx, outcome),
    )


def _configs(ctx: Context, topic: TopicImage) -> list[CreatableTopicConfigs]:
    dynamic = DynamicConfigs.of(ctx.broker.metadata.image.broker_configs, ctx.broker.id)
    return [
        CreatableTopicConfigs(
            name=entry.name,
            value=entry.value,
            read_only=entry.read_only,
            config_source=entry.source,
            is_sensitive=entry.sensitive,
        )
        for entry in describe_topic(topic.configs, ctx.broker.config, dynamic)
    ]
