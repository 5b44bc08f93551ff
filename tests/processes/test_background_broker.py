"""`start --daemon`, `status`, `stop`, and the files by which they find each other."""

from __future__ import annotations

import json
import os
import pwd
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from headrace.cli.broker.run_files import brokers_in, is_broker, run_files
from headrace.cli.main import command_line
from headrace.testing.process_cluster import wait_until
from tests.unit.cli.command_line import headrace as in_process

LISTENER = "listeners=PLAINTEXT://127.0.0.1:0"


def headrace(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headrace", *arguments], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.fixture
def data(tmp_path: Path) -> Iterator[str]:
    yield str(tmp_path / "data")
    for files in brokers_in(str(tmp_path / "data")):
        if (pid := files.pid()) is not None:
            os.kill(pid, signal.SIGKILL)


def test_a_broker_in_the_background(data: str) -> None:
    started = headrace("start", "--daemon", "--data-dir", data, "--override", LISTENER, "--override", "node.id=4")
    assert started.returncode == 0, started.stderr
    assert started.stdout.startswith("Headrace broker 4 is ready at 127.0.0.1:")
    shown = headrace("status", "--data-dir", data, "--timeout", "50s", "--format", "json")
    assert shown.returncode == 0, shown.stdout + shown.stderr
    (row,) = json.loads(shown.stdout)
    assert (row["broker"], row["state"], row["address"]) == (4, "running", started.stdout.split()[6].rstrip(","))
    assert row["pid"] == int(Path(data, "broker-4", "headrace.pid").read_text())
    again = headrace("start", "--daemon", "--data-dir", data, "--override", LISTENER, "--override", "node.id=4")
    assert again.returncode == 1
    assert "is already running" in again.stderr
    stopped = headrace("stop", "--data-dir", data)
    assert (stopped.returncode, stopped.stderr) == (0, "Broker 4 has stopped.\n")
    assert not is_broker(row["pid"])
    assert not Path(data, "broker-4", "headrace.pid").exists()
    assert headrace("status", "--data-dir", data).returncode == 1
    assert headrace("stop", "--data-dir", data).returncode == 0, "stopping what has stopped is no error"


def test_a_background_start_that_fails_says_why(data: str) -> None:
    first = headrace("start", "--daemon", "--data-dir", data, "--override", LISTENER)
    port = first.stdout.split()[6].rstrip(",").rsplit(":")[1]
    taken = f"listeners=PLAINTEXT://127.0.0.1:{port}"
    second = headrace("start", "--daemon", "--data-dir", f"{data}/other", "--override", taken)
    assert second.returncode == 1
    assert port in second.stderr
    assert "Traceback" not in second.stderr
    wrong = headrace("start", "--daemon", "--data-dir", data, "--override", "num.partitions=x")
    assert wrong.returncode == 2


def test_a_second_broker_leaves_the_files_of_the_first(data: str) -> None:
    headrace("start", "--daemon", "--data-dir", data, "--override", LISTENER)
    (files,) = brokers_in(data)
    assert headrace("start", "--data-dir", data, "--override", LISTENER).returncode == 1
    assert files.pid() is not None


def test_after_a_crash_the_files_are_stale_and_that_is_seen(data: str) -> None:
    headrace("start", "--daemon", "--data-dir", data, "--override", LISTENER)
    (files,) = brokers_in(data)
    pid = files.pid()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 60
    while files.pid() is not None and time.monotonic() < deadline:
        time.sleep(0.01)
    shown = headrace("status", "--data-dir", data)
    assert (shown.returncode, "stopped" in shown.stdout) == (1, True)


def test_no_data_is_not_found(tmp_path: Path) -> None:
    for verb in ("status", "stop"):
        result = headrace(verb, "--data-dir", str(tmp_path / "nothing"))
        assert result.returncode == 4
        assert "There is no data" in result.stderr


def test_a_process_of_somebody_else_is_not_ours(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as other:
        files = run_files(str(tmp_path), 1)
        files.directory.mkdir()
        (files.directory / "headrace.pid").write_text(f"{other.pid}\n")
        assert files.pid() is None
        other.kill()


@pytest.mark.parametrize("more", [(), ("--daemon",)])
def test_a_data_directory_that_cannot_be_made(tmp_path: Path, more: tuple[str, ...]) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        result = headrace("start", "--data-dir", str(place), "--override", LISTENER, *more)
        assert result.returncode == 1
        reason = f"Cannot use the data directory {place}: {tmp_path / 'file'} is a file, not a directory."
        assert reason in result.stderr
        assert "Traceback" not in result.stderr


def test_a_data_directory_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may write everywhere, so that the system's answer is given here."""
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    monkeypatch.setenv("HEADRACE_HEADRACE_ADMIN_PORT", "0")
    done = CliRunner().invoke(command_line, ["start", "--data-dir", str(tmp_path)])
    assert done.exit_code == 1
    user = pwd.getpwuid(os.geteuid()).pw_name
    assert f"User {user} cannot write to the data directory {tmp_path}." in done.stderr


def test_the_broker_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be read is not called stopped. Root may read everything, so the answer is given here."""
    files = run_files(str(tmp_path), 1)
    files.directory.mkdir()
    user = pwd.getpwuid(os.geteuid()).pw_name
    access = os.access
    for place in (str(tmp_path), str(files.directory)):
        with monkeypatch.context() as patched:
            patched.setattr(
                os, "access", lambda path, mode, place=place: str(path) != place and access(path, mode)
            )
            for verb in ("status", "stop"):
                done = in_process(verb, "--data-dir", str(tmp_path))
                assert done.returncode == 5, done
                assert f"User {user} cannot read the data directory {place}." in done.stderr


def test_a_process_that_only_another_user_may_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = [sys.executable, "-c", "import time; time.sleep(60)", "headrace"]
    with subprocess.Popen(program) as other:
        wait_until(lambda: is_broker(other.pid), "its command line is there")
        files = run_files(str(tmp_path), 1)
        files.directory.mkdir()
        (files.directory / "headrace.pid").write_text(f"{other.pid}\n")

        def refuse(pid: int, number: int) -> None:
            raise PermissionError

        with monkeypatch.context() as patched:
            patched.setattr(os, "kill", refuse)
            done = in_process("stop", "--data-dir", str(tmp_path))
        other.kill()
    assert done.returncode == 5, done
    assert f"cannot stop broker 1 (process {other.pid})" in done.stderr


def test_a_failed_start_leaves_nothing_behind(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listener = f"listeners=PLAINTEXT://127.0.0.1:{taken.getsockname()[1]}"
        for place, more in ((tmp_path / "new" / "deep", []), (kept, []), (tmp_path / "daemon", ["-d"])):
            program = [sys.executable, "-m", "headrace", "start", "--data-dir", str(place), "--override", listener]
            program += more
            done = subprocess.run(program, capture_output=True, text=True, timeout=120)
            assert (done.returncode, "the port is already in use" in done.stderr) == (1, True), done.stderr
        both = f"log.dirs={tmp_path / 'one'},/proc/other"
        for words in (["--workers", "2", "--data-dir", str(tmp_path / "new")], ["--override", both]):
            assert headrace("start", *words, "--override", listener).returncode == 1
    assert list(tmp_path.iterdir()) == [kept], "what was there before stays"
