"""Decisions about one group do not overlap, commits do; nobody waits for ever."""

from __future__ import annotations

import random
from functools import partial

from headrace.services.groups.locks import GroupLocks


class Trace:
    """Who runs, by name; `end` releases the group of a name."""

    def __init__(self) -> None:
        self.locks = GroupLocks()
        self.running: list[str] = []
        self._groups: dict[str, str] = {}

    def begin(self, name: str, group: str = "g", shared: bool = False) -> None:
        self._groups[name] = group
        self.locks.acquire(group, shared, lambda: self.running.append(name))

    def end(self, name: str) -> None:
        self.running.remove(name)
        self.locks.release(self._groups[name])

    def alone(self, name: str) -> None:
        self.locks.run_alone(lambda: self.running.append(name))

    def end_alone(self, name: str) -> None:
        self.running.remove(name)
        self.locks.release_alone()


def test_exclusive_ones_take_turns() -> None:
    trace = Trace()
    for name in "abc":
        trace.begin(name)
    for name in "abc":
        assert trace.running == [name]
        trace.end(name)
    assert trace.running == []


def test_groups_do_not_touch_each_other() -> None:
    trace = Trace()
    trace.begin("a", "one")
    trace.begin("b", "two")
    assert trace.running == ["a", "b"]


def test_shared_ones_overlap() -> None:
    trace = Trace()
    trace.begin("r1", shared=True)
    trace.begin("r2", shared=True)
    trace.begin("w")
    trace.begin("r3", shared=True)
    assert trace.running == ["r1", "r2"], "r3 came after the writer and waits with it"
    trace.end("r1")
    assert trace.running == ["r2"]
    trace.end("r2")
    assert trace.running == ["w"]
    trace.end("w")
    assert trace.running == ["r3"]


def test_a_long_queue_of_short_ones() -> None:
    """Each releases before its call returns: the stack must not grow with the queue."""
    locks = GroupLocks()
    done = []

    def work(number: int) -> None:
        done.append(number)
        locks.release("g")

    locks.acquire("g", False, lambda: None)
    for number in range(5000):
        locks.acquire("g", number % 3 == 0, partial(work, number))
    assert done == []
    locks.release("g")
    assert done == list(range(5000))
    assert not locks._locks


def test_alone_waits_for_all_and_keeps_all_out() -> None:
    trace = Trace()
    trace.begin("a", "one")
    trace.begin("b", "two", shared=True)
    trace.begin("a2", "one")
    trace.alone("X")
    trace.begin("c", "three")
    assert trace.running == ["a", "b"]
    trace.end("b")
    trace.end("a")
    assert trace.running == ["a2"], "who waited before goes before"
    trace.end("a2")
    assert trace.running == ["X"]
    trace.begin("d", "one")
    assert trace.running == ["X"]
    trace.end_alone("X")
    assert trace.running == ["c", "d"]


def test_alone_twice() -> None:
    trace = Trace()
    trace.begin("a")
    trace.alone("X")
    trace.alone("Y")
    trace.begin("b")
    trace.end("a")
    assert trace.running == ["X"]
    trace.end_alone("X")
    assert trace.running == ["Y"]
    trace.end_alone("Y")
    assert trace.running == ["b"]


class Checker:
    """Begins and ends at random, and fails as soon as two hold a group that may not."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.locks = GroupLocks()
        self.held: dict[str, list[bool]] = {}
        self.running: list[tuple[str, bool]] = []
        self.ran = 0

    def begin(self) -> None:
        group, shared = self.rng.choice("abc"), self.rng.random() < 0.6
        self.locks.acquire(group, shared, lambda: self.run(group, shared))

    def run(self, group: str, shared: bool) -> None:
        self.ran += 1
        holders = self.held.setdefault(group, [])
        assert not holders or (shared and all(holders))
        holders.append(shared)
        self.running.append((group, shared))

    def end(self) -> None:
        group, shared = self.running.pop(self.rng.randrange(len(self.running)))
        self.held[group].remove(shared)
        self.locks.release(group)


def test_random_orders() -> None:
    """Never two in a group unless both are shared, and everybody gets a turn."""
    for seed in range(200):
        checker = Checker(seed)
        started = 0
        while started < 60 or checker.running:
            if started < 60 and (not checker.running or checker.rng.random() < 0.5):
                started += 1
                checker.begin()
            else:
                checker.end()
        assert checker.ran == 60
