"""The store in SQLite shared by processes, and what is left of one that dies or stops."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

from headrace.coordination.contract import TreeNode
from headrace.coordination.sqlite import open_sqlite_store
from tests.unit.coordination.test_sqlite import ENV

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
