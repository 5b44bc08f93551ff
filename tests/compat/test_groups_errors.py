"""R-CON-2, R-CON-3: every mistake about groups gets the code that Apache Kafka gives it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from headrace.config.describe import ConfigSource
from headrace.model.errors import ErrorCode
from headrace.model.topics import TopicId
from headrace.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from headrace.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from headrace.wire.messages.delete_groups import DeleteGroupsRequest
from headrace.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from headrace.wire.messages.describe_groups import DescribeGroupsRequest
from headrace.wire.messages.find_coordinator import FindCoordinatorRequest
from headrace.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.wire.messages.join_group import JoinGroupRequestProtocol
from headrace.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from headrace.wire.messages.list_groups import ListGroupsRequest
from headrace.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from headrace.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tests.compat.conftest import MakeTopic, unique_name
from tests.compat.group_client import GroupClient, subscription

NONE = 0
E = ErrorCode


@pytest.fixture
def groups(group_bootstrap: str) -> Iterator[GroupClient]:
    with GroupClient(group_bootstrap) as client:
        client.wait_for_coordinator("any")
        yield client


@pytest.fixture
def group() -> str:
    return unique_name("g")


# -- joining


def protocol(name: str) -> JoinGroupRequestProtocol:
    return JoinGroupRequestProtocol(name=name, metadata=subscription())


@pytest.mark.parametrize("version", [0, 2, 4, 5])
@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"group_id": ""}, E.INVALID_GROUP_ID),
        ({"session_timeout_ms": 1}, E.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 2_000_000}, E.INVALID_SESSION_TIMEOUT),
        ({"protocols": []}, E.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, E.INCONSISTENT_GROUP_PROTOCOL),
        ({"member_id": "nobody"}, E.UNKNOWN_MEMBER_ID),
    ],
)
def test_join_refused(groups: GroupClient, group: str, values: dict[str, Any], error: int, version: int) -> None:
    response = groups.join(**{"group_id": group, "version": version, **values})
    assert (response.error_code, response.generation_id, response.members) == (error, -1, [])


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"protocol_type": "connect"}, E.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": [protocol("roundrobin")]}, E.INCONSISTENT_GROUP_PROTOCOL),
        ({"member_id": "nobody"}, E.UNKNOWN_MEMBER_ID),
        ({"member_id": "nobody", "group_instance_id": "seat"}, E.FENCED_INSTANCE_ID),
        ({"member_id": "nobody", "group_instance_id": "other"}, E.UNKNOWN_MEMBER_ID),
    ],
)
def test_join_a_living_group_refused(groups: GroupClient, group: str, values: dict[str, Any], error: int) -> None:
    groups.settle(group, group_instance_id="seat")
    assert groups.join(group, **values).error_code == error


def test_a_new_member_is_told_its_id_first(groups: GroupClient, group: str) -> None:
    """KIP-394: from version 4 on, and not for static members."""
    from headrace.wire.messages.join_group import JoinGroupRequest

    request = JoinGroupRequest(
        group_id=group, session_timeout_ms=10_000, protocol_type="consumer", protocols=[protocol("range")]
    )
    response = groups.call(request, 4)
    assert response.error_code == E.MEMBER_ID_REQUIRED
    assert response.member_id.startswith("tester-")
    assert groups.join(group, response.member_id).error_code == NONE


def test_a_newcomer_joins_although_the_last_member_has_just_left(groups: GroupClient, group: str) -> None:
    """It left between the newcomer's two requests, as when one consumer is replaced by another."""
    from headrace.wire.messages.join_group import JoinGroupRequest

    first = groups.settle(group)
    request = JoinGroupRequest(
        group_id=group, session_timeout_ms=10_000, protocol_type="consumer", protocols=[protocol("range")]
    )
    given = groups.call(request, 4)
    assert given.error_code == E.MEMBER_ID_REQUIRED
    assert groups.call(LeaveGroupRequest(group_id=group, member_id=first.member_id), 1).error_code == NONE
    joined = groups.join(group, given.member_id)
    assert joined.error_code == NONE
    assert joined.generation_id > first.generation_id  # Kafka counts the moment in which the group was empty too


