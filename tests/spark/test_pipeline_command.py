"""`headrace pipeline run`, `list` and `stop` by real runs: a broker, Spark, and the commands as processes.

Spark takes ten seconds to start, so the tests of one story share its runs and go on from each other: `orders` is
run once, then continuously, killed, and run on a schedule, and what came out is counted after each.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import stat
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.spark.pipelines.running.runner import GRACE_S
from headrace.testing.process import BrokerProcess, free_port
from tests.spark.commands import Commands
from tests.spark.conftest import BROKER
from tests.spark.topics import Topics

pytestmark = pytest.mark.headrace_only

ORDERS = """
name: orders
sources:
  raw:
    topic: orders.raw
    format: json
    schema: id int, price string
steps:
  - name: priced
    sql: SELECT id, price FROM raw
sinks:
  priced: {from: priced, topic: orders.priced, key: id, create: {partitions: 2}}
  archive: {from: priced, parquet: archive}
"""
TOTALS = """
name: totals
sources:
  priced:
    topic: orders.priced
    format: json
    schema: id int, price string
steps:
  - name: amounts
    sql: |
      SELECT id,
             CAST(price AS INT) AS amount
      FROM priced
sinks:
  amounts: {from: amounts, topic: orders.amounts, create: {partitions: 1}}
"""
PARTITIONS = (0, 1)
CTRL_C = b"\x03"
AWAY_S = 4.0
GONE_WITHIN_S = 200.0
WITHOUT_JAVA_FOLDERS = (
    "import runpy, headrace.spark.pipelines.running.session as session;"
    "session.find_java.__defaults__ = ((),);"
    "runpy.run_module('headrace', run_name='__main__')"
)
"""The command on a machine where nothing is installed in the usual places."""


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess(BROKER) as server:
        yield server


@pytest.fixture(scope="module")
def topics(broker: BrokerProcess) -> Topics:
    return Topics(broker.bootstrap)


@pytest.fixture(scope="module")
def commands(java: str, broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    folder = tmp_path_factory.mktemp("commands")
    (folder / "orders.yml").write_text(ORDERS)
    (folder / "totals.yml").write_text(TOTALS)
    found = Commands(folder, broker.bootstrap)
    yield found
    deadline = time.monotonic() + GONE_WITHIN_S
    while found.processes():
        assert time.monotonic() < deadline, f"{found.processes()} were left behind"
        time.sleep(0.2)


class Orders:
    """Sends orders with the numbers from 0 on, and knows how many there are."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self.sent = 0

    def send(self, count: int) -> None:
        numbers = range(self.sent, self.sent + count)
        self._topics.send("orders.raw", [json.dumps({"id": n, "price": str(n)}) for n in numbers])
        self.sent += count

    @contextlib.contextmanager
    def sending(self) -> Iterator[None]:
        """Orders keep coming in the block."""
        enough = threading.Event()

        def run() -> None:
            while not enough.wait(0.1):
                self.send(20)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield
        finally:
            enough.set()
            thread.join()

    def seen(self) -> Counter[int]:
        """Which orders came out, and how often."""
        stored = self._topics.read("orders.priced", PARTITIONS)
        return Counter(json.loads(one.value or b"{}")["id"] for one in stored)


@pytest.fixture(scope="module")
def orders(topics: Topics) -> Orders:
    topics.create("orders.raw", 2)
    topics.create("orders.priced", 2)
    found = Orders(topics)
    found.send(500)
    topics.send("orders.raw", ["garbage", '{"id": "what'])
    return found


def of(commands: Commands, name: str) -> dict[str, Any]:
    """The row of a pipeline in `pipeline list`."""
    return next(row for row in commands.data("pipeline", "list") if row["name"] == name)


def once(seen: Counter[int]) -> bool:
    return set(seen.values()) == {1}


