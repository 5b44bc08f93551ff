"""One broker in this process, from its start to the signal that ends it."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable

from headrace.config.broker_config import BrokerConfig
from headrace.env.real import real_env
from headrace.failures import BrokerFailed
from headrace.node import Node, settle_memory

log = logging.getLogger(__name__)


async def run_broker(config: BrokerConfig, *, on_ready: Callable[[str], None] | None = None) -> None:
    """Run one broker until SIGTERM or SIGINT, then stop cleanly, also where it still starts."""
    stopping = asyncio.Event()
    starting = asyncio.current_task()
    failures: list[str] = []

    def stop() -> None:
        stopping.set()
        if starting is not None:
            starting.cancel()

    def give_up(reason: str) -> None:
        failures.append(reason)
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    node = Node(real_env(), config, give_up)
    try:
        bootstrap = await node.start()
        starting = None
        settle_memory()
        if on_ready is not None:
            on_ready(bootstrap)
        await stopping.wait()
        if failures:
            raise BrokerFailed(failures[0])
        log.info("Stopping: the logs are flushed and closed")
    except asyncio.CancelledError:
        if not stopping.is_set():
            raise
        log.info("Stopping before startup was complete")
    finally:
        starting = None
        await node.stop()
