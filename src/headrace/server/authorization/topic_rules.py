"""Rules of the APIs that name topics: each topic is answered by itself."""

from __future__ import annotations

from headrace.handlers.listener_view import CLUSTER_OPERATIONS, NOT_REQUESTED, TOPIC_OPERATIONS
from headrace.model.errors import ErrorCode
from headrace.model.topics import NO_TOPIC_ID
from headrace.security.acl import CLUSTER_NAME, Operation, Resource
from headrace.server.authorization.asking import MESSAGES, NOT_THIS_TOPIC, Asking, Rule, Ruling, completed, split
from headrace.wire.messages import create_partitions as growing
from headrace.wire.messages import create_topics as creating
from headrace.wire.messages import delete_records as trimming
from headrace.wire.messages import delete_topics as deleting
from headrace.wire.messages import describe_producers as producers
from headrace.wire.messages import describe_topic_partitions as paging
from headrace.wire.messages import list_offsets as listing
from headrace.wire.messages import metadata as seeing
from headrace.wire.messages import offset_for_leader_epoch as epochs

READ, WRITE, CREATE, DELETE = Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE
DESCRIBE, ALTER = Operation.DESCRIBE, Operation.ALTER
MESSAGE = MESSAGES[NOT_THIS_TOPIC]


def list_offsets(asking: Asking, request: listing.ListOffsetsRequest) -> Ruling:
    request.topics, denied = split(request.topics, lambda topic: asking.topic(DESCRIBE, topic.name))

    def complete(response: listing.ListOffsetsResponse) -> None:
        response.topics += [
            listing.ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    listing.ListOffsetsPartitionResponse(
                        partition_index=partition.partition_index, error_code=NOT_THIS_TOPIC
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in denied
        ]

    return complete if denied else None


def delete_records(asking: Asking, request: trimming.DeleteRecordsRequest) -> Ruling:
    request.topics, denied = split(request.topics, lambda topic: asking.topic(DELETE, topic.name))

    def complete(response: trimming.DeleteRecordsResponse) -> None:
        response.topics += [
            trimming.DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    trimming.DeleteRecordsPartitionResult(
                        partition_index=partition.partition_index, low_watermark=-1, error_code=NOT_THIS_TOPIC
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in denied
        ]

    return complete if denied else None


def offset_for_leader_epoch(asking: Asking, request: epochs.OffsetForLeaderEpochRequest) -> Ruling:
    """Followers ask with their right on the cluster, consumers with one on the topics (KIP-320)."""
    if asking.rights.on_cluster(Operation.CLUSTER_ACTION):
        return None
    request.topics, denied = split(request.topics, lambda topic: asking.topic(DESCRIBE, topic.topic))

    def complete(response: epochs.OffsetForLeaderEpochResponse) -> None:
        response.topics += [
            epochs.OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    epochs.EpochEndOffset(error_code=NOT_THIS_TOPIC, partition=partition.partition)
                    for partition in topic.partitions
                ],
            )
            for topic in denied
        ]

    return complete if denied else None


