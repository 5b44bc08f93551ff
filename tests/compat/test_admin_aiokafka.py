"""R-OPS-8: the admin calls of aiokafka."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.structs import TopicPartition

from tests.compat.clients import Confluent, Record
from tests.compat.conftest import unique_name

TIMEOUT_S = 60.0


@contextlib.asynccontextmanager
async def started(bootstrap: str) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


async def eventually(check: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not await check():
            await asyncio.sleep(0.02)


async def config(admin: AIOKafkaAdminClient, topic: str, name: str) -> str:
    (answer,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    for entry in answer.resources[0][4]:
        if entry[0] == name:
            return str(entry[1])
    raise AssertionError(f"{name} was not described")


async def test_topics(bootstrap: str) -> None:
    name = unique_name()
    async with started(bootstrap) as admin:
        new = NewTopic(name, 2, 1, topic_configs={"retention.ms": "66000"})
        assert (await admin.create_topics([new], validate_only=True)).topic_errors[0][1] == 0
        assert name not in await admin.list_topics()
        assert (await admin.create_topics([new])).topic_errors[0][1] == 0

        async def is_listed() -> bool:
            return name in await admin.list_topics()

        async def is_gone() -> bool:
            return name not in await admin.list_topics()

        await eventually(is_listed)
        assert (await admin.create_topics([new])).topic_errors[0][1] == 36
        (described,) = await admin.describe_topics([name])
        assert sorted(one["partition"] for one in described["partitions"]) == [0, 1]
        assert await config(admin, name, "retention.ms") == "66000"
        assert (await admin.delete_topics([name])).topic_error_codes[0][1] == 0
        await eventually(is_gone)


async def test_manual_assignment_and_partitions(bootstrap: str) -> None:
    name = unique_name()
    async with started(bootstrap) as admin:
        broker = (await admin.describe_cluster())["brokers"][0]["node_id"]
        new = NewTopic(name, -1, -1, replica_assignments={0: [broker]})
        assert (await admin.create_topics([new])).topic_errors[0][1] == 0

        async def has_partitions(count: int) -> bool:
            (described,) = await admin.describe_topics([name])
            return len(described["partitions"]) == count

        await eventually(lambda: has_partitions(1))
        await admin.create_partitions({name: NewPartitions(3)})
        await eventually(lambda: has_partitions(3))
        await admin.delete_topics([name])


async def test_alter_configs(bootstrap: str, topic: str) -> None:
    async with started(bootstrap) as admin:
        change = ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "3000"})
        (answer,) = await admin.alter_configs([change])
        assert answer.resources[0][0] == 0

        async def is_changed() -> bool:
            return await config(admin, topic, "retention.ms") == "3000"

        await eventually(is_changed)


async def test_delete_records(bootstrap: str, topic: str) -> None:
    """R-LOG-4."""
    records = [Record(b"%d" % number) for number in range(10)]
    await asyncio.to_thread(Confluent().produce, bootstrap, topic, records)
    target = TopicPartition(topic, 0)
    async with started(bootstrap) as admin:
        assert await admin.delete_records({target: RecordsToDelete(6)}) == {target: 6}


async def test_describe_cluster(bootstrap: str) -> None:
    async with started(bootstrap) as admin:
        cluster = await admin.describe_cluster()
    assert [f"{one['host']}:{one['port']}" for one in cluster["brokers"]] == [bootstrap]
    assert len(cluster["cluster_id"]) == 22
