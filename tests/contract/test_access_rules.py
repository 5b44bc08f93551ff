"""Access rules on three brokers, with the embedded store and with ZooKeeper: a change on one holds on all of them,
for connections that were open before. How soon is what `bench/acl_changes.py` measures."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from headrace.metadata.image import MetadataImage
from headrace.model.errors import ErrorCode
from headrace.testing.in_process import Client
from headrace.testing.in_process_cluster import InProcessCluster
from headrace.wire.messages import create_acls, delete_acls
from headrace.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

TOPIC, DESCRIBE, LITERAL, DENY = 2, 8, 3, 2
PATIENCE_S = 60.0
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "headrace.admin.port": "0",
}
FORBIDDEN = create_acls.AclCreation(
    resource_type=TOPIC,
    resource_name="t",
    resource_pattern_type=LITERAL,
    principal="User:ANONYMOUS",
    host="*",
    operation=DESCRIBE,
    permission_type=DENY,
)
THAT = delete_acls.DeleteAclsFilter(
    resource_type_filter=TOPIC,
    resource_name_filter="t",
    pattern_type_filter=LITERAL,
    principal_filter=None,
    host_filter=None,
    operation=1,
    permission_type=1,
)


async def until_all_say(clients: Sequence[Client], code: int) -> None:
    """Each on the connection that it has had all the time."""
    topics = [MetadataRequestTopic(name="t")]
    asked = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    async with asyncio.timeout(PATIENCE_S):
        for client in clients:
            while (await client.ask(asked, MetadataResponse, 9)).topics[0].error_code != code:
                await asyncio.sleep(0.01)


def knows_all(image: MetadataImage) -> bool:
    return len(image.brokers) == 3 and image.controller_id in image.brokers


@pytest.mark.parametrize("store", ["embedded", "zookeeper"])
async def test_a_change_holds_on_every_broker_for_open_connections(
    store: str, request: pytest.FixtureRequest, chroot: str, tmp_path: Path
) -> None:
    own = {}
    if store == "zookeeper":
        own = {"zookeeper.connect": request.getfixturevalue("zookeeper").connect + chroot}
    cluster = InProcessCluster(tmp_path / "data", {**SETTINGS, **own})
    try:
        for number in (1, 2, 3):
            # On machines apart each has a directory of its own.
            await cluster.start(number, **({"log_dirs": str(tmp_path / str(number))} if own else {}))
        await cluster.until(lambda: all(knows_all(cluster.image(number)) for number in cluster.nodes))
        clients = [await cluster.client(number) for number in cluster.nodes]
        await until_all_say(clients, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        for changer in clients:
            creation = create_acls.CreateAclsRequest(creations=[FORBIDDEN])
            made = await changer.ask(creation, create_acls.CreateAclsResponse, 3)
            assert [result.error_code for result in made.results] == [0]
            await until_all_say(clients, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            removal = delete_acls.DeleteAclsRequest(filters=[THAT])
            gone = await changer.ask(removal, delete_acls.DeleteAclsResponse, 3)
            assert [result.error_code for result in gone.filter_results] == [0]
            await until_all_say(clients, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert not cluster.failures, cluster.failures
    finally:
        for number in list(cluster.nodes):
            await cluster.stop(number)
