"""Every API has a row in the authorisation table, and who has no rights learns nothing and changes nothing."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from headrace.config.broker_config import BrokerConfig
from headrace.env.real import RealDisk
from headrace.handlers import load_all
from headrace.handlers.registry import APIS, Api
from headrace.metadata.topic_decisions import TopicCreation
from headrace.model.errors import ErrorCode
from headrace.model.topics import TopicId, TopicPartition
from headrace.node import Node
from headrace.security.acl import Acl, Operation, Pattern, Permission, Resource
from headrace.server.authorization.table import HOT, OPEN, rule_of
from headrace.testing.in_process import Client, env_with
from headrace.testing.in_process_cluster import running_cluster
from headrace.testing.raw_client import build_batch
from headrace.wire.api_keys import ApiKey
from headrace.wire.messages import create_acls, delete_acls, describe_acls
from headrace.wire.messages import fetch as fetching
from headrace.wire.messages import metadata as seeing
from headrace.wire.messages import produce as producing
from headrace.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from headrace.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from headrace.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from headrace.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from headrace.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from headrace.wire.primitives import BOOL, BYTES, STRING, UUID
from headrace.wire.schema import Array, Request, Response, Struct

load_all()

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
KNOWN, NEVER = "secret-known", "secret-never"
"""A topic and a group that are there, and ones that are not, of the same length."""
HIDDEN = "hidden-other"
REFUSALS = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
UNKNOWN_IDS = {ErrorCode.UNKNOWN_TOPIC_ID}
"""What a request that names topics by ids that nobody has is answered with."""
TELLS_NOBODY_ANYTHING = {
    *OPEN,
    ApiKey.DESCRIBE_CLUSTER,  # the brokers' addresses, which every client has
    ApiKey.DESCRIBE_LOG_DIRS,  # an empty list before there was a place for the error
    ApiKey.LIST_GROUPS,  # an empty list
    ApiKey.LIST_TRANSACTIONS,  # an empty list
}
Rs = TypeVar("Rs", bound=Response)
MESSAGES: dict[int, tuple[type[Request], type[Response]]] = {
    key: (api.request, api.response)
    for key, api in APIS.items()
    if api.request is not None and api.response is not None
} | {0: (producing.ProduceRequest, producing.ProduceResponse), 1: (fetching.FetchRequest, fetching.FetchResponse)}


@contextlib.asynccontextmanager
async def started(data: Path, **settings: str) -> AsyncIterator[tuple[Node, int]]:
    flags = {name.replace("_", "."): value for name, value in settings.items()}
    config = BrokerConfig.build(flags={"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(data), **flags})
    node = Node(env_with(RealDisk()), config)
    try:
        address = await node.start()
        yield node, int(address.rpartition(":")[2])
    finally:
        await node.stop()


async def connected(port: int, host: str = "127.0.0.1") -> Client:
    return Client(*await asyncio.open_connection("127.0.0.1", port, local_addr=(host, 0)))


def controller(node: Node) -> Any:
    assert node._controller is not None
    return node._controller


@pytest.fixture
async def restricted(tmp_path: Path) -> AsyncIterator[tuple[Node, int]]:
    """A broker with two topics, where nobody but a super user that nobody is may do anything."""
    settings = {"authorizer_class_name": AUTHORIZER, "super_users": "User:admin"}
    async with started(tmp_path / "data", **settings) as (node, port):
        await controller(node).create_topics([TopicCreation(name, 1, 1) for name in (KNOWN, HIDDEN)])
        await node.replicas.settled()
        for name in (KNOWN, HIDDEN):
            batch = build_batch([b"secret value"])
            node.replicas.leader(TopicPartition(name, 0)).append(memoryview(bytearray(batch)), 1)
        yield node, port


# -- the table


def test_every_api_has_a_row() -> None:
    for key, api in APIS.items():
        assert key in HOT or rule_of(api) is not None, f"{api.name} is not in the authorisation table"


def test_what_has_no_row_is_found() -> None:
    """So that the test above can fail: an API on a topic, without a rule of its own."""
    listed = APIS[ApiKey.LIST_OFFSETS]
    unheard_of = dataclasses.replace(listed, key=9999)
    assert rule_of(listed) is not None
    assert rule_of(unheard_of) is None
    assert rule_of(dataclasses.replace(unheard_of, authorize=None)) is None


# -- without rights


def filled(kind: type[Struct], version: int, name: str) -> Any:
    """A struct with a name wherever one can be, and one element in every list."""
    values: dict[str, Any] = {}
    for field_name, spec in kind._fields.items():
        if spec.in_version(version):
            values[field_name] = _value(field_name, spec.type, version, name, spec.default)
    return kind(**values)


def _value(field_name: str, kind: Any, version: int, name: str, default: Any) -> Any:
    if isinstance(kind, Array):
        return [_value(field_name, kind.element, version, name, 0)]
    if isinstance(kind, type):
        return filled(kind, version, name)
    if kind is STRING:
        return "User:eve" if "principal" in field_name else "*" if "host" in field_name else name
    if kind is BYTES:
        return b""
    if field_name == "records":
        return build_batch([b"v"])
    if field_name == "acks":
        return 1
    if kind is BOOL:
        return field_name != "validate_only"
    if kind is UUID:
        return TopicId(bytes(16))
    if field_name == "replica_id":
        return -1
    if "resource_type" in field_name or field_name in ("config_operation",):
        return 2
    if field_name in ("operation", "permission_type"):
        return 3
    if field_name in ("session_epoch", "max_version_level"):
        return -1
    return default


def codes(value: Any) -> Iterator[int]:
    if isinstance(value, Struct):
        for name, inner in vars(value).items():
            if name.endswith("error_code") and isinstance(inner, int) and inner:
                yield inner
            yield from codes(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from codes(inner)


def requests(api: Api) -> Iterator[tuple[int, str]]:
    for version in api.versions:
        for name in (KNOWN, NEVER):
            yield version, name


async def answered(port: int, request: Request, version: int, response: type[Rs]) -> Rs:
    client = await connected(port)
    try:
        return await client.ask(request, response, version)
    except asyncio.IncompleteReadError:
        raise AssertionError(f"no answer to {request} v{version}") from None
    finally:
        client._writer.close()


async def test_without_rights_nothing_is_told_and_nothing_changes(restricted: tuple[Node, int]) -> None:
    node, port = restricted
    before = node.image
    for key, (request, response) in sorted(MESSAGES.items()):
        api = APIS[key]
        told: dict[tuple[int, str], bytes] = {}
        for version, name in requests(api):
            asked = filled(request, version, name)
            if key == ApiKey.FETCH:
                asked.replica_state = fetching.ReplicaState()
            answer = await answered(port, asked, version, response)
            told[version, name] = answer.encode(version).replace(name.encode(), b"?")
            where = f"{api.name} v{version} {name}: {answer}"
            assert HIDDEN.encode() not in told[version, name], where
            assert b"secret value" not in told[version, name], where
            if key not in TELLS_NOBODY_ANYTHING:
                found = set(codes(answer))
                assert found, where
                assert found <= REFUSALS | UNKNOWN_IDS, where
        for version in api.versions:
            assert told[version, KNOWN] == told[version, NEVER], f"{api.name} v{version} tells what is there"
    assert node.image.topics == before.topics
    assert node.image.acls == before.acls
    assert node.image.group_configs == before.group_configs
    assert node.image.broker_configs == before.broker_configs
    for name in (KNOWN, HIDDEN):
        assert node.replicas.leader(TopicPartition(name, 0)).end_offset == 1


async def test_lists_of_everything_are_empty(restricted: tuple[Node, int]) -> None:
    _, port = restricted
    client = await connected(port)
    for version in range(1, 14):
        listed = await client.ask(seeing.MetadataRequest(topics=None), seeing.MetadataResponse, version)
        assert listed.topics == []
    listed = await client.ask(seeing.MetadataRequest(topics=[]), seeing.MetadataResponse, 0)
    assert listed.topics == []
    asked = DescribeTopicPartitionsRequest(topics=[])
    page = await client.ask(asked, DescribeTopicPartitionsResponse, 0)
    assert (page.topics, page.next_cursor) == ([], None)


async def test_ids_open_nothing_either(restricted: tuple[Node, int]) -> None:
    node, port = restricted
    topic_id = node.image.topics[KNOWN].id
    client = await connected(port)
    fetched = await client.ask(fetch_of(topic_id=topic_id), fetching.FetchResponse, 17)
    assert set(codes(fetched)) == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    asked = seeing.MetadataRequest(topics=[seeing.MetadataRequestTopic(topic_id=topic_id, name=None)])
    seen = await client.ask(asked, seeing.MetadataResponse, 12)
    assert [(topic.name, topic.error_code) for topic in seen.topics] == [
        (None, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    ]
    produced = await client.ask(produce_of(topic_id=topic_id), producing.ProduceResponse, 13)
    assert set(codes(produced)) == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert node.replicas.leader(TopicPartition(KNOWN, 0)).end_offset == 1


@pytest.mark.parametrize("version", [4, 11, 14, 15, 17])
async def test_a_forged_follower_is_refused(restricted: tuple[Node, int], version: int) -> None:
    """Not even with the right to read: who copies acts for the cluster."""
    node, port = restricted
    await allow(node, rule(KNOWN, Operation.READ))
    topic = node.image.topics[KNOWN]
    asked = fetch_of(KNOWN if version < 13 else "", topic.id if version >= 13 else None)
    for follower, session_epoch in ((2, -1), (2, 0)):
        if version >= 15:
            asked.replica_state = fetching.ReplicaState(replica_id=follower, replica_epoch=1)
        else:
            asked.replica_id = follower
        if version >= 7:
            asked.session_epoch = session_epoch
        client = await connected(port)
        answer = await client.ask(asked, fetching.FetchResponse, version)
        assert not any(partition.records for topic in answer.responses for partition in topic.partitions)
        if version >= 7:
            assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        if version >= 7 and session_epoch == 0:
            assert answer.session_id == 0


# -- with rights


def rule(
    name: str,
    operation: Operation,
    permission: Permission = Permission.ALLOW,
    host: str = "*",
    resource: Resource = Resource.TOPIC,
    pattern: Pattern = Pattern.LITERAL,
) -> Acl:
    return Acl(resource, name, pattern, "User:ANONYMOUS", host, operation, permission)


async def allow(node: Node, *acls: Acl) -> None:
    assert await controller(node).create_acls(acls) == [None] * len(acls)


def fetch_of(
    name: str = "", topic_id: TopicId | None = None, offset: int = 0, wait_ms: int = 0, session_epoch: int = -1
) -> fetching.FetchRequest:
    partition = fetching.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    topic = fetching.FetchTopic(topic=name, partitions=[partition])
    if topic_id is not None:
        topic.topic_id = topic_id
    return fetching.FetchRequest(
        max_wait_ms=wait_ms, min_bytes=1, max_bytes=1 << 20, session_epoch=session_epoch, topics=[topic]
    )


def produce_of(
    *names: str, topic_id: TopicId | None = None, transactional_id: str | None = None
) -> producing.ProduceRequest:
    data = producing.PartitionProduceData(index=0, records=bytes(build_batch([b"v"])))
    topics = [producing.TopicProduceData(name=name, partition_data=[data]) for name in names or ("",)]
    if topic_id is not None:
        topics[0].topic_id = topic_id
    return producing.ProduceRequest(transactional_id=transactional_id, acks=1, timeout_ms=1000, topic_data=topics)


@pytest.mark.parametrize("version", [3, 8, 9, 12])
async def test_each_topic_of_a_produce_is_answered_by_itself(restricted: tuple[Node, int], version: int) -> None:
    node, port = restricted
    await allow(node, rule(KNOWN, Operation.WRITE))
    client = await connected(port)
    answer = await client.ask(produce_of(KNOWN, HIDDEN), producing.ProduceResponse, version)
    assert {topic.name: topic.partition_responses[0].error_code for topic in answer.responses} == {
        KNOWN: ErrorCode.NONE,
        HIDDEN: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
    single = await client.ask(produce_of(KNOWN), producing.ProduceResponse, version)
    assert list(codes(single)) == []
    assert node.replicas.leader(TopicPartition(KNOWN, 0)).end_offset == 3
    assert node.replicas.leader(TopicPartition(HIDDEN, 0)).end_offset == 1


@pytest.mark.parametrize("version", [3, 9, 12])
async def test_a_transaction_needs_its_own_right(restricted: tuple[Node, int], version: int) -> None:
    node, port = restricted
    await allow(node, rule(KNOWN, Operation.WRITE))
    client = await connected(port)
    answer = await client.ask(produce_of(KNOWN, transactional_id="mine"), producing.ProduceResponse, version)
    assert list(codes(answer)) == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]
    assert node.replicas.leader(TopicPartition(KNOWN, 0)).end_offset == 1


@pytest.mark.parametrize("version", [4, 11, 12])
async def test_a_consumer_reads_what_it_may(restricted: tuple[Node, int], version: int) -> None:
    node, port = restricted
    await allow(node, rule("secret-", Operation.READ, pattern=Pattern.PREFIXED))
    client = await connected(port)
    for name, code in ((KNOWN, 0), (HIDDEN, ErrorCode.TOPIC_AUTHORIZATION_FAILED)):
        answer = await client.ask(fetch_of(name), fetching.FetchResponse, version)
        (partition,) = answer.responses[0].partitions
        assert partition.error_code == code
        assert bool(partition.records) is (code == 0)


async def test_rights_are_taken_away_from_an_open_connection(restricted: tuple[Node, int]) -> None:
    """From a plain reader, from one with a session, from one that waits, and from a writer."""
    node, port = restricted
    granted = [rule(KNOWN, Operation.READ), rule(KNOWN, Operation.WRITE)]
    await allow(node, *granted)
    client, sessions, waiting = [await connected(port) for _ in range(3)]
    assert list(codes(await client.ask(produce_of(KNOWN), producing.ProduceResponse, 9))) == []
    opened = await sessions.ask(fetch_of(KNOWN, session_epoch=0), fetching.FetchResponse, 12)
    assert opened.session_id
    waiting.send(fetch_of(KNOWN, offset=2, wait_ms=600_000), 12)
    await waiting_for_a_poll(node)
    wanted = delete_acls.DeleteAclsFilter(
        resource_type_filter=2,
        resource_name_filter=KNOWN,
        pattern_type_filter=3,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    admin = await connected(port, "127.0.0.9")
    await allow(node, rule("kafka-cluster", Operation.ALTER, host="127.0.0.9", resource=Resource.CLUSTER))
    gone = await admin.ask(delete_acls.DeleteAclsRequest(filters=[wanted]), delete_acls.DeleteAclsResponse, 3)
    assert len(gone.filter_results[0].matching_acls) == 2
    ended = await waiting.answer(fetching.FetchResponse, 12)
    assert not any(partition.records for topic in ended.responses for partition in topic.partitions)
    denied = {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert set(codes(await client.ask(produce_of(KNOWN), producing.ProduceResponse, 9))) == denied
    assert set(codes(await client.ask(fetch_of(KNOWN), fetching.FetchResponse, 12))) == denied
    incremental = fetching.FetchRequest(
        max_bytes=1 << 20, session_id=opened.session_id, session_epoch=1, topics=[]
    )
    again = await sessions.ask(incremental, fetching.FetchResponse, 12)
    assert again.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def waiting_for_a_poll(node: Node) -> None:
    partition = node.replicas.leader(TopicPartition(KNOWN, 0))
    async with asyncio.timeout(60):
        while not partition.waiters:
            await asyncio.sleep(0.01)


async def test_a_session_is_its_owners(restricted: tuple[Node, int]) -> None:
    node, port = restricted
    await allow(node, rule(KNOWN, Operation.READ, host="127.0.0.1"))
    owner, thief = await connected(port), await connected(port, "127.0.0.2")
    opened = await owner.ask(fetch_of(KNOWN, session_epoch=0), fetching.FetchResponse, 12)
    taken = fetching.FetchRequest(max_bytes=1 << 20, session_id=opened.session_id, session_epoch=1, topics=[])
    answer = await thief.ask(taken, fetching.FetchResponse, 12)
    assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert answer.responses == []
    kept = await owner.ask(taken, fetching.FetchResponse, 12)
    assert kept.error_code == ErrorCode.NONE


async def test_rules_are_made_found_and_removed(restricted: tuple[Node, int]) -> None:
    node, port = restricted
    await allow(node, rule("kafka-cluster", Operation.ALTER, resource=Resource.CLUSTER))
    client = await connected(port)
    wanted = create_acls.AclCreation(
        resource_type=2,
        resource_name="orders",
        resource_pattern_type=4,
        principal="User:alice",
        host="10.0.0.0/8",
        operation=3,
        permission_type=3,
    )
    bad = create_acls.AclCreation(resource_type=2, resource_name="", principal="alice", host="*", operation=3)
    request = create_acls.CreateAclsRequest(creations=[wanted, wanted, bad])
    for _ in range(2):
        made = await client.ask(request, create_acls.CreateAclsResponse, 3)
        assert [one.error_code for one in made.results] == [0, 0, ErrorCode.INVALID_REQUEST]
    asked = describe_acls.DescribeAclsRequest(
        resource_type_filter=2,
        resource_name_filter="orders-eu",
        pattern_type_filter=2,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    found = await client.ask(asked, describe_acls.DescribeAclsResponse, 3)
    (resource,) = found.resources
    assert (resource.resource_name, resource.pattern_type) == ("orders", 4)
    assert [(acl.principal, acl.host) for acl in resource.acls] == [("User:alice", "10.0.0.0/8")]


async def test_rules_outlive_the_broker(tmp_path: Path) -> None:
    settings = {"authorizer_class_name": AUTHORIZER, "super_users": "User:admin"}
    async with started(tmp_path / "data", **settings) as (node, _):
        await allow(node, rule("a", Operation.READ), rule("b", Operation.READ, Permission.DENY))
        kept = node.image.acls
    async with started(tmp_path / "data", **settings) as (node, _):
        assert node.image.acls == kept
        assert len(kept) == 2


async def test_settings_and_pages_show_only_what_is_seen(restricted: tuple[Node, int]) -> None:
    node, port = restricted
    await allow(node, rule(KNOWN, Operation.DESCRIBE))
    client = await connected(port)
    asked = DescribeTopicPartitionsRequest(topics=[], response_partition_limit=1)
    page = await client.ask(asked, DescribeTopicPartitionsResponse, 0)
    assert [topic.name for topic in page.topics] == [KNOWN]
    assert page.next_cursor is None
    request = seeing.MetadataRequest(topics=None, include_topic_authorized_operations=True)
    seen = await client.ask(request, seeing.MetadataResponse, 9)
    assert [topic.name for topic in seen.topics] == [KNOWN]
    assert seen.topics[0].topic_authorized_operations == 1 << Operation.DESCRIBE


async def test_asking_for_a_topic_makes_none_without_the_right(tmp_path: Path) -> None:
    settings = {"authorizer_class_name": AUTHORIZER, "auto_create_topics_enable": "true"}
    async with started(tmp_path / "data", **settings) as (node, port):
        await ask_for_a_new_topic(node, port)


async def ask_for_a_new_topic(node: Node, port: int) -> None:
    await allow(node, rule(NEVER, Operation.DESCRIBE))
    client = await connected(port)
    request = seeing.MetadataRequest(topics=[seeing.MetadataRequestTopic(name=NEVER)])
    answer = await client.ask(request, seeing.MetadataResponse, 9)
    assert [topic.error_code for topic in answer.topics] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    assert NEVER not in node.image.topics
    await allow(node, rule(NEVER, Operation.CREATE))
    answer = await client.ask(request, seeing.MetadataResponse, 9)
    assert [topic.error_code for topic in answer.topics] == [ErrorCode.NONE]
    assert NEVER in node.image.topics


async def test_who_may_write_somewhere_may_be_idempotent(restricted: tuple[Node, int]) -> None:
    node, port = restricted
    client = await connected(port)
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    answer = await client.ask(request, InitProducerIdResponse, 4)
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    await allow(node, rule(KNOWN, Operation.WRITE))
    answer = await client.ask(request, InitProducerIdResponse, 4)
    assert answer.error_code == ErrorCode.NONE


async def test_two_phase_commit_needs_a_right_of_its_own(restricted: tuple[Node, int]) -> None:
    node, port = restricted
    await allow(node, rule("x", Operation.WRITE, resource=Resource.TRANSACTIONAL_ID))
    client = await connected(port)
    two_phase = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1000, enable2_pc=True)
    answer = await client.ask(two_phase, InitProducerIdResponse, 6)
    assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    ordinary = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1000)
    answer = await client.ask(ordinary, InitProducerIdResponse, 6)
    assert answer.error_code == ErrorCode.NOT_COORDINATOR, "allowed; nobody has asked for the coordinator yet"
    await allow(node, rule("x", Operation.TWO_PHASE_COMMIT, resource=Resource.TRANSACTIONAL_ID))
    answer = await client.ask(two_phase, InitProducerIdResponse, 6)
    assert answer.error_code == ErrorCode.NOT_COORDINATOR


async def test_a_pattern_assigns_no_hidden_topics(restricted: tuple[Node, int]) -> None:
    node, port = restricted
    await allow(node, rule("g", Operation.READ, resource=Resource.GROUP), rule(KNOWN, Operation.READ))
    client = await connected(port)
    await client.ask(FindCoordinatorRequest(coordinator_keys=["g"]), FindCoordinatorResponse, 4)
    join = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m" * 22,
        rebalance_timeout_ms=10_000,
        subscribed_topic_regex=".*",
        topic_partitions=[],
    )
    seen: set[TopicId] = set()
    async with asyncio.timeout(60):
        while not seen:
            await asyncio.sleep(0.02)
            answer = await client.ask(join, ConsumerGroupHeartbeatResponse, 1)
            assert answer.error_code in (
                ErrorCode.NONE,
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                ErrorCode.NOT_COORDINATOR,
            )
            if answer.assignment is not None:
                seen = {topic.topic_id for topic in answer.assignment.topic_partitions}
    assert seen == {node.image.topics[KNOWN].id}


async def test_brokers_copy_and_send_on_with_their_own_right(restricted: tuple[Node, int]) -> None:
    node, port = restricted
    await allow(node, rule("kafka-cluster", Operation.CLUSTER_ACTION, resource=Resource.CLUSTER))
    client = await connected(port)
    asked = OffsetForLeaderEpochRequest(
        replica_id=2,
        topics=[
            OffsetForLeaderTopic(topic=KNOWN, partitions=[OffsetForLeaderPartition(partition=0, leader_epoch=0)])
        ],
    )
    answer = await client.ask(asked, OffsetForLeaderEpochResponse, 4)
    assert [partition.error_code for topic in answer.topics for partition in topic.partitions] == [0]
    asked_fetch = fetch_of(KNOWN)
    asked_fetch.replica_id = 2
    fetched = await client.ask(asked_fetch, fetching.FetchResponse, 12)
    assert ErrorCode.CLUSTER_AUTHORIZATION_FAILED not in set(codes(fetched))


async def test_rules_hold_on_every_broker(tmp_path: Path) -> None:
    """Made on one that is not the controller, by the right of brokers to send on; then in force on both."""
    settings = {"authorizer_class_name": AUTHORIZER, "super_users": "User:admin"}
    async with running_cluster(tmp_path / "data", brokers=2, **settings) as cluster:
        leading = next(node for node in cluster.nodes.values() if controller(node).active)
        await allow(
            leading,
            rule("kafka-cluster", Operation.CLUSTER_ACTION, host="127.0.0.1", resource=Resource.CLUSTER),
            rule("kafka-cluster", Operation.ALTER, host="127.0.0.9", resource=Resource.CLUSTER),
        )
        (other,) = [number for number, node in cluster.nodes.items() if node is not leading]
        await cluster.until(lambda: len(cluster.image(other).acls) == 2)
        ports = {number: int(address.rpartition(":")[2]) for number, address in cluster.addresses.items()}
        admin = await connected(ports[other], "127.0.0.9")
        creation = create_acls.AclCreation(
            resource_type=2,
            resource_name="t",
            principal="User:ANONYMOUS",
            host="127.0.0.2",
            operation=8,
            permission_type=3,
        )
        request = create_acls.CreateAclsRequest(creations=[creation])
        made = await admin.ask(request, create_acls.CreateAclsResponse, 3)
        assert [result.error_code for result in made.results] == [0]
        await cluster.until(lambda: all(len(node.image.acls) == 3 for node in cluster.nodes.values()))
        asked = seeing.MetadataRequest(
            topics=[seeing.MetadataRequestTopic(name="t")], allow_auto_topic_creation=False
        )
        for port in ports.values():
            for host, code in (
                ("127.0.0.2", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                ("127.0.0.3", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
            ):
                client = await connected(port, host)
                seen = await client.ask(asked, seeing.MetadataResponse, 9)
                assert [topic.error_code for topic in seen.topics] == [code]
