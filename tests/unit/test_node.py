"""The broker as a whole, in process: what it never does on the loop, sessions, long polls, restart, deletion."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
from pathlib import Path

import pytest

from headrace.config.broker_config import BrokerConfig
from headrace.env.real import real_env
from headrace.failures import StartError
from headrace.model.errors import ErrorCode
from headrace.model.topics import TopicId, TopicPartition
from headrace.node import Node
from headrace.records.builder import NewRecord, build_batch
from headrace.records.reader import read_records
from headrace.replication.partition import Partition, View
from headrace.storage.scan import split_batches
from headrace.testing.in_process import Client, LoopGuardDisk, connect, running_node
from headrace.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from headrace.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from headrace.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)
from headrace.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)


async def create(client: Client, name: str, partitions: int = 1, **configs: str) -> TopicId:
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=name,
                num_partitions=partitions,
                replication_factor=1,
                configs=[
                    CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()
                ],
            )
        ],
        timeout_ms=10_000,
    )
    response = await client.ask(request, CreateTopicsResponse, 7)
    assert response.topics[0].error_code == 0, response
    return response.topics[0].topic_id


async def delete(client: Client, name: str) -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=10_000)
    response = await client.ask(request, DeleteTopicsResponse, 6)
    assert response.responses[0].error_code == 0


def produce_request(topic: str, *values: bytes, partition: int = 0, acks: int = 1) -> ProduceRequest:
    batch = bytes(build_batch([NewRecord(value) for value in values]))
    return ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)])
        ],
    )


async def produce(client: Client, topic: str, *values: bytes, partition: int = 0) -> PartitionProduceResponse:
    response = await client.ask(produce_request(topic, *values, partition=partition), ProduceResponse, 9)
    return response.responses[0].partition_responses[0]


def fetch_request(topic: str, offset: int = 0, *, wait_ms: int = 0, partitions: int = 1) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=10_000_000,
        topics=[
            FetchTopic(
                topic=topic,
                partitions=[
                    FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1_000_000)
                    for index in range(partitions)
                ],
            )
        ],
    )


def values_of(response: FetchResponse) -> list[bytes | None]:
    return [
        record.value
        for topic in response.responses
        for partition in topic.partitions
        if partition.records
        for position, size in split_batches(memoryview(partition.records))
        for record in read_records(partition.records[position : position + size])
    ]


async def test_nothing_waits_for_the_device_on_the_loop(tmp_path: Path) -> None:
    """A roll, a deletion, retention, checkpoints and a clean stop all sync and unlink in threads."""
    disk = LoopGuardDisk()
    quick = {
        "log_retention_check_interval_ms": "50",
        "log_flush_offset_checkpoint_interval_ms": "50",
        "log_segment_delete_delay_ms": "0",
    }
    async with running_node(tmp_path, disk, **quick) as address:
        client = await connect(address)
        await create(client, "rolling", segment_bytes="1048576", retention_bytes="1048576")
        for _ in range(12):
            assert (await produce(client, "rolling", os.urandom(400_000))).error_code == 0
        await create(client, "gone")
        await produce(client, "gone", b"x")
        await delete(client, "gone")
        await asyncio.sleep(0.3)
    assert disk.on_loop_calls == []
    assert {"fdatasync", "fsync_directory"} <= set(disk.off_loop_calls)


async def test_a_long_poll_is_answered_when_data_comes(tmp_path: Path) -> None:
    """R-CON-1"""
    async with running_node(tmp_path) as address:
        reader, writer = await connect(address), await connect(address)
        await create(writer, "t", 2)
        reader.send(fetch_request("t", wait_ms=30_000, partitions=2), 11)
        await asyncio.sleep(0.05)
        await produce(writer, "t", b"wake", partition=1)
        assert values_of(await reader.answer(FetchResponse, 11)) == [b"wake"]


async def test_a_long_poll_without_data_ends_after_its_time(tmp_path: Path) -> None:
    async with running_node(tmp_path) as address:
        client = await connect(address)
        await create(client, "t")
        response = await client.ask(fetch_request("t", wait_ms=30), FetchResponse, 11)
        assert values_of(response) == []
        assert response.responses[0].partitions[0].error_code == 0


async def test_deleting_a_topic_ends_its_long_polls_with_an_error(tmp_path: Path) -> None:
    async with running_node(tmp_path) as address:
        reader, admin = await connect(address), await connect(address)
        await create(admin, "t")
        reader.send(fetch_request("t", wait_ms=30_000), 11)
        await asyncio.sleep(0.05)
        await delete(admin, "t")
        response = await reader.answer(FetchResponse, 11)
        assert response.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_fetch_session_tells_only_the_news(tmp_path: Path) -> None:
    """KIP-227"""
    async with running_node(tmp_path) as address:
        client = await connect(address)
        await create(client, "t", 3)
        full = fetch_request("t", partitions=3)
        full.session_epoch = 0
        opened = await client.ask(full, FetchResponse, 11)
        assert opened.session_id > 0
        assert len(opened.responses[0].partitions) == 3

        nothing_new = FetchRequest(max_wait_ms=0, session_id=opened.session_id, session_epoch=1, max_bytes=10**6)
        assert (await client.ask(nothing_new, FetchResponse, 11)).responses == []

        await produce(client, "t", b"news", partition=2)
        news = await client.ask(_next(opened.session_id, 2), FetchResponse, 11)
        assert [part.partition_index for part in news.responses[0].partitions] == [2]
        assert values_of(news) == [b"news"]

        forget = _next(opened.session_id, 3)
        forget.forgotten_topics_data = [ForgottenTopic(topic="t", partitions=[2])]
        assert (await client.ask(forget, FetchResponse, 11)).responses == []

        wrong_epoch = await client.ask(_next(opened.session_id, 3), FetchResponse, 11)
        assert wrong_epoch.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        unknown = await client.ask(_next(12345, 3), FetchResponse, 11)
        assert unknown.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND

        close = _next(opened.session_id, -1)
        assert (await client.ask(close, FetchResponse, 11)).session_id == 0
        gone = await client.ask(_next(opened.session_id, 4), FetchResponse, 11)
        assert gone.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def _next(session_id: int, epoch: int) -> FetchRequest:
    return FetchRequest(max_wait_ms=0, session_id=session_id, session_epoch=epoch, max_bytes=10**6)


async def test_a_size_limit_starves_no_partition_of_a_session(tmp_path: Path) -> None:
    async with running_node(tmp_path) as address:
        client = await connect(address)
        await create(client, "t", 3)
        for partition in range(3):
            await produce(client, "t", bytes(1000), partition=partition)
        full = fetch_request("t", partitions=3)
        full.session_epoch, full.max_bytes = 0, 1
        seen = []
        response = await client.ask(full, FetchResponse, 11)
        for epoch in range(1, 4):
            seen += [part.partition_index for part in response.responses[0].partitions if part.records]
            request = _next(response.session_id, epoch)
            request.max_bytes = 1
            response = await client.ask(request, FetchResponse, 11)
        assert sorted(seen) == [0, 1, 2]


async def test_an_idle_partition_of_a_session_is_not_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A regression: every poll read every partition of its session."""
    reads: list[TopicPartition] = []
    read = Partition.read

    def counted(self: Partition, offset: int, most: int, reader: int, at_least_one: bool) -> View:
        reads.append(self.topic_partition)
        return read(self, offset, most, reader, at_least_one)

    monkeypatch.setattr(Partition, "read", counted)
    async with running_node(tmp_path) as address:
        client = await connect(address)
        await create(client, "t", 50)
        full = fetch_request("t", partitions=50)
        full.session_epoch = 0
        response = await client.ask(full, FetchResponse, 11)
        session = response.session_id
        reads.clear()
        assert (await client.ask(_next(session, 1), FetchResponse, 11)).responses == []
        assert reads == []
        await produce(client, "t", b"news", partition=7)
        response = await client.ask(_next(session, 2), FetchResponse, 11)
        assert [part.partition_index for part in response.responses[0].partitions] == [7]
        assert set(reads) == {TopicPartition("t", 7)}
        again = _next(session, 3)
        response = await client.ask(again, FetchResponse, 11)
        assert values_of(response) == [b"news"], "until the client names another offset it gets the same again"
        await delete(client, "t")
        response = await client.ask(_next(session, 4), FetchResponse, 11)
        assert {part.error_code for part in response.responses[0].partitions} == {
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        }
        assert len(response.responses[0].partitions) == 50


