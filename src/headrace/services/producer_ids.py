"""Producer ids for this broker's clients: taken from blocks that the cluster allocates, never used twice."""

from __future__ import annotations

import asyncio

from headrace.metadata.controller import Controller


class ProducerIds:
    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._block = iter(range(0))
        self._refill = asyncio.Lock()

    async def allocate(self) -> int:
        async with self._refill:
            producer_id = next(self._block, None)
            if producer_id is None:
                # What is left of a block when the broker stops is never used.
                self._block = iter(await self._controller.allocate_producer_id_block())
                producer_id = next(self._block)
            return producer_id
