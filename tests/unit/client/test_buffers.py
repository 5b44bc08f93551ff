"""Memory for answers is used again, but never while somebody looks at it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client import buffers
from headrace.client.buffers import KEPT_FROM_BYTES, KEPT_UP_TO_BYTES, MOST_KEPT, ReusedBuffers, is_unused

LARGE = KEPT_FROM_BYTES * 4


def place(view: memoryview) -> int:
    return int(np.frombuffer(view, np.uint8).__array_interface__["data"][0])


def test_memory_that_nobody_looks_at_is_used_again() -> None:
    memory = ReusedBuffers()
    first = memory.take(LARGE)
    where = place(first)
    del first
    again = memory.take(LARGE - 1)
    assert place(again) == where
    assert len(again) == LARGE - 1


@pytest.mark.parametrize(
    "look",
    [
        lambda view: view,
        lambda view: view[10:20],
        lambda view: view[10:20][1:2],
        lambda view: np.frombuffer(view, np.uint8)[5:],
        lambda view: np.frombuffer(view, np.uint8)[5:].reshape(-1, 1),
        lambda view: pa.py_buffer(view[3:]),
    ],
    ids=["whole", "part", "part of a part", "array", "array of it", "arrow"],
)
def test_memory_in_use_is_left_alone(look: object) -> None:
    assert callable(look)
    memory = ReusedBuffers()
    kept = look(memory.take(LARGE))
    before = bytes(kept)
    for _ in range(3):
        memory.take(LARGE)[:] = b"\xff" * LARGE
    assert bytes(kept) == before


@given(st.lists(st.tuples(st.integers(1, 60), st.booleans()), max_size=30))
def test_views_that_are_alive_never_share_memory(steps: list[tuple[int, bool]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(buffers, "KEPT_FROM_BYTES", 5)
        patch.setattr(buffers, "KEPT_UP_TO_BYTES", 50)
        patch.setattr(buffers, "_UNIT", 8)
        memory = ReusedBuffers()
        alive: list[tuple[memoryview, int]] = []
        for number, (size, drop) in enumerate(steps):
            if drop and alive:
                del alive[number % len(alive)]
            view = memory.take(size)
            assert len(view) == size
            view[:] = bytes([number]) * size
            alive.append((view[1:] if size > 1 else view, number))
            assert all(set(one) <= {mark} for one, mark in alive)
        assert len(memory._kept) <= MOST_KEPT


def test_asking_changes_nothing() -> None:
    buffer = bytearray(b"abc")
    assert is_unused(buffer)
    assert len(buffer) == 3
    view = memoryview(buffer)[:0]
    assert not is_unused(buffer)
    view.release()
    assert is_unused(buffer)


@pytest.mark.parametrize("size", [0, KEPT_FROM_BYTES - 1, KEPT_UP_TO_BYTES + 1])
def test_small_and_very_large_ones_are_not_kept(size: int) -> None:
    memory = ReusedBuffers()
    assert len(memory.take(size)) == size
    assert memory._kept == []
