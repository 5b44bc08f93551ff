"""The flush policy of a topic (R-LOG-6), through the broker's own socket, on a disk whose syncs the test holds."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.env.real import RealDisk
from headrace.model.errors import ErrorCode
from headrace.records.builder import NewRecord, build_batch
from headrace.testing.in_process import Client, connect, running_node
from headrace.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from headrace.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from headrace.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from headrace.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

TOPIC_RESOURCE = 2


class HeldDisk(RealDisk):
    """Syncs of segment files wait until the test lets them go; other files are not held."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.failure: OSError | None = None
        self.segment_fds: set[int] = set()
        self.started = 0
        self.ended = 0

    def open(self, path: str, flags: int) -> int:
        fd = super().open(path, flags)
        (self.segment_fds.add if path.endswith(".log") else self.segment_fds.discard)(fd)
        return fd

    def fdatasync(self, fd: int) -> None:  # type: ignore[override]  # the real one is a static function
        if fd not in self.segment_fds:
            RealDisk.fdatasync(fd)
            return
        self.started += 1
        assert self.gate.wait(60)
        if self.failure is not None:
            raise self.failure
        RealDisk.fdatasync(fd)
        self.ended += 1


async def create(client: Client, name: str, **configs: str) -> None:
    pairs = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=pairs)
    answer = await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), CreateTopicsResponse, 7)
    assert answer.topics[0].error_code == 0, answer


def produce_request(topic: str, acks: int = 1) -> ProduceRequest:
    data = [PartitionProduceData(index=0, records=bytes(build_batch([NewRecord(b"v")])))]
    return ProduceRequest(
        acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=data)]
    )


async def answered(client: Client) -> PartitionProduceResponse:
    response = await client.answer(ProduceResponse, 9)
    return response.responses[0].partition_responses[0]


async def high_watermark(client: Client, topic: str, offset: int = 0) -> tuple[int, int]:
    """(error, high watermark) as a consumer sees them."""
    asked = [FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1_000_000)]
    request = FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=1_000_000, topics=[FetchTopic(topic=topic, partitions=asked)]
    )
    found = (await client.ask(request, FetchResponse, 11)).responses[0].partitions[0]
    return found.error_code, found.high_watermark


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


async def test_group_commit_holds_ack_and_readers_until_the_sync(tmp_path: Path) -> None:
    """R-LOG-6: one sync for all that gathered; nobody sees or is told of a record before."""
    disk = HeldDisk()
    async with running_node(tmp_path, disk) as address:
        clients = [await connect(address) for _ in range(8)]
        reader = await connect(address)
        await create(reader, "t", flush_messages="1")
        disk.gate.clear()
        first, *others = clients
        first.send(produce_request("t"), 9)
        await until(lambda: disk.started == 1)
        for client in others:
            client.send(produce_request("t"), 9)
        await asyncio.sleep(0.1)
        assert await high_watermark(reader, "t") == (0, 0)
        assert disk.started == 1
        disk.gate.set()
        assert [(await answered(client)).error_code for client in clients] == [0] * 8
        assert disk.ended == 2
        assert await high_watermark(reader, "t") == (0, 8)


@pytest.mark.parametrize("acks", [1, -1])
async def test_without_a_policy_nothing_is_synced_for_an_ack(tmp_path: Path, acks: int) -> None:
    disk = HeldDisk()
    async with running_node(tmp_path, disk) as address:
        client = await connect(address)
        await create(client, "t")
        disk.gate.clear()
        client.send(produce_request("t", acks), 9)
        assert (await answered(client)).error_code == 0
        assert await high_watermark(client, "t") == (0, 1)
        assert disk.started == 0
        disk.gate.set()


