"""A process that ends with the one that started it, however that ends."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def end_with_parent(parent: int | None = None) -> None:
    """The kernel kills us when our parent ends (Linux). `parent` is its process id: it may have ended already."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if parent is not None and os.getppid() != parent:
        sys.exit(1)
