"""While a leader is in doubt the store is read again and again, and no longer."""

from __future__ import annotations

import asyncio
from typing import Any

from headrace.coordination.contract import Unknown
from headrace.env.real import real_env
from headrace.metadata.layout import BROKER_IDS, CHANGES
from headrace.replication.succession import Succession


class ScriptedMetadata:
    """Knows the next leader after so many reads."""

    def __init__(self, reads: int, failure: Exception | None = None) -> None:
        self.left = reads
        self.asked: list[tuple[str, ...]] = []
        self._failure = failure

    async def catch_up(self, *paths: str) -> None:
        self.asked.append(paths)
        if self._failure is not None:
            raise self._failure
        self.left -= 1

    def doubted(self) -> set[int]:
        return {2} if self.left > 0 else set()


async def settle(metadata: Any) -> None:
    """Twice told of the loss, as by two fetchers: one looks."""
    env = real_env()
    succession = Succession(env, metadata, metadata.doubted)
    succession.look()
    succession.look()
    assert succession._looking is not None
    await asyncio.wait_for(succession._looking, 60)
    await env.background.close()


async def test_the_store_is_read_until_the_next_leader_is_known() -> None:
    metadata = ScriptedMetadata(3)
    await settle(metadata)
    assert metadata.asked == [(BROKER_IDS, CHANGES)] * 3


async def test_a_store_that_cannot_be_read_is_left_alone() -> None:
    metadata = ScriptedMetadata(3, Unknown("no answer"))
    await settle(metadata)
    assert len(metadata.asked) == 1
