"""`headrace start` with this interpreter, on a free port, with data that goes away."""

from __future__ import annotations

import os
import queue
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from examples.demo.stopping import stop_process

HOST = "127.0.0.1"
FIRST_PORT = 9092
PORTS_TRIED = 50
READY_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 120.0


class DemoFailed(Exception):
    """Something that the demo cannot go on without."""


class BrokerProcess:
    def __init__(self) -> None:
        self.port, self.skipped = _free_port()
        self.directory = Path(tempfile.mkdtemp(prefix="headrace-demo-"))
        """Everything that the demo writes is below it."""
        self.started_s = 0.0
        self._process: subprocess.Popen[str] | None = None

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        begin = time.monotonic()
        settings = [f"listeners=PLAINTEXT://{self.bootstrap}", f"log.dirs={self.directory / 'data'}"]
        with (self.directory / "broker.log").open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "headrace", "start", *(f"--override={setting}" for setting in settings)],
                stdout=subprocess.PIPE,
                stderr=log,
                stdin=subprocess.DEVNULL,
                text=True,
                start_new_session=True,  # Ctrl-C is ours to handle; the broker is told to stop in order
            )
        if not self._ready_line():
            raise DemoFailed(f"the broker did not start:\n{self._log()}")
        self.started_s = time.monotonic() - begin

    def _log(self) -> str:
        return (self.directory / "broker.log").read_text()

    def _ready_line(self) -> str:
        assert self._process is not None
        lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        stdout = self._process.stdout
        assert stdout is not None
        threading.Thread(target=lambda: lines.put(stdout.readline()), daemon=True).start()
        try:
            return lines.get(timeout=READY_TIMEOUT_S)
        except queue.Empty:
            return ""

    def check_alive(self) -> None:
        assert self._process is not None
        if self._process.poll() is not None:
            raise DemoFailed(f"the broker has died:\n{self._log()}")

    def stop(self) -> tuple[int, float]:
        """A clean stop: the exit code and how long it took."""
        return stop_process(self._process, STOP_TIMEOUT_S)

    def memory_mb(self) -> float:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def remove(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)


def _free_port() -> tuple[int, list[int]]:
    """The first free port from 9092 on, and the busy ones before it."""
    for port in range(FIRST_PORT, FIRST_PORT + PORTS_TRIED):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port, list(range(FIRST_PORT, port))
    raise DemoFailed(f"no free port from {FIRST_PORT} to {FIRST_PORT + PORTS_TRIED - 1}")
