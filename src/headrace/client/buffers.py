"""Memory for large responses, reused once it is no longer in use.

Memory that is taken fresh for each answer of some megabytes comes from the kernel page by page, is filled with
zeros, and goes back: that takes longer than to receive the answer.

There are no reference counts of our own: Python refuses to resize bytes that a view still uses.
"""

from __future__ import annotations

KEPT_FROM_BYTES = 256 * 1024
"""Smaller ones cost nothing."""
KEPT_UP_TO_BYTES = 32 * 1024 * 1024
MOST_KEPT = 4
"""Of one connection: an answer that is being decoded, its forerunner that waits in part, and one to spare."""
_UNIT = 1024 * 1024
"""Sizes are rounded up, so that an answer fits where another was that was a little smaller."""


class AnswerBuffers:
    """The buffers of one connection: at most MOST_KEPT, each of the size of an earlier response."""

    def __init__(self) -> None:
        self._kept: list[bytearray] = []

    def take(self, size: int) -> memoryview:
        """Memory of this size, with undefined content."""
        if not KEPT_FROM_BYTES <= size <= KEPT_UP_TO_BYTES:
            return memoryview(bytearray(size))
        fitting = [buffer for buffer in self._kept if len(buffer) >= size]
        found = next((buffer for buffer in fitting if is_unused(buffer)), None)
        if found is None:
            found = bytearray(-(-size // _UNIT) * _UNIT)
            self._kept = [*fitting, found][-MOST_KEPT:]
        return memoryview(found)[:size]


def is_unused(buffer: bytearray) -> bool:
    """Whether there is no view of it, nor of a part of it."""
    try:
        buffer.pop()
    except BufferError:
        return False
    buffer.append(0)  # within the memory that it has
    return True
