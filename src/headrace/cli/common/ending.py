"""Ends a command cleanly before its work is done: at SIGTERM, and when nobody reads its output any more.

The work is cancelled, so that it can release what it holds (a consumer commits and leaves its group), and the exit
code says why: 143 after SIGTERM, 0 when the reader of a pipe has gone, as in `... | head`. The second SIGTERM does
not wait.
"""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import sys
import threading
from collections.abc import Awaitable
from typing import TypeVar

import click

from headrace.cli.common.failure import TERMINATED
from headrace.cli.common.output import is_stuck

T = TypeVar("T")


class Ending:
    """Watches one task, in the main thread."""

    def __init__(self) -> None:
        self._reason: Exception | None = None
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()

    def end(self, reason: Exception) -> None:
        assert self._task is not None
        if self._reason is None:
            self._reason = reason
            self._task.cancel()

    async def watch(self, work: Awaitable[T], with_reader: bool) -> T:
        """Wait for the work; raises the reason if it was ended early."""
        before = signal.signal(signal.SIGTERM, self._terminated)
        pipe = _output_pipe() if with_reader else None
        if pipe is not None:
            self._loop.add_reader(pipe, self.end, BrokenPipeError())
        try:
            return await work
        except asyncio.CancelledError:
            if self._reason is None:
                raise
            raise self._reason from None
        finally:
            if pipe is not None:
                self._loop.remove_reader(pipe)
            signal.signal(signal.SIGTERM, before)

    def _terminated(self, *_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        reason = click.exceptions.Exit(TERMINATED)
        if is_stuck():
            raise reason
        self._loop.call_soon_threadsafe(self.end, reason)


async def until_ended(work: Awaitable[T], with_reader: bool = False) -> T:
    """Run the work until it is done or ended; `with_reader`: end it too when nobody reads its output any more."""
    if threading.current_thread() is not threading.main_thread():
        return await work
    return await Ending().watch(work, with_reader)


def _output_pipe() -> int | None:
    """Standard output if it is a pipe: a poll then reports an error when its last reader closes it."""
    try:
        descriptor = sys.stdout.fileno()
        return descriptor if stat.S_ISFIFO(os.fstat(descriptor).st_mode) else None
    except (OSError, ValueError):
        return None