@pytest.mark.parametrize(("setting", "needed"), [({"flush_messages": "3"}, 3), ({"flush_ms": "20"}, 1)])
async def test_background_flush_holds_nobody_back(tmp_path: Path, setting: dict[str, str], needed: int) -> None:
    """R-LOG-6: every N records, or so long after one came, while acks and readers go on."""
    disk = HeldDisk()
    async with running_node(tmp_path, disk) as address:
        client = await connect(address)
        await create(client, "t", **setting)
        disk.gate.clear()
        for number in range(needed):
            assert disk.started == 0 or needed == 1
            client.send(produce_request("t"), 9)
            assert (await answered(client)).error_code == 0
            assert await high_watermark(client, "t") == (0, number + 1)
        await until(lambda: disk.started == 1)
        disk.gate.set()
        await until(lambda: disk.ended == 1)


async def test_a_failed_sync_is_told_and_never_repeated(tmp_path: Path) -> None:
    """R-LOG-6, R-LOG-8: everybody who waited is refused, so is everybody after, and no second sync is tried."""
    disk = HeldDisk()
    async with running_node(tmp_path, disk) as address:
        clients = [await connect(address) for _ in range(2)]
        await create(clients[0], "t", flush_messages="1")
        disk.gate.clear()
        disk.failure = OSError(errno.EIO, "Input/output error")
        for client in clients:
            client.send(produce_request("t"), 9)
        await until(lambda: disk.started == 1)
        disk.gate.set()
        for client in clients:
            assert (await answered(client)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        disk.failure = None
        clients[0].send(produce_request("t"), 9)
        assert (await answered(clients[0])).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (disk.started, disk.ended) == (1, 0)


async def test_the_policy_changes_while_the_broker_runs(tmp_path: Path) -> None:
    """Dynamic configuration: commits begin, and end, with the next append."""
    disk = HeldDisk()
    async with running_node(tmp_path, disk) as address:
        client, admin = await connect(address), await connect(address)
        await create(client, "t")
        await alter(admin, "t", "flush.messages", "1")
        disk.gate.clear()
        client.send(produce_request("t"), 9)
        await until(lambda: disk.started == 1)
        waiting = asyncio.ensure_future(answered(client))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await alter(admin, "t", "flush.messages", None)
        assert (await waiting).error_code == 0
        disk.gate.set()


async def alter(client: Client, topic: str, name: str, value: str | None) -> None:
    change = AlterableConfig(name=name, config_operation=0 if value else 1, value=value)
    resource = AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=topic, configs=[change])
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    answer = await client.ask(request, IncrementalAlterConfigsResponse, 1)
    assert answer.responses[0].error_code == 0, answer


async def test_responses_keep_their_order_behind_a_commit(tmp_path: Path) -> None:
    """A request on the same connection that needs no sync is answered after the one that does."""
    disk = HeldDisk()
    async with running_node(tmp_path, disk) as address:
        client = await connect(address)
        await create(client, "slow", flush_messages="1")
        await create(client, "quick")
        disk.gate.clear()
        client.send(produce_request("slow"), 9)
        client.send(produce_request("quick"), 9)
        await until(lambda: disk.started == 1)
        waiting = asyncio.ensure_future(client.answer(ProduceResponse, 9))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        disk.gate.set()
        assert (await waiting).responses[0].name == "slow"
        assert (await client.answer(ProduceResponse, 9)).responses[0].name == "quick"


async def test_what_a_crash_left_unsynced_is_synced_before_it_is_read(tmp_path: Path) -> None:
    """After a start, the high watermark of a committing topic does not rest on the page cache."""
    async with running_node(tmp_path) as address:
        client = await connect(address)
        await create(client, "t", flush_messages="1")
        client.send(produce_request("t"), 9)
        await answered(client)
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        (tmp_path / "broker-1" / name).unlink()
    disk = HeldDisk()
    disk.gate.clear()
    async with running_node(tmp_path, disk) as address:
        client = await connect(address)
        assert await high_watermark(client, "t") == (0, 0)
        disk.gate.set()
        await until(lambda: disk.ended == 1)
        await asyncio.sleep(0.05)
        assert await high_watermark(client, "t") == (0, 1)
