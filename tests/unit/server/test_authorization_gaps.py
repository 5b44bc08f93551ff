"""Ways round the access rules that were open once."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import struct
from pathlib import Path

import pytest

from headrace.handlers.registry import APIS
from headrace.metadata.topic_decisions import TopicCreation
from headrace.model.errors import ErrorCode
from headrace.model.topics import TopicPartition
from headrace.node import Node
from headrace.security.acl import AclFilter, Operation, Pattern, Permission, Resource
from headrace.security.authorizer import Authorizer
from headrace.server.authorization.asking import Asking
from headrace.server.authorization.group_rules import consumer_group_heartbeat
from headrace.testing.raw_client import build_batch
from headrace.wire.api_keys import ApiKey
from headrace.wire.messages import fetch as fetching
from headrace.wire.messages import metadata as seeing
from headrace.wire.messages import offset_commit as committing
from headrace.wire.messages import offset_fetch as positions
from headrace.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitionsResult,
)
from headrace.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from headrace.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tests.unit.server.test_authorization import (
    AUTHORIZER,
    HIDDEN,
    KNOWN,
    MESSAGES,
    NEVER,
    allow,
    answered,
    codes,
    connected,
    controller,
    fetch_of,
    filled,
    restricted,
    rule,
    started,
)

__all__ = ["restricted"]  # a fixture
NAMING_GROUPS_OR_TRANSACTIONS = [
    key
    for key in sorted(MESSAGES)
    if any(
        word in APIS[key].name
        for word in ("Group", "Heartbeat", "Offset", "Txn", "Transaction", "ProducerId", "Coordinator")
    )
]


@pytest.mark.parametrize("version", [4, 11, 12, 17])
async def test_a_consumer_is_no_follower_where_everybody_may_copy(tmp_path: Path, version: int) -> None:
    """Without rules on the cluster everybody may act for it. A topic with rules is closed all the same."""
    settings = {"authorizer_class_name": AUTHORIZER, "allow_everyone_if_no_acl_found": "true"}
    async with started(tmp_path / "data", **settings) as (node, port):
        await controller(node).create_topics([TopicCreation(KNOWN, 1, 1)])
        await node.replicas.settled()
        node.replicas.leader(TopicPartition(KNOWN, 0)).append(memoryview(bytearray(build_batch([b"secret"]))), 1)
        others = dataclasses.replace(rule(KNOWN, Operation.READ), principal="User:alice")
        await allow(node, others)
        topic_id = node.image.topics[KNOWN].id if version >= 13 else None
        client = await connected(port)
        for session_epoch in (-1, 0) if version >= 7 else (-1,):
            asked = fetch_of("" if topic_id else KNOWN, topic_id, session_epoch=session_epoch)
            answer = await client.ask(asked, fetching.FetchResponse, version)
            (partition,) = answer.responses[0].partitions
            assert partition.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            assert not partition.records


async def test_a_topic_that_is_created_while_a_heartbeat_waits_is_not_left_out(
    restricted: tuple[Node, int],
) -> None:
    """Its partitions are the member's from then on, and are not assigned to it again: nobody read them."""
    node, _ = restricted
    rules = rule("g", Operation.READ, resource=Resource.GROUP), rule("new", Operation.READ)
    rights = Authorizer(rules, frozenset(), allow_without_acls=False).rights("User:ANONYMOUS", "127.0.0.1")
    asking = Asking(rights, lambda: node.image, 1, lambda *denied: None, makes_topics=False)
    complete = consumer_group_heartbeat(asking, ConsumerGroupHeartbeatRequest(group_id="g"))
    assert callable(complete)
    await controller(node).create_topics([TopicCreation("new", 1, 1)])
    await node.replicas.settled()
    assigned = TopicPartitionsResult(topic_id=node.image.topics["new"].id, partitions=[0])
    response = ConsumerGroupHeartbeatResponse(assignment=Assignment(topic_partitions=[assigned]))
    complete(response)
    assert response.assignment is not None
    assert response.assignment.topic_partitions == [assigned]


