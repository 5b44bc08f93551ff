"""What the kernel tells about processes and the machine: CPU time, memory, cached pages. Linux only."""

from __future__ import annotations

import os
import platform
import re
import resource
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MB = 1 << 20
GB = 1 << 30
CPU_CLOCK_SCHED = 2
REPORTED = Path("/sys/module/page_reporting/parameters/reported_kib")
"""How much freed memory the host took back since the machine started. Not every kernel tells."""


def process_tree(root: int) -> list[int]:
    """The process and all that it started and that still run."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (parent := _parent(entry)) is not None:
            children.setdefault(parent, []).append(int(entry.name))
    found = [root]
    for pid in found:
        found.extend(children.get(pid, []))
    return found


def _parent(entry: Path) -> int | None:
    try:
        return int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return None


def cpu_seconds(pids: Iterable[int]) -> float:
    """CPU time of all threads, ended ones too, in nanosecond steps: Linux has a clock for every process id."""
    return sum(time.clock_gettime((~pid << 3) | CPU_CLOCK_SCHED) for pid in pids)


def split_cpu_seconds(pids: Iterable[int]) -> tuple[float, float]:
    """CPU time in user code and in the kernel, as the kernel divides it (in steps of a tick)."""
    tick = os.sysconf("SC_CLK_TCK")
    fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(int(one[11]) for one in fields) / tick, sum(int(one[12]) for one in fields) / tick


@dataclass(frozen=True, slots=True)
class Pages:
    """Counters of the kernel's page allocator since the machine started."""

    reclaimed: int
    direct_reclaims: int
    """How often an allocation had to reclaim pages itself, which the allocating process pays for."""
    host_took_mb: int

    @staticmethod
    def now() -> Pages:
        counters = dict(line.split() for line in Path("/proc/vmstat").read_text().splitlines())
        stalls = sum(int(value) for name, value in counters.items() if name.startswith("allocstall"))
        reclaimed = int(counters["pgsteal_kswapd"]) + int(counters["pgsteal_direct"])
        took_kb = int(REPORTED.read_text()) if REPORTED.exists() else 0
        return Pages(reclaimed, stalls, took_kb // 1024)

    def since(self, before: Pages) -> Pages:
        return Pages(
            self.reclaimed - before.reclaimed,
            self.direct_reclaims - before.direct_reclaims,
            self.host_took_mb - before.host_took_mb,
        )


def reset_peak_rss(pids: Iterable[int]) -> None:
    for pid in pids:
        Path(f"/proc/{pid}/clear_refs").write_text("5")


def peak_rss_mb(pids: Iterable[int]) -> float:
    """The highest resident memory since the last reset. Several processes: the sum of their peaks."""
    return sum(_status_kb(pid, "VmHWM") for pid in pids) / 1024


def rss_mb(pids: Iterable[int]) -> float:
    return sum(_status_kb(pid, "VmRSS") for pid in pids) / 1024


def _status_kb(pid: int, name: str) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    match = re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)
    return int(match[1]) if match else 0


def disk_read_bytes(pids: Iterable[int]) -> int:
    """What the processes made the disk read so far, read-ahead included."""
    return sum(_io_count(pid, "read_bytes") for pid in pids)


def _io_count(pid: int, name: str) -> int:
    match = re.search(rf"^{name}: (\d+)", Path(f"/proc/{pid}/io").read_text(), re.MULTILINE)
    return int(match[1]) if match else 0


@contextmanager
def counted_syncs(pid: int) -> Iterator[list[str]]:
    """Fills the list with the process's fsync and fdatasync calls when the block ends. Raises where strace
    cannot."""
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "syncs"
        command = ["strace", "-f", "-e", "trace=fsync,fdatasync", "-o", str(out), "-p", str(pid)]
        tracer = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert tracer.stderr is not None
        found: list[str] = []
        try:
            first = tracer.stderr.readline()
            if "attached" not in first:
                raise OSError(f"strace did not attach: {first.strip()}")
            yield found
        finally:
            tracer.send_signal(signal.SIGINT)
            tracer.communicate()
        found += [line for line in out.read_text().splitlines() if "sync(" in line]


def forget_file_cache(directory: Path) -> int:
    """Writes a log's files out and drops their pages, so that the next read comes from the disk. Returns bytes."""
    total = 0
    for path in directory.rglob("*.log"):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fdatasync(descriptor)
            size = os.fstat(descriptor).st_size
            os.posix_fadvise(descriptor, 0, size, os.POSIX_FADV_DONTNEED)
            total += size
        finally:
            os.close(descriptor)
    return total


def raise_descriptor_limit() -> int:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def machine() -> dict[str, Any]:
    cpu = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    return {
        "cpu": cpu[1] if cpu else platform.machine(),
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GB, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_average": os.getloadavg()[0],
    }
