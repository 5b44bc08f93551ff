"""Rules of the APIs about consumer groups, and of those about the topics that groups have positions in."""

from __future__ import annotations

from typing import Any

from headrace.handlers.listener_view import NOT_REQUESTED
from headrace.model.errors import ErrorCode
from headrace.security.acl import Operation, Resource
from headrace.server.authorization.asking import (
    MESSAGES,
    NOT_THIS_GROUP,
    NOT_THIS_TOPIC,
    NOT_THIS_TRANSACTION,
    Asking,
    Rule,
    Ruling,
    completed,
    refusal,
    split,
)
from headrace.wire.messages import consumer_group_describe as describing_consumers
from headrace.wire.messages import delete_groups as deleting
from headrace.wire.messages import describe_groups as describing
from headrace.wire.messages import find_coordinator as finding
from headrace.wire.messages import list_groups as listing
from headrace.wire.messages import offset_commit as committing
from headrace.wire.messages import offset_delete as forgetting
from headrace.wire.messages import offset_fetch as fetching
from headrace.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from headrace.wire.messages.heartbeat import HeartbeatRequest
from headrace.wire.messages.join_group import JoinGroupRequest
from headrace.wire.messages.leave_group import LeaveGroupRequest
from headrace.wire.messages.sync_group import SyncGroupRequest

READ, DESCRIBE, DELETE = Operation.READ, Operation.DESCRIBE, Operation.DELETE
GROUP_KEY, TRANSACTION_KEY = 0, 1
"""The types of keys that FindCoordinator looks up."""
MANY_KEYS_SINCE = 4
MANY_GROUPS_SINCE = 8
MESSAGES_SINCE = 6
"""The version of DescribeGroups from which on there are error messages."""


def member(asking: Asking, request: Any) -> Ruling:
    """The rule for a member of the group that the request is about."""
    if not asking.group(READ, request.group_id):
        raise refusal(NOT_THIS_GROUP)
    return None


def consumer_group_heartbeat(asking: Asking, request: ConsumerGroupHeartbeatRequest) -> Ruling:
    """A pattern may match topics that the member must not see: their partitions are omitted."""
    member(asking, request)
    names = request.subscribed_topic_names or ()
    if not all(asking.topic(DESCRIBE, name) for name in names):
        raise refusal(NOT_THIS_TOPIC)

    def complete(response: ConsumerGroupHeartbeatResponse) -> None:
        if response.assignment is not None:
            response.assignment.topic_partitions = [
                topic
                for topic in response.assignment.topic_partitions
                if (name := asking.name_of(topic.topic_id)) is not None and asking.sees(name)
            ]

    return complete


def offset_commit(asking: Asking, request: committing.OffsetCommitRequest) -> Ruling:
    if not asking.group(READ, request.group_id):
        refused, code, request.topics = request.topics, NOT_THIS_GROUP, []
    else:
        request.topics, refused = split(
            request.topics, lambda topic: asking.topic_or_id(READ, topic.name or None, topic.topic_id)
        )
        code = NOT_THIS_TOPIC

    def complete(response: committing.OffsetCommitResponse) -> None:
        response.topics += [
            committing.OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    committing.OffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=code
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in refused
        ]

    return completed(request.topics, complete, committing.OffsetCommitResponse) if refused else None


def offset_fetch(asking: Asking, request: fetching.OffsetFetchRequest) -> Ruling:
    if asking.version < MANY_GROUPS_SINCE:
        return _offset_fetch_of_one(asking, request)
    request.groups, denied = split(request.groups, lambda group: asking.group(DESCRIBE, group.group_id))
    everything = [group.topics is None for group in request.groups]
    refused: list[list[fetching.OffsetFetchRequestTopics]] = []
    for group in request.groups:
        topics, hidden = split(
            group.topics or (), lambda topic: asking.topic_or_id(DESCRIBE, topic.name or None, topic.topic_id)
        )
        refused.append(hidden)
        if group.topics is not None:
            group.topics = topics

    def complete(response: fetching.OffsetFetchResponse) -> None:
        # In the order of the request, in which the same group may appear twice.
        for group, all_of_it, hidden in zip(response.groups, everything, refused, strict=True):
            if all_of_it:
                group.topics = [topic for topic in group.topics if _sees(asking, topic)]
            group.topics += [
                fetching.OffsetFetchResponseTopics(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partitions=[
                        fetching.OffsetFetchResponsePartitions(
                            partition_index=index, committed_offset=-1, metadata="", error_code=NOT_THIS_TOPIC
                        )
                        for index in topic.partition_indexes
                    ],
                )
                for topic in hidden
            ]
        response.groups += [
            fetching.OffsetFetchResponseGroup(group_id=group.group_id, error_code=NOT_THIS_GROUP)
            for group in denied
        ]

    return completed(request.groups, complete, fetching.OffsetFetchResponse)


