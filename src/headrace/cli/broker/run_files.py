"""The files by which a running broker is found: `<data dir>/broker-<id>/headrace.pid` and `headrace.address`.

`headrace.pid` holds the process id, `headrace.address` what clients connect to. They are written when the broker
serves and removed when it stops; after a crash they are stale, which the process table shows.
`headrace.supervisor` holds the process id of the supervisor that started the broker and restarts it
(`start --workers`).
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import NamedTuple

PID = "headrace.pid"
ADDRESS = "headrace.address"
SUPERVISOR = "headrace.supervisor"
LOG = "headrace.log"
_BROKER = re.compile(r"broker-(\d+)")


class BrokerRunFiles(NamedTuple):
    """The run files of one broker in one data directory."""

    broker_id: int
    directory: Path

    @property
    def log(self) -> Path:
        return self.directory / LOG

    def write(self, address: str) -> None:
        (self.directory / ADDRESS).write_text(address + "\n")
        (self.directory / PID).write_text(f"{os.getpid()}\n")

    def remove(self) -> None:
        for name in (PID, ADDRESS):
            with contextlib.suppress(FileNotFoundError):
                (self.directory / name).unlink()

    def remove_if_mine(self) -> None:
        """Remove the files, unless they are those of another broker that is running here."""
        if self._written_pid(PID) == os.getpid():
            self.remove()

    def write_supervisor(self) -> None:
        """Record this process as the supervisor."""
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        (self.directory / SUPERVISOR).write_text(f"{os.getpid()}\n")

    def remove_supervisor(self) -> None:
        if self._written_pid(SUPERVISOR) == os.getpid():
            (self.directory / SUPERVISOR).unlink()

    def pid(self) -> int | None:
        """The id of the running process; None if there is none."""
        return self._running_pid(PID)

    def supervisor(self) -> int | None:
        """The process id of the running supervisor; None if there is none."""
        return self._running_pid(SUPERVISOR)

    def _running_pid(self, name: str) -> int | None:
        pid = self._written_pid(name)
        return pid if pid is not None and is_broker(pid) else None

    def _written_pid(self, name: str) -> int | None:
        try:
            return int((self.directory / name).read_text())
        except (FileNotFoundError, NotADirectoryError, PermissionError, ValueError):
            return None

    def address(self) -> str | None:
        try:
            return (self.directory / ADDRESS).read_text().strip() or None
        except FileNotFoundError:
            return None


def run_files(data_dir: str, broker_id: int) -> BrokerRunFiles:
    return BrokerRunFiles(broker_id, Path(data_dir) / f"broker-{broker_id}")


def brokers_in(data_dir: str) -> list[BrokerRunFiles]:
    """Every broker that has data there."""
    try:
        names = os.listdir(data_dir)
    except (FileNotFoundError, NotADirectoryError):
        return []
    found = (match for name in names if (match := _BROKER.fullmatch(name)))
    return sorted(BrokerRunFiles(int(match[1]), Path(data_dir) / match[0]) for match in found)


def is_broker(pid: int) -> bool:
    """Whether that process is alive and is a Headrace broker: process ids are reused."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    try:
        return b"headrace" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return not os.path.isdir("/proc/self")  # a system without /proc: the signal must be enough