async def test_a_large_fetch_is_served_in_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others are served between its steps; the answer is the same."""
    monkeypatch.setattr("headrace.services.fetching.plan.STEP_PARTITIONS", 3)
    async with running_node(tmp_path) as address:
        client, other = await connect(address), await connect(address)
        await create(client, "t", 20)
        for partition in (4, 11):
            await produce(client, "t", b"%d" % partition, partition=partition)
        full = fetch_request("t", partitions=20)
        full.session_epoch = 0
        response = await client.ask(full, FetchResponse, 11)
        assert len(response.responses[0].partitions) == 20
        assert values_of(response) == [b"4", b"11"]
        waiting = fetch_request("t", partitions=20)
        waiting.max_wait_ms, waiting.min_bytes = 10_000, 1
        for part in waiting.topics[0].partitions:
            part.fetch_offset = int(part.partition in (4, 11))
        answer = asyncio.ensure_future(client.ask(waiting, FetchResponse, 11))
        await asyncio.sleep(0.05)
        assert not answer.done()
        await produce(other, "t", b"late", partition=9)
        assert values_of(await answer) == [b"late"]


async def test_topics_by_id_from_v13_on(tmp_path: Path) -> None:
    """KIP-516: a topic made anew under an old name is another topic."""
    async with running_node(tmp_path) as address:
        client = await connect(address)
        old = await create(client, "t")
        await produce(client, "t", b"old")
        await delete(client, "t")
        new = await create(client, "t")
        request = fetch_request("", 0)
        request.topics[0].topic_id = old
        response = await client.ask(request, FetchResponse, 13)
        assert response.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
        request.topics[0].topic_id = new
        response = await client.ask(request, FetchResponse, 13)
        assert response.responses[0].partitions[0].error_code == 0
        assert values_of(response) == []


@pytest.mark.parametrize(
    ("acks", "code"),
    [
        (-2, ErrorCode.INVALID_REQUIRED_ACKS),
        (2, ErrorCode.INVALID_REQUIRED_ACKS),
        (-1, ErrorCode.NONE),
        (1, ErrorCode.NONE),
    ],
)
async def test_acks(tmp_path: Path, acks: int, code: ErrorCode) -> None:
    """R-PRO-1: more acknowledgements than replicas can never be had."""
    async with running_node(tmp_path) as address:
        client = await connect(address)
        await create(client, "t")
        response = await client.ask(produce_request("t", b"v", acks=acks), ProduceResponse, 9)
        assert response.responses[0].partition_responses[0].error_code == code


@pytest.mark.parametrize("version", [8, 9, 13])
async def test_a_refused_batch_names_its_bad_records(tmp_path: Path, version: int) -> None:
    """From v9 on a request with one batch takes a way of its own."""
    async with running_node(tmp_path) as address:
        client = await connect(address)
        topic_id = await create(client, "t", cleanup_policy="compact")
        request = produce_request("t", b"v", b"v")
        request.topic_data[0].topic_id = topic_id
        answer = (await client.ask(request, ProduceResponse, version)).responses[0].partition_responses[0]
        assert answer.error_code == ErrorCode.INVALID_RECORD
        assert [error.batch_index for error in answer.record_errors] == [0, 1]
        assert all("key" in (error.batch_index_error_message or "") for error in answer.record_errors)


async def test_acks_zero_gets_no_answer_and_a_failure_ends_the_connection(tmp_path: Path) -> None:
    async with running_node(tmp_path) as address:
        client = await connect(address)
        await create(client, "t")
        client.send(produce_request("t", b"v", acks=0), 9)
        assert values_of(await client.ask(fetch_request("t"), FetchResponse, 11)) == [b"v"]
        client.send(produce_request("missing", b"v", acks=0), 9)
        with pytest.raises(asyncio.IncompleteReadError):
            await client.answer(ProduceResponse, 9)


async def test_everything_is_there_after_a_restart(tmp_path: Path) -> None:
    """R-LOG-7"""
    async with running_node(tmp_path) as address:
        client = await connect(address)
        topic_id = await create(client, "t", 2, retention_ms="-1")
        await produce(client, "t", b"one", b"two", partition=1)
    async with running_node(tmp_path) as address:
        client = await connect(address)
        assert (await produce(client, "t", b"three", partition=1)).base_offset == 2
        request = fetch_request("", partitions=2)
        request.topics[0].topic_id = topic_id
        assert values_of(await client.ask(request, FetchResponse, 13)) == [b"one", b"two", b"three"]


async def test_a_topic_deleted_while_the_files_could_not_follow_is_removed_at_start(tmp_path: Path) -> None:
    async with running_node(tmp_path) as address:
        client = await connect(address)
        await create(client, "stays")
    stray = tmp_path / "broker-1" / "stray-0"
    shutil.copytree(tmp_path / "broker-1" / "stays-0", stray)
    async with running_node(tmp_path):
        assert not stray.exists()
        assert (tmp_path / "broker-1" / "stays-0").exists()


async def test_a_second_broker_on_the_same_data_is_refused(tmp_path: Path) -> None:
    async with running_node(tmp_path):
        with pytest.raises(StartError, match="in use by another process"):
            async with running_node(tmp_path):
                pass


async def test_a_port_in_use_is_a_clear_error(tmp_path: Path) -> None:
    async with running_node(tmp_path / "one") as address:
        with pytest.raises(StartError, match=f"Cannot listen on .*{address}"):
            async with running_node(tmp_path / "two", listeners=f"PLAINTEXT://{address}"):
                pass


async def test_an_address_that_the_machine_does_not_have(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"this machine does not have that address.*advertised\.listeners"):
        async with running_node(tmp_path, listeners="PLAINTEXT://192.0.2.1:0", headrace_allow_insecure="true"):
            pass


async def test_data_of_another_cluster_is_refused_and_kept(tmp_path: Path) -> None:
    """Another cluster's cluster.db must not make the data look like strays."""
    async with running_node(tmp_path / "here") as address:
        client = await connect(address)
        await create(client, "t")
        await produce(client, "t", b"precious")
    async with running_node(tmp_path / "there"):
        pass
    shutil.copy(tmp_path / "there" / "cluster.db", tmp_path / "here" / "cluster.db")
    with pytest.raises(StartError, match=r"belongs to cluster\.id"):
        async with running_node(tmp_path / "here"):
            pass
    assert (tmp_path / "here" / "broker-1" / "t-0" / "00000000000000000000.log").stat().st_size > 0


