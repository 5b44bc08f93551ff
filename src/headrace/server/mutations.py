"""Requests that make, grow and remove topics, held to a rate of partitions per second (KIP-599).

Each topic of a request counts with the partitions that it changes. It is let through as long as something is left
of the allowance, also if it takes more than that; then topics are refused with THROTTLING_QUOTA_EXCEEDED, and the
answer tells when to come again. Older versions of the requests do not know that code: they are done, and wait
afterwards.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from headrace.handlers.context import Context
from headrace.handlers.registry import ColdHandler
from headrace.metadata.image import MetadataImage
from headrace.model.errors import ErrorCode
from headrace.security.quota import Allowance
from headrace.server.quota_book import ClientAllowances
from headrace.server.throttling import milliseconds
from headrace.wire.api_keys import ApiKey
from headrace.wire.messages import create_partitions as growing
from headrace.wire.messages import create_topics as creating
from headrace.wire.messages import delete_topics as deleting
from headrace.wire.schema import Response

REFUSED = ErrorCode.THROTTLING_QUOTA_EXCEEDED
MESSAGE = "This client's rate of changes exceeds its quota; try again later."
DELETE_BY_STATE = 6

Topics = list[Any]


@dataclass(frozen=True, slots=True)
class Mutation:
    """How the requests of one API are taken apart."""

    strict_since: int
    topics: Callable[[Any, int], Topics]
    keep: Callable[[Any, int, Topics], None]
    """Leave only these topics in the request."""
    cost: Callable[[Any, Context], int]
    refuse: Callable[[Any, Topics, Context], None]
    """Add the answers for those that were taken out."""
    empty: type[Response]


def limited_mutation(
    mutation: Mutation,
    handle: ColdHandler,
    allowance_of: Callable[[Context], ClientAllowances | None],
    now: Callable[[], float],
) -> ColdHandler:
    async def limited(context: Context, request: Any) -> Response:
        client = allowance_of(context)
        allowance = None if client is None else client.mutations
        if allowance is None or getattr(request, "validate_only", False):
            return await _answered(handle(context, request))
        topics = mutation.topics(request, context.version)
        strict = context.version >= mutation.strict_since
        asked_at = now()
        kept, refused = _split(mutation, allowance, topics, strict, context, asked_at)
        wait = allowance.ahead(asked_at)
        if refused:
            mutation.keep(request, context.version, kept)
        response: Any = await _answered(handle(context, request)) if kept or not refused else mutation.empty()
        if refused:
            mutation.refuse(response, refused, context)
        if wait > 0 and (refused or not strict):
            response.throttle_time_ms = milliseconds(wait)
        result: Response = response
        return result

    return limited


def _split(
    mutation: Mutation, allowance: Allowance, topics: Topics, strict: bool, context: Context, now: float
) -> tuple[Topics, Topics]:
    kept: Topics = []
    refused: Topics = []
    for topic in topics:
        if strict and allowance.ahead(now) > 0:
            refused.append(topic)
        else:
            kept.append(topic)
            allowance.use(mutation.cost(topic, context), now)
    return kept, refused


async def _answered(work: Response | Awaitable[Response]) -> Response:
    return work if isinstance(work, Response) else await work


# -- CreateTopics


def _created(topic: creating.CreatableTopic, context: Context) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return topic.num_partitions if topic.num_partitions > 0 else context.broker.config.integer("num.partitions")


def _keep_created(request: creating.CreateTopicsRequest, version: int, kept: Topics) -> None:
    request.topics = kept


def _refuse_created(response: creating.CreateTopicsResponse, refused: Topics, context: Context) -> None:
    response.topics += [
        creating.CreatableTopicResult(name=topic.name, error_code=REFUSED, error_message=MESSAGE, configs=None)
        for topic in refused
    ]


# -- CreatePartitions


def _partitions(image: MetadataImage, name: str | None) -> int:
    topic = image.topics.get(name or "")
    return 0 if topic is None else len(topic.partitions)


def _grown(topic: growing.CreatePartitionsTopic, context: Context) -> int:
    return max(topic.count - _partitions(context.broker.metadata.image, topic.name), 0)


def _keep_grown(request: growing.CreatePartitionsRequest, version: int, kept: Topics) -> None:
    request.topics = kept


def _refuse_grown(response: growing.CreatePartitionsResponse, refused: Topics, context: Context) -> None:
    response.results += [
        growing.CreatePartitionsTopicResult(name=topic.name, error_code=REFUSED, error_message=MESSAGE)
        for topic in refused
    ]


# -- DeleteTopics: by names, later by names or ids


def _deletions(request: deleting.DeleteTopicsRequest, version: int) -> Topics:
    if version >= DELETE_BY_STATE:
        return request.topics
    return [deleting.DeleteTopicState(name=name) for name in request.topic_names]


def _keep_deleted(request: deleting.DeleteTopicsRequest, version: int, kept: Topics) -> None:
    if version >= DELETE_BY_STATE:
        request.topics = kept
    else:
        request.topic_names = [topic.name for topic in kept]


def _deleted(topic: deleting.DeleteTopicState, context: Context) -> int:
    image = context.broker.metadata.image
    known = image.topics_by_id.get(topic.topic_id)
    return _partitions(image, topic.name if known is None else known.name)


def _refuse_deleted(response: deleting.DeleteTopicsResponse, refused: Topics, context: Context) -> None:
    response.responses += [
        deleting.DeletableTopicResult(
            name=topic.name, topic_id=topic.topic_id, error_code=REFUSED, error_message=MESSAGE
        )
        for topic in refused
    ]


MUTATIONS: dict[int, Mutation] = {
    ApiKey.CREATE_TOPICS: Mutation(
        6,
        lambda request, version: list(request.topics),
        _keep_created,
        _created,
        _refuse_created,
        creating.CreateTopicsResponse,
    ),
    ApiKey.CREATE_PARTITIONS: Mutation(
        3,
        lambda request, version: list(request.topics),
        _keep_grown,
        _grown,
        _refuse_grown,
        growing.CreatePartitionsResponse,
    ),
    ApiKey.DELETE_TOPICS: Mutation(
        5, _deletions, _keep_deleted, _deleted, _refuse_deleted, deleting.DeleteTopicsResponse
    ),
}