def describe_producers(asking: Asking, request: producers.DescribeProducersRequest) -> Ruling:
    request.topics, denied = split(request.topics, lambda topic: asking.topic(READ, topic.name))

    def complete(response: producers.DescribeProducersResponse) -> None:
        response.topics += [
            producers.TopicResponse(
                name=topic.name,
                partitions=[
                    producers.PartitionResponse(
                        partition_index=index, error_code=NOT_THIS_TOPIC, error_message=MESSAGE
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in denied
        ]

    return complete if denied else None


def create_partitions(asking: Asking, request: growing.CreatePartitionsRequest) -> Ruling:
    request.topics, denied = split(request.topics, lambda topic: asking.topic(ALTER, topic.name))

    def complete(response: growing.CreatePartitionsResponse) -> None:
        response.results += [
            growing.CreatePartitionsTopicResult(name=topic.name, error_code=NOT_THIS_TOPIC, error_message=MESSAGE)
            for topic in denied
        ]

    return complete if denied else None


def create_topics(asking: Asking, request: creating.CreateTopicsRequest) -> Ruling:
    """With the right on the cluster, or on the names; settings are returned only to principals that may see them
    (KIP-525).
    """
    denied: list[creating.CreatableTopic] = []
    if not asking.rights.on_cluster(CREATE):
        request.topics, denied = split(request.topics, lambda topic: asking.topic(CREATE, topic.name))

    def complete(response: creating.CreateTopicsResponse) -> None:
        for topic in response.topics:
            hidden = not asking.rights.may(Operation.DESCRIBE_CONFIGS, Resource.TOPIC, topic.name)
            if hidden and topic.error_code == ErrorCode.NONE:
                topic.topic_config_error_code = NOT_THIS_TOPIC
                topic.configs = None
                topic.num_partitions = topic.replication_factor = -1
        response.topics += [
            creating.CreatableTopicResult(
                name=topic.name, error_code=NOT_THIS_TOPIC, error_message=MESSAGE, configs=None
            )
            for topic in denied
        ]

    return complete


def delete_topics(asking: Asking, request: deleting.DeleteTopicsRequest) -> Ruling:
    """Who may not even describe a topic learns nothing of it: no name for an id, no id for a name."""

    def complete(response: deleting.DeleteTopicsResponse) -> None:
        response.responses += [
            deleting.DeletableTopicResult(
                name=_told(asking, topic),
                topic_id=topic.topic_id,
                error_code=NOT_THIS_TOPIC,
                error_message=MESSAGE,
            )
            for topic in denied
        ]

    def allowed(topic: deleting.DeleteTopicState) -> bool:
        return asking.topic_or_id(DELETE, topic.name, topic.topic_id)

    request.topics, denied = split(request.topics, allowed)
    names, denied_names = split(request.topic_names, lambda name: asking.topic(DELETE, name))
    request.topic_names = names
    denied += [deleting.DeleteTopicState(name=name) for name in denied_names]
    return complete if denied else None


def _told(asking: Asking, topic: deleting.DeleteTopicState) -> str | None:
    if topic.topic_id == NO_TOPIC_ID:
        return topic.name
    name = asking.name_of(topic.topic_id)
    return name if name is not None and asking.sees(name) else None


def metadata(asking: Asking, request: seeing.MetadataRequest) -> Ruling:
    denied: list[seeing.MetadataRequestTopic] = []
    everything = request.topics is None or (asking.version == 0 and not request.topics)
    if request.topics and not everything:
        request.topics, denied = split(request.topics, lambda topic: _may_see(asking, request, topic))
    # An empty list would mean all topics in version 0: then the handler is asked for a name that nobody can have.
    nothing_left = not everything and not request.topics
    if nothing_left:
        request.topics = [seeing.MetadataRequestTopic(name="")]

    def complete(response: seeing.MetadataResponse) -> None:
        shown = [] if nothing_left else response.topics
        response.topics = [topic for topic in shown if topic.name is None or asking.sees(topic.name)]
        for topic in response.topics:
            if topic.topic_authorized_operations != NOT_REQUESTED and topic.name is not None:
                operations = asking.operations(Resource.TOPIC, topic.name, TOPIC_OPERATIONS)
                topic.topic_authorized_operations = operations
        response.topics += [
            seeing.MetadataResponseTopic(
                error_code=NOT_THIS_TOPIC,
                name=None if topic.topic_id != NO_TOPIC_ID else topic.name,
                topic_id=topic.topic_id,
            )
            for topic in denied
        ]
        if response.cluster_authorized_operations != NOT_REQUESTED:
            operations = asking.operations(Resource.CLUSTER, CLUSTER_NAME, CLUSTER_OPERATIONS)
            response.cluster_authorized_operations = operations

    return complete


def _may_see(asking: Asking, request: seeing.MetadataRequest, topic: seeing.MetadataRequestTopic) -> bool:
    """One that would be made by asking for it needs the right to make it, too."""
    if not asking.topic_or_id(DESCRIBE, topic.name, topic.topic_id):
        return False
    name = topic.name
    if name is None or topic.topic_id != NO_TOPIC_ID or name in asking.image.topics:
        return True
    if not (request.allow_auto_topic_creation and asking.makes_topics):
        return True
    return asking.rights.on_cluster(CREATE) or asking.topic(CREATE, name)


def describe_topic_partitions(asking: Asking, request: paging.DescribeTopicPartitionsRequest) -> Ruling:
    """All topics are those that the principal sees: the page's cursor must name no other."""
    denied: list[paging.TopicRequest] = []
    if not request.topics:
        names = sorted(name for name in asking.image.topics if asking.sees(name))
        request.topics = [paging.TopicRequest(name=name) for name in names]
        cursor = request.cursor
        if cursor is not None and cursor.topic_name not in names:
            request.topics = [topic for topic in request.topics if topic.name > cursor.topic_name]
            request.cursor = None
    else:
        request.topics, denied = split(request.topics, lambda topic: asking.topic(DESCRIBE, topic.name))
        if request.cursor is not None and not asking.sees(request.cursor.topic_name):
            request.cursor = None

    def complete(response: paging.DescribeTopicPartitionsResponse) -> None:
        for topic in response.topics:
            if topic.topic_authorized_operations != NOT_REQUESTED:
                operations = asking.operations(Resource.TOPIC, topic.name or "", TOPIC_OPERATIONS)
                topic.topic_authorized_operations = operations
        response.topics += [
            paging.DescribeTopicPartitionsResponseTopic(error_code=NOT_THIS_TOPIC, name=topic.name)
            for topic in denied
        ]

    return completed(request.topics, complete, paging.DescribeTopicPartitionsResponse)


TOPIC_RULES: dict[int, Rule] = {
    listing.ListOffsetsRequest.api_key: list_offsets,
    trimming.DeleteRecordsRequest.api_key: delete_records,
    epochs.OffsetForLeaderEpochRequest.api_key: offset_for_leader_epoch,
    producers.DescribeProducersRequest.api_key: describe_producers,
    growing.CreatePartitionsRequest.api_key: create_partitions,
    creating.CreateTopicsRequest.api_key: create_topics,
    deleting.DeleteTopicsRequest.api_key: delete_topics,
    seeing.MetadataRequest.api_key: metadata,
    paging.DescribeTopicPartitionsRequest.api_key: describe_topic_partitions,
}
