"""R-OPS-8: groups and their positions through the admin clients: list, describe, alter, reset, delete."""

from __future__ import annotations

import asyncio

import confluent_kafka as ck
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, ConsumerGroupType
from kafka import KafkaAdminClient, OffsetAndMetadata, TopicPartition
from kafka.admin import MemberToRemove, OffsetSpec

from tests.compat.clients import Confluent as ConfluentClient
from tests.compat.clients import Record
from tests.compat.confluent_admin import AdminClient
from tests.compat.conftest import MakeTopic, unique_name
from tests.compat.group_members import Confluent, ConfluentConsumerProtocol, Member, Membership, poll_until

TIMEOUT_S = 60


@pytest.fixture
def group() -> str:
    return unique_name("g")


def joined(bootstrap: str, group: str, topic: str, kind: type[Confluent] = Confluent) -> Member:
    member = kind(bootstrap, Membership(group, (topic,)))
    poll_until([member], lambda: bool(member.assignment()))
    return member


def test_confluent_lists_and_describes(
    group_bootstrap: str, group_admin: AdminClient, group: str, group_topic: MakeTopic
) -> None:
    topic = group_topic(2)
    names = {"classic": f"{group}-classic", "consumer": f"{group}-consumer", "empty": f"{group}-empty"}
    members = [
        joined(group_bootstrap, names["classic"], topic),
        joined(group_bootstrap, names["consumer"], topic, ConfluentConsumerProtocol),
    ]
    members[0].commit({(topic, 0): 5})
    empty = joined(group_bootstrap, names["empty"], topic)
    empty.commit({(topic, 1): 7})
    empty.close()

    def listed(**filters: object) -> dict[str, ck.ConsumerGroupType]:
        found = group_admin.list_consumer_groups(**filters).result(TIMEOUT_S)
        assert found.errors == []
        return {one.group_id: one.type for one in found.valid if one.group_id in names.values()}

    classic, consumer = ConsumerGroupType.CLASSIC, ConsumerGroupType.CONSUMER
    assert listed() == {names["classic"]: classic, names["consumer"]: consumer, names["empty"]: classic}
    assert set(listed(states={ConsumerGroupState.EMPTY})) == {names["empty"]}
    assert set(listed(types={consumer})) == {names["consumer"]}
    for name in ("classic", "consumer"):
        described = group_admin.describe_consumer_groups([names[name]])[names[name]].result(TIMEOUT_S)
        assert described.state == ConsumerGroupState.STABLE
        (member,) = described.members
        assert member.host == "/127.0.0.1"
        assert {(one.topic, one.partition) for one in member.assignment.topic_partitions} == {
            (topic, 0),
            (topic, 1),
        }
    gone = group_admin.describe_consumer_groups([names["empty"]])[names["empty"]].result(TIMEOUT_S)
    assert (gone.state, gone.members) == (ConsumerGroupState.EMPTY, [])
    for one in members:
        one.close()


def test_confluent_offsets(
    group_bootstrap: str, group_admin: AdminClient, group: str, group_topic: MakeTopic
) -> None:
    topic = group_topic(2)
    member = joined(group_bootstrap, group, topic)
    member.commit({(topic, 0): 5, (topic, 1): 6})

    def offsets() -> dict[int, int]:
        future = group_admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group]
        return {one.partition: one.offset for one in future.result(TIMEOUT_S).topic_partitions}

    assert offsets() == {0: 5, 1: 6}
    change = ConsumerGroupTopicPartitions(group, [ck.TopicPartition(topic, 0, 1)])
    (answered,) = group_admin.alter_consumer_group_offsets([change])[group].result(TIMEOUT_S).topic_partitions
    assert answered.error.code() == ck.KafkaError.UNKNOWN_MEMBER_ID
    with pytest.raises(ck.KafkaException) as refused:
        group_admin.delete_consumer_groups([group])[group].result(TIMEOUT_S)
    assert refused.value.args[0].code() == ck.KafkaError.NON_EMPTY_GROUP
    member.close()
    group_admin.alter_consumer_group_offsets([change])[group].result(TIMEOUT_S)
    assert offsets() == {0: 1, 1: 6}
    group_admin.delete_consumer_groups([group])[group].result(TIMEOUT_S)
    assert offsets() == {}
    with pytest.raises(ck.KafkaException) as refused:
        group_admin.delete_consumer_groups([group])[group].result(TIMEOUT_S)
    assert refused.value.args[0].code() == ck.KafkaError.GROUP_ID_NOT_FOUND


def test_kafka_python(group_bootstrap: str, group: str, group_topic: MakeTopic) -> None:
    topic = group_topic(2)
    ConfluentClient().produce(group_bootstrap, topic, [Record(b"v", partition=0) for _ in range(9)])
    first, second = (TopicPartition(topic, partition) for partition in range(2))
    admin = KafkaAdminClient(bootstrap_servers=group_bootstrap)
    try:
        altered = {first: OffsetAndMetadata(5, "note", -1), second: OffsetAndMetadata(0, "", -1)}
        results = admin.alter_group_offsets(group, altered)
        assert {place: result.errno for place, result in results.items()} == {first: 0, second: 0}
        found = admin.list_group_offsets({group: None})[group]
        assert {place: (one.offset, one.metadata) for place, one in found.items()} == {
            first: (5, "note"),
            second: (0, ""),
        }
        admin.reset_group_offsets(group, {first: OffsetSpec.LATEST})
        assert admin.list_group_offsets({group: [first]})[group][first].offset == 9
        assert admin.delete_group_offsets(group, [second])[second].errno == 0
        assert set(admin.list_group_offsets({group: None})[group]) == {first}
        assert group in {one["group_id"] for one in admin.list_groups(states_filter=["Empty"])}
        member = joined(group_bootstrap, group, topic)
        described = admin.describe_groups([group])[group]
        assert (described["group_state"], len(described["members"])) == ("Stable", 1)
        admin.remove_group_members(group, [MemberToRemove(member_id=described["members"][0]["member_id"])])
        # The member joins again as soon as it hears of it.
        poll_until([member], lambda: len(member.assigned) == 2)
        member.close()
        admin.delete_groups([group])
        assert group not in {one["group_id"] for one in admin.list_groups()}
    finally:
        admin.close()


def test_aiokafka(group_bootstrap: str, group: str, group_topic: MakeTopic) -> None:
    topic = group_topic()
    member = joined(group_bootstrap, group, topic)
    member.commit({(topic, 0): 5})

    async def look() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=group_bootstrap)
        await admin.start()
        try:
            assert (group, "consumer") in await admin.list_consumer_groups()
            (described,) = await admin.describe_consumer_groups([group])
            (found,) = described.groups
            assert (found[0], found[1], found[2], found[3]) == (0, group, "Stable", "consumer")
            offsets = await admin.list_consumer_group_offsets(group)
            assert {place.partition: one.offset for place, one in offsets.items()} == {0: 5}
        finally:
            await admin.close()

    asyncio.run(look())
    member.close()
