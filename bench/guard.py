"""The guard of the hot paths, independent of the clock: `python -m bench.guard --check` (or `--update`).

For each path it counts what one request costs the broker: executed bytecodes (a trace function sees each), system
calls (strace sees each), and the peak of memory allocated meanwhile (where a copy of a large batch shows). The figures
are kept in `guard.json`, per Python version, since bytecode differs between them. `--check` fails when one has grown
beyond its tolerance; growth that is meant is recorded with `--update`, and so is visible in a review.
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from bench.hand_driven import TRAILING_TURNS, Client, HandDrivenBroker, Turn, one_request
from bench.requests import Request, batch, fetch, produce, random_values, values_per_batch

FIGURES_FILE = Path(__file__).with_name("guard.json")
TOPIC = "guard"
MB = 1 << 20
REQUESTS = 20
REPEATS = 3
"""The lowest of so many repeats counts: timers of the broker may fall into one of them."""
IN_FLIGHT = 16
TOLERANCE = {"bytecodes": 1.10, "system_calls": 1.02, "peak_bytes": 1.10}
"""How much a figure may grow. System calls are exact, but for timers."""
SLACK = {"bytecodes": 0, "system_calls": 0.1, "peak_bytes": 512}

Figures = dict[str, dict[str, float]]
"""By path, then by kind."""
Step = Callable[[Turn], None]


class Paths:
    """The hot paths on one broker. Each step answers some requests; `requests` says how many."""

    def __init__(self, broker: HandDrivenBroker) -> None:
        self._broker = broker
        broker.create_topic(TOPIC)
        self._producer, self._consumer = broker.connect(), broker.connect()
        self._small = produce(TOPIC, 0, batch(random_values(1, 100)))
        self._large = produce(TOPIC, 0, batch(random_values(values_per_batch(1024, MB), 1024)))
        self._wait = fetch(TOPIC, 0, 0, MB, max_wait_ms=60_000)
        self._next_offset = 0
        for request in (self._small, self._large):
            self._produce(request, _plain)
        self.steps: dict[str, tuple[int, Step]] = {
            "produce": (1, lambda turn: self._produce(self._small, turn)),
            "produce_pipelined": (IN_FLIGHT, self._produce_many),
            "fetch": (1, self._fetch(0, 200)),
            "long_poll": (2, self._long_poll),
            "produce_1mb": (1, lambda turn: self._produce(self._large, turn)),
            "fetch_1mb": (1, self._fetch(1, MB)),
        }

    def _produce(self, request: Request, turn: Turn, times: int = 1) -> None:
        self._next_offset += request.records * times
        self._broker.exchange([(self._producer, request.frame * times)], [self._producer], turn)

    def _produce_many(self, turn: Turn) -> None:
        self._produce(self._small, turn, IN_FLIGHT)

    def _fetch(self, offset: int, max_bytes: int) -> Step:
        request = fetch(TOPIC, 0, offset, max_bytes)
        return lambda turn: one_request(self._broker, self._consumer, request, turn)

    def _long_poll(self, turn: Turn) -> None:
        """A consumer waits at the end; a record comes; both are answered."""
        waiting = fetch(TOPIC, 0, self._next_offset, MB, max_wait_ms=60_000)
        self._broker.exchange([(self._consumer, waiting.frame)], [], turn)
        self._next_offset += 1
        self._broker.exchange([(self._producer, self._small.frame)], [self._producer, self._consumer], turn)


SMALL_PATHS = ("produce", "produce_pipelined", "fetch", "long_poll")
LARGE_PATHS = ("produce_1mb", "fetch_1mb")


def _plain(turn: Callable[[], None]) -> None:
    turn()


@contextmanager
def open_paths() -> Iterator[Paths]:
    with tempfile.TemporaryDirectory() as directory:
        broker = HandDrivenBroker(Path(directory))
        try:
            yield Paths(broker)
        finally:
            broker.close()


# -- bytecodes


class BytecodeCounter:
    """Counts every bytecode that turns of the loop execute."""

    def __init__(self) -> None:
        self.count = 0

    def turn(self, turn: Callable[[], None]) -> None:
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
            self.count += 1
        return self._step


def count_bytecodes(paths: Paths, name: str) -> float:
    """Bytecodes per request: the lowest of several repeats, less what empty turns cost."""
    requests, step = paths.steps[name]
    idle = min(_bytecodes_of_idle_turn(paths) for _ in range(REPEATS))
    found = []
    for _ in range(REPEATS):
        counter = BytecodeCounter()
        for _ in range(REQUESTS):
            step(counter.turn)
        found.append(counter.count / REQUESTS - idle * TRAILING_TURNS)
    return round(min(found) / requests, 1)


def _bytecodes_of_idle_turn(paths: Paths) -> int:
    counter = BytecodeCounter()
    paths.idle(counter.turn)
    return counter.count
