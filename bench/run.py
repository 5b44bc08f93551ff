"""What a workload works with: the system, topics, request files, the load generator, and measuring around it.

Around every measured case the kernel's counters are read too: whether the broker's time went to user code or to
the kernel, and what happened to memory meanwhile. A case during which the host took pages back, or the kernel had
to reclaim some, is `tainted`: its cost is the machine's, not the broker's.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from bench import probes
from bench.admin import create_topics, delete_topics, end_offset
from bench.clients import ClientResult
from bench.loadgen import Load, LoadResult, RequestFiles, run_load
from bench.measure import Figures, Latency, Measurement, latencies, rates
from bench.requests import Request
from bench.reservoir import Reservoir
from bench.systems import System

T = TypeVar("T")

OUT, IN = "out", "in"
"""Which way the payload goes: produced, or fetched."""

MB = 1 << 20
TAINT_SHARE = 0.15
"""A case is tainted when the host took back this part of what it wrote, while it wrote."""
TAINT_MIN_MB = 64
MAX_ATTEMPTS = 3
DELETE_TIMEOUT_S = 10.0
DELETE_CHECK_S = 0.02

_topic_numbers = itertools.count(1)


@dataclass(slots=True)
class Run:
    """One turn of one workload on one system."""

    system: System
    files: RequestFiles
    quick: bool
    libraries: Path
    """The jars with Kafka's own performance tools."""
    reservoir: Reservoir
    topics: list[str] = field(default_factory=list)
    acknowledged: int = 0
    """Records that the broker acknowledged to the load generator since the last `lost`."""

    def choose(self, full: T, quick: T) -> T:
        return quick if self.quick else full

    def topic(self, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        """A new topic, removed when the turn ends."""
        name = f"bench-{next(_topic_numbers)}"
        create_topics(self.system.bootstrap, {name: partitions}, config)
        self.topics.append(name)
        return name

    def drop_topics(self) -> None:
        self._drop(self.topics)
        self.topics.clear()

    def drop_topic(self, name: str) -> None:
        self._drop([name])
        self.topics.remove(name)

    def _drop(self, names: Collection[str]) -> None:
        """Returns when their files are gone: what a deletion costs must not fall into the next case."""
        delete_topics(self.system.bootstrap, names)
        deadline = time.monotonic() + DELETE_TIMEOUT_S
        while time.monotonic() < deadline and any(self._has_files(topic) for topic in names):
            time.sleep(DELETE_CHECK_S)

    def _has_files(self, topic: str) -> bool:
        return any(True for _ in self.partition_directories(topic))

    def partition_directories(self, topic: str) -> Iterator[Path]:
        """In the system's directory, or, with Headrace, in that of its broker inside."""
        data_dir = self.system.data_dir
        return itertools.chain.from_iterable(
            directory.glob(f"{topic}-*") for directory in (data_dir, *data_dir.glob("broker-*"))
        )

    def requests(self, requests: Iterable[Request]) -> Path:
        return self.files.write(requests)

    def load(self, load: Load) -> LoadResult:
        result = run_load(self.system.port, load, self.system.pids)
        self.acknowledged += result.records_acked
        return result

    def lost(self, topic: str, partitions: int) -> int:
        """How many of the acknowledged records the topic does not hold: a fast broker must also keep them."""
        stored = sum(end_offset(self.system.bootstrap, topic, number) for number in range(partitions))
        acknowledged, self.acknowledged = self.acknowledged, 0
        return max(0, acknowledged - stored)

    def measure(self, case: str, load: Load, payload: str = "", *, quiet: bool = False) -> Measurement:
        """Runs the load and gives all usual figures of it. `quiet` is for a second of large writes: memory is
        given time to come to rest, and a tainted run is done again, some times at most."""
        for attempts in range(1, MAX_ATTEMPTS + 1):
            watch = self.watch(quiet=quiet)
            result = self.load(load)
            notes = watch.notes(result.bytes_out if payload == OUT else 0) | {"attempts": attempts}
            if not quiet or "tainted" not in notes:
                break
        return load_measurement(case, result, payload, result.round_trip, self.memory()).with_check(0, **notes)

    def measure_client(self, case: str, record_size: int, work: Callable[[], ClientResult]) -> Measurement:
        """Runs an ordinary client and gives its figures with the broker's cost."""
        watch = self.watch()
        before = self.cpu_seconds()
        done = work()
        cpu = self.cpu_seconds() - before
        size = done.records * record_size
        figures = rates(seconds=done.seconds, cpu_seconds=cpu, records=done.records, size=size)
        figures |= latencies(done.latency)
        if done.busiest_thread is not None:
            figures["client_thread_share"] = done.busiest_thread
        # A client's own memory comes and goes too: what the host took back tells nothing about the log's pages.
        return Measurement(case, {**figures, **self.memory()}, done.errors, watch.notes(0))

    def watch(self, *, quiet: bool = False) -> Watch:
        """Makes memory ready and starts to watch it and the broker, right before a measured case."""
        probes.reset_peak_rss(self.system.pids)
        self.reservoir.ready(quiet=quiet)
        return Watch(self.system, self.reservoir)

    def memory(self) -> Figures:
        return {"rss_peak_mb": probes.peak_rss_mb(self.system.pids)}

    def cpu_seconds(self) -> float:
        return probes.cpu_seconds(self.system.pids)


class Watch:
    """The kernel's counters from the beginning of a case on."""

    def __init__(self, system: System, reservoir: Reservoir) -> None:
        self._system = system
        self._reservoir = reservoir
        self._split = probes.split_cpu_seconds(system.pids)
        self._pages = probes.Pages.now()

    def notes(self, written: int) -> dict[str, object]:
        """What to write down beside the case, which wrote about so many bytes."""
        user, kernel = probes.split_cpu_seconds(self._system.pids)
        pages = probes.Pages.now().since(self._pages)
        found: dict[str, object] = {
            "cpu_user_s": round(user - self._split[0], 3),
            "cpu_kernel_s": round(kernel - self._split[1], 3),
            "host_took_mb": pages.host_took_mb,
            "pages_reclaimed": pages.reclaimed,
            "reservoir_lowest_mb": self._reservoir.lowest_mb(),
        }
        reason = taint(pages, written // MB, self._reservoir.lowest_mb())
        return {**found, "tainted": reason} if reason else found


def taint(pages: probes.Pages, written_mb: int, reservoir_mb: int) -> str:
    """Why the cost of a case that wrote so much may be the machine's; empty if nothing speaks for it."""
    if pages.direct_reclaims:
        return f"the kernel reclaimed memory {pages.direct_reclaims} times within an allocation"
    if written_mb > TAINT_MIN_MB and pages.host_took_mb > TAINT_SHARE * written_mb:
        return f"the host took {pages.host_took_mb} MB back while {written_mb} MB were written"
    if written_mb > TAINT_MIN_MB and reservoir_mb == 0:
        return "the touched memory ran out"
    return ""


def load_measurement(
    case: str, result: LoadResult, payload: str, latency: Latency | None, memory: Figures
) -> Measurement:
    size = {OUT: result.bytes_out, IN: result.payload_in}.get(payload, 0)
    figures = rates(
        seconds=result.seconds,
        cpu_seconds=result.server_cpu_seconds,
        requests=result.requests,
        records=result.records_acked,
        size=size,
    )
    notes: dict[str, object] = {"client_cpu_share": round(result.client_cpu_seconds / result.seconds, 3)}
    if result.error_codes:
        notes["error_codes"] = result.error_codes
    errors = result.errors
    if payload == IN and result.empty_fetches:
        # An answer with nothing in it is quick to give.
        notes["empty_fetches"] = result.empty_fetches
        errors += result.empty_fetches
    return Measurement(case, {**figures, **latencies(latency), **memory}, errors, notes)