def test_once_processes_what_is_there_and_those_that_feed_others_go_first(
    commands: Commands, orders: Orders, topics: Topics
) -> None:
    ended = commands.run("pipeline", "run", "totals.yml", "orders.yml", "--once", "--format", "jsonl")
    assert ended.code == 0, ended
    last = {row["query"]: row for row in map(json.loads, ended.out.splitlines())}
    assert {name: (row["state"], row["rows"], row["malformed"]) for name, row in last.items()} == {
        "orders": ("finished", 502, 2),
        "totals": ("finished", 500, 0),
    }
    assert all(row["lag"] == 0 for row in last.values())
    assert "Starting Spark (local[*]); its log is" in ended.err
    assert "Spark has started; waiting for the first batch." in ended.err
    assert re.search(r"^orders +finished +1 +502 .* 2$", ended.err, re.MULTILINE), ended.err
    assert "WARN" not in ended.err
    assert once(orders.seen())
    assert len(topics.read("orders.amounts")) == orders.sent
    assert [of(commands, name)["state"] for name in ("orders", "totals")] == ["finished", "finished"]


def test_a_continuous_run_is_seen_by_others_survives_the_broker_and_stops_cleanly(
    commands: Commands, orders: Orders, broker: BrokerProcess
) -> None:
    port = free_port()
    with commands.start("pipeline", "run", "orders.yml", "--metrics-port", port) as running:
        with orders.sending():
            running.wait_for("rows of all queries", lambda: "} 0\n" not in (rows_total(port) or "} 0\n"))
            running.wait_for("rows in the list", lambda: of(commands, "orders")["rows"] > 0)
            while_it_runs(commands)
        broker.terminate()
        time.sleep(AWAY_S)
        broker.start()
        before = orders.sent
        with orders.sending():
            running.wait_for("rows after the broker came back", lambda: max(orders.seen()) > before + 100)
            began = time.monotonic()
            stopped = commands.run("pipeline", "stop", "orders.yml", "--timeout", "300s")
        assert time.monotonic() - began < GRACE_S, "it did not wait for the end of what keeps coming"
        assert (stopped.code, stopped.err) == (0, "Pipeline orders has stopped.\n")
        assert running.wait() == 0, running.err
    assert "Traceback" not in running.err
    assert of(commands, "orders")["state"] == "stopped"
    seen = orders.seen()
    assert once(seen), "the batch in hand was finished"
    assert 600 < len(seen) <= orders.sent