@pytest.mark.parametrize("empty", [False, True])
async def test_a_missing_cluster_db_is_named(tmp_path: Path, empty: bool) -> None:
    """Not as a wrong cluster id: what is missing, and what to do. Nothing is made in its place."""
    async with running_node(tmp_path):
        pass
    kept = tmp_path / "kept"
    kept.mkdir()
    for file in tmp_path.glob("cluster.db*"):
        file.rename(kept / file.name)
    if empty:
        (tmp_path / "cluster.db").touch()
    with pytest.raises(
        StartError, match=r"cluster\.db is missing, but .*broker-1 holds data of cluster .*Restore it"
    ):
        async with running_node(tmp_path):
            pass
    assert (tmp_path / "cluster.db").exists() == empty
    for file in kept.iterdir():
        file.rename(tmp_path / file.name)
    async with running_node(tmp_path):
        pass


async def http(port: int, path: str) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
    text = (await asyncio.wait_for(reader.read(), 60)).decode()
    writer.close()
    return text


async def test_a_broker_that_lost_its_session_says_so_and_comes_back(tmp_path: Path) -> None:
    config = BrokerConfig.build(
        flags={"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path), "headrace.admin.port": "0"}
    )
    node = Node(real_env(), config)
    address = await node.start()
    assert node.front.admin is not None
    assert "200" in await http(node.front.admin.port, "/readyz")
    busy = sqlite3.connect(tmp_path / "cluster.db", isolation_level=None)
    busy.execute("BEGIN IMMEDIATE")
    busy.execute("DELETE FROM sessions")
    busy.execute("DELETE FROM nodes WHERE session IS NOT NULL")
    busy.execute("COMMIT")
    busy.execute("BEGIN IMMEDIATE")  # Until this ends, nobody can register.
    async with asyncio.timeout(60):
        while "lost its session" not in (text := await http(node.front.admin.port, "/readyz")):
            await asyncio.sleep(0.01)
        assert "503" in text
        busy.execute("ROLLBACK")
        busy.close()
        while "200" not in await http(node.front.admin.port, "/readyz"):
            await asyncio.sleep(0.01)
        client = await connect(address)
        await node._metadata.wait_for(lambda image: image.controller_id == 1)  # type: ignore[union-attr]
        await create(client, "t")
        assert (await produce(client, "t", b"x")).error_code == 0
    await node.stop()