def _sees(asking: Asking, topic: fetching.OffsetFetchResponseTopics) -> bool:
    name = topic.name or asking.name_of(topic.topic_id)
    return name is not None and asking.sees(name)


def _offset_fetch_of_one(asking: Asking, request: fetching.OffsetFetchRequest) -> Ruling:
    everything = request.topics is None
    if not asking.group(DESCRIBE, request.group_id):
        return fetching.OffsetFetchResponse(
            error_code=NOT_THIS_GROUP, topics=_not_fetched(asking, request.topics or [], NOT_THIS_GROUP)
        )
    denied: list[fetching.OffsetFetchRequestTopic] = []
    if request.topics is not None:
        request.topics, denied = split(request.topics, lambda topic: asking.topic(DESCRIBE, topic.name))

    def complete(response: fetching.OffsetFetchResponse) -> None:
        if everything:
            response.topics = [topic for topic in response.topics if asking.sees(topic.name)]
        response.topics += _not_fetched(asking, denied, NOT_THIS_TOPIC)

    return complete


def _not_fetched(
    asking: Asking, topics: list[fetching.OffsetFetchRequestTopic], code: ErrorCode
) -> list[fetching.OffsetFetchResponseTopic]:
    """The response to a refused fetch. Before version 2 there is no field for an error of the group, so each
    partition gets it."""
    if code == NOT_THIS_GROUP and asking.version >= 2:
        return []
    return [
        fetching.OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                fetching.OffsetFetchResponsePartition(
                    partition_index=index, committed_offset=-1, metadata="", error_code=code
                )
                for index in topic.partition_indexes
            ],
        )
        for topic in topics
    ]


def find_coordinator(asking: Asking, request: finding.FindCoordinatorRequest) -> Ruling:
    is_group = request.key_type == GROUP_KEY
    code = NOT_THIS_GROUP if is_group else NOT_THIS_TRANSACTION

    def allowed(key: str) -> bool:
        if request.key_type not in (GROUP_KEY, TRANSACTION_KEY):
            return True  # the handler refuses it
        return asking.may(DESCRIBE, Resource.GROUP if is_group else Resource.TRANSACTIONAL_ID, key)

    if asking.version < MANY_KEYS_SINCE:
        if allowed(request.key):
            return None
        return finding.FindCoordinatorResponse(
            error_code=code, error_message=MESSAGES[code], node_id=-1, host="", port=-1
        )
    request.coordinator_keys, denied = split(request.coordinator_keys, allowed)

    def complete(response: finding.FindCoordinatorResponse) -> None:
        response.coordinators += [
            finding.Coordinator(
                key=key, node_id=-1, host="", port=-1, error_code=code, error_message=MESSAGES[code]
            )
            for key in denied
        ]

    return completed(request.coordinator_keys, complete, finding.FindCoordinatorResponse) if denied else None


def describe_groups(asking: Asking, request: describing.DescribeGroupsRequest) -> Ruling:
    request.groups, denied = split(request.groups, lambda name: asking.group(DESCRIBE, name))

    def complete(response: describing.DescribeGroupsResponse) -> None:
        _limit_operations(asking, response.groups)
        response.groups += [
            describing.DescribedGroup(
                group_id=name,
                error_code=NOT_THIS_GROUP,
                error_message=MESSAGES[NOT_THIS_GROUP] if asking.version >= MESSAGES_SINCE else None,
            )
            for name in denied
        ]

    return completed(request.groups, complete, describing.DescribeGroupsResponse)