# -- being a member


@pytest.mark.parametrize(
    ("generation", "member", "instance", "error"),
    [
        (0, None, None, NONE),
        (-1, None, None, E.ILLEGAL_GENERATION),
        (1, None, None, E.ILLEGAL_GENERATION),
        (0, "nobody", None, E.UNKNOWN_MEMBER_ID),
        (0, "", None, E.UNKNOWN_MEMBER_ID),
        (0, None, "seat", NONE),
        (0, "nobody", "seat", E.FENCED_INSTANCE_ID),
        (0, "nobody", "other", E.UNKNOWN_MEMBER_ID),
    ],
)
def test_heartbeat(
    groups: GroupClient, group: str, generation: int, member: str | None, instance: str | None, error: int
) -> None:
    """`generation` is relative to the real one; None is the real member."""
    joined = groups.settle(group, group_instance_id="seat")
    name = joined.member_id if member is None else member
    assert groups.beat(group, joined.generation_id + generation, name, instance) == error


def test_sync_refused(groups: GroupClient, group: str) -> None:
    joined = groups.join(group)
    member, generation = joined.member_id, joined.generation_id
    assert groups.sync(group, generation, "nobody").error_code == E.UNKNOWN_MEMBER_ID
    assert groups.sync(group, generation + 1, member).error_code == E.ILLEGAL_GENERATION
    assert groups.sync(group, generation, member, version=5).error_code == E.INCONSISTENT_GROUP_PROTOCOL
    wrong = groups.sync(group, generation, member, version=5, protocol_type="consumer", protocol_name="x")
    assert wrong.error_code == E.INCONSISTENT_GROUP_PROTOCOL
    right = groups.sync(group, generation, member, version=5, protocol_type="consumer", protocol_name="range")
    assert (right.error_code, right.protocol_type, right.protocol_name) == (NONE, "consumer", "range")


@pytest.mark.parametrize("group_id", ["", "missing"])
def test_members_of_nothing(groups: GroupClient, group_id: str) -> None:
    name = unique_name(group_id) if group_id else ""
    error = E.UNKNOWN_MEMBER_ID if group_id else E.INVALID_GROUP_ID
    assert groups.beat(name, 1, "m") == error
    assert groups.sync(name, 1, "m").error_code == error
    assert groups.call(LeaveGroupRequest(group_id=name, member_id="m"), 1).error_code == error


def test_leave(groups: GroupClient, group: str) -> None:
    joined = groups.settle(group, group_instance_id="seat")
    assert groups.call(LeaveGroupRequest(group_id=group, member_id="nobody"), 2).error_code == E.UNKNOWN_MEMBER_ID
    leavers = [
        MemberIdentity(member_id="nobody"),
        MemberIdentity(member_id="nobody", group_instance_id="seat"),
        MemberIdentity(member_id="", group_instance_id="other"),
        MemberIdentity(member_id="", group_instance_id="seat"),
    ]
    response = groups.call(LeaveGroupRequest(group_id=group, members=leavers), 5)
    assert response.error_code == NONE
    assert [member.error_code for member in response.members] == [
        E.UNKNOWN_MEMBER_ID,
        E.FENCED_INSTANCE_ID,
        E.UNKNOWN_MEMBER_ID,
        NONE,
    ]
    assert groups.beat(group, joined.generation_id, joined.member_id) == E.UNKNOWN_MEMBER_ID


# -- offsets


@pytest.mark.parametrize("version", range(2, 10))
def test_commit_and_fetch_in_every_version(
    groups: GroupClient, group: str, group_topic: MakeTopic, version: int
) -> None:
    topic = group_topic()
    assert groups.commit(group, topic, 5, version, metadata="note") == NONE
    for fetch_version in range(1, 10):
        response = fetch(groups, group, topic, fetch_version)
        assert (response.committed_offset, response.metadata, response.error_code) == (5, "note", NONE)


