"""`headrace start` as an operator meets it: the ready line, clean stops, refusals with exit codes."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

READY = re.compile(r"Headrace broker (\d+) is ready at ([\w.]+):(\d+), data in (.+)\n")


def command(data: Path, *more: str) -> list[str]:
    listeners = "listeners=PLAINTEXT://127.0.0.1:0"
    return [sys.executable, "-m", "headrace", "start", "--data-dir", str(data), "--override", listeners, *more]


def launch(data: Path, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(command(data, *more), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ready_line(process: subprocess.Popen[str]) -> re.Match[str]:
    assert process.stdout is not None
    line = process.stdout.readline()
    match = READY.fullmatch(line)
    assert match, f"{line!r} {process.stderr.read() if process.stderr and not line else ''}"
    return match


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def broker(data: Path) -> Iterator[subprocess.Popen[str]]:
    process = launch(data, "--override", "node.id=7")
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_says_once_where_it_listens_and_stops_cleanly(
    broker: subprocess.Popen[str], data: Path, number: signal.Signals
) -> None:
    match = ready_line(broker)
    assert match[1] == "7"
    assert match[4] == str(data)
    with socket.create_connection((match[2], int(match[3])), timeout=60):
        pass
    broker.send_signal(number)
    stdout, stderr = broker.communicate(timeout=120)
    assert broker.returncode == 0
    assert stdout == "", "stdout is for data: the ready line and nothing else"
    assert "Traceback" not in stderr


def test_a_second_broker_on_the_same_data_is_refused(broker: subprocess.Popen[str], data: Path) -> None:
    ready_line(broker)
    second = subprocess.run(
        command(data, "--override", "node.id=7"), capture_output=True, text=True, timeout=120, check=False
    )
    assert second.returncode == 1
    assert str(data) in second.stderr
    assert "Traceback" not in second.stderr
    assert broker.poll() is None, "the first one goes on"


def test_a_busy_port_is_an_error_that_names_it(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        arguments = command(tmp_path / "data", "--override", f"listeners=PLAINTEXT://127.0.0.1:{port}")
        result = subprocess.run(arguments, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 1
    assert f"127.0.0.1:{port}" in result.stderr
    assert "Traceback" not in result.stderr


def test_unused_settings_warn_on_stderr(data: Path) -> None:
    process = launch(data, "--override", "num.io.threads=8")
    try:
        ready_line(process)
        process.terminate()
        _, stderr = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    assert stderr.count("num.io.threads") == 1