def consumer_group_describe(asking: Asking, request: describing_consumers.ConsumerGroupDescribeRequest) -> Ruling:
    """A group with a topic that the principal must not see is not described at all, as in Kafka."""
    request.group_ids, denied = split(request.group_ids, lambda name: asking.group(DESCRIBE, name))

    def complete(response: describing_consumers.ConsumerGroupDescribeResponse) -> None:
        _limit_operations(asking, response.groups)
        response.groups = [
            group if all(asking.sees(name) for name in _topics_of(group)) else _hidden(group.group_id)
            for group in response.groups
        ]
        response.groups += [
            describing_consumers.DescribedGroup(
                group_id=name, error_code=NOT_THIS_GROUP, error_message=MESSAGES[NOT_THIS_GROUP]
            )
            for name in denied
        ]

    return completed(request.group_ids, complete, describing_consumers.ConsumerGroupDescribeResponse)


def _topics_of(group: describing_consumers.DescribedGroup) -> set[str]:
    names: set[str] = set()
    for one in group.members:
        names.update(one.subscribed_topic_names)
        for assignment in (one.assignment, one.target_assignment):
            names.update(topic.topic_name for topic in assignment.topic_partitions)
    return names


def _hidden(group_id: str) -> describing_consumers.DescribedGroup:
    return describing_consumers.DescribedGroup(
        group_id=group_id,
        error_code=NOT_THIS_TOPIC,
        error_message="The group has members that are subscribed to topics that the client may not describe.",
    )


def _limit_operations(
    asking: Asking, groups: list[describing.DescribedGroup] | list[describing_consumers.DescribedGroup]
) -> None:
    for group in groups:
        if group.authorized_operations != NOT_REQUESTED:
            bits = group.authorized_operations
            group.authorized_operations = asking.operations(Resource.GROUP, group.group_id, bits)


def list_groups(asking: Asking, request: listing.ListGroupsRequest) -> Ruling:
    """All groups with the right on the cluster, else those that the principal may describe."""
    if asking.rights.on_cluster(DESCRIBE):
        return None

    def complete(response: listing.ListGroupsResponse) -> None:
        response.groups = [
            group for group in response.groups if asking.rights.may(DESCRIBE, Resource.GROUP, group.group_id)
        ]

    return complete


def delete_groups(asking: Asking, request: deleting.DeleteGroupsRequest) -> Ruling:
    request.groups_names, denied = split(request.groups_names, lambda name: asking.group(DELETE, name))

    def complete(response: deleting.DeleteGroupsResponse) -> None:
        response.results += [
            deleting.DeletableGroupResult(group_id=name, error_code=NOT_THIS_GROUP) for name in denied
        ]

    return completed(request.groups_names, complete, deleting.DeleteGroupsResponse) if denied else None


def offset_delete(asking: Asking, request: forgetting.OffsetDeleteRequest) -> Ruling:
    if not asking.group(DELETE, request.group_id):
        raise refusal(NOT_THIS_GROUP)
    request.topics, denied = split(request.topics, lambda topic: asking.topic(READ, topic.name))

    def complete(response: forgetting.OffsetDeleteResponse) -> None:
        response.topics += [
            forgetting.OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    forgetting.OffsetDeleteResponsePartition(
                        partition_index=partition.partition_index, error_code=NOT_THIS_TOPIC
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in denied
        ]

    return complete if denied else None


GROUP_RULES: dict[int, Rule] = {
    JoinGroupRequest.api_key: member,
    SyncGroupRequest.api_key: member,
    HeartbeatRequest.api_key: member,
    LeaveGroupRequest.api_key: member,
    ConsumerGroupHeartbeatRequest.api_key: consumer_group_heartbeat,
    committing.OffsetCommitRequest.api_key: offset_commit,
    fetching.OffsetFetchRequest.api_key: offset_fetch,
    finding.FindCoordinatorRequest.api_key: find_coordinator,
    describing.DescribeGroupsRequest.api_key: describe_groups,
    describing_consumers.ConsumerGroupDescribeRequest.api_key: consumer_group_describe,
    listing.ListGroupsRequest.api_key: list_groups,
    deleting.DeleteGroupsRequest.api_key: delete_groups,
    forgetting.OffsetDeleteRequest.api_key: offset_delete,
}
