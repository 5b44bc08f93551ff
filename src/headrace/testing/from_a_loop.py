"""`AsyncBroker`: a broker for asyncio tests. What takes time is awaited, and the loop serves others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from headrace.testing.broker import Broker

T = TypeVar("T")


async def _in_a_thread(work: Callable[..., T], *arguments: Any) -> T:
    import asyncio  # who imports `headrace.testing` may not need it

    return await asyncio.to_thread(work, *arguments)


class AsyncBroker:
    """A `Broker` with coroutines; `broker` is the one inside.

    async with AsyncBroker() as broker:
        await broker.create_topic("orders")
    """

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        data_dir: str | Path | None = None,
        broker: Broker | None = None,
    ) -> None:
        self.broker = broker or Broker(settings, data_dir=data_dir)

    @property
    def bootstrap_servers(self) -> str:
        return self.broker.bootstrap_servers

    def log_text(self) -> str:
        return self.broker.log_text()

    async def start(self) -> None:
        await _in_a_thread(self.broker.start)

    async def stop(self) -> None:
        await _in_a_thread(self.broker.stop)

    async def restart(self) -> None:
        await _in_a_thread(self.broker.restart)

    async def kill(self) -> None:
        await _in_a_thread(self.broker.kill)

    async def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> str:
        return await _in_a_thread(self.broker.create_topic, name, partitions, configs)

    async def delete_topic(self, name: str) -> None:
        await _in_a_thread(self.broker.delete_topic, name)

    async def __aenter__(self) -> Self:
        await self.broker.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await _in_a_thread(self.broker.close)
