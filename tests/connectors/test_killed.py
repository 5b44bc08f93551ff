"""Real processes: a connector killed with SIGKILL again and again while the database is written to."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.env.real import real_env
from headrace.records.reader import Record
from headrace.testing.connectors import committed_records
from headrace.testing.postgres import PostgresProcess
from headrace.testing.process import BrokerProcess, ServerProcess
from tests.connectors.conftest import Database

KEYS = 20
CONNECTOR = """
name: accounts
connector: postgres-source
partitions: 3
config:
  connection: {conninfo}
  tables: [accounts]
  topic: accounts
  batch_records: 5
"""


class Writer:
    """Counts up the versions of rows, one transaction after the other, until it is stopped."""

    def __init__(self, database: Database) -> None:
        self._stop = threading.Event()
        self._database = database
        self._transactions = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        chosen = random.Random(7)
        with psycopg.connect(self._database.conninfo) as connection:
            while not self._stop.is_set():
                for _ in range(chosen.randrange(1, 12)):
                    key = chosen.randrange(KEYS)
                    connection.execute("UPDATE accounts SET version = version + 1 WHERE id = %s", [key])
                connection.commit()
                self._transactions += 1
                self._stop.wait(0.005)

    def wait_for_more(self, count: int = 50) -> None:
        """So that a run has something to do, however slow the machine is."""
        until = self._transactions + count
        while self._transactions < until:
            assert self._thread.is_alive()
            time.sleep(0.01)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


@pytest.fixture
def broker() -> Iterator[ServerProcess]:
    with BrokerProcess() as server:
        yield server


def kill_at(file: Path, bootstrap: str, step: str) -> int:
    command = [sys.executable, "-m", "headrace.testing.connectors", str(file)]
    return subprocess.run(
        [*command, "--bootstrap-server", bootstrap, "--kill-at", step], capture_output=True, timeout=240
    ).returncode


def run_for(file: Path, bootstrap: str, seconds: float) -> int:
    """`headrace connector run`, killed after some time."""
    command = [sys.executable, "-m", "headrace", "connector", "run", str(file), "-b", bootstrap]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    time.sleep(seconds)
    process.kill()
    return process.wait()


def records(bootstrap: str, topic: str) -> list[Record]:
    async def read() -> list[Record]:
        async with Cluster(real_env(), parse_bootstrap(bootstrap)) as cluster:
            return await committed_records(cluster, topic)

    return asyncio.run(read())


def test_every_version_of_every_row_is_in_the_topic_once_and_in_order(
    broker: ServerProcess, postgres: PostgresProcess, database: Database, tmp_path: Path
) -> None:
    database.run("CREATE TABLE accounts (id int PRIMARY KEY, version int, filler text)")
    database.run(f"INSERT INTO accounts SELECT n, 1, repeat('x', 100) FROM generate_series(0, {KEYS - 1}) n")
    file = tmp_path / "accounts.yaml"
    file.write_text(CONNECTOR.format(conninfo=database.conninfo))
    writer = Writer(database)
    try:
        for step in ("opened:1", "stored:1", "sent:3", "committed:2"):
            writer.wait_for_more()
            assert kill_at(file, broker.bootstrap, step) == -signal.SIGKILL, step
        assert run_for(file, broker.bootstrap, 3.0) == -signal.SIGKILL
        broker.kill()
        broker.start()
        writer.wait_for_more()
        assert kill_at(file, broker.bootstrap, "polled:2") == -signal.SIGKILL
    finally:
        writer.stop()
    done = subprocess.run(
        [sys.executable, "-m", "headrace", "connector", "run", "--once", str(file), "-b", broker.bootstrap],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    versions: dict[int, list[int]] = {}
    for record in records(broker.bootstrap, "accounts"):
        row = json.loads(record.value or b"")
        versions.setdefault(row["id"], []).append(row["version"])
    last = {int(str(key)): int(str(version)) for key, version in database.rows("SELECT id, version FROM accounts")}
    assert set(versions) == set(range(KEYS))
    for key, found in versions.items():
        assert found == list(range(found[0], last[key] + 1)), f"row {key}"
