"""Servers as real processes: started, watched, killed and started again by tests and drills.

`BrokerProcess` is a Headrace broker with a data directory and a free port of its own:

    with BrokerProcess({"num.partitions": "3"}) as broker:
        produce_to(broker.bootstrap)
        broker.kill()       # kill -9, as a crash
        broker.start()      # the same data, the same port

Rules: the process never outlives the one that started it (the kernel sends it SIGKILL when the starting thread
ends, so start from a thread that lives as long as the server is needed); its output is kept in one log file over
all starts; leaving the `with` block kills it and removes its files.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

HOST = "127.0.0.1"
POLL_INTERVAL_S = 0.01
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 120.0
LOG_TAIL_BYTES = 20_000
PR_SET_PDEATHSIG = 1
PORTS = range(20_000, 32_000)
"""Below those that Linux gives to connections and to listeners on port 0 (`ip_local_port_range`)."""
_port_numbers = itertools.count(os.getpid() * 577)  # processes that start together begin far from each other


class ServerFailed(Exception):
    """The server did not start or stop as asked; the message ends with the tail of its log."""


def free_port() -> int:
    """A port that was free a moment ago, and that the system does not assign by itself.

    Somebody who asks the system for any port could be given ours while our server starts, or is down for a moment.
    """
    for number in itertools.islice(_port_numbers, len(PORTS)):
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind((HOST, PORTS[number % len(PORTS)]))
            return PORTS[number % len(PORTS)]
    raise ServerFailed(f"none of the ports {PORTS[0]} to {PORTS[-1]} is free")


def die_with_parent() -> Callable[[], None] | None:
    """What the child runs before exec so that it cannot outlive us (Linux only; elsewhere nothing)."""
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    parent = os.getpid()

    def ask_kernel() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return ask_kernel


class ServerProcess(ABC):
    """One server process on one port, with its files in a directory of its own."""

    name = "server"

    def __init__(self, overrides: Mapping[str, str] | None = None, root: Path | None = None) -> None:
        self.overrides = dict(overrides or {})
        self.port = free_port()
        self.host = HOST
        self.prefix: list[str] = []
        """Before the command: where it runs (`hosts`)."""
        self._owns_root = root is None
        self.root = root or Path(tempfile.mkdtemp(prefix=f"{self.name}-"))
        self.log_path = self.root / "server.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def data_dir(self) -> Path:
        return self.root / "data"

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    @abstractmethod
    def command(self) -> list[str]:
        """What starts the server."""

    def environment(self) -> dict[str, str]:
        return dict(os.environ)

    def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Starts the process and returns as soon as it serves."""
        __tracebackhide__ = True
        self.launch()
        deadline = time.monotonic() + timeout_s
        while not self.is_ready(deadline):
            time.sleep(POLL_INTERVAL_S)

    def is_ready(self, deadline: float) -> bool:
        """Whether it serves by now; `ServerFailed` if it has ended instead, or the time is up."""
        __tracebackhide__ = True
        if self._serves():
            return True
        if (code := self.exit_code()) is not None:
            raise ServerFailed(f"{self.name} exited with code {code} during startup\n{self.log_tail()}")
        if time.monotonic() > deadline:
            self.kill()
            raise ServerFailed(f"{self.name} was not ready in time\n{self.log_tail()}")
        return False

    def launch(self) -> None:
        """Starts the process and does not wait."""
        assert self._process is None or self._process.poll() is not None, "already running"
        with self.log_path.open("ab") as log:
            self._process = self._spawn(log.fileno())

    def _spawn(self, log: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*self.prefix, *self.command()],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=self.environment(),
            preexec_fn=die_with_parent(),
        )

    def exit_code(self) -> int | None:
        """None while the process runs."""
        return None if self._process is None else self._process.poll()

    def wait(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        assert self._process is not None, "not started"
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise ServerFailed(f"{self.name} is still running after {timeout_s} s\n{self.log_tail()}") from None

    def kill(self) -> None:
        """kill -9, and waits for the end."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def terminate(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Asks for a clean stop (SIGTERM) and returns the exit code."""
        return self._stop_with(signal.SIGTERM, timeout_s)

    def interrupt(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """A clean stop as by Ctrl-C."""
        return self._stop_with(signal.SIGINT, timeout_s)

    def restart(self) -> None:
        """A clean stop and a start on the same data and port."""
        self.terminate()
        self.start()

    def log_text(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def log_tail(self) -> str:
        return self.log_text()[-LOG_TAIL_BYTES:]

    def close(self) -> None:
        self.kill()
        if self._owns_root:
            shutil.rmtree(self.root, ignore_errors=True)

    def __enter__(self) -> Self:
        __tracebackhide__ = True
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _stop_with(self, number: signal.Signals, timeout_s: float) -> int:
        assert self._process is not None, "not started"
        self._process.send_signal(number)
        return self.wait(timeout_s)

    def _serves(self) -> bool:
        try:
            with socket.create_connection((self.host, self.port), timeout=1):
                return True
        except OSError:
            return False


class BrokerProcess(ServerProcess):
    """A Headrace broker: `headrace start` with this interpreter."""

    name = "headrace"

    def command(self) -> list[str]:
        settings = {
            "listeners": f"PLAINTEXT://{self.host}:{self.port}",
            "log.dirs": str(self.data_dir),
            **self.overrides,
        }
        command = [sys.executable, "-m", "headrace", "start"]
        for key, value in settings.items():
            command += ["--override", f"{key}={value}"]
        return command

    def environment(self) -> dict[str, str]:
        return {**super().environment(), "PYTHONUNBUFFERED": "1"}
