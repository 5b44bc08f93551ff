"""Builds and runs `loadgen.c`, the raw load generator.

The binary is compiled once per content of the source, into the user's cache; nothing compiled is in the tree.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.measure import Latency
from bench.requests import Request, write_requests

SOURCE = Path(__file__).with_name("loadgen.c")
RUN_TIMEOUT_S = 300


@dataclass(frozen=True, slots=True)
class Load:
    """What to send. Closed loop with `inflight` per connection, or open loop at `rate` requests a second."""

    requests: Path
    connections: int = 1
    inflight: int = 1
    rate: float = 0.0
    count: int = 0
    seconds: float = 0.0
    fetch: Path | None = None
    consumers: int = 0
    idle: int = 0
    stamp: bool = False

    def arguments(self) -> list[str]:
        options: dict[str, object] = {
            "requests": self.requests,
            "connections": self.connections,
            "inflight": self.inflight,
            "rate": self.rate,
            "count": self.count,
            "seconds": self.seconds,
            "consumers": self.consumers,
            "idle": self.idle,
        }
        if self.fetch is not None:
            options["fetch"] = self.fetch
        found = [text for name, value in options.items() for text in (f"--{name}", str(value))]
        return [*found, "--stamp"] if self.stamp else found


@dataclass(frozen=True, slots=True)
class LoadResult:
    requests: int
    seconds: float
    server_cpu_seconds: float
    client_cpu_seconds: float
    connect_seconds: float
    bytes_out: int
    payload_in: int
    records_acked: int
    records_delivered: int
    empty_fetches: int
    errors: int
    error_codes: dict[str, int]
    round_trip: Latency | None
    delivery: Latency | None

    @staticmethod
    def parse(text: str) -> LoadResult:
        found: dict[str, Any] = json.loads(text)
        return LoadResult(
            requests=found["requests"],
            seconds=found["seconds"],
            server_cpu_seconds=found["server_cpu_seconds"],
            client_cpu_seconds=found["client_cpu_seconds"],
            connect_seconds=found["connect_seconds"],
            bytes_out=found["bytes_out"],
            payload_in=found["payload_in"],
            records_acked=found["records_acked"],
            records_delivered=found["records_delivered"],
            empty_fetches=found["empty_fetches"],
            errors=_all_errors(found),
            error_codes=found["error_codes"],
            round_trip=Latency.of(found["round_trip"]),
            delivery=Latency.of(found["delivery"]),
        )


def _all_errors(found: dict[str, Any]) -> int:
    """Refusals, answers to another question, lost or silent connections, missing answers and missing records."""
    unanswered: int = max(0, found["sent"] - found["requests"])
    kinds = ("errors", "mismatches", "broken_connections", "undelivered", "silent_idlers")
    return unanswered + sum(int(found[kind]) for kind in kinds)


@functools.cache
def binary() -> Path:
    """The compiled generator."""
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headrace" / "bench"
    target = cache / f"loadgen-{digest}"
    if not target.exists():
        compiler = shutil.which("cc")
        if compiler is None:
            raise FileNotFoundError("the load generator needs a C compiler (`cc`)")
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as work:
            built = Path(work) / "loadgen"
            subprocess.run([compiler, "-O2", "-Wall", "-Wextra", "-o", built, SOURCE], check=True)
            built.rename(target)
    return target


def start_load(port: int, load: Load, pids: Iterable[int] = ()) -> subprocess.Popen[str]:
    """The generator in the background; `finish_load` waits for its result."""
    named = [text for pid in pids for text in ("--pid", str(pid))]
    command = [str(binary()), "--port", str(port), *load.arguments(), *named]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish_load(process: subprocess.Popen[str]) -> LoadResult:
    out, problems = process.communicate(timeout=RUN_TIMEOUT_S)
    if process.returncode != 0:
        raise ConnectionError(f"the load generator ended with {process.returncode}: {problems.strip()}")
    return LoadResult.parse(out)


def run_load(port: int, load: Load, pids: Iterable[int] = ()) -> LoadResult:
    return finish_load(start_load(port, load, pids))


class RequestFiles:
    """Writes request files into one directory, which goes when the run ends."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._written = 0

    def write(self, requests: Iterable[Request]) -> Path:
        self._written += 1
        return write_requests(self._directory / f"requests-{self._written}", requests)
