"""The files by which a running broker is found: `<data dir>/broker-<id>/headrace.pid` and `headrace.address`.

`headrace.pid` holds the process id, `headrace.address` what clients connect to. They are written when the broker
serves and removed when it stops; after a crash they are stale, which the process table tells.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import NamedTuple

PID = "headrace.pid"
ADDRESS = "headrace.address"
LOG = "headrace.log"
_BROKER = re.compile(r"broker-(\d+)")


class BrokerRunFiles(NamedTuple):
    """Of one broker in one data directory."""

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
        """Another broker that refused us keeps its files."""
        if self._written_pid() == os.getpid():
            self.remove()

    def pid(self) -> int | None:
        """Of the running process; None when there is none."""
        pid = self._written_pid()
        return pid if pid is not None and is_broker(pid) else None

    def _written_pid(self) -> int | None:
        try:
            return int((self.directory / PID).read_text())
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
    """Whether that process lives and is one of ours: process ids are used again."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    try:
        return b"headrace" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return not os.path.isdir("/proc/self")  # a system without /proc: the signal's word has to do