def fetch(groups: GroupClient, group: str, topic: str, version: int) -> Any:
    if version >= 8:
        asked = OffsetFetchRequestGroup(
            group_id=group, topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
        )
        (found,) = groups.call(OffsetFetchRequest(groups=[asked]), version).groups
        assert found.error_code == NONE
    else:
        request = OffsetFetchRequest(
            group_id=group, topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=[0])]
        )
        found = groups.call(request, version)
    assert [one.name for one in found.topics] == [topic]
    return found.topics[0].partitions[0]


def test_topics_by_id(groups: GroupClient, group: str, group_topic: MakeTopic, group_bootstrap: str) -> None:
    """Version 10; an id that nobody has is told one by one."""
    topic = group_topic()
    topic_id = id_of(group_bootstrap, topic)
    nobody = TopicId(b"n" * 16)
    position = OffsetCommitRequestPartition(partition_index=0, committed_offset=8, committed_metadata="")
    beyond = OffsetCommitRequestPartition(partition_index=9, committed_offset=8, committed_metadata="")
    request = OffsetCommitRequest(
        group_id=group,
        topics=[
            OffsetCommitRequestTopic(topic_id=topic_id, partitions=[position, beyond]),
            OffsetCommitRequestTopic(topic_id=nobody, partitions=[position]),
        ],
    )
    answered = {
        one.topic_id: sorted((each.partition_index, each.error_code) for each in one.partitions)
        for one in groups.call(request, 10).topics
    }
    assert answered == {
        topic_id: [(0, NONE), (9, E.UNKNOWN_TOPIC_OR_PARTITION)],
        nobody: [(0, E.UNKNOWN_TOPIC_ID)],
    }
    topics = [OffsetFetchRequestTopics(topic_id=one, partition_indexes=[0]) for one in (topic_id, nobody)]
    for asked in (topics, None):
        (found,) = groups.call(
            OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=asked)]), 10
        ).groups
        answers = {one.topic_id: one.partitions[0] for one in found.topics}
        assert answers[topic_id].committed_offset == 8
        assert set(answers) == ({topic_id, nobody} if asked else {topic_id})
        if asked:
            assert (answers[nobody].committed_offset, answers[nobody].error_code) == (-1, E.UNKNOWN_TOPIC_ID)


def id_of(bootstrap: str, topic: str) -> TopicId:
    from headrace.testing.raw_client import RawClient, frame, request_header
    from headrace.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

    with RawClient(bootstrap) as client:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
        client.send(frame(request_header(3, 12, 1) + b"\0" + request.encode(12)))
        return TopicId(MetadataResponse.decode(client.receive_frame(), 12, 5).topics[0].topic_id)


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"topic": "missing"}, E.UNKNOWN_TOPIC_OR_PARTITION),
        ({"partition": 3}, E.UNKNOWN_TOPIC_OR_PARTITION),
        ({"partition": -1}, E.UNKNOWN_TOPIC_OR_PARTITION),
        ({"metadata": "x" * 4097}, E.OFFSET_METADATA_TOO_LARGE),
        ({"metadata": "x" * 4096}, NONE),
        ({"metadata": None}, NONE),
        ({"generation_id_or_member_epoch": 3, "member_id": "m"}, E.ILLEGAL_GENERATION),
        ({"generation_id_or_member_epoch": 3, "member_id": "m", "version": 9}, E.GROUP_ID_NOT_FOUND),
        ({"group_id": ""}, NONE),
    ],
)
def test_commit_without_a_group(
    groups: GroupClient, group: str, group_topic: MakeTopic, values: dict[str, Any], error: int
) -> None:
    fields = {"group_id": group, "offset": 5, **values}
    if "topic" not in fields:
        fields["topic"] = group_topic()
    assert groups.commit(**fields) == error


