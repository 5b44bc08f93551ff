"""Touched memory is held, given back as free memory falls, and taken up again; tainted cases are told apart."""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable
from typing import Any

import pytest

from bench import reservoir
from bench.probes import Pages
from bench.reservoir import CHUNK, MB, Reservoir
from bench.run import taint

LEVEL = 4096 * MB


class FreeMemory:
    """What would be free if nobody else used the machine."""

    def __init__(self) -> None:
        self.taken = 0
        self.held: Callable[[], int] = lambda: 0

    def __call__(self) -> int:
        return LEVEL - self.taken - self.held() * MB


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.002)


def test_it_gives_what_others_take_and_takes_it_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    free = FreeMemory()
    monkeypatch.setattr(reservoir, "free_memory", free)
    kept = Reservoir(8 * CHUNK)
    free.held = lambda: kept.held_mb
    with kept:
        full = 8 * CHUNK // MB
        assert kept.held_mb == full
        kept.ready()
        free.taken = 7 * CHUNK
        wait_for(lambda: kept.held_mb == CHUNK // MB)
        assert kept.lowest_mb() == CHUNK // MB
        free.taken = 0
        kept.settle()
        assert kept.held_mb > CHUNK // MB
        kept.ready()
        assert kept.lowest_mb() == kept.held_mb


def test_it_leaves_memory_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reservoir, "free_memory", lambda: reservoir.LEAST_FREE)
    with Reservoir(4 * CHUNK) as kept:
        assert kept.held_mb == 0


def test_every_page_is_touched() -> None:
    """A page that was only promised by the kernel is fetched from the host at its first use all the same."""
    area = mmap.mmap(-1, CHUNK)
    area[:: reservoir.PAGE] = reservoir.ONES
    assert area[0] == area[CHUNK - reservoir.PAGE] == 1


@pytest.mark.parametrize(
    ("pages", "written_mb", "reservoir_mb", "expected"),
    [
        (Pages(0, 0, 10), 1000, 500, ""),
        (Pages(0, 0, 400), 1000, 500, "the host took 400 MB back while 1000 MB were written"),
        (Pages(0, 0, 400), 10, 500, ""),
        (Pages(9, 2, 0), 0, 500, "the kernel reclaimed memory 2 times within an allocation"),
        (Pages(0, 0, 0), 1000, 0, "the touched memory ran out"),
    ],
)
def test_taint(pages: Pages, written_mb: int, reservoir_mb: int, expected: str) -> None:
    assert taint(pages, written_mb, reservoir_mb) == expected


def test_pages_are_counted_from_a_beginning() -> None:
    found: Any = Pages(10, 3, 200).since(Pages(4, 3, 50))
    assert found == Pages(6, 0, 150)
    assert Pages.now().reclaimed >= 0
