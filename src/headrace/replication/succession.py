"""When a leader seems to have died, its successor is looked for in the store at once and often.

A broker otherwise hears of changes when its store tells it, which with SQLite is every 100 ms: once until the
controller knows that the broker is gone, and once more until the others know the new leader. Likewise when a
leader says that it does not lead any more: it may have handed over to the very broker that asked it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress

from headrace.coordination.contract import StoreError
from headrace.env import Env
from headrace.metadata.cluster import ClusterMetadata
from headrace.metadata.layout import BROKER_IDS, CHANGES

INTERVAL_SECONDS = 0.02
MAX_LOOKS = 25


class Succession:
    def __init__(self, env: Env, metadata: ClusterMetadata, doubted: Callable[[], Collection[int]]) -> None:
        """`doubted` are the leaders that seem to be dead and still lead, as far as is known here."""
        self._env = env
        self._metadata = metadata
        self._doubted = doubted
        self._looking: asyncio.Task[None] | None = None

    def look(self) -> None:
        if self._looking is None or self._looking.done():
            self._looking = self._env.background.start("Looking for new leaders", self._look())

    def look_now(self) -> None:
        """A leader has handed over."""
        if self._looking is None or self._looking.done():
            self._looking = self._env.background.start("Looking for new leaders", self._look_once())

    async def _look_once(self) -> None:
        with suppress(StoreError):
            await self._metadata.catch_up(CHANGES)

    async def _look(self) -> None:
        for _ in range(MAX_LOOKS):
            await self._env.clock.sleep(INTERVAL_SECONDS)
            if not self._doubted():
                return
            try:
                await self._metadata.catch_up(BROKER_IDS, CHANGES)
            except StoreError:
                return  # The store reports changes by itself once it is back.
