"""Runs workloads on the systems in turn: A, B, A, B, so that a slow minute of the machine meets both.

Shared workloads come first, on one long-lived, warmed-up broker per system; the other one idles meanwhile. Then
those that start and kill a broker of their own, with nothing else running. A workload that fails on a system is
written down with its reason, and the rest goes on.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException

from bench import probes
from bench.loadgen import RequestFiles
from bench.registry import Workload
from bench.reservoir import Reservoir
from bench.run import Run
from bench.systems import System, make_system, versions
from bench.warmup import warm_up
from headrace.testing.apache_kafka import fetch_libraries
from headrace.testing.process import ServerFailed

FAILURES = (OSError, subprocess.SubprocessError, KafkaException, ServerFailed, ValueError, AssertionError)
"""What a broken broker or client can raise (an assertion: something did not come in time); anything else is a
fault of the benchmark and ends it."""
SETTLE_SECONDS = 0.3
RESERVOIR = {True: 3 * probes.GB, False: 12 * probes.GB}
"""By quick: what the largest workload writes, and some more."""

Save = Callable[[dict[str, Any]], None]


@dataclass(slots=True)
class Runner:
    systems: Sequence[str]
    rounds: int
    quick: bool
    save: Save
    reservoir: Reservoir = field(init=False)
    results: dict[str, Any] = field(default_factory=dict)

    def run(self, workloads: Sequence[Workload]) -> dict[str, Any]:
        probes.raise_descriptor_limit()
        self._begin(workloads)
        say("touching memory")
        started = time.monotonic()
        with Reservoir(RESERVOIR[self.quick]) as self.reservoir:
            self.results["reservoir_gb"] = round(self.reservoir.held_mb / 1024, 1)
            say(f"touched {self.reservoir.held_mb} MB in {time.monotonic() - started:.0f} s")
            shared = [workload for workload in workloads if not workload.own_system]
            if shared:
                self._run_shared(shared)
            for workload in workloads:
                if workload.own_system:
                    self._run_alone(workload)
        self.results["took_s"] = round(time.monotonic() - started)
        return self.results

    def _begin(self, workloads: Sequence[Workload]) -> None:
        self.results.update(
            started=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            quick=self.quick,
            rounds=self.rounds,
            machine=probes.machine(),
            versions=versions(),
            systems={},
            warm_up={},
            workloads={
                w.name: {"title": w.title, "description": w.description, "rounds": w.rounds(self.rounds)}
                for w in workloads
            },
            took_by_workload_s={},
            runs=[],
            failures=[],
        )

    def _run_shared(self, workloads: Sequence[Workload]) -> None:
        brokers: dict[str, System] = {}
        try:
            for name in self.systems:
                self._ensure_running(brokers, name)
            for workload in workloads:
                for number in range(workload.rounds(self.rounds)):
                    for name in workload.systems(self.systems):
                        self._ensure_running(brokers, name)
                        if name in brokers:
                            self._turn(workload, brokers[name], number)
                self.save(self.results)
        finally:
            for system in brokers.values():
                system.close()

    def _ensure_running(self, brokers: dict[str, System], name: str) -> None:
        """Starts and warms up a broker, also in place of one that has died."""
        if name in brokers and brokers[name].server.exit_code() is None:
            return
        if name in brokers:
            brokers.pop(name).close()
        say(f"{name}: starting and warming up")
        system = self._new_system(name)
        try:
            system.start()
            with tempfile.TemporaryDirectory() as directory:
                costs = warm_up(self._new_run(system, directory))
            self.results["warm_up"][name] = costs
            say(f"{name}: CPU µs per request while warming up: {costs}")
        except FAILURES as problem:
            self._failed("start", name, 0, problem)
            system.close()
            return
        brokers[name] = system

    def _run_alone(self, workload: Workload) -> None:
        for number in range(workload.rounds(self.rounds)):
            for name in workload.systems(self.systems):
                system = self._new_system(name)
                try:
                    self._turn(workload, system, number)
                finally:
                    system.close()
        self.save(self.results)

    def _new_system(self, name: str) -> System:
        system = make_system(name)
        self.results["systems"].setdefault(name, system.configuration())
        return system

    def _new_run(self, system: System, directory: str) -> Run:
        return Run(system, RequestFiles(Path(directory)), self.quick, fetch_libraries(), self.reservoir)

    def _turn(self, workload: Workload, system: System, number: int) -> None:
        with tempfile.TemporaryDirectory() as directory:
            run = self._new_run(system, directory)
            started = time.monotonic()
            try:
                for measurement in workload.function(run):
                    place = {"workload": workload.name, "system": system.name, "round": number}
                    self.results["runs"].append({**place, **measurement.as_json()})
                    say(f"{workload.name} {system.name} #{number + 1} {describe(measurement.as_json())}")
                if not workload.own_system:
                    run.drop_topics()
            except FAILURES as problem:
                self._failed(workload.name, system.name, number, problem)
            seconds = time.monotonic() - started
            took = self.results["took_by_workload_s"]
            took[workload.name] = round(took.get(workload.name, 0.0) + seconds, 1)
            say(f"{workload.name} {system.name} #{number + 1} took {seconds:.1f} s")
        time.sleep(SETTLE_SECONDS)

    def _failed(self, workload: str, system: str, number: int, problem: BaseException) -> None:
        reason = f"{type(problem).__name__}: {problem}"
        say(f"{workload} {system} #{number + 1} FAILED: {reason[:2000]}")
        place = {"workload": workload, "system": system, "round": number}
        self.results["failures"].append({**place, "reason": reason[:2000]})


SHOWN = {
    "mb_per_s": "MB/s",
    "requests_per_s": "req/s",
    "cpu_ms_per_gb": "CPU ms/GB",
    "client_cpu_ms_per_gb": "CPU ms/GB of the clients",
    "cpu_us_per_request": "CPU µs/req",
    "p50_us": "p50 µs",
    "p99_us": "p99 µs",
    "p999_us": "p99.9 µs",
    "rss_mb": "RSS MB",
    "rss_peak_mb": "peak MB",
    "first_ack_s": "s to first ack",
    "gap_s": "s gap",
    "led_again_s": "s until led again",
    "controller_s": "s until a topic can be made",
    "seconds": "s",
    "p99_before_us": "p99 µs before",
    "lost_1_dead": "lost, one dead",
    "lost_2_dead": "lost, two dead",
    "idle_cpu_us_per_partition": "idle CPU µs/s/partition",
    "settled_s": "s to settle",
    "settle_cpu_ms": "CPU ms to settle",
    "idle_cpu_percent": "% idle CPU",
}


def describe(found: dict[str, Any]) -> str:
    figures = found["figures"]
    parts = [f"{figures[name]:,.4g} {unit}" for name, unit in SHOWN.items() if name in figures]
    if reason := found["notes"].get("tainted"):
        parts.append(f"TAINTED: {reason}")
    errors = f" · {found['errors']} ERRORS {found['notes']}" if found["errors"] else ""
    return f"[{found['case']}] " + " · ".join(parts) + errors


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
