"""Memory that was freed goes back to the system after a burst: the C library keeps it otherwise, in many holes."""

from __future__ import annotations


def give_back_memory() -> None:
    """Takes some milliseconds, so it is for a thread. Does nothing where the C library has no such call."""
    import ctypes  # Only after a burst, and a start should not pay for it.

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
