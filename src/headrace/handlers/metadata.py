"""Metadata (3), v0-13. Brokers, controller, topics and where their partitions lead.

v0 the empty list means all topics, later null does; v4 the client may forbid creation; v6 LISTENER_NOT_FOUND
instead of LEADER_NOT_AVAILABLE; v8 authorized operations (KIP-430); v10 topic ids, v12 also to ask by
(KIP-516); v13 an error for the whole answer, which we never need. Addresses are those of the listener that the
request came in on.

Where `auto.create.topics.enable` is on, an unknown topic is made before we answer, so the answer already has it
(Kafka answers UNKNOWN_TOPIC_OR_PARTITION first, and the client asks again).
"""

from __future__ import annotations

from headrace.handlers.broker import Broker
from headrace.handlers.context import Context, topic_describe
from headrace.handlers.listener_view import CLUSTER_OPERATIONS, NOT_REQUESTED, TOPIC_OPERATIONS, ListenerView
from headrace.handlers.registry import api
from headrace.metadata.image import PartitionImage, TopicImage
from headrace.metadata.topic_decisions import TopicCreation
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import (
    CONSUMER_OFFSETS_TOPIC,
    NO_TOPIC_ID,
    TopicId,
    TopicPartition,
    check_topic_name,
)
from headrace.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

LISTENER_NOT_FOUND_SINCE = 6
CLUSTER_OPERATIONS_IN = range(8, 11)
ASK_BY_ID_SINCE = 12
NEWS_SECONDS = 0.01
"""Between the end of a dead broker's connections: to the client that asks, and to its followers."""
ELECTION_SECONDS = 0.5
"""The longest that an answer waits for the next leader."""


@api(MetadataRequest, MetadataResponse, versions=range(14), authorize=topic_describe)
async def metadata(ctx: Context, request: MetadataRequest) -> MetadataResponse:
    """Returns where brokers, topics and partitions are."""
    asked = _asked(ctx, request)
    if asked is not None and not all(_is_valid(topic, ctx.version) for topic in asked):
        return MetadataResponse(topics=[_refused(topic) for topic in asked])
    failures = await _create_missing(ctx, request, asked or [])
    if asked and ctx.broker.replicas.follows_any:
        await _let_news_arrive(ctx.broker)
    view = ListenerView.of(ctx)
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
            for broker, endpoint in view.with_departed(ctx.broker.departed.recent() if asked else ())
        ],
        cluster_id=view.image.cluster_id,
        controller_id=view.controller_for_clients,
        topics=await _topics(ctx, view, asked, failures),
    )
    if request.include_cluster_authorized_operations and ctx.version in CLUSTER_OPERATIONS_IN:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    for topic in response.topics:
        # A missing topic has no operations to report.
        found = request.include_topic_authorized_operations and topic.error_code == ErrorCode.NONE
        topic.topic_authorized_operations = TOPIC_OPERATIONS if found else NOT_REQUESTED
    return response


def _asked(ctx: Context, request: MetadataRequest) -> list[MetadataRequestTopic] | None:
    """The topics asked for, each once; None for all."""
    if request.topics is None or (ctx.version == 0 and not request.topics):
        return None
    return list({(topic.topic_id, topic.name): topic for topic in request.topics}.values())


def _is_valid(topic: MetadataRequestTopic, version: int) -> bool:
    if topic.topic_id != NO_TOPIC_ID:
        return version >= ASK_BY_ID_SINCE
    return topic.name is not None


def _refused(topic: MetadataRequestTopic) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=ErrorCode.INVALID_REQUEST, name=topic.name or "", topic_id=topic.topic_id
    )


async def _let_news_arrive(broker: Broker) -> None:
    """Clients ask for topics again when a leader has died, and learn of that as early as its followers do.

    A client that is sent to the dead leader again asks a second later, though the next one is elected in
    milliseconds.
    """
    clock = broker.env.clock
    deadline = clock.monotonic() + ELECTION_SECONDS
    await clock.sleep(NEWS_SECONDS)
    while broker.replicas.doubted_leaders and clock.monotonic() < deadline:
        await clock.sleep(NEWS_SECONDS)


