"""`headrace start --workers`: several brokers under one supervisor, as an operator meets them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from headrace.cli.broker.run_files import is_broker, run_files
from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.client.connection import ClientSettings
from headrace.env.real import real_env
from headrace.testing.process import free_port

PATIENCE_S = 60
READY = re.compile(r"Headrace brokers 4, 5, 6 are ready at ((?:127\.0\.0\.1:\d+,?){3}), data in (.+)\n")
ANY_PORT = "listeners=PLAINTEXT://127.0.0.1:0"
STATUS = ("status", "--timeout", "50s", "--format", "json")


def command(data: Path, workers: object, *more: str) -> list[str]:
    start = [sys.executable, "-m", "headrace", "start", "--workers", str(workers), "--data-dir", str(data)]
    return [*start, "--override", "node.id=4", "--override", ANY_PORT, *more]


def wait_until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


class Workers:
    def __init__(self, data: Path) -> None:
        self.data = data
        self.log = data.parent / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command(data, 3), stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.process.stdout is not None
        match = READY.fullmatch(self.process.stdout.readline())
        assert match, self.log.read_text()
        self.bootstrap = match[1]

    def pids(self) -> list[int | None]:
        return [run_files(str(self.data), broker).pid() for broker in (4, 5, 6)]

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    cluster = Workers(tmp_path / "data")
    try:
        yield cluster
    finally:
        cluster.close()


def produce(bootstrap: str, count: int) -> None:
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True})
    for number in range(count):
        producer.produce(
            "t",
            str(number),
            partition=number % 3,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert producer.flush(PATIENCE_S) == 0
    assert not failed


def in_sync(bootstrap: str) -> list[int]:
    topics = AdminClient({"bootstrap.servers": bootstrap}).list_topics("t", timeout=PATIENCE_S).topics
    return [len(partition.isrs) for partition in topics["t"].partitions.values()]


async def known_at(address: str) -> set[int]:
    """The brokers that this one tells of."""
    async with Cluster(real_env(), parse_bootstrap(address), ClientSettings(client_id="test")) as cluster:
        return set((await cluster.metadata([])).brokers)


def test_a_cluster_that_loses_a_worker_and_is_stopped(workers: Workers) -> None:
    for address in workers.bootstrap.split(","):
        assert asyncio.run(known_at(address)) == {4, 5, 6}, "as soon as they are said to be ready"
    admin = AdminClient({"bootstrap.servers": workers.bootstrap})
    admin.create_topics([NewTopic("t", 3)])["t"].result(PATIENCE_S)
    wait_until(lambda: in_sync(workers.bootstrap) == [3, 3, 3], "three replicas without having asked")
    produce(workers.bootstrap, 30)
    killed = workers.pids()[1]
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    produce(workers.bootstrap, 30)
    wait_until(lambda: workers.pids()[1] not in (None, killed), "started again")
    wait_until(lambda: in_sync(workers.bootstrap) == [3, 3, 3], "in sync again")
    produce(workers.bootstrap, 30)
    status = subprocess.run(
        [
            sys.executable,
            "-m",
            "headrace",
            "status",
            "--timeout",
            "50s",
            "--data-dir",
            str(workers.data),
            "--format",
            "json",
        ],
        capture_output=True,
        check=True,
    )
    rows = json.loads(status.stdout)
    assert {row["supervisor_pid"] for row in rows} == {workers.process.pid}
    assert [row["state"] for row in rows] == ["running"] * 3
    pids = workers.pids()
    workers.process.send_signal(signal.SIGINT)
    assert workers.process.wait(PATIENCE_S) == 0, workers.log.read_text()
    assert not any(is_broker(pid) for pid in pids if pid)
    log = workers.log.read_text()
    assert "Broker 5 was killed by signal 9; restarting it in 0.1 s" in log
    assert "[broker 6]" in log
    assert "Traceback" not in log
    for broker in (4, 5, 6):
        left = {path.name for path in (workers.data / f"broker-{broker}").iterdir()}
        assert not left & {"headrace.pid", "headrace.address", "headrace.supervisor"}


def test_no_worker_outlives_its_supervisor_and_a_second_ctrl_c_kills(workers: Workers, tmp_path: Path) -> None:
    pids = [pid for pid in workers.pids() if pid is not None]
    workers.process.kill()
    wait_until(lambda: not any(is_broker(pid) for pid in pids), "they end with it")
    again = Workers(workers.data)
    try:
        stuck = again.pids()[2]
        assert stuck is not None
        os.kill(stuck, signal.SIGSTOP)
        again.process.send_signal(signal.SIGINT)
        wait_until(lambda: [pid for pid in again.pids() if pid] == [stuck], "the others stop")
        assert again.process.poll() is None
        again.process.send_signal(signal.SIGINT)
        assert again.process.wait(PATIENCE_S) == 1
        assert not is_broker(stuck)
    finally:
        again.close()


def headrace(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headrace", *arguments], capture_output=True, text=True, timeout=200, check=False
    )


def states(data: Path) -> list[str]:
    rows = json.loads(headrace(*STATUS, "--data-dir", str(data)).stdout)
    return [row["state"] for row in rows]


def members(bootstrap: str) -> set[int]:
    info = headrace("cluster", "info", "--format", "json", "-b", bootstrap)
    return {broker["id"] for broker in json.loads(info.stdout)["brokers"]}


def test_in_the_background_one_is_stopped_and_then_all(tmp_path: Path) -> None:
    data = tmp_path / "data"
    where = ("--data-dir", str(data))
    started = subprocess.run(
        command(data, 3, "--background"), capture_output=True, text=True, timeout=200, check=False
    )
    supervisor = run_files(str(data), 4).supervisor()
    try:
        match = READY.fullmatch(started.stdout)
        assert match, started.stderr
        again = subprocess.run(command(data, 3), capture_output=True, text=True, timeout=200, check=False)
        assert (again.returncode, "is already running" in again.stderr) == (1, True)
        assert headrace("stop", "--broker", "5", *where).stderr == "Broker 5 has stopped.\n"
        wait_until(lambda: states(data) == ["running", "stopped", "running"], "it is not restarted")
        wait_until(lambda: members(match[1]) == {4, 6}, "and the others know")
        stopped = headrace("stop", *where)
        assert stopped.stderr == "Broker 4 has stopped.\nBroker 6 has stopped.\n"
        assert supervisor is not None
        assert not is_broker(supervisor)
    finally:
        if supervisor is not None and is_broker(supervisor):
            os.kill(supervisor, signal.SIGKILL)


@pytest.mark.parametrize("number", ["0", "-1", "three", "1000"])
def test_a_number_that_makes_no_sense(tmp_path: Path, number: str) -> None:
    refused = subprocess.run(command(tmp_path, number), capture_output=True, text=True, timeout=200, check=False)
    assert refused.returncode == 2
    assert "--workers" in refused.stderr
    assert "Traceback" not in refused.stderr


def two_ports_in_a_row() -> tuple[int, socket.socket]:
    """A free one, and the next one, taken."""
    while True:
        port = free_port()
        with contextlib.suppress(OSError):
            return port, socket.create_server(("127.0.0.1", port + 1))


def test_a_port_that_is_taken_is_named_with_its_broker(tmp_path: Path) -> None:
    free, taken = two_ports_in_a_row()
    with taken:
        port = taken.getsockname()[1]
        listeners = f"listeners=PLAINTEXT://127.0.0.1:{free}"
        arguments = command(tmp_path / "data", 2, "--override", listeners)
        refused = subprocess.run(arguments, capture_output=True, text=True, timeout=200, check=False)
    assert refused.returncode == 1
    assert f"127.0.0.1:{port} (broker 5): the port is already in use" in refused.stderr
