"""Starting and stopping a real broker process: signals, exit codes, the lock on the data directory."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.testing.process import HOST, BrokerProcess, free_port
from headrace.testing.raw_client import FetchLimits, RawClient, build_batch, fetch_body, frame, request_header
from tests.compat.clients import Confluent, Record
from tests.compat.confluent_admin import AdminClient, NewTopic

pytestmark = [pytest.mark.headrace_only]

TOPIC = "stop"


@pytest.fixture
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess() as server:
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result(60)
        yield server


def log_since(broker: BrokerProcess, position: int) -> str:
    return broker.log_text()[position:]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_clean_stop(broker: BrokerProcess, number: signal.Signals) -> None:
    """R-LOG-7: exit code 0, no traceback, and the next start needs no recovery scan."""
    Confluent().produce(broker.bootstrap, TOPIC, [Record(b"%d" % n, partition=0) for n in range(500)])
    code = broker.terminate() if number == signal.SIGTERM else broker.interrupt()
    assert code == 0
    assert "Traceback" not in broker.log_text()
    position = len(broker.log_text())
    broker.start()
    assert "recover" not in log_since(broker, position).lower()
    assert len(Confluent().read(broker.bootstrap, TOPIC, 0, 500)) == 500


def test_crash_is_followed_by_recovery(broker: BrokerProcess) -> None:
    """R-LOG-7: the other side of the same coin: after kill -9 the log says that it recovered."""
    Confluent().produce(broker.bootstrap, TOPIC, [Record(b"v", partition=0)])
    broker.kill()
    position = len(broker.log_text())
    broker.start()
    assert "recover" in log_since(broker, position).lower()
    assert len(Confluent().read(broker.bootstrap, TOPIC, 0, 1)) == 1


def test_stop_with_connections_open(broker: BrokerProcess) -> None:
    """Idle connections and long polls do not hold up the stop."""
    idle = [RawClient(broker.bootstrap) for _ in range(20)]
    for client in idle[:10]:
        body = fetch_body(TOPIC, 0, 0, FetchLimits(max_wait_ms=120_000))
        client.send(frame(request_header(1, 11, 1) + body))
    time.sleep(0.2)
    assert broker.terminate() == 0, "within the time that terminate() gives it"
    for client in idle:
        client.close()


def test_second_broker_on_the_same_data_is_refused(broker: BrokerProcess) -> None:
    """A clear message and a failing exit code; the first one goes on unharmed."""
    second = BrokerProcess(root=broker.root / "second")
    second.root.mkdir()
    second.overrides["log.dirs"] = str(broker.data_dir)
    second.launch()
    try:
        assert second.wait(60) != 0
    finally:
        second.close()
    text = second.log_text()
    assert "Traceback" not in text
    assert str(broker.data_dir) in text
    assert "use" in text.lower() or "lock" in text.lower()
    with RawClient(broker.bootstrap) as raw:
        assert raw.produce(TOPIC, 0, build_batch([b"v"])).error == 0


def test_the_lock_goes_with_the_process(broker: BrokerProcess) -> None:
    """After kill -9 nothing has to be cleaned up by hand."""
    for _ in range(3):
        broker.kill()
        broker.start()


def test_port_in_use_is_a_clear_error(broker: BrokerProcess, tmp_path: Path) -> None:
    second = BrokerProcess({"listeners": f"PLAINTEXT://{broker.bootstrap}"}, root=tmp_path)
    second.launch()
    assert second.wait(60) != 0
    assert "Traceback" not in second.log_text()
    assert str(broker.port) in second.log_text()


@pytest.mark.parametrize(
    ("setting", "value"),
    [("num.partitions", "many"), ("log.segment.bytes", "-1"), ("listeners", "NOPE://127.0.0.1:1")],
)
def test_bad_settings_are_refused_at_start(tmp_path: Path, setting: str, value: str) -> None:
    server = BrokerProcess({setting: value}, root=tmp_path)
    server.launch()
    assert server.wait(60) != 0
    text = server.log_text()
    assert "Traceback" not in text
    assert setting in text


def test_an_open_listener_without_authentication_is_refused(tmp_path: Path) -> None:
    """reliability.md section 6: the message names the ways out."""
    server = BrokerProcess({"listeners": f"PLAINTEXT://0.0.0.0:{free_port()}"}, root=tmp_path)
    server.launch()
    assert server.wait(60) != 0
    assert "insecure" in server.log_text()


def test_properties_file_and_override(tmp_path: Path) -> None:
    """A Kafka server.properties as it is; --override wins over it."""
    port = free_port()
    properties = tmp_path / "server.properties"
    properties.write_text(
        "# a comment\n"
        f"listeners=PLAINTEXT://{HOST}:{port}\n"
        f"log.dirs={tmp_path / 'data'}\n"
        "num.partitions=4\nauto.create.topics.enable=true\n"
    )
    command = [sys.executable, "-m", "headrace", "start", str(properties), "--override", "num.partitions=6"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for_port(port)
        Confluent().produce(f"{HOST}:{port}", "auto", [Record(b"v", partition=0)])
        topics = AdminClient({"bootstrap.servers": f"{HOST}:{port}"}).list_topics(timeout=10).topics
        assert len(topics["auto"].partitions) == 6
    finally:
        process.terminate()
        assert process.wait(60) == 0


def wait_for_port(port: int) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            socket.create_connection((HOST, port), timeout=1).close()
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        else:
            return


def test_a_broker_does_not_outlive_the_test_that_started_it(tmp_path: Path) -> None:
    """The promise of BrokerProcess itself: when its parent is killed, it dies too."""
    program = (
        "import sys, time; from pathlib import Path; from headrace.testing.process import BrokerProcess\n"
        "server = BrokerProcess(root=Path(sys.argv[1])); server.start(); print(server.pid, flush=True)\n"
        "time.sleep(60)"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    os.kill(pid, 0)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 60
    while is_running(pid):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    """Whether the process lives; a zombie that waits for its new parent does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