async def _create_missing(
    ctx: Context, request: MetadataRequest, asked: list[MetadataRequestTopic]
) -> dict[str, ErrorCode]:
    """Create topics that a request for them may create; returns the errors by topic."""
    if not (request.allow_auto_topic_creation and ctx.broker.config.boolean("auto.create.topics.enable")):
        return {}
    known = ctx.broker.metadata.image.topics
    names = [topic.name for topic in asked if topic.topic_id == NO_TOPIC_ID and topic.name not in known]
    legal = [name for name in names if name is not None and _name_error(name) is None]
    if not legal:
        return {}
    try:
        outcomes = await ctx.broker.link.create_topics([_new_topic(ctx, name) for name in legal])
    except KafkaError as error:
        outcomes = [error for _ in legal]
    await ctx.broker.replicas.settled()
    # A topic that somebody else made meanwhile is found in the image, whatever its outcome here.
    answered = zip(legal, outcomes, strict=True)
    return {name: outcome.code for name, outcome in answered if isinstance(outcome, KafkaError)}


def _new_topic(ctx: Context, name: str) -> TopicCreation:
    return ctx.broker.groups.offsets_topic() if name == CONSUMER_OFFSETS_TOPIC else TopicCreation(name)


def _name_error(name: str) -> ErrorCode | None:
    try:
        check_topic_name(name)
    except KafkaError as error:
        return error.code
    return None


async def _topics(
    ctx: Context, view: ListenerView, asked: list[MetadataRequestTopic] | None, failures: dict[str, ErrorCode]
) -> list[MetadataResponseTopic]:
    if asked is None:
        return [await _found(ctx, view, topic) async for topic in ctx.each(view.image.topics.values())]
    return [await _answer(ctx, view, topic, failures) async for topic in ctx.each(asked)]


async def _answer(
    ctx: Context, view: ListenerView, asked: MetadataRequestTopic, failures: dict[str, ErrorCode]
) -> MetadataResponseTopic:
    if asked.topic_id != NO_TOPIC_ID:
        by_id = view.image.topics_by_id.get(TopicId(asked.topic_id))
        if by_id is None:
            unknown = ErrorCode.UNKNOWN_TOPIC_ID
            return MetadataResponseTopic(error_code=unknown, name=None, topic_id=asked.topic_id)
        return await _found(ctx, view, by_id)
    assert asked.name is not None
    topic = view.image.topics.get(asked.name)
    if topic is not None:
        return await _found(ctx, view, topic)
    error = _name_error(asked.name) or failures.get(asked.name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return MetadataResponseTopic(error_code=error, name=asked.name)


async def _found(ctx: Context, view: ListenerView, topic: TopicImage) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.internal,
        partitions=[
            _partition(view, ctx.version, TopicPartition(topic.name, index), image)
            async for index, image in ctx.each(enumerate(topic.partitions))
        ],
    )


def _partition(
    view: ListenerView, version: int, name: TopicPartition, image: PartitionImage
) -> MetadataResponsePartition:
    seen = view.partition(name, image)
    error = seen.error
    if error is ErrorCode.LISTENER_NOT_FOUND and version < LISTENER_NOT_FOUND_SINCE:
        error = ErrorCode.LEADER_NOT_AVAILABLE
    replicas, isr = list(image.replicas), list(image.isr)
    if version == 0:
        # Its clients look every replica up among the brokers.
        replicas, isr = [[node for node in nodes if view.is_reachable(node)] for nodes in (replicas, isr)]
        if error is ErrorCode.NONE and len(replicas) + len(isr) < len(image.replicas) + len(image.isr):
            error = ErrorCode.REPLICA_NOT_AVAILABLE
    return MetadataResponsePartition(
        error_code=error,
        partition_index=name.partition,
        leader_id=seen.leader,
        leader_epoch=image.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=isr,
        offline_replicas=seen.offline_replicas,
    )
