"""Several data directories (R-LOG-8): one fails, the others go on; logs move between them."""

from __future__ import annotations

import asyncio
import errno
import shutil
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from headrace.config.broker_config import BrokerConfig
from headrace.env.real import RealDisk
from headrace.failures import StartError
from headrace.model.errors import ErrorCode
from headrace.model.topics import TopicPartition
from headrace.node import Node
from headrace.records.builder import NewRecord, build_batch
from headrace.records.reader import read_records
from headrace.replication.replica_set import ReplicaSet
from headrace.storage.log import Log
from headrace.storage.log_directories import LogDirectories
from headrace.storage.log_directory import LogDirectory
from headrace.storage.moving import Place, finish_moves
from headrace.storage.scan import split_batches
from headrace.storage.strays import Strays
from headrace.testing.faulty_disk import FaultyDisk
from headrace.testing.in_process import Client, connect, env_with, running_node
from headrace.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from headrace.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from headrace.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from headrace.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from headrace.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from headrace.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from headrace.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from headrace.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

STORAGE = ErrorCode.KAFKA_STORAGE_ERROR


class Places:
    """Two data directories and what is in them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.names = [str(root / name) for name in ("a", "b")]
        self.setting = ",".join(self.names)

    def holding(self, path: str) -> list[int]:
        """The partitions of topic t whose logs are in a directory."""
        return sorted(int(found.name[2:]) for found in Path(path, "broker-1").glob("t-[0-9]*"))


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path)


async def create(client: Client, name: str, partitions: int) -> None:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    answer = await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), CreateTopicsResponse, 7)
    assert answer.topics[0].error_code == 0, answer


async def produce(client: Client, topic: str, partition: int, value: bytes = b"v") -> int:
    data = [PartitionProduceData(index=partition, records=bytes(build_batch([NewRecord(value)])))]
    request = ProduceRequest(
        acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=data)]
    )
    answer = await client.ask(request, ProduceResponse, 9)
    return answer.responses[0].partition_responses[0].error_code


async def fetch(
    client: Client, topic: str, partition: int, offset: int = 0, version: int = 11
) -> tuple[int, bytes]:
    wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=50_000_000)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=50_000_000, topics=[FetchTopic(topic=topic, partitions=[wanted])]
    )
    found = (await client.ask(request, FetchResponse, version)).responses[0].partitions[0]
    return found.error_code, bytes(found.records or b"")


async def values(client: Client, topic: str, partition: int, count: int) -> list[bytes | None]:
    """The first records of a partition, in as many requests as it takes."""
    found: list[bytes | None] = []
    while len(found) < count:
        error, data = await fetch(client, topic, partition, len(found))
        assert (error, bool(data)) == (0, True)
        for position, size in split_batches(memoryview(data)):
            found += [record.value for record in read_records(data[position : position + size])]
    return found


async def end_offset(client: Client, topic: str, partition: int) -> tuple[int, int]:
    wanted = ListOffsetsPartition(partition_index=partition, timestamp=-1)
    topics = [ListOffsetsTopic(name=topic, partitions=[wanted])]
    answer = await client.ask(ListOffsetsRequest(replica_id=-1, topics=topics), ListOffsetsResponse, 7)
    found = answer.topics[0].partitions[0]
    return found.error_code, found.offset


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


async def offline_partitions(client: Client, topic: str) -> dict[int, tuple[int, int, list[int]]]:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    found = (await client.ask(request, MetadataResponse, 9)).topics[0].partitions
    return {
        partition.partition_index: (partition.error_code, partition.leader_id, partition.offline_replicas)
        for partition in found
        if partition.offline_replicas
    }


async def wait_offline(client: Client, topic: str) -> dict[int, tuple[int, int, list[int]]]:
    async with asyncio.timeout(60):
        while not (found := await offline_partitions(client, topic)):
            await asyncio.sleep(0.01)
    return found


async def until_offline(client: Client, topic: str, wanted: set[int]) -> None:
    """What a start finds is told to the cluster by and by."""
    async with asyncio.timeout(60):
        while set(await offline_partitions(client, topic)) != wanted:
            await asyncio.sleep(0.01)


async def until_led(client: Client, topic: str, indexes: Iterable[int]) -> None:
    """A broker that starts gets the partitions of before by and by."""
    async with asyncio.timeout(60):
        for index in indexes:
            while (await end_offset(client, topic, index))[0]:
                await asyncio.sleep(0.01)


async def until_end(client: Client, topic: str, partition: int, offset: int) -> None:
    """An election after the start may still be under way; the offset must be right whenever one is told."""
    async with asyncio.timeout(60):
        while (found := await end_offset(client, topic, partition))[0]:
            await asyncio.sleep(0.01)
    assert found == (0, offset)


async def until_refused(client: Client, topic: str, partition: int) -> None:
    """With a storage error, in the end; nothing is ever stored."""
    async with asyncio.timeout(60):
        while (code := await produce(client, topic, partition)) != STORAGE:
            assert code != ErrorCode.NONE
            await asyncio.sleep(0.01)


async def log_dirs(client: Client) -> dict[str, tuple[int, list[tuple[str, int, bool]]]]:
    answer = await client.ask(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse, 4)
    return {
        result.log_dir: (
            result.error_code,
            [
                (topic.name, one.partition_index, one.is_future_key)
                for topic in result.topics
                for one in topic.partitions
            ],
        )
        for result in answer.results
    }


@pytest.mark.parametrize("call", ["pwrite", "fdatasync"])
async def test_a_failed_directory_takes_only_its_partitions_offline(places: Places, call: str) -> None:
    """R-LOG-8: storage errors for what was there, everything else as before, and it shows in the answers."""
    disk = FaultyDisk()
    settings = {"log_dirs": places.setting, "log_flush_interval_messages": "1"}
    async with running_node(places.root, disk, **settings) as address:
        client = await connect(address)
        await create(client, "t", 4)
        spared, failed = places.names
        assert [len(places.holding(name)) for name in places.names] == [2, 2]
        for partition in range(4):
            assert await produce(client, "t", partition) == 0
        gone, left = places.holding(failed), places.holding(spared)
        disk.fail(f"{failed}/broker-1/t-", errno.EIO, call)
        assert await produce(client, "t", gone[0]) == STORAGE
        disk.heal()
        assert await wait_offline(client, "t") == {
            index: (ErrorCode.LEADER_NOT_AVAILABLE, -1, [1]) for index in gone
        }
        for index in gone:
            assert await produce(client, "t", index) == STORAGE
            assert (await fetch(client, "t", index))[0] == STORAGE
            assert (await fetch(client, "t", index, version=6))[0] == STORAGE
            assert (await fetch(client, "t", index, version=5))[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert (await end_offset(client, "t", index))[0] == STORAGE
        for index in left:
            assert await produce(client, "t", index) == 0
            assert await end_offset(client, "t", index) == (0, 2)
        assert {path: error for path, (error, _) in (await log_dirs(client)).items()} == {
            spared: 0,
            failed: STORAGE,
        }
        await create(client, "later", 3)
        assert [await produce(client, "later", index) for index in range(3)] == [0, 0, 0]


async def test_a_directory_that_fails_while_logs_are_made_in_it_takes_them_too(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were installed after the others had been taken offline, led without a disk, and were not replaced."""
    make, take = LogDirectories.open_log, ReplicaSet.take_offline
    acted_on = threading.Event()

    def fail_meanwhile(directories: LogDirectories, name: TopicPartition, *arguments: Any) -> Log:
        made = make(directories, name, *arguments)
        if name == TopicPartition("t", 0):
            for directory in directories:
                if made.directory.startswith(directory.path):
                    directory.fail(OSError(errno.EIO, "Input/output error"))
            acted_on.wait(60)
        return made

    def take_offline(replicas: ReplicaSet, failed: LogDirectory) -> None:
        take(replicas, failed)
        acted_on.set()

    monkeypatch.setattr(LogDirectories, "open_log", fail_meanwhile)
    monkeypatch.setattr(ReplicaSet, "take_offline", take_offline)
    async with running_node(places.root, FaultyDisk(), log_dirs=places.setting) as address:
        client = await connect(address)
        await create(client, "t", 3)
        await until_offline(client, "t", {0})
        assert [await produce(client, "t", index) for index in range(3)] == [STORAGE, 0, 0]


