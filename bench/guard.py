"""The guard of the hot paths, independent of the clock: `python -m bench.guard --check` (or `--update`).

For each path it counts what one request costs the broker: executed bytecodes (a trace function sees each),
system calls (strace sees each), and the peak of memory allocated meanwhile (where a copy of a large batch
shows). The figures are kept in `guard.json`, per Python version, since bytecode differs between them. `--check`
fails when one has grown beyond its tolerance; growth that is meant is recorded with `--update`, and so is
visible in a review.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median_low
from types import CodeType, FrameType
from typing import Any

from bench.guard_commits import commits
from bench.guard_transactions import Transactors
from bench.hand_driven import TRAILING_TURNS, HandDrivenBroker, Turn
from bench.requests import Request, batch, fetch, produce, random_values, values_per_batch

FIGURES_FILE = Path(__file__).with_name("guard.json")
TOPIC = "guard"
TRANSACTIONS_TOPIC = "transactions"
MB = 1 << 20
STEPS = 20
REPEATS = 5
"""How often a step is measured. The lowest result counts: timers of the broker may fall into the others."""
IN_FLIGHT = 16
COMMITTERS = 16
TRANSACTORS = 16
LONG_WAIT_MS = 60_000
EXPLAINED = 30
TOLERANCE = {"bytecodes": 1.10, "system_calls": 1.02, "peak_bytes": 1.10}
"""How much a figure may grow. System calls are exact, but for timers."""
SLACK = {"bytecodes": 0, "system_calls": 0.1, "peak_bytes": 512}

Figures = dict[str, dict[str, float]]
"""Figures by path, then by kind."""
Step = Callable[[Turn], None]
SMALL_PATHS = ("produce", "produce_pipelined", "fetch", "long_poll", "commits", "transactions")
PATHS_WITH_RULES = ("produce", "fetch")
"""The paths that are also counted on a broker with access rules, under names of their own."""
WITH_RULES = {"authorizer.class.name": "headrace", "allow.everyone.if.no.acl.found": "true"}
LARGE_PATHS = ("produce_1mb", "fetch_1mb")


class Paths:
    """The hot paths on one broker: by name, the number of requests that a step answers, and the step."""

    def __init__(self, broker: HandDrivenBroker) -> None:
        self.broker = broker
        broker.create_topic(TOPIC)
        self._producer, self._consumer = broker.connect(), broker.connect()
        self._small = produce(TOPIC, 0, batch(random_values(1, 100)))
        self._large = produce(TOPIC, 0, batch(random_values(values_per_batch(1024, MB), 1024)))
        self._commits = commits(broker, TOPIC, COMMITTERS)
        broker.create_topic(TRANSACTIONS_TOPIC)
        self._transactors = Transactors(broker, TRANSACTIONS_TOPIC, TRANSACTORS)
        self._end_offset = 0
        for request in (self._small, self._large):
            self._produce(request, 1, plain)
        self.steps: dict[str, tuple[int, Step]] = {
            "produce": (1, lambda turn: self._produce(self._small, 1, turn)),
            "produce_pipelined": (IN_FLIGHT, lambda turn: self._produce(self._small, IN_FLIGHT, turn)),
            "fetch": (1, lambda turn: self._fetch(fetch(TOPIC, 0, 0, 200), turn)),
            "long_poll": (2, self._long_poll),
            "commits": (COMMITTERS, self._commit),
            "transactions": (TRANSACTORS, self._transactors.step),
            "produce_1mb": (1, lambda turn: self._produce(self._large, 1, turn)),
            "fetch_1mb": (1, lambda turn: self._fetch(fetch(TOPIC, 0, 1, MB), turn)),
        }

    def _produce(self, request: Request, times: int, turn: Turn) -> None:
        self._end_offset += request.records * times
        self.broker.exchange({self._producer: request.frame * times}, {self._producer: times}, turn)

    def _commit(self, turn: Turn) -> None:
        """Members of a group commit at the same time."""
        self.broker.exchange(self._commits, dict.fromkeys(self._commits, 1), turn)

    def _fetch(self, request: Request, turn: Turn) -> None:
        self.broker.exchange({self._consumer: request.frame}, {self._consumer: 1}, turn)

    def _long_poll(self, turn: Turn) -> None:
        """A consumer waits at the end; a record comes; both are answered."""
        waiting = fetch(TOPIC, 0, self._end_offset, MB, max_wait_ms=LONG_WAIT_MS)
        self.broker.exchange({self._consumer: waiting.frame}, {}, turn)
        self._end_offset += 1
        self.broker.exchange({self._producer: self._small.frame}, {self._producer: 1, self._consumer: 1}, turn)


def plain(turn: Callable[[], None]) -> None:
    turn()


@contextmanager
def open_paths(settings: Mapping[str, str] | None = None) -> Iterator[Paths]:
    with tempfile.TemporaryDirectory() as directory:
        broker = HandDrivenBroker(Path(directory), more_settings=settings)
        try:
            yield Paths(broker)
        finally:
            broker.close()


# -- bytecodes


class BytecodeCounter:
    """Counts every bytecode that turns of the loop execute, by function."""

    def __init__(self) -> None:
        self.turns = 0
        self.by_code: Counter[CodeType] = Counter()

    @property
    def count(self) -> int:
        return self.by_code.total()

    def turn(self, turn: Callable[[], None]) -> None:
        self.turns += 1
        sys.settrace(self._enter)
        try:
            turn()
        finally:
            sys.settrace(None)

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return self._step

    def _step(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "opcode":
            self.by_code[frame.f_code] += 1
        return self._step


def count_bytecodes(paths: Paths, name: str) -> float:
    """Bytecodes per request: the lowest of several repeats, less what empty turns cost."""
    requests, step = paths.steps[name]
    per_idle_turn = min(_idle_bytecodes(paths.broker) for _ in range(REPEATS))
    return min(_step_bytecodes(step, per_idle_turn) for _ in range(REPEATS)) / requests


def _idle_bytecodes(broker: HandDrivenBroker) -> float:
    return _usual(lambda turn: broker.idle(turn, 1), 0)


def _step_bytecodes(step: Step, per_idle_turn: float) -> float:
    return _usual(step, per_idle_turn)


def _usual(step: Step, per_idle_turn: float) -> float:
    """The usual count of a step: the median ignores the steps in which something else fell due too."""
    counts: list[float] = []
    for _ in range(STEPS):
        counter = BytecodeCounter()
        step(counter.turn)
        counts.append(counter.count - counter.turns * per_idle_turn)
    return median_low(counts)


def explain(name: str) -> int:
    """Prints which functions the bytecodes of a path are in."""
    with open_paths() as paths:
        requests, step = paths.steps[name]
        counter = BytecodeCounter()
        for _ in range(STEPS):
            step(counter.turn)
    for code, count in counter.by_code.most_common(EXPLAINED):
        place = f"{Path(code.co_filename).name}:{code.co_firstlineno}"
        print(f"{count / STEPS / requests:8.1f}  {code.co_qualname}  ({place})")
    return 0


# -- memory


class PeakMeter:
    """The highest allocation during any turn, above what was allocated when the step began."""

    def __init__(self) -> None:
        self.peak = 0
        self._held = 0
        """Memory that earlier turns allocated and have not freed, such as that of a frame received in part."""

    def turn(self, turn: Callable[[], None]) -> None:
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        turn()
        after, peak = tracemalloc.get_traced_memory()
        self.peak = max(self.peak, self._held + peak - before)
        self._held += after - before


def measure_peak_bytes(paths: Paths, name: str) -> float:
    _, step = paths.steps[name]
    tracemalloc.start()
    try:
        found = []
        for _ in range(REPEATS + 1):
            meter = PeakMeter()
            step(meter.turn)
            found.append(meter.peak)
    finally:
        tracemalloc.stop()
    return float(min(found))


# -- system calls


def mark(number: int) -> None:
    """Makes a system call that a broker never makes, so that the place can be found in the trace."""
    os.sched_get_priority_max(number)


MARKS = {"begin": os.SCHED_FIFO, "end": os.SCHED_RR, "next": os.SCHED_OTHER}
MARK_NAMES = {"SCHED_FIFO": "begin", "SCHED_RR": "end", "SCHED_OTHER": "next"}


def marked_turn(turn: Callable[[], None]) -> None:
    mark(MARKS["begin"])
    turn()
    mark(MARKS["end"])


def run_marked_paths() -> None:
    """Runs every small path several times, with marks between; this is what strace observes."""
    with open_paths() as paths:
        for name in SMALL_PATHS:
            for _ in range(REPEATS):
                mark(MARKS["next"])
                for _ in range(STEPS):
                    paths.steps[name][1](marked_turn)
        mark(MARKS["next"])


def count_calls(trace: str) -> list[int]:
    """System calls between `begin` and `end`, for each stretch between two `next` marks."""
    stretches: list[int] = []
    counting = False
    for line in trace.splitlines():
        found = MARK_CALL.match(line)
        if found is None:
            if counting and CALL.match(line):
                stretches[-1] += 1
            continue
        kind = MARK_NAMES[found[1]]
        counting = kind == "begin"
        if kind == "next":
            stretches.append(0)
    return stretches[:-1]


MARK_CALL = re.compile(r"sched_get_priority_max\((SCHED_\w+)\)")
CALL = re.compile(r"(?!getpid)\w+\(")
"""Any call but the one that asyncio makes when a loop begins and ends to run, which only happens here."""


def trace_system_calls() -> dict[str, float] | None:
    """System calls per request of each small path; None where strace cannot be used."""
    strace = shutil.which("strace")
    if strace is None:
        return None
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "trace"
        command = [
            strace,
            "-qq",
            "-e",
            "signal=none",
            "-o",
            str(out),
            sys.executable,
            "-m",
            "bench.guard",
            "--child",
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode != 0:
            print(f"strace did not run: {done.stderr[-500:]}", file=sys.stderr)
            return None
        found = count_calls(out.read_text(errors="replace"))
    assert len(found) == len(SMALL_PATHS) * REPEATS, "the trace lacks marks"
    lowest = [min(found[start : start + REPEATS]) for start in range(0, len(found), REPEATS)]
    return {name: _calls_per_request(name, count) for name, count in zip(SMALL_PATHS, lowest, strict=True)}


def _calls_per_request(name: str, count: int) -> float:
    """System calls per request, less the one call (the poll) of each turn that was made after the answers."""
    requests = {
        "produce_pipelined": IN_FLIGHT,
        "long_poll": 2,
        "commits": COMMITTERS,
        "transactions": TRANSACTORS,
    }.get(name, 1)
    exchanges = 2 if name in ("long_poll", "transactions") else 1
    return (count / STEPS - exchanges * TRAILING_TURNS) / requests


# -- the figures


def measure(system_calls: bool = True) -> Figures:
    figures: Figures = {}
    with open_paths() as paths:
        for name in SMALL_PATHS:
            figures[name] = {"bytecodes": round(count_bytecodes(paths, name), 1)}
        for name in LARGE_PATHS:
            figures[name] = {"peak_bytes": measure_peak_bytes(paths, name)}
    with open_paths(WITH_RULES) as paths:
        for name in PATHS_WITH_RULES:
            figures[f"{name}_with_rules"] = {"bytecodes": round(count_bytecodes(paths, name), 1)}
    traced = trace_system_calls() if system_calls else None
    if system_calls and traced is None:
        print("system calls are not checked: strace is not usable here", file=sys.stderr)
    for name, count in (traced or {}).items():
        figures[name]["system_calls"] = round(count, 2)
    return figures


def compare(kept: Figures, found: Figures) -> list[str]:
    """A sentence for each figure that has grown beyond its tolerance."""
    grown = []
    for path, kinds in kept.items():
        for kind, before in kinds.items():
            now = found.get(path, {}).get(kind)
            if now is not None and now > before * TOLERANCE[kind] + SLACK[kind]:
                grown.append(f"{path}: {kind.replace('_', ' ')} per request went from {before:g} to {now:g}")
    return grown


def improved(kept: Figures, found: Figures) -> bool:
    return any(
        found.get(path, {}).get(kind, before) * TOLERANCE[kind] + SLACK[kind] < before
        for path, kinds in kept.items()
        for kind, before in kinds.items()
    )


def python_version() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def load_kept() -> dict[str, Figures]:
    return json.loads(FIGURES_FILE.read_text()) if FIGURES_FILE.exists() else {}


def check() -> int:
    kept = load_kept().get(python_version())
    if kept is None:
        print(f"no figures are kept for Python {python_version()}; `python -m bench.guard --update` records them")
        return 0
    found = measure()
    for sentence in (grown := compare(kept, found)):
        print(sentence)
    if grown:
        print("If that is meant, record it: python -m bench.guard --update")
        return 1
    if improved(kept, found):
        print("The hot paths got cheaper; keep it so: python -m bench.guard --update")
    return 0


def update() -> int:
    figures = {**load_kept(), python_version(): measure()}
    FIGURES_FILE.write_text(json.dumps(dict(sorted(figures.items())), indent=2) + "\n")
    print(FIGURES_FILE.read_text())
    return 0


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.guard", description=__doc__)
    kinds = parser.add_mutually_exclusive_group(required=True)
    kinds.add_argument("--check", action="store_true", help="compare with the kept figures")
    kinds.add_argument("--update", action="store_true", help="keep what is measured now")
    kinds.add_argument("--explain", choices=SMALL_PATHS, help="show where the bytecodes of a path are")
    kinds.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        run_marked_paths()
        return 0
    if options.explain:
        return explain(options.explain)
    return check() if options.check else update()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
