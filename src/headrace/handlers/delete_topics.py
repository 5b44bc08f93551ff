"""DeleteTopics (20), v1-6. Removes topics and their data.

v3 TOPIC_DELETION_DISABLED where `delete.topic.enable` is off (before: INVALID_REQUEST); v5 error messages; v6
by name or by id. The answer comes when this broker has let go of the topics.
"""

from __future__ import annotations

from headrace.handlers.context import Context, topic_delete
from headrace.handlers.forwarding import on_controller
from headrace.handlers.registry import api
from headrace.metadata.topic_decisions import TopicOutcome
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import NO_TOPIC_ID, TopicId
from headrace.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

BY_ID_SINCE = 6
DELETION_DISABLED_SINCE = 3


@api(DeleteTopicsRequest, DeleteTopicsResponse, versions=range(1, 7), authorize=topic_delete)
@on_controller(DeleteTopicsResponse)
async def delete_topics(ctx: Context, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    """Deletes topics."""
    asked = request.topics
    if ctx.version < BY_ID_SINCE:
        asked = [DeleteTopicState(name=name) for name in request.topic_names]
    valid = [topic for topic in asked if _is_valid(topic)]
    outcomes = await _delete(ctx, [_key(topic) for topic in valid])
    results = [_result(topic, outcome) for topic, outcome in zip(valid, outcomes, strict=True)]
    results += [_invalid(topic) for topic in asked if not _is_valid(topic)]
    # A topic that is listed twice has the same outcome twice; it is returned once.
    return DeleteTopicsResponse(responses=list({(row.name, row.topic_id): row for row in results}.values()))


def _is_valid(topic: DeleteTopicState) -> bool:
    return (topic.name is None) != (topic.topic_id == NO_TOPIC_ID)


def _key(topic: DeleteTopicState) -> str | TopicId:
    return topic.topic_id if topic.name is None else topic.name


async def _delete(ctx: Context, topics: list[str | TopicId]) -> list[TopicOutcome]:
    try:
        if not ctx.broker.config.boolean("delete.topic.enable"):
            old = ctx.version < DELETION_DISABLED_SINCE
            raise KafkaError(ErrorCode.INVALID_REQUEST if old else ErrorCode.TOPIC_DELETION_DISABLED)
        outcomes = await ctx.broker.controller.delete_topics(topics)
    except KafkaError as error:
        return [error for _ in topics]
    await ctx.broker.replicas.settled()
    return outcomes


def _result(asked: DeleteTopicState, outcome: TopicOutcome) -> DeletableTopicResult:
    if isinstance(outcome, KafkaError):
        return DeletableTopicResult(
            name=asked.name, topic_id=asked.topic_id, error_code=outcome.code, error_message=outcome.message
        )
    return DeletableTopicResult(name=outcome.name, topic_id=outcome.id)


def _invalid(asked: DeleteTopicState) -> DeletableTopicResult:
    both = asked.name is not None
    message = "Name a topic by its name or its id, not by both" if both else "Neither a name nor an id was given"
    return DeletableTopicResult(
        name=asked.name, topic_id=asked.topic_id, error_code=ErrorCode.INVALID_REQUEST, error_message=message
    )