@pytest.mark.parametrize(
    ("generation", "member", "instance", "error"),
    [
        (0, None, None, NONE),
        (0, None, "seat", NONE),
        (1, None, None, E.ILLEGAL_GENERATION),
        (0, "nobody", None, E.UNKNOWN_MEMBER_ID),
        (0, "nobody", "seat", E.FENCED_INSTANCE_ID),
        (None, "", None, E.UNKNOWN_MEMBER_ID),
    ],
)
def test_commit_to_a_living_group(
    groups: GroupClient,
    group: str,
    group_topic: MakeTopic,
    generation: int | None,
    member: str | None,
    instance: str | None,
    error: int,
) -> None:
    joined = groups.settle(group, group_instance_id="seat")
    values: dict[str, Any] = {
        "generation_id_or_member_epoch": -1 if generation is None else joined.generation_id + generation,
        "member_id": joined.member_id if member is None else member,
        "group_instance_id": instance,
    }
    assert groups.commit(group, group_topic(), 5, **values) == error


def test_commit_while_the_assignment_is_awaited(groups: GroupClient, group: str, group_topic: MakeTopic) -> None:
    joined = groups.join(group)
    error = groups.commit(
        group, group_topic(), 5, generation_id_or_member_epoch=joined.generation_id, member_id=joined.member_id
    )
    assert error == E.REBALANCE_IN_PROGRESS


def test_fetch_of_nothing(groups: GroupClient, group: str, group_topic: MakeTopic) -> None:
    for version in range(1, 10):
        found = fetch(groups, group, group_topic() if version == 1 else "missing", version)
        assert (found.committed_offset, found.metadata, found.error_code) == (-1, "", NONE)
    everything = groups.call(OffsetFetchRequest(group_id=group, topics=None), 5)
    assert (everything.error_code, everything.topics) == (NONE, [])


def test_many_groups_in_one_fetch(groups: GroupClient, group: str, group_topic: MakeTopic) -> None:
    """KIP-709."""
    topic = group_topic(2)
    names = [f"{group}-{number}" for number in range(5)]
    for number, name in enumerate(names):
        assert groups.commit(name, topic, number, partition=number % 2) == NONE
    asked = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in [*names, "nobody"]]
    found = {one.group_id: one for one in groups.call(OffsetFetchRequest(groups=asked), 9).groups}
    for number, name in enumerate(names):
        (partition,) = found[name].topics[0].partitions
        assert (partition.partition_index, partition.committed_offset) == (number % 2, number)
    assert (found["nobody"].error_code, found["nobody"].topics) == (NONE, [])


def delete_offsets(groups: GroupClient, group: str, topic: str, partition: int = 0) -> tuple[int, list[int]]:
    one = OffsetDeleteRequestTopic(
        name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=partition)]
    )
    response = groups.call(OffsetDeleteRequest(group_id=group, topics=[one]), 0)
    return response.error_code, [each.error_code for topic in response.topics for each in topic.partitions]


def test_delete_offsets(groups: GroupClient, group: str, group_topic: MakeTopic) -> None:
    topic = group_topic()
    assert delete_offsets(groups, group, topic) == (E.GROUP_ID_NOT_FOUND, [])
    assert delete_offsets(groups, group, "missing") == (E.GROUP_ID_NOT_FOUND, [])
    assert groups.commit(group, topic, 5) == NONE
    assert delete_offsets(groups, group, "missing") == (NONE, [E.UNKNOWN_TOPIC_OR_PARTITION])
    assert delete_offsets(groups, group, topic, 7) == (NONE, [E.UNKNOWN_TOPIC_OR_PARTITION])
    assert delete_offsets(groups, group, topic) == (NONE, [NONE])
    assert groups.committed(group, topic) == -1


def test_offsets_in_use_are_not_deleted(groups: GroupClient, group: str, group_topic: MakeTopic) -> None:
    read, other = group_topic(), group_topic()
    for topic in (read, other):
        assert groups.commit(group, topic, 5) == NONE
    groups.settle(group, protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription(read))])
    assert delete_offsets(groups, group, read) == (NONE, [E.GROUP_SUBSCRIBED_TO_TOPIC])
    assert delete_offsets(groups, group, other) == (NONE, [NONE])


