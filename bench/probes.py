"""What the kernel tells about processes and the machine: CPU time, memory, cached pages. Linux only."""

from __future__ import annotations

import mmap
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
from pathlib import Path
from typing import Any

PAGE = 4096
MB = 1 << 20
GB = 1 << 30
CPU_CLOCK_SCHED = 2
KEEP_FREE = 0.3
"""The part of the free memory that pre-touching leaves alone."""


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


def pretouch(limit_bytes: int) -> int:
    """Touches free memory once and gives it back.

    On a virtual machine a page that was never used is fetched from the host at its first use, which makes whoever
    comes first look several times slower. Returns how many bytes were touched.
    """
    size = min(limit_bytes, int(available_memory() * (1 - KEEP_FREE))) // PAGE * PAGE
    step = 256 * MB
    held: list[mmap.mmap] = []
    try:
        for start in range(0, size, step):
            area = mmap.mmap(-1, min(step, size - start))
            held.append(area)
            for position in range(0, len(area), PAGE):
                area[position] = 1
    finally:
        for area in held:
            area.close()
    return size


def available_memory() -> int:
    match = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    assert match, "/proc/meminfo has no MemAvailable"
    return int(match[1]) * 1024


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
