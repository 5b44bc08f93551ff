"""A Python process of our own for work that would hold the interpreter lock too long: lines in, lines out.

What it writes to stderr goes where ours goes. It ends when its input does; `kill` ends it at once.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process

MAX_LINE_BYTES = 1024 * 1024
CLOSE_TIMEOUT_SECONDS = 5.0


class WorkerProcess:
    def __init__(self, process: Process) -> None:
        self._process = process

    @staticmethod
    async def start(module: str) -> WorkerProcess:
        """Run `python -m module` with this interpreter."""
        return WorkerProcess(
            await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", module),
                stdin=PIPE,
                stdout=PIPE,
                limit=MAX_LINE_BYTES,
                process_group=0,  # not reached by Ctrl-C, which during its imports would end in a traceback
            )
        )

    async def tell(self, line: bytes) -> None:
        """Raises OSError if the process has ended."""
        assert self._process.stdin is not None
        self._process.stdin.write(line)
        await self._process.stdin.drain()

    async def hear(self) -> bytes:
        """The next line; no bytes once the process has ended."""
        assert self._process.stdout is not None
        return await self._process.stdout.readline()

    def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()

    async def close(self) -> None:
        """End it, by force if it does not end by itself."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            # Not wait_for: that of Python 3.11 swallows a cancellation in the turn in which the process ends.
            async with asyncio.timeout(CLOSE_TIMEOUT_SECONDS):
                await self._process.wait()
        except TimeoutError:
            self.kill()
            await self._process.wait()
