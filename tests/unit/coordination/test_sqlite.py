"""What is particular to the SQLite store: its file, its processes, its sessions (R-REP-5)."""

from __future__ import annotations

import asyncio
import errno
import sqlite3
import stat
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.coordination.contract import IncompatibleStore, NodeExists, SessionLost, TreeNode, Unknown
from headrace.coordination.sqlite import open_sqlite_store
from headrace.coordination.sqlite_tree import ABSENT, SCHEMA_VERSION, SqliteTree
from headrace.env.real import real_env
from headrace.testing.faulty_disk import FaultyDisk

ENV = real_env()


async def test_a_lease_is_renewed_while_a_transaction_waits_for_the_device(tmp_path: Path) -> None:
    store = await open_sqlite_store(ENV, str(tmp_path / "cluster.db"))
    await store.create("/a", b"", ephemeral=True)
    device = threading.Event()
    stuck = asyncio.ensure_future(store._thread.run(lambda tree: device.wait(60)))
    before = store.session.deadline
    await asyncio.wait_for(store.renew(), 20)
    assert store.session.deadline > before
    assert not stuck.done()
    device.set()
    await stuck
    await store.close()


async def test_what_was_written_is_there_after_reopening(tmp_path: Path) -> None:
    path = str(tmp_path / "cluster.db")
    store = await open_sqlite_store(ENV, path)
    await store.create("/kept", b"1")
    await store.put("/kept", b"2", 0)
    await store.create("/gone", b"", ephemeral=True)
    await store.close()
    store = await open_sqlite_store(ENV, path)
    assert await store.get_many(["/kept", "/gone"]) == [TreeNode(b"2", 1), None]
    await store.close()


async def test_the_file_is_durable_and_private(tmp_path: Path) -> None:
    path = tmp_path / "cluster.db"
    store = await open_sqlite_store(ENV, str(path))
    await store.create("/a", b"")
    for file in (path, tmp_path / "cluster.db-wal"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    settings = await store._thread.run(
        lambda tree: [
            tree._connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")
        ]
    )
    assert settings == ["wal", 2]
    await store.close()


async def test_a_newer_format_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "cluster.db"
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(IncompatibleStore, match="newer"):
        await open_sqlite_store(ENV, str(path))
    assert path.read_bytes() == before


async def test_a_file_that_is_no_store_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cluster.db"
    path.write_bytes(b"something else entirely" * 100)
    with pytest.raises(IncompatibleStore, match="not a coordination store"):
        await open_sqlite_store(ENV, str(path))
    assert path.read_bytes() == b"something else entirely" * 100


async def test_a_missing_directory_is_the_environment_s_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OSError):
        await open_sqlite_store(ENV, str(tmp_path / "file" / "cluster.db"))


async def test_a_session_that_was_removed_is_lost(tmp_path: Path) -> None:
    path = str(tmp_path / "cluster.db")
    store = await open_sqlite_store(ENV, path)
    await store.create("/a", b"", ephemeral=True)
    lost = asyncio.Event()
    store.session.on_lost(lost.set)
    connection = sqlite3.connect(path)
    connection.execute("DELETE FROM sessions")
    connection.commit()
    connection.close()
    async with asyncio.timeout(30):
        await lost.wait()
    assert store.session.lost
    with pytest.raises(SessionLost):
        await store.get("/a")
    await store.close()


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO])
async def test_the_store_answers_although_the_sessions_of_others_cannot_be_checked(
    tmp_path: Path, number: int
) -> None:
    """Without a free descriptor its thread ended: every call waited forever, while the lease was still renewed."""
    disk = FaultyDisk()
    path = str(tmp_path / "cluster.db")
    store = await open_sqlite_store(replace(ENV, disk=disk), path)
    other = await open_sqlite_store(ENV, path)
    await other.create("/other", b"", ephemeral=True)
    changed = asyncio.Event()
    async with asyncio.timeout(60):
        await store.watch("/new", changed.set)
        disk.fail(f"{path}.sessions", number, "lock")
        while len(disk.failed_calls) < 2:
            await asyncio.sleep(0.01)
        await other.create("/new", b"")
        await changed.wait()
        disk.heal()
        await other.close()
        while await store.get("/other") is not None:
            await asyncio.sleep(0.01)
        await store.close()


