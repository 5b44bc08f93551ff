"""Memory for large responses and record batches, reused once it is no longer in use.

Memory that is taken fresh for each of them comes from the kernel page by page, is filled with zeros, and goes
back: that takes longer than to receive an answer of some megabytes.

There are no reference counts of our own: Python refuses to resize bytes that a view still uses.
"""

from __future__ import annotations

from collections.abc import Callable

KEPT_FROM_BYTES = 256 * 1024
"""Smaller ones are allocated each time: they cost nothing."""
KEPT_UP_TO_BYTES = 32 * 1024 * 1024
MOST_KEPT = 4
"""How many buffers a connection keeps: for an answer that is being decoded, for the one before it while that
waits, and to spare."""
_UNIT = 256 * 1024
"""Sizes are rounded up, so that a slightly larger answer fits too."""

Take = Callable[[int], memoryview]
"""Returns memory of the given size."""


def fresh_memory(size: int) -> memoryview:
    return memoryview(bytearray(size))


class ReusedBuffers:
    """The buffers of one connection or writer: at most `most`, each of a size that was asked for."""

    def __init__(self, most: int = MOST_KEPT) -> None:
        self._most = most
        self._kept: list[bytearray] = []

    def take(self, size: int) -> memoryview:
        """Memory of this size, with undefined content."""
        if not KEPT_FROM_BYTES <= size <= KEPT_UP_TO_BYTES:
            return fresh_memory(size)
        for buffer in self._kept:  # always the first that fits: it may still be in the processor's cache
            if len(buffer) >= size and is_unused(buffer):
                return memoryview(buffer)[:size]
        new = bytearray(-(-size // _UNIT) * _UNIT)
        fitting = [buffer for buffer in self._kept if len(buffer) >= size]
        self._kept = [*fitting, new][-self._most :]
        return memoryview(new)[:size]


def is_unused(buffer: bytearray) -> bool:
    """Whether there is no view of it, nor of a part of it."""
    try:
        buffer.pop()
    except BufferError:
        return False
    buffer.append(0)  # within the memory that it has
    return True
