"""Runs `headrace` as the child of a test: it ends when its parent does, however that ends, and tidies up.

    python child.py PARENT_PID DIRECTORY start --override ...

The kernel sends SIGTERM when the thread that started us ends (Linux). The broker then stops cleanly, and as nobody
is left who could, DIRECTORY is removed; an empty DIRECTORY removes nothing. Run by its path, because importing it
as part of the package would import what only the parent needs and make every start slower.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import shutil
import signal
import sys
from types import FrameType
from typing import NoReturn

PR_SET_PDEATHSIG = 1


def main() -> None:
    parent, directory = int(sys.argv[1]), sys.argv[2]
    sys.argv[1:3] = []
    signal.signal(signal.SIGTERM, _leave)  # until the broker has its own handler
    try:
        _end_with(parent)
        runpy.run_module("headrace", run_name="__main__", alter_sys=True)
    finally:
        if directory and os.getppid() != parent:
            shutil.rmtree(directory, ignore_errors=True)


def _end_with(parent: int) -> None:
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:  # it ended before we could ask
        sys.exit(1)


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)


if __name__ == "__main__":
    main()