async def test_a_bug_in_a_poll_is_reported_and_the_store_still_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(tree: SqliteTree) -> None:
        raise ZeroDivisionError

    reported = asyncio.Event()
    env = real_env()
    env.background.on_failure = lambda reason: reported.set()
    store = await open_sqlite_store(env, str(tmp_path / "cluster.db"))
    monkeypatch.setattr(SqliteTree, "remove_dead_sessions", fail)
    async with asyncio.timeout(60):
        await reported.wait()
        assert await store.get("/a") is None
        await store.close()


async def test_a_change_is_told_although_the_look_for_it_failed_halfway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that it had come to were taken for told: a broker missed the change until the next one."""
    path = str(tmp_path / "cluster.db")
    store = await open_sqlite_store(ENV, path)
    other = await open_sqlite_store(ENV, path)
    first, second = asyncio.Event(), asyncio.Event()
    await store.watch("/first", first.set)
    await store.watch("/second", second.set)
    look = SqliteTree.stamp
    failures: list[str] = []

    def busy_once(tree: SqliteTree, node: str) -> tuple[int, int]:
        if node == "/second" and not failures and look(tree, "/first") != ABSENT:
            failures.append(node)
            error = sqlite3.OperationalError("database is locked")
            error.sqlite_errorname = "SQLITE_BUSY"
            raise error
        return look(tree, node)

    monkeypatch.setattr(SqliteTree, "stamp", busy_once)
    async with asyncio.timeout(60):
        await other.create("/first", b"")
        await first.wait()
    assert failures
    await other.close()
    await store.close()


async def test_a_write_after_the_session_was_removed_does_nothing(tmp_path: Path) -> None:
    path = str(tmp_path / "cluster.db")
    store = await open_sqlite_store(ENV, path)
    await store.create("/a", b"", ephemeral=True)
    connection = sqlite3.connect(path)
    connection.execute("DELETE FROM sessions")
    connection.commit()
    with pytest.raises(SessionLost):
        await store.create("/b", b"")
    assert connection.execute("SELECT count(*) FROM nodes WHERE name = 'b'").fetchone() == (0,)
    connection.close()
    await store.close()


async def test_session_files_without_a_session_are_swept(tmp_path: Path) -> None:
    path = str(tmp_path / "cluster.db")
    await (await open_sqlite_store(ENV, path)).close()
    (tmp_path / "cluster.db.sessions" / "died-early").write_bytes(b"")
    store = await open_sqlite_store(ENV, path)
    assert list((tmp_path / "cluster.db.sessions").iterdir()) == []
    await store.close()


async def test_a_failed_first_ephemeral_create_leaves_a_usable_session(tmp_path: Path) -> None:
    store = await open_sqlite_store(ENV, str(tmp_path / "cluster.db"))
    await store.create("/a", b"")
    with pytest.raises(NodeExists):
        await store.create("/a", b"", ephemeral=True)
    assert list((tmp_path / "cluster.db.sessions").iterdir()) == []
    await store.create("/b", b"", ephemeral=True)
    assert len(list((tmp_path / "cluster.db.sessions").iterdir())) == 1
    await store.close()
    assert list((tmp_path / "cluster.db.sessions").iterdir()) == []


async def test_an_error_of_the_file_is_an_unknown_result(tmp_path: Path) -> None:
    store = await open_sqlite_store(ENV, str(tmp_path / "cluster.db"))
    await store._thread.run(lambda tree: tree._connection.execute("PRAGMA query_only = 1"))
    with pytest.raises(Unknown):
        await store.create("/a", b"")
    assert await store.get("/a") is None
    await store.close()


async def test_a_session_that_cannot_be_ended_does_not_keep_the_store_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a full disk: whoever stops has more to close."""

    def fail(tree: SqliteTree) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    store = await open_sqlite_store(ENV, str(tmp_path / "cluster.db"), 60.0)
    monkeypatch.setattr(SqliteTree, "end_session", fail)
    await store.close()
    with pytest.raises(SessionLost):
        await store.get("/a")