def rows_total(port: int) -> str | None:
    """What Prometheus would see of the rows; None as long as nobody answers."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            text = answer.read().decode()
    except OSError:
        return None
    return "".join(re.findall(r"^headrace_pipeline_rows_total\{.*\n", text, re.MULTILINE))


def while_it_runs(commands: Commands) -> None:
    found = of(commands, "orders")
    assert (found["state"], found["file"]) == ("running", str(commands.folder / "orders.yml"))
    assert found["lag"] is not None
    groups = {row["group"] for row in commands.data("group", "list")}
    assert "orders" in groups
    described = commands.run("group", "describe", "orders")
    assert re.search(r"^orders +orders\.raw +0 +[1-9]", described.out, re.MULTILINE), described
    second = commands.run("pipeline", "run", "orders.yml", "--once")
    assert second.code == 1
    assert re.fullmatch(
        r"Error: Pipeline orders is already running, as process \d+\.\n"
        r"  Stop it with `headrace pipeline stop orders`, or give this one another name\.\n",
        second.err,
    ), second


def test_a_killed_run_shows_as_killed_and_the_next_goes_on(commands: Commands, orders: Orders) -> None:
    before = orders.sent
    with orders.sending(), commands.start("pipeline", "run", "orders.yml", "-q") as running:
        running.wait_for("rows", lambda: max(orders.seen(), default=0) > before)
        assert once(orders.seen()), "the run before was stopped after a batch, not in it"
        os.kill(running.process.pid, signal.SIGKILL)
        running.wait()
    assert (running.out, running.err) == ("", "")
    assert of(commands, "orders")["state"] == "killed"
    assert commands.run("pipeline", "stop", "orders").err == "Pipeline orders is not running.\n"


def test_a_schedule_on_a_terminal_until_ctrl_c(commands: Commands, orders: Orders) -> None:
    with commands.start("pipeline", "run", "orders.yml", "--schedule", "3s", terminal=True) as running:
        running.wait_for("the end of a run", lambda: "The next run begins at" in running.err)
        assert set(orders.seen()) == set(range(orders.sent)), "nothing was lost"
        orders.send(10)
        running.wait_for("the next run", lambda: len(orders.seen()) == orders.sent)
        running.type(CTRL_C)
        assert running.wait() == 0
    frames = running.err.split("\x1b[J")
    assert re.search(r"^\x1b\[\d+F\d:\d\d  ", frames[-2].lstrip("\r\n")), frames[-2]
    assert "orders" in frames[-2]
    assert "Traceback" not in running.err
    assert of(commands, "orders")["state"] == "stopped"


@pytest.mark.usefixtures("orders")
def test_the_second_ctrl_c_does_not_wait(commands: Commands) -> None:
    with commands.start("pipeline", "run", "orders.yml", terminal=True) as running:
        running.wait_for("the start of Spark", lambda: "Starting Spark" in running.err)
        running.type(CTRL_C)
        running.wait_for("the answer to the first", lambda: "press Ctrl-C again" in running.err)
        running.type(CTRL_C)
        assert running.wait() == 130
    assert "Traceback" not in running.err


@pytest.mark.usefixtures("orders")
def test_a_row_that_sql_cannot_take_is_told_with_its_line(commands: Commands, topics: Topics) -> None:
    topics.send("orders.priced", ['{"id": 1, "price": "cheap"}'])
    ended = commands.run("pipeline", "run", "totals.yml", "--once", "--conf", "spark.log.level=INFO")
    assert ended.code == 1
    log = commands.folder / "state" / "pipelines" / "totals" / "spark.log"
    assert " INFO " in log.read_text(), "the level that was asked for; it is WARN otherwise"
    line = TOTALS.splitlines().index("             CAST(price AS INT) AS amount") + 1
    error = ended.err[ended.err.index("Error: ") :]
    assert error.startswith(f"Error: totals.yml:{line}:14: step amounts: The value 'cheap'"), ended.err
    assert "try_cast" in error
    assert error.count("\n") <= 3, "no Java trace"
    assert of(commands, "totals")["state"] == "failed"
    assert "cheap" in of(commands, "totals")["problem"]


def test_a_broker_that_is_not_there(commands: Commands) -> None:
    address = f"127.0.0.1:{free_port()}"
    ended = commands.run("pipeline", "run", "orders.yml", "--bootstrap-server", address)
    assert ended.code == 3
    assert ended.err.startswith(f"Error: Cannot reach a broker at {address}: nothing listens there")
    assert "--bootstrap-server" in ended.err


def test_a_topic_that_is_not_there(commands: Commands) -> None:
    path = commands.folder / "lost.yml"
    path.write_text(ORDERS.replace("orders.raw", "order.raw").replace("name: orders", "name: lost"))
    ended = commands.run("pipeline", "run", "lost.yml", "--once")
    assert ended.code == 1
    assert re.search(r"^lost\.yml:5:\d+: .*order\.raw", ended.err), ended.err


@pytest.mark.usefixtures("orders")
def test_without_java(commands: Commands, tmp_path: Path) -> None:
    nowhere = {"JAVA_HOME": str(tmp_path), "PATH": str(tmp_path)}
    ended = commands.run("pipeline", "run", "orders.yml", environment=nowhere, program=WITHOUT_JAVA_FOLDERS)
    assert ended.code == 1
    assert "Error: Spark needs Java 17 or newer, but none was found in JAVA_HOME or on the PATH." in ended.err
    assert "apt install openjdk-17" in ended.err
    assert of(commands, "orders")["state"] == "failed"


@pytest.mark.usefixtures("orders")
def test_a_java_that_does_not_start(commands: Commands, tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'Could not reserve enough space for object heap' >&2\nexit 1\n")
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "release").write_text('JAVA_VERSION="17.0.1"\n')
    ended = commands.run("pipeline", "run", "orders.yml", environment={"JAVA_HOME": str(tmp_path)})
    assert ended.code == 1
    log = commands.folder / "state" / "pipelines" / "orders" / "spark.log"
    reason = "Java exited at once: Could not reserve enough space for object heap."
    assert f"Error: Spark did not start: {reason}\n  See its log: {log}" in ended.err
    assert "Traceback" not in ended.err
    assert of(commands, "orders")["state"] == "failed"
