"""The worker that compacts logs, on the disk and the time of a simulated machine; it ends with its broker."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.env import Env
from headrace.storage.compaction.messages import CleaningFailure, decode_request, encode_reply
from headrace.storage.compaction.worker import DamagedSegment, Usage, clean

STEP_SECONDS = 0.02
"""Between two replies; the log is written to and cut meanwhile."""


class SimWorker:
    def __init__(self, env: Env) -> None:
        self._env = env
        self._replies: Iterator[bytes] = iter(())
        self._killed = False

    async def tell(self, line: bytes) -> None:
        self._replies = self._work(line)

    def _work(self, line: bytes) -> Iterator[bytes]:
        request = decode_request(line)
        usage = Usage(self._env.clock.monotonic, lambda: 0)
        try:
            for reply in clean(request, self._env.disk, lambda size: None, usage):
                yield encode_reply(reply)
        except DamagedSegment as damage:
            yield encode_reply(CleaningFailure(str(damage), is_damage=True))
        except OSError as error:
            yield encode_reply(CleaningFailure(str(error), is_damage=False))

    async def hear(self) -> bytes:
        await self._env.clock.sleep(STEP_SECONDS)
        return b"" if self._killed else next(self._replies, b"")

    def kill(self) -> None:
        self._killed = True

    async def close(self) -> None: ...
