"""What is deleted goes from the disk and never comes back, and whoever reads it meanwhile reads to the end."""

from __future__ import annotations

import asyncio
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.records.batch import checked_header
from headrace.records.builder import NewRecord, build_batch
from headrace.storage.scan import split_batches
from headrace.testing.in_process import Client, connect, running_node
from headrace.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from headrace.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from headrace.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from headrace.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from headrace.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from headrace.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

VALUE = b"x" * 200_000
BATCHES = 30
QUICK = {"log_retention_check_interval_ms": "20", "log_segment_delete_delay_ms": "0"}
SLOW_READER_BYTES = 64 * 1024


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def create(client: Client, **configs: str) -> None:
    pairs = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, configs=pairs)
    answer = await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), CreateTopicsResponse, 7)
    assert answer.topics[0].error_code == 0, answer


async def fill(client: Client, batches: int = BATCHES, value: bytes = VALUE) -> None:
    for _ in range(batches):
        data = [PartitionProduceData(index=0, records=bytes(build_batch([NewRecord(value, timestamp=now_ms())])))]
        request = ProduceRequest(
            acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=data)]
        )
        answer = await client.ask(request, ProduceResponse, 9)
        assert answer.responses[0].partition_responses[0].error_code == 0


def fetch_request(offset: int = 0) -> FetchRequest:
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=50_000_000)
    return FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=50_000_000, topics=[FetchTopic(topic="t", partitions=[wanted])]
    )


async def delete_topic(client: Client) -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=10_000)
    assert (await client.ask(request, DeleteTopicsResponse, 6)).responses[0].error_code == 0


async def delete_records(client: Client, offset: int) -> None:
    topic = DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)])
    answer = await client.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=1000), DeleteRecordsResponse, 2)
    assert answer.topics[0].partitions[0].error_code == 0


async def set_retention(client: Client, value_ms: str) -> None:
    change = AlterableConfig(name="retention.ms", config_operation=0, value=value_ms)
    resource = AlterConfigsResource(resource_type=2, resource_name="t", configs=[change])
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    answer = await client.ask(request, IncrementalAlterConfigsResponse, 1)
    assert answer.responses[0].error_code == 0, answer


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


def size_of_file(path: Path) -> int:
    """0 also for one that has just gone."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return 0
    return found.st_size if stat.S_ISREG(found.st_mode) else 0


def used_bytes(path: Path) -> int:
    """On the disk, what is only held open by this process included."""
    listed = sum(size_of_file(file) for file in path.rglob("*"))
    held = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
            if target.startswith(str(path)) and target.endswith("(deleted)"):
                held += os.stat(f"/proc/self/fd/{name}").st_size
        except FileNotFoundError:
            continue
    return listed + held


def whole_batches(response: FetchResponse) -> list[int]:
    records = bytes(response.responses[0].partitions[0].records or b"")
    view = memoryview(records)
    return [checked_header(view[position : position + size]).base_offset for position, size in split_batches(view)]


@pytest.mark.parametrize("how", ["delete records", "retention", "topic deletion"])
async def test_a_reader_inside_a_deleted_segment_gets_all_of_its_answer(tmp_path: Path, how: str) -> None:
    """R-LOG-4: the answer had begun when the segment was deleted and its file removed."""
    async with running_node(tmp_path, None, **QUICK) as address:
        client, reader = await connect(address), await connect(address, receive_bytes=SLOW_READER_BYTES)
        await create(client)
        await fill(client)
        reader.send(fetch_request(), 11)
        await asyncio.sleep(0.05)
        log = tmp_path / "broker-1" / "t-0" / f"{0:020d}.log"
        if how == "topic deletion":
            await delete_topic(client)
        elif how == "delete records":
            await delete_records(client, -1)
        else:
            await set_retention(client, "1")
        await until(lambda: not log.exists() and not list(tmp_path.rglob("*deleted")))
        offsets = whole_batches(await reader.answer(FetchResponse, 11))
        assert offsets == list(range(BATCHES))


async def test_deletion_of_a_topic_gives_the_space_back(tmp_path: Path) -> None:
    """R-TOP-5"""
    async with running_node(tmp_path, None, **QUICK) as address:
        client = await connect(address)
        await create(client)
        await fill(client)
        await client.ask(fetch_request(), FetchResponse, 11)
        assert used_bytes(tmp_path / "broker-1") > BATCHES * len(VALUE)
        await delete_topic(client)
        await until(lambda: used_bytes(tmp_path / "broker-1") < 100_000)


@pytest.mark.parametrize("crash", ["before the rename", "before the removal"])
async def test_a_topic_deleted_before_a_crash_stays_deleted(tmp_path: Path, crash: str) -> None:
    """R-TOP-5: the metadata says so, whatever the files say; created again it is empty."""
    async with running_node(tmp_path, log_segment_delete_delay_ms="600000") as address:
        client = await connect(address)
        await create(client)
        await fill(client, 2, b"old")
        await delete_topic(client)
    (doomed,) = (tmp_path / "broker-1").glob("t-0.*-delete")
    if crash == "before the rename":
        doomed.rename(doomed.parent / "t-0")
    async with running_node(tmp_path) as address:
        client = await connect(address)
        assert not list((tmp_path / "broker-1").glob("t-0"))
        await create(client)
        answer = await client.ask(fetch_request(), FetchResponse, 11)
        assert answer.responses[0].partitions[0].high_watermark == 0
        assert not answer.responses[0].partitions[0].records


async def test_old_files_of_a_topic_made_again_are_never_served(tmp_path: Path) -> None:
    """R-TOP-5: the crash came after the new topic was in the metadata and before the old files went."""
    async with running_node(tmp_path, log_segment_delete_delay_ms="600000") as address:
        client = await connect(address)
        await create(client)
        await fill(client, 2, b"old")
        await delete_topic(client)
        await create(client)
    directory = tmp_path / "broker-1"
    (doomed,) = directory.glob("t-0.*-delete")
    (directory / "t-0").rename(tmp_path / "aside")
    doomed.rename(directory / "t-0")
    async with running_node(tmp_path) as address:
        client = await connect(address)
        answer = await client.ask(fetch_request(), FetchResponse, 11)
        assert answer.responses[0].partitions[0].high_watermark == 0
