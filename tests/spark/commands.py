"""`headrace pipeline` as a user runs it: processes, with a state directory of their own."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

TIMEOUT_S = 400.0
POLL_S = 0.1
LOOK_S = 0.25
"""Between two looks at results, which take time from Spark."""
FAST_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Java compiles less thoroughly, and sooner: runs of seconds take a quarter less."""
HEADRACE = (sys.executable, "-m", "headrace")


class Ended(NamedTuple):
    code: int
    out: str
    err: str


class Commands:
    """All that are started here share a broker, a state directory and a working directory."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self.folder = folder
        self.environment = os.environ | {
            "HEADRACE_BOOTSTRAP_SERVERS": bootstrap,
            "HEADRACE_STATE_DIR": str(folder / "state"),
            "JAVA_TOOL_OPTIONS": FAST_START,
        }

    def run(
        self, *arguments: object, environment: Mapping[str, str] | None = None, program: str | None = None
    ) -> Ended:
        """`program`: Python to run in place of `headrace`."""
        done = subprocess.run(
            [*(HEADRACE if program is None else (sys.executable, "-c", program)), *map(str, arguments)],
            cwd=self.folder,
            env=self.environment | dict(environment or {}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    def data(self, *arguments: object) -> Any:
        ended = self.run(*arguments, "--format", "json")
        assert ended.code == 0, ended
        return json.loads(ended.out)

    def processes(self) -> list[int]:
        """All that run with this state directory: the commands, Java, and Spark's workers."""
        wanted = f"HEADRACE_STATE_DIR={self.folder / 'state'}".encode()
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # ended meanwhile
                if wanted in (process / "environ").read_bytes().split(b"\0"):
                    found.append(int(process.name))
        return found

    def start(self, *arguments: object, terminal: bool = False) -> Started:
        return Started([*HEADRACE, *map(str, arguments)], self.folder, self.environment, terminal)


def _take_terminal() -> None:
    """Without a terminal that is its own, a process gets no signal for Ctrl-C."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class Started:
    """A command that goes on by itself, until the end of the `with` block at the latest.

    What it writes is collected; on a terminal all of it is in `err`.
    """

    def __init__(
        self, command: Sequence[str], folder: Path, environment: Mapping[str, str], terminal: bool
    ) -> None:
        self._out: list[bytes] = []
        self._err: list[bytes] = []
        if terminal:
            ours, theirs = pty.openpty()
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                env={**environment, "TERM": "xterm", "COLUMNS": "120", "LINES": "40"},
                stdin=theirs,
                stdout=theirs,
                stderr=theirs,
                start_new_session=True,
                preexec_fn=_take_terminal,
            )
            os.close(theirs)
            self._terminal: int | None = ours
            self._follow(ours, self._err)
        else:
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
            assert self.process.stdout is not None
            assert self.process.stderr is not None
            self._terminal = None
            self._follow(self.process.stdout.fileno(), self._out)
            self._follow(self.process.stderr.fileno(), self._err)

    def _follow(self, descriptor: int, chunks: list[bytes]) -> None:
        def read() -> None:
            with contextlib.suppress(OSError):  # a terminal whose other side is gone
                while chunk := os.read(descriptor, 65536):
                    chunks.append(chunk)

        threading.Thread(target=read, daemon=True).start()

    @property
    def out(self) -> str:
        return b"".join(self._out).decode(errors="replace")

    @property
    def err(self) -> str:
        return b"".join(self._err).decode(errors="replace")

    def wait_for(self, what: str, test: Callable[[], object]) -> None:
        """Until the test is true; the command must go on meanwhile."""
        deadline = time.monotonic() + TIMEOUT_S
        while not test():
            assert self.process.poll() is None, f"ended with {self.process.returncode}\n{self.out}\n{self.err}"
            assert time.monotonic() < deadline, f"not in time: {what}\n{self.out}\n{self.err}"
            time.sleep(LOOK_S)

    def type(self, keys: bytes) -> None:
        assert self._terminal is not None
        os.write(self._terminal, keys)

    def wait(self) -> int:
        code = self.process.wait(TIMEOUT_S)
        time.sleep(POLL_S)  # for the last words
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