async def test_logs_of_a_directory_that_fails_during_the_start_are_not_made_anew(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that the start had not come to yet were created empty in the other directory, and led."""
    async with running_node(places.root, log_dirs=places.setting) as address:
        client = await connect(address)
        await create(client, "t", 6)
        for index in range(6):
            assert await produce(client, "t", index) == 0
    gone, left = (places.holding(name) for name in places.names)
    opened = LogDirectories.open_log

    def fail_after_the_first(directories: LogDirectories, name: TopicPartition, *arguments: Any) -> Log:
        held = opened(directories, name, *arguments)
        if name == TopicPartition("t", gone[0]):
            next(iter(directories)).fail(OSError(errno.EIO, "Input/output error"))
        return held

    monkeypatch.setattr(LogDirectories, "open_log", fail_after_the_first)
    async with running_node(places.root, FaultyDisk(), log_dirs=places.setting) as address:
        client = await connect(address)
        await until_offline(client, "t", set(gone))
        assert places.holding(places.names[1]) == left
        for index in left:
            await until_end(client, "t", index, 1)


async def test_a_directory_that_cannot_be_read_fails_its_partitions_only(places: Places) -> None:
    """R-LOG-8: one Fetch over all of them: errors for some, records for the others. Searches by time likewise."""
    disk = FaultyDisk()
    async with running_node(places.root, disk, log_dirs=places.setting) as address:
        client = await connect(address)
        await create(client, "t", 4)
        for partition in range(4):
            for _ in range(3):
                assert await produce(client, "t", partition) == 0
        failed = places.names[1]
        gone = places.holding(failed)
        disk.fail(f"{failed}/broker-1/t-", errno.EIO, "pread")
        wanted = [FetchPartition(partition=n, fetch_offset=0, partition_max_bytes=1000) for n in range(4)]
        request = FetchRequest(
            max_wait_ms=0, min_bytes=1, max_bytes=10_000, topics=[FetchTopic(topic="t", partitions=wanted)]
        )
        answer = await client.ask(request, FetchResponse, 11)
        found = {part.partition_index: part for part in answer.responses[0].partitions}
        assert {n: part.error_code for n, part in found.items() if part.error_code} == dict.fromkeys(gone, STORAGE)
        assert all(bool(part.records) == (n not in gone) for n, part in found.items())
        assert set(await wait_offline(client, "t")) == set(gone)
        for n in range(4):
            topics = [
                ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=n, timestamp=0)])
            ]
            times = await client.ask(ListOffsetsRequest(replica_id=-1, topics=topics), ListOffsetsResponse, 7)
            assert times.topics[0].partitions[0].error_code == (STORAGE if n in gone else 0)


async def test_logs_of_a_missing_directory_are_not_made_anew(places: Places) -> None:
    """R-LOG-8: a start without one directory serves the rest; when it is back, so is everything in it."""
    async with running_node(places.root, log_dirs=places.setting) as address:
        client = await connect(address)
        await create(client, "t", 4)
        assert [await produce(client, "t", index) for index in range(4)] == [0] * 4
    left, gone = (places.holding(name) for name in places.names)
    disk = FaultyDisk()
    disk.fail(f"{places.names[1]}/broker-1", errno.EIO)
    async with running_node(places.root, disk, log_dirs=places.setting) as address:
        client = await connect(address)
        await until_offline(client, "t", set(gone))
        assert len(left) == len(gone) == 2
        for index in gone:
            await until_refused(client, "t", index)
        await until_led(client, "t", left)
        assert [await produce(client, "t", index) for index in left] == [0] * 2
    assert places.holding(places.names[0]) == left
    async with running_node(places.root, log_dirs=places.setting) as address:
        client = await connect(address)
        await until_offline(client, "t", set())
        for index in range(4):
            await until_end(client, "t", index, 1 if index in gone else 2)


async def test_a_topic_made_again_elsewhere_never_shows_the_old_data(places: Places) -> None:
    """R-TOP-5: deleted while its directory was offline, created again in another one; then the old one is back."""
    disk = FaultyDisk()
    async with running_node(places.root, disk, log_dirs=places.setting) as address:
        client = await connect(address)
        await create(client, "t", 2)
        assert [await produce(client, "t", index, b"old") for index in range(2)] == [0, 0]
        disk.fail(f"{places.names[1]}/broker-1/t-", errno.EIO)
        await produce(client, "t", places.holding(places.names[1])[0])
        await wait_offline(client, "t")
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=10_000)
        assert (await client.ask(request, DeleteTopicsResponse, 6)).responses[0].error_code == 0
        await create(client, "t", 2)
        assert [await produce(client, "t", index, b"new") for index in range(2)] == [0, 0]
    async with running_node(places.root, log_dirs=places.setting) as address:
        client = await connect(address)
        for index in range(2):
            error, data = await fetch(client, "t", index)
            assert (error, b"new" in data, b"old" in data) == (0, True, False)


async def test_a_log_that_is_there_twice_is_for_the_operator(places: Places) -> None:
    """R-LOG-7: the start refuses to choose, and names both."""
    async with running_node(places.root, log_dirs=places.setting) as address:
        client = await connect(address)
        await create(client, "t", 1)
        assert await produce(client, "t", 0) == 0
    shutil.copytree(f"{places.names[0]}/broker-1/t-0", f"{places.names[1]}/broker-1/t-0")
    with pytest.raises(StartError, match=r"t-0 lies in .*/a/broker-1 and in .*/b/broker-1"):
        async with running_node(places.root, log_dirs=places.setting):
            pass


async def test_the_broker_ends_with_its_last_directory(places: Places) -> None:
    disk, reasons = FaultyDisk(), list[str]()
    config = BrokerConfig.build(flags={"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": places.names[0]})
    node = Node(env_with(disk), config, reasons.append)
    client = await connect(await node.start())
    await create(client, "t", 1)
    disk.fail(f"{places.names[0]}/broker-1", errno.EIO)
    assert await produce(client, "t", 0) == STORAGE
    await until(lambda: reasons)
    assert "All data directories are offline" in reasons[0]
    await node.stop()


async def move(client: Client, path: str, *partitions: int) -> list[int]:
    topic = AlterReplicaLogDirTopic(name="t", partitions=list(partitions))
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=[topic])])
    answer = await client.ask(request, AlterReplicaLogDirsResponse, 2)
    return [partition.error_code for partition in answer.results[0].partitions]


async def test_a_log_moves_while_it_is_written_to(places: Places) -> None:
    """AlterReplicaLogDirs: every record is there once, in order, also for a reader that continues, and after a
    restart.
    """
    async with running_node(places.root, log_dirs=places.setting) as address:
        client, writer = await connect(address), await connect(address)
        await create(client, "t", 1)
        (target,) = (name for name in places.names if not places.holding(name))
        sent = 0
        for _ in range(40):
            assert await produce(writer, "t", 0, b"%06d" % sent + b"x" * 50_000) == 0
            sent += 1
        assert await move(client, target, 0) == [0]
        while 0 not in places.holding(target):
            assert await produce(writer, "t", 0, b"%06d" % sent + b"x" * 50_000) == 0
            sent += 1
            assert sent < 2000
            await asyncio.sleep(0.01)  # on a busy machine the copy never catches up with one that does not pause
        assert await produce(writer, "t", 0, b"%06d" % sent) == 0
        assert await end_offset(client, "t", 0) == (0, sent + 1)
        source = next(name for name in places.names if name != target)
        await until(lambda: not list(Path(source, "broker-1", ".moved").glob("*")))
        assert (await log_dirs(client))[target][1] == [("t", 0, False)]
    async with running_node(places.root, log_dirs=places.setting) as address:
        client = await connect(address)
        assert await end_offset(client, "t", 0) == (0, sent + 1)
        found = await values(client, "t", 0, sent + 1)
        assert [(value or b"")[:6] for value in found] == [b"%06d" % number for number in range(sent + 1)]


async def test_moves_that_cannot_be(places: Places) -> None:
    async with running_node(places.root, log_dirs=places.setting) as address:
        client = await connect(address)
        await create(client, "t", 1)
        (current,) = (name for name in places.names if places.holding(name))
        assert await move(client, str(places.root / "nowhere"), 0) == [ErrorCode.LOG_DIR_NOT_FOUND]
        assert await move(client, current, 0, 7) == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


@pytest.mark.parametrize("step", ["copying", "after the first rename", "after the second"])
async def test_a_crash_during_a_move_leaves_one_log(places: Places, step: str) -> None:
    async with running_node(places.root, log_dirs=places.setting) as address:
        client = await connect(address)
        await create(client, "t", 1)
        assert [await produce(client, "t", 0) for _ in range(3)] == [0] * 3
    old, new = sorted(places.names, key=lambda name: not places.holding(name))
    log, moved = Path(old, "broker-1", "t-0"), Path(old, "broker-1", ".moved", "t-0")
    future = Path(new, "broker-1", ".future", "t-0")
    shutil.copytree(log, future)
    if step != "copying":
        moved.parent.mkdir()
        log.rename(moved)
    if step == "after the second":
        future.rename(Path(new, "broker-1", "t-0"))
    async with running_node(places.root, log_dirs=places.setting) as address:
        client = await connect(address)
        assert await end_offset(client, "t", 0) == (0, 3)
        assert await produce(client, "t", 0) == 0
    assert [len(places.holding(name)) for name in (old, new)] == ([0, 1] if step == "after the second" else [1, 0])
    assert not moved.exists()
    assert not future.exists()


def place(path: Path, same_boot: bool = True) -> Place:
    return Place(str(path), Strays(env_with(RealDisk())), same_boot)


def test_a_moved_log_waits_for_a_missing_directory(tmp_path: Path) -> None:
    moved = tmp_path / ".moved" / "t-0"
    moved.mkdir(parents=True)
    finish_moves(RealDisk(), [place(tmp_path)], some_missing=True)
    assert moved.exists()
    finish_moves(RealDisk(), [place(tmp_path)], some_missing=False)
    assert (tmp_path / "t-0").exists()


@pytest.mark.parametrize("copied", [3, 5, 9])
@pytest.mark.parametrize("same_boot", [True, False])
def test_power_loss_after_a_move_costs_nothing(tmp_path: Path, copied: int, same_boot: bool) -> None:
    """What of the copy was only in the page cache is gone. The longer one counts, and nothing is removed."""
    old, new = tmp_path / "old", tmp_path / "new"
    original, copy = old / ".moved" / "t-0" / "0.log", new / "t-0" / "0.log"
    for file, size in ((original, 5), (copy, copied)):
        file.parent.mkdir(parents=True)
        file.write_bytes(b"x" * size)
    finish_moves(RealDisk(), [place(old, same_boot), place(new, same_boot)], some_missing=False)
    used = [str(path.relative_to(tmp_path)) for path in tmp_path.glob("*/t-0")]
    strays = [str(path.relative_to(tmp_path)).partition(".")[0] for path in tmp_path.glob("*/*-stray")]
    if same_boot:
        assert (used, strays) == (["new/t-0"], [])
    elif copied < 5:
        assert (used, strays) == (["old/t-0"], ["new/t-0"])
    else:
        assert (used, strays) == (["new/t-0"], ["old/t-0"])


def test_a_file_with_the_name_of_a_moved_log_is_not_its_copy(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    (old / ".moved" / "t-0").mkdir(parents=True)
    new.mkdir()
    (new / "t-0").write_text("mine")
    finish_moves(RealDisk(), [place(old), place(new)], some_missing=False)
    assert (old / "t-0").exists()
