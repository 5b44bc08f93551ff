"""What is particular to the SQLite store: its file, its processes, its sessions (R-REP-5)."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import stat
import sys
import threading
from pathlib import Path

import pytest

from headrace.coordination.contract import IncompatibleStore, NodeExists, SessionLost, TreeNode, Unknown
from headrace.coordination.sqlite import open_sqlite_store
from headrace.coordination.sqlite_tree import SCHEMA_VERSION, SqliteTree
from headrace.env.real import real_env

ENV = real_env()

OWNER_PROGRAM = """
import asyncio, sys
from headrace.coordination.lease import LeaseKeeper, LeaseState
from headrace.coordination.sqlite import open_sqlite_store
from headrace.env.real import real_env

async def main():
    env = real_env()
    store = await open_sqlite_store(env, sys.argv[1], float(sys.argv[3]))
    await store.ensure("/ids")
    await store.create("/ids/" + sys.argv[2], b"alive", ephemeral=True)
    lease = LeaseState(env.clock)
    keeping = asyncio.create_task(LeaseKeeper(env, store, lease).run())

    def answer():
        sys.stdin.readline()
        print("valid" if lease.valid() else "invalid", flush=True)

    asyncio.get_running_loop().add_reader(sys.stdin, answer)
    print("ready", flush=True)
    await keeping
    print("lost", flush=True)

asyncio.run(main())
"""


async def start_owner(path: str, name: str, timeout: float = 60.0) -> asyncio.subprocess.Process:
    """A process with an ephemeral node, whose loop keeps its lease and answers each line with its state."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", OWNER_PROGRAM, path, name, str(timeout)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ready\n"
    return process


async def test_the_ephemeral_node_of_a_killed_process_vanishes_at_once(tmp_path: Path) -> None:
    path = str(tmp_path / "cluster.db")
    store = await open_sqlite_store(ENV, path)
    owner = await start_owner(path, "7")
    changed = asyncio.Event()
    await store.watch("/ids", changed.set)
    assert await store.get("/ids/7") == TreeNode(b"alive", 0)
    owner.send_signal(signal.SIGKILL)
    await owner.wait()
    async with asyncio.timeout(30):
        while await store.children("/ids"):
            await changed.wait()
            changed.clear()
    assert list((tmp_path / "cluster.db.sessions").iterdir()) == []
    await store.close()


async def test_a_stopped_process_loses_its_session_and_knows_it_before_it_answers(tmp_path: Path) -> None:
    """It still holds its lock, and what arrived while it was stopped is the first thing it handles."""
    path = str(tmp_path / "cluster.db")
    store = await open_sqlite_store(ENV, path)
    owner = await start_owner(path, "7", timeout=3.0)
    assert owner.stdin is not None
    assert owner.stdout is not None
    changed = asyncio.Event()
    await store.watch("/ids", changed.set)
    owner.stdin.write(b"?\n")
    assert await owner.stdout.readline() == b"valid\n"
    owner.send_signal(signal.SIGSTOP)
    async with asyncio.timeout(60):
        while await store.children("/ids"):
            await changed.wait()
            changed.clear()
        owner.stdin.write(b"?\n")
        await owner.stdin.drain()
        owner.send_signal(signal.SIGCONT)
        assert {await owner.stdout.readline(), await owner.stdout.readline()} == {b"invalid\n", b"lost\n"}
        await owner.wait()
    assert list((tmp_path / "cluster.db.sessions").iterdir()) == []
    await store.close()


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


async def test_opening_removes_the_sessions_of_dead_processes(tmp_path: Path) -> None:
    path = str(tmp_path / "cluster.db")
    owner = await start_owner(path, "7")
    owner.kill()
    await owner.wait()
    store = await open_sqlite_store(ENV, path)
    assert await store.children("/ids") == []
    await store.create("/ids/7", b"again", ephemeral=True)
    await store.close()


async def test_processes_that_open_a_new_store_together_share_it(tmp_path: Path) -> None:
    path = str(tmp_path / "cluster.db")
    owners = await asyncio.gather(*(start_owner(path, str(number)) for number in range(4)))
    store = await open_sqlite_store(ENV, path)
    assert await store.children("/ids") == ["0", "1", "2", "3"]
    for owner in owners:
        owner.kill()
        await owner.wait()
    await store.close()


OPENERS_PROGRAM = """
import multiprocessing, sys
from headrace.coordination.sqlite_tree import SqliteTree
from headrace.env.real import real_env

def open_each(number, paths, all_here):
    for path in paths:
        all_here.wait(60)
        SqliteTree(real_env(), path, f"session-{number}", 6.0).close()

if __name__ == "__main__":
    all_here = multiprocessing.Barrier(4)
    openers = [multiprocessing.Process(target=open_each, args=(n, sys.argv[1:], all_here)) for n in range(4)]
    for opener in openers:
        opener.start()
    for opener in openers:
        opener.join()
    print([opener.exitcode for opener in openers])
"""


async def test_a_new_store_may_be_opened_at_the_same_moment(tmp_path: Path) -> None:
    """SQLite refuses at once, without waiting, who switches to WAL while another does."""
    program = tmp_path / "openers.py"
    program.write_text(OPENERS_PROGRAM)
    paths = [str(tmp_path / f"{number}.db") for number in range(50)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, program, *paths, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, problems = await process.communicate()
    assert out == b"[0, 0, 0, 0]\n", problems.decode()


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
