"""What the C library keeps of the memory that this process has freed: little, and nothing of large blocks.

By default it learns from the sizes it sees: once a block of 30 MB was freed, each thread that allocates may keep
twice as much for later. A few batches that decompress to their limit then cost a broker 100 MB for good. All of
this does nothing where the C library has no such calls.
"""

from __future__ import annotations

import ctypes

MAPPED_FROM_BYTES = 4 * 1024 * 1024
"""A block of this size goes back to the system as soon as it is freed. Buffers of ordinary requests are smaller,
and are used again."""
KEPT_BYTES = 16 * 1024 * 1024
"""What each part of the heap may keep at its end."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3


def limit_kept_memory() -> None:
    """For the start of a process, before it has threads."""
    adjust = getattr(ctypes.CDLL(None), "mallopt", None)
    if adjust is not None:
        adjust(_MMAP_THRESHOLD, MAPPED_FROM_BYTES)
        adjust(_TRIM_THRESHOLD, KEPT_BYTES)


def give_back_memory() -> None:
    """After a burst of small blocks, which leaves many holes. Takes some milliseconds, so it is for a thread."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
