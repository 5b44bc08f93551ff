"""Many seeds, each in a process of its own, on all cores; a seed that fails is reported with the command that
repeats it.

A run that does not come to an end is killed, counts as failed, and leaves on stderr where it was. Progress is
reported on stderr; after Ctrl-C or SIGTERM the summary covers the seeds that ended.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from multiprocessing.connection import Connection, wait
from typing import TextIO

from headrace.testing.sim.mutants import MUTANTS
from headrace.testing.sim.run import ALL_DRAWN, SeedResult, run_seed

SHOWN_LINES = 60
SEEDS_PER_LINE = 20
"""Without a terminal, progress is reported after this many runs."""
MOST_SECONDS = 300.0
"""What one run may take by the wall clock; usually it is one to three seconds."""
_FORK = multiprocessing.get_context("fork")


class _Child:
    """The process of one run."""

    def __init__(self, seed: int, mutant: str | None, most_seconds: float) -> None:
        self.seed = seed
        self.results, send = _FORK.Pipe(duplex=False)
        self._process = _FORK.Process(target=_run_child, args=(send, seed, mutant, most_seconds), daemon=True)
        self._process.start()
        send.close()
        self._ends = time.monotonic() + most_seconds

    @property
    def left(self) -> float:
        return self._ends - time.monotonic()

    def outcome(self) -> tuple[SeedResult, float]:
        """Once there is a result, or its time is up."""
        try:
            if self.results.poll():
                found: tuple[SeedResult, float] = self.results.recv()
                return found
            problem = "the run did not come to an end and was killed"
        except EOFError:
            problem = "the process of the run died"
        return SeedResult(self.seed, [problem]), 0.0

    def end(self) -> None:
        self._process.kill()
        self._process.join()
        self.results.close()


class _Stop:
    """Set by a signal that asks for no further seeds. The handler does not raise: an exception that begins in a
    callback of `fork` is only reported, and the seeds would continue."""

    def __init__(self) -> None:
        self.signal = 0
        self.asked, self._ask = _FORK.Pipe(duplex=False)

    def __call__(self, number: int, _: object) -> None:
        if not self.signal:
            self._ask.send_bytes(b"stop")
        self.signal = number

    def close(self) -> None:
        self.asked.close()
        self._ask.close()


def outcomes(
    seeds: Iterable[int],
    workers: int,
    mutant: str | None = None,
    most_seconds: float = MOST_SECONDS,
    stop: _Stop | None = None,
) -> Iterator[tuple[SeedResult, float]]:
    """With the CPU seconds that each took. Every run has a fresh process: nothing is left of the one before."""
    rest = iter(seeds)
    asked = [] if stop is None else [stop.asked]
    running: list[_Child] = []
    try:
        while True:
            for seed in islice(rest, workers - len(running)):
                running.append(_Child(seed, mutant, most_seconds))
            if not running:
                return
            soonest = max(min(child.left for child in running), 0.0)
            ready = wait([*asked, *(child.results for child in running)], soonest)
            if stop is not None and stop.asked in ready:
                return
            for child in [child for child in running if child.results in ready or child.left <= 0]:
                running.remove(child)
                found = child.outcome()
                child.end()
                yield found
    finally:
        for child in running:
            child.end()


def _run_child(send: Connection, seed: int, mutant: str | None, most_seconds: float) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent ends its children
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    faulthandler.dump_traceback_later(most_seconds * 0.9)
    send.send(_one(mutant, seed))


def _one(mutant: str | None, seed: int) -> tuple[SeedResult, float]:
    gc.disable()  # for good: this process ends with the run
    began = time.process_time()
    given = ALL_DRAWN
    if mutant is not None:
        given = MUTANTS[mutant].given
        MUTANTS[mutant].switch_on()
    outcome = run_seed(seed, given=given)
    if not outcome.violations:
        outcome.lines.clear()
    return outcome, time.process_time() - began


def main(arguments: Sequence[str] | None = None) -> int:
    if "PYTHONHASHSEED" not in os.environ:  # or sets of strings would have another order each time
        os.execve(
            sys.executable,
            [sys.executable, "-m", "headrace.testing.sim", *sys.argv[1:]],
            {**os.environ, "PYTHONHASHSEED": "0"},
        )
    parser = argparse.ArgumentParser(prog="headrace.testing.sim", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this one")
    parser.add_argument("--seeds", type=int, default=100, help="run so many")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("-v", "--verbose", action="store_true", help="tell everything that happens")
    parser.add_argument("--mutant", choices=sorted(MUTANTS), help="switch a deliberate defect on")
    options = parser.parse_args(arguments)
    if options.mutant is not None:
        return _look_for(options.mutant, options.workers)
    if options.seed is not None:
        outcome = run_seed(options.seed, print if options.verbose else None)
        _tell(outcome, show_lines=not options.verbose)
        return 1 if outcome.violations else 0
    return _run_many(range(options.first, options.first + options.seeds), options.workers)


def _look_for(mutant: str, workers: int) -> int:
    """Until it is found, or for as many seeds as it may take: 1 if it was not."""
    seeds = range(1, MUTANTS[mutant].seeds + 1)
    for outcome, _ in outcomes(seeds, workers, mutant):
        if outcome.violations:
            first = outcome.violations[0].splitlines()[0]
            print(f"{mutant}: found with seed {outcome.seed} of {len(seeds)}: {first}")
            return 0
    print(f"{mutant}: not found in {len(seeds)} seeds")
    return 1


def _run_many(seeds: range, workers: int) -> int:
    """0 if every seed that was run is clean, and 1 otherwise; 130 or 143, as a shell says it, after a signal."""
    tally = Tally(len(seeds))
    stop = _Stop()
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        for outcome, seconds in outcomes(seeds, workers, stop=stop):
            tally.add(outcome, seconds)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        stop.close()
    tally.end(stopped=stop.signal > 0)
    if tally.failed:
        return 1
    return 128 + stop.signal if stop.signal else 0


class Tally:
    """What the seeds have shown so far, as one line that changes, or as a line now and then."""

    def __init__(self, seeds: int, told: TextIO | None = None) -> None:
        self.failed: list[int] = []
        self._seeds = seeds
        self._done = 0
        self._cpu_seconds = self._virtual_seconds = 0.0
        self._counts: dict[str, int] = {}
        self._told = sys.stderr if told is None else told
        self._on_terminal = self._told.isatty()

    def add(self, outcome: SeedResult, cpu_seconds: float) -> None:
        self._done += 1
        self._cpu_seconds += cpu_seconds
        self._virtual_seconds += outcome.virtual_seconds
        for name, count in outcome.counts.items():
            self._counts[name] = self._counts.get(name, 0) + count
        if outcome.violations:
            self.failed.append(outcome.seed)
            self._clear_line()
            _tell(outcome, show_lines=False)
        if self._on_terminal:
            print(f"\r{self._standing()}\x1b[K", end="", file=self._told, flush=True)
        elif self._done % SEEDS_PER_LINE == 0 and self._done < self._seeds:
            print(self._standing(), file=self._told, flush=True)

    def end(self, stopped: bool) -> None:
        self._clear_line()
        done = max(self._done, 1)
        of_all = f" of {self._seeds}, stopped" if stopped else ""
        clean = self._done - len(self.failed)
        print(f"{self._done} seeds{of_all}, {clean} clean, {len(self.failed)} failed: {self.failed}")
        print(
            f"{self._cpu_seconds / done:.2f} CPU s and {self._virtual_seconds / done:.0f} virtual s each; "
            f"{self._counts}",
            flush=True,
        )

    def _standing(self) -> str:
        clean = self._done - len(self.failed)
        return (
            f"{self._done} of {self._seeds} seeds: {clean} clean, {len(self.failed)} failed, "
            f"{self._cpu_seconds / self._done:.2f} CPU s each"
        )

    def _clear_line(self) -> None:
        if self._on_terminal:
            print("\r\x1b[K", end="", file=self._told, flush=True)


def _tell(outcome: SeedResult, show_lines: bool) -> None:
    if show_lines and outcome.violations:
        print("\n".join(outcome.lines[-SHOWN_LINES:]))
    print(
        f"seed {outcome.seed}: {'FAILED' if outcome.violations else 'clean'}, digest {outcome.digest:08x}, "
        f"{outcome.virtual_seconds:.1f} virtual s, {outcome.turns} turns, {outcome.counts}"
    )
    for violation in outcome.violations:
        print(f"  {violation}")
    if outcome.violations:
        print(f"  again: make sim SEED={outcome.seed} ARGS=-v   (commit {_commit()})", flush=True)


def _commit() -> str:
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"