# -- groups as a whole


@pytest.mark.parametrize("version", range(3))
def test_delete_groups(groups: GroupClient, group: str, group_topic: MakeTopic, version: int) -> None:
    topic, living = group_topic(), unique_name("living")
    assert groups.commit(group, topic, 5) == NONE
    groups.settle(living)
    request = DeleteGroupsRequest(groups_names=[group, living, "missing"])
    results = {one.group_id: one.error_code for one in groups.call(request, version).results}
    assert results == {group: NONE, living: E.NON_EMPTY_GROUP, "missing": E.GROUP_ID_NOT_FOUND}
    assert groups.committed(group, topic) == -1


@pytest.mark.parametrize("version", range(7))
def test_describe_groups(groups: GroupClient, group: str, version: int) -> None:
    joined = groups.settle(group)
    request = DescribeGroupsRequest(groups=[group, "missing"], include_authorized_operations=version >= 3)
    described = {one.group_id: one for one in groups.call(request, version).groups}
    found, missing = described[group], described["missing"]
    assert (found.error_code, found.group_state, found.protocol_type) == (NONE, "Stable", "consumer")
    assert found.protocol_data == "range"
    (member,) = found.members
    assert (member.member_id, member.client_id, member.client_host) == (joined.member_id, "tester", "/127.0.0.1")
    assert (member.member_metadata, member.member_assignment) == (subscription(), b"mine")
    assert (missing.error_code, missing.group_state) == (E.GROUP_ID_NOT_FOUND if version >= 6 else NONE, "Dead")
    if version >= 3:
        assert found.authorized_operations == sum(1 << operation for operation in (3, 6, 8, 10, 11))
        assert found.authorized_operations != missing.authorized_operations or version < 6


@pytest.mark.parametrize("version", range(6))
def test_list_groups(groups: GroupClient, group: str, group_topic: MakeTopic, version: int) -> None:
    living = unique_name("living")
    assert groups.commit(group, group_topic(), 5) == NONE
    groups.settle(living)

    def listed(**filters: list[str]) -> dict[str, Any]:
        response = groups.call(ListGroupsRequest(**filters), version)
        assert response.error_code == NONE
        return {one.group_id: one for one in response.groups}

    found = listed()
    assert (found[group].protocol_type, found[living].protocol_type) == ("", "consumer")
    if version >= 4:
        assert (found[group].group_state, found[living].group_state) == ("Empty", "Stable")
        stable = listed(states_filter=["stable"])
        assert living in stable
        assert group not in stable
    if version >= 5:
        assert found[living].group_type == "classic"
        assert living in listed(types_filter=["Classic"])
        assert living not in listed(types_filter=["consumer"])


def test_find_coordinator(groups: GroupClient, group: str, group_bootstrap: str) -> None:
    port = int(group_bootstrap.rsplit(":", 1)[1])
    for version in range(4):
        one = groups.call(FindCoordinatorRequest(key=group), version)
        assert (one.error_code, one.host, one.port) == (NONE, "127.0.0.1", port)
    for version in range(4, 7):
        many = groups.call(FindCoordinatorRequest(coordinator_keys=[group, "other"]), version).coordinators
        assert [(found.key, found.error_code, found.port) for found in many] == [
            (group, NONE, port),
            ("other", NONE, port),
        ]
        assert groups.call(FindCoordinatorRequest(coordinator_keys=[]), version).coordinators == []


# -- the consumer protocol