async def test_a_group_that_is_asked_for_twice_shows_no_hidden_topics(restricted: tuple[Node, int]) -> None:
    """Once for all of its positions, and once for some."""
    node, port = restricted
    await allow(node, rule("g", Operation.READ, resource=Resource.GROUP), rule(KNOWN, Operation.READ))
    hidden = rule(HIDDEN, Operation.READ)
    await allow(node, hidden)
    client = await connected(port)
    await client.ask(FindCoordinatorRequest(coordinator_keys=["g"]), FindCoordinatorResponse, 4)
    committed = committing.OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=-1,
        topics=[
            committing.OffsetCommitRequestTopic(
                name=name,
                partitions=[committing.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)],
            )
            for name in (KNOWN, HIDDEN)
        ],
    )
    async with asyncio.timeout(60):
        while set(codes(await client.ask(committed, committing.OffsetCommitResponse, 8))):
            await asyncio.sleep(0.01)
    await controller(node).delete_acls([AclFilter(**dataclasses.asdict(hidden))])
    some = [positions.OffsetFetchRequestTopics(name=name, partition_indexes=[0]) for name in (KNOWN, HIDDEN)]
    asked = positions.OffsetFetchRequest(
        groups=[
            positions.OffsetFetchRequestGroup(group_id="g", topics=None),
            positions.OffsetFetchRequestGroup(group_id="g", topics=some),
        ]
    )
    answer = await client.ask(asked, positions.OffsetFetchResponse, 8)
    everything, named = (
        {topic.name: topic.partitions[0].error_code for topic in group.topics} for group in answer.groups
    )
    assert everything == {KNOWN: ErrorCode.NONE}
    assert named == {KNOWN: ErrorCode.NONE, HIDDEN: ErrorCode.TOPIC_AUTHORIZATION_FAILED}


async def test_groups_and_transactions_that_are_there_look_like_others(restricted: tuple[Node, int]) -> None:
    """To who has no rights, in every API and version that names one."""
    node, port = restricted
    group = rule(KNOWN, Operation.READ, resource=Resource.GROUP)
    transaction = rule(KNOWN, Operation.WRITE, resource=Resource.TRANSACTIONAL_ID)
    await allow(node, group, transaction, rule(KNOWN, Operation.READ))
    client = await connected(port)
    for kind in (0, 1):
        found = FindCoordinatorRequest(key_type=kind, coordinator_keys=[KNOWN])
        await client.ask(found, FindCoordinatorResponse, 4)
    partition = committing.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    commit = committing.OffsetCommitRequest(
        group_id=KNOWN,
        generation_id_or_member_epoch=-1,
        topics=[committing.OffsetCommitRequestTopic(name=KNOWN, partitions=[partition])],
    )
    begin = InitProducerIdRequest(transactional_id=KNOWN, transaction_timeout_ms=60_000)
    async with asyncio.timeout(60):
        while set(codes(await client.ask(commit, committing.OffsetCommitResponse, 8))):
            await asyncio.sleep(0.01)
        while (await client.ask(begin, InitProducerIdResponse, 4)).error_code:
            await asyncio.sleep(0.01)
    everything = AclFilter(Resource.ANY, None, Pattern.ANY, None, None, Operation.ANY, Permission.ANY)
    await controller(node).delete_acls([everything])
    for key in NAMING_GROUPS_OR_TRANSACTIONS:
        request, response = MESSAGES[key]
        for version in APIS[key].versions:
            told = []
            for name in (KNOWN, NEVER):
                answer = await answered(port, filled(request, version, name), version, response)
                told.append(answer.encode(version).replace(name.encode(), b"?"))
            assert told[0] == told[1], f"{APIS[key].name} v{version} tells what is there"


async def test_a_topic_that_is_not_there_yet_is_unknown_where_asking_makes_none(
    restricted: tuple[Node, int],
) -> None:
    """Clients allow the broker to create topics unless told otherwise: a consumer that came early gave up."""
    node, port = restricted
    await allow(node, rule(NEVER, Operation.READ))
    client = await connected(port)
    asked = seeing.MetadataRequest(topics=[seeing.MetadataRequestTopic(name=NEVER)])
    for version in (1, 4, 9, 13):
        answer = await client.ask(asked, seeing.MetadataResponse, version)
        assert [topic.error_code for topic in answer.topics] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert NEVER not in node.image.topics


@pytest.mark.parametrize("rest", [b"", b"\0"])
async def test_a_cut_off_produce_is_the_clients_mistake(
    restricted: tuple[Node, int], caplog: pytest.LogCaptureFixture, rest: bytes
) -> None:
    """Before the gate has seen whether it has a transactional id: it was called an internal error."""
    _, port = restricted
    caplog.set_level(logging.INFO)
    for version in range(3, 14):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        request = struct.pack(">hhih", ApiKey.PRODUCE, version, 7, -1) + rest
        writer.write(struct.pack(">i", len(request)) + request)
        assert await asyncio.wait_for(reader.read(), 60) == b""
        writer.close()
    assert "Closed the connection" in caplog.text
    assert "internal error" not in caplog.text
