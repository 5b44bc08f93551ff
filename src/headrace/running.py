"""One broker in this process, from its start to the signal that ends it."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Collection

from headrace.config.broker_config import BrokerConfig
from headrace.env import Clock
from headrace.env.allocator import limit_kept_memory
from headrace.env.real import real_env
from headrace.failures import BrokerFailed
from headrace.node import Node, settle_memory

log = logging.getLogger(__name__)


MEETING_SECONDS = 30.0
"""How long a worker waits for those that were started with it."""
MEETING_LOOK_SECONDS = 0.01


async def run_broker(
    config: BrokerConfig,
    *,
    on_serving: Callable[[str], None] | None = None,
    on_ready: Callable[[str], None] | None = None,
    beside: Collection[int] = (),
) -> None:
    """Run one broker until SIGTERM or SIGINT, then stop cleanly, also where it still starts.

    It is ready when it serves and knows the brokers `beside` it, or has waited for them long enough.
    """
    limit_kept_memory()
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
    env = real_env()
    node = Node(env, config, give_up)
    try:
        bootstrap = await node.start()
        if on_serving is not None:
            on_serving(bootstrap)
        await _meet(env.clock, node, beside)
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


async def _meet(clock: Clock, node: Node, others: Collection[int]) -> None:
    """Wait until this broker's metadata has all of them: clients that ask it then see the whole cluster."""
    deadline = clock.monotonic() + MEETING_SECONDS
    while missing := sorted(set(others) - set(node.image.brokers)):
        if clock.monotonic() > deadline:
            log.warning("Still waiting for brokers that were started with this one: %s", missing)
            return
        await clock.sleep(MEETING_LOOK_SECONDS)