def beat(groups: GroupClient, group: str, member: str, epoch: int, **values: Any) -> Any:
    fields = {"rebalance_timeout_ms": 10_000, "subscribed_topic_names": ["t"], "topic_partitions": []}
    request = ConsumerGroupHeartbeatRequest(
        group_id=group, member_id=member, member_epoch=epoch, **{**(fields if epoch == 0 else {}), **values}
    )
    return groups.call(request, 1)


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"group": ""}, E.INVALID_REQUEST),
        ({"member": ""}, E.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, E.INVALID_REQUEST),
        ({"subscribed_topic_names": None}, E.INVALID_REQUEST),
        ({"topic_partitions": None}, E.INVALID_REQUEST),
        ({"instance_id": ""}, E.INVALID_REQUEST),
        ({"rack_id": ""}, E.INVALID_REQUEST),
        ({"server_assignor": "magic"}, E.UNSUPPORTED_ASSIGNOR),
        ({"subscribed_topic_names": None, "subscribed_topic_regex": "("}, E.INVALID_REGULAR_EXPRESSION),
        ({"epoch": 5, "topic_partitions": []}, E.GROUP_ID_NOT_FOUND),
        ({"epoch": -1}, E.GROUP_ID_NOT_FOUND),
        ({"epoch": -2}, E.INVALID_REQUEST),
        ({"epoch": -2, "instance_id": "seat"}, E.GROUP_ID_NOT_FOUND),
        ({"epoch": -3}, E.INVALID_REQUEST),
    ],
)
def test_consumer_heartbeat_refused(groups: GroupClient, group: str, values: dict[str, Any], error: int) -> None:
    fields = {"group": group, "member": "m", "epoch": 0, **values}
    assert beat(groups, **fields).error_code == error


def test_consumer_members(groups: GroupClient, group: str, group_topic: MakeTopic) -> None:
    topic = group_topic(2)
    joined = beat(groups, group, "m", 0, subscribed_topic_names=[topic], instance_id="seat")
    assert (joined.error_code, joined.member_id) == (NONE, "m")
    epoch = joined.member_epoch
    assert epoch > 0  # Kafka 4.3 begins with 2, earlier ones and we with 1.
    assert [one.partitions for one in joined.assignment.topic_partitions] == [[0, 1]]
    assert beat(groups, group, "m", epoch).error_code == NONE
    assert beat(groups, group, "m", epoch + 1).error_code == E.FENCED_MEMBER_EPOCH
    assert beat(groups, group, "nobody", epoch).error_code == E.UNKNOWN_MEMBER_ID
    unreleased = beat(groups, group, "n", 0, subscribed_topic_names=[topic], instance_id="seat")
    assert unreleased.error_code == E.UNRELEASED_INSTANCE_ID
    assert beat(groups, group, "n", epoch, instance_id="seat").error_code == E.FENCED_INSTANCE_ID


def test_commits_of_consumer_members(groups: GroupClient, group: str, group_topic: MakeTopic) -> None:
    topic = group_topic()
    joined = beat(groups, group, "m", 0, subscribed_topic_names=[topic]).member_epoch
    assert joined > 0

    def commit(epoch: int, member: str = "m", version: int = 9) -> int:
        values: dict[str, Any] = {"generation_id_or_member_epoch": epoch, "member_id": member}
        return groups.commit(group, topic, 5, version, **values)

    assert commit(joined) == NONE
    assert commit(joined + 1) == E.STALE_MEMBER_EPOCH
    assert commit(0) == E.STALE_MEMBER_EPOCH
    assert commit(joined, "nobody") == E.UNKNOWN_MEMBER_ID
    assert commit(-1, "") == E.UNKNOWN_MEMBER_ID
    assert commit(joined, version=8) == E.UNSUPPORTED_VERSION
    asked = OffsetFetchRequestGroup(group_id=group, member_id="m", member_epoch=9, topics=None)
    assert groups.call(OffsetFetchRequest(groups=[asked]), 9).groups[0].error_code == E.STALE_MEMBER_EPOCH
    asked.member_id, asked.member_epoch = "nobody", joined
    assert groups.call(OffsetFetchRequest(groups=[asked]), 9).groups[0].error_code == E.UNKNOWN_MEMBER_ID


