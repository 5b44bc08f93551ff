"""Metadata and logs that do not agree at a start: what is not known is set aside, what is missing is told of."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from headrace.testing.in_process import connect, running_node
from tests.unit.test_directories import create, end_offset, fetch, produce


def copy_metadata(source: Path, target: Path) -> None:
    target.mkdir(exist_ok=True)
    for file in target.glob("cluster.db*"):
        shutil.rmtree(file) if file.is_dir() else file.unlink()
    for file in source.glob("cluster.db*"):
        (shutil.copytree if file.is_dir() else shutil.copy)(file, target / file.name)


async def test_an_older_copy_of_the_metadata_destroys_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A topic that the copy does not know is set aside, and is whole again with the newer metadata."""
    data, old, new = tmp_path / "data", tmp_path / "old", tmp_path / "new"
    async with running_node(data) as address:
        client = await connect(address)
        await create(client, "first", 1)
    copy_metadata(data, old)
    async with running_node(data) as address:
        client = await connect(address)
        await create(client, "second", 1)
        assert [await produce(client, "second", 0, b"precious") for _ in range(5)] == [0] * 5
    copy_metadata(data, new)
    copy_metadata(old, data)
    async with running_node(data) as address:
        client = await connect(address)
        await create(client, "second", 1)
        assert await end_offset(client, "second", 0) == (0, 0)
        assert await end_offset(client, "first", 0) == (0, 0)
    (stray,) = (data / "broker-1").glob("second-0.*-stray")
    assert "If the metadata (cluster.db, or what ZooKeeper holds) is an older copy" in caplog.text
    copy_metadata(new, data)
    shutil.rmtree(data / "broker-1" / "second-0")
    stray.rename(data / "broker-1" / "second-0")
    async with running_node(data) as address:
        client = await connect(address)
        assert await end_offset(client, "second", 0) == (0, 5)
        error, records = await fetch(client, "second", 0)
        assert (error, records.count(b"precious")) == (0, 5)


async def test_a_log_with_a_wrong_id_is_set_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It may be damage, or the log of a topic that was deleted: it is not served, and not deleted."""
    async with running_node(tmp_path) as address:
        client = await connect(address)
        await create(client, "t", 1)
        assert await produce(client, "t", 0) == 0
    directory = tmp_path / "broker-1"
    (directory / "t-0" / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
    async with running_node(tmp_path) as address:
        client = await connect(address)
        assert await end_offset(client, "t", 0) == (0, 1)
        assert await fetch(client, "t", 0, 1) == (0, b"")
        assert await produce(client, "t", 0) == 0
    assert "AAAAAAAAAAAAAAAAAAAAAQ" in caplog.text
    (stray,) = directory.glob("t-0.*-stray")
    assert (stray / f"{0:020d}.log").stat().st_size > 0


async def test_a_missing_log_is_told_of_and_uses_no_offset_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_node(tmp_path) as address:
        client = await connect(address)
        await create(client, "t", 2)
        await create(client, "empty", 1)
        assert [await produce(client, "t", 1) for _ in range(3)] == [0] * 3
    for name in ("t-1", "empty-0"):
        shutil.rmtree(tmp_path / "broker-1" / name)
    async with running_node(tmp_path) as address:
        client = await connect(address)
        assert await end_offset(client, "t", 1) == (0, 3)
        assert await produce(client, "t", 1) == 0
        assert await end_offset(client, "t", 1) == (0, 4)
        assert await end_offset(client, "empty", 0) == (0, 0)
    assert "The logs of partitions of t are missing: 1 (had reached offset 3)" in caplog.text
    assert "Partitions of empty have no log" in caplog.text


async def test_an_only_log_that_lost_its_last_segment_is_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its offsets are used again, as in Kafka (`docs/guarantees.md`)."""
    async with running_node(tmp_path) as address:
        client = await connect(address)
        await create(client, "t", 2)
        for _ in range(4):
            assert await produce(client, "t", 1) == 0
    directory = tmp_path / "broker-1" / "t-1"
    (file,) = directory.glob("*.log")
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    async with running_node(tmp_path) as address:
        client = await connect(address)
        assert await end_offset(client, "t", 1) == (0, 2)
        assert await produce(client, "t", 1) == 0
    assert "Records are lost: these logs end before where they had ended" in caplog.text
    assert "and have no other replica: t-1. Their last offsets" in caplog.text


async def test_a_start_with_nothing_amiss_says_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        async with running_node(tmp_path) as address:
            client = await connect(address)
            if not (tmp_path / "broker-1" / "t-0").exists():
                await create(client, "t", 2)
            assert await produce(client, "t", 1) == 0
    assert [record.getMessage() for record in caplog.records if record.name.startswith("headrace.storage")] == []
    assert "have no log" not in caplog.text