def test_consumer_members_are_taken_out_by_leave_group(
    groups: GroupClient, group: str, group_topic: MakeTopic
) -> None:
    """As Java's `removeMembersFromConsumerGroup` does it, whatever protocol the members speak."""
    topic = group_topic(2)
    for member, seat in (("m", None), ("n", "seat"), ("o", "bench")):
        joined = beat(groups, group, member, 0, subscribed_topic_names=[topic], instance_id=seat)
        assert joined.error_code == NONE
    unknown = [("nobody", None), ("", None), ("", "other"), ("m", "other")]
    leavers = [*unknown, ("wrong", "seat"), ("m", None), ("m", None), ("", "seat"), ("o", "bench")]
    members = [MemberIdentity(member_id=member, group_instance_id=seat) for member, seat in leavers]
    response = groups.call(LeaveGroupRequest(group_id=group, members=members), 5)
    errors = [E.UNKNOWN_MEMBER_ID] * len(unknown) + [E.FENCED_INSTANCE_ID, NONE, NONE, NONE, NONE]
    assert (response.error_code, [member.error_code for member in response.members]) == (NONE, errors)
    (left,) = groups.call(ConsumerGroupDescribeRequest(group_ids=[group]), 1).groups
    assert (left.group_state, left.members) == ("Empty", [])


def test_the_two_protocols_see_each_others_groups(groups: GroupClient, group: str, group_topic: MakeTopic) -> None:
    classic = unique_name("classic")
    groups.settle(classic)
    assert beat(groups, group, "m", 0, subscribed_topic_names=[group_topic()]).error_code == NONE
    answers = groups.call(ConsumerGroupDescribeRequest(group_ids=[group, classic, "missing"]), 1).groups
    # In any order: Kafka answers for one partition of the offsets topic after the other.
    described = {one.group_id: one for one in answers}
    assert {name: one.error_code for name, one in described.items()} == {
        group: NONE,
        classic: E.GROUP_ID_NOT_FOUND,
        "missing": E.GROUP_ID_NOT_FOUND,
    }
    states = {name: one.group_state for name, one in described.items()}
    assert states == {group: "Stable", classic: "", "missing": ""}
    member = described[group].members[0]
    assert (member.client_host, member.member_type, member.subscribed_topic_regex) == ("/127.0.0.1", 1, "")
    (seen,) = groups.call(DescribeGroupsRequest(groups=[group]), 6).groups
    assert (seen.error_code, seen.group_state) == (E.GROUP_ID_NOT_FOUND, "Dead")
    assert beat(groups, classic, "m", 5, topic_partitions=[]).error_code == E.GROUP_ID_NOT_FOUND


# -- settings

GROUP_RESOURCE = 32
SET, DELETE = 0, 1


def test_settings_of_a_consumer_group(groups: GroupClient, group: str, group_topic: MakeTopic) -> None:
    """Within the broker's limits, and the members are told."""
    name = "consumer.heartbeat.interval.ms"

    def change(value: str | None) -> int:
        edit = AlterableConfig(name=name, config_operation=DELETE if value is None else SET, value=value)
        resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group, configs=[edit])
        (changed,) = groups.call(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
        return int(changed.error_code)

    def described() -> tuple[str, int]:
        asked = DescribeConfigsResource(
            resource_type=GROUP_RESOURCE, resource_name=group, configuration_keys=[name]
        )
        (result,) = groups.call(DescribeConfigsRequest(resources=[asked]), 4).results
        (row,) = result.configs
        return row.value, row.config_source

    assert (change("49"), change("15001"), change("often")) == (E.INVALID_CONFIG,) * 3
    assert change("700") == NONE
    assert described() == ("700", ConfigSource.DYNAMIC_GROUP_CONFIG)
    member = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[group_topic()],
        topic_partitions=[],
    )
    joined = groups.call(member, 1)
    assert (joined.error_code, joined.heartbeat_interval_ms) == (NONE, 700)
    assert change(None) == NONE
    assert described()[0] == "100", "the broker's own"
    again = ConsumerGroupHeartbeatRequest(group_id=group, member_id="m", member_epoch=joined.member_epoch)
    assert groups.call(again, 1).heartbeat_interval_ms == 100
