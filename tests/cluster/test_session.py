"""A broker process and its session: stopped beyond its lease, killed and started again, in both stores."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from headrace.coordination.contract import Store
from headrace.coordination.sqlite import open_sqlite_store
from headrace.coordination.zookeeper import open_zookeeper_store
from headrace.env.real import real_env
from headrace.metadata.layout import CONTROLLER, broker_path, decode_json
from headrace.testing.process import BrokerProcess
from headrace.testing.zookeeper import ZooKeeperServer
from tests.compat.clients import Confluent, Record
from tests.compat.confluent_admin import AdminClient, NewTopic

pytestmark = [pytest.mark.headrace_only]

PATIENCE_SECONDS = 60.0
LONG_TIMEOUT_SECONDS = 20.0


async def until(store: Store, holds: Callable[[int | None], bool]) -> int | None:
    """The epoch of broker 1's registration, None if there is none, once it is as it should be."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            node = await store.get(broker_path(1))
            epoch = decode_json(node)["epoch"] if node is not None else None
            if holds(epoch):
                return epoch
            await asyncio.sleep(0.02)


def write_and_read(broker: BrokerProcess, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(60)
    Confluent().produce(broker.bootstrap, topic, [Record(b"v", partition=0)])
    assert len(Confluent().read(broker.bootstrap, topic, 0, 1)) == 1


async def stopped_beyond_its_lease(broker: BrokerProcess, open_observer: Callable[[], Awaitable[Store]]) -> None:
    observer = await open_observer()
    assert await until(observer, lambda epoch: epoch is not None) == 1
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        await until(observer, lambda epoch: epoch is None)
    finally:
        os.kill(broker.pid, signal.SIGCONT)
    assert await until(observer, lambda epoch: epoch is not None) == 2
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await observer.get(CONTROLLER) is None:
            await asyncio.sleep(0.02)
    await observer.close()
    await asyncio.to_thread(write_and_read, broker, "after")
    assert "registered again" in broker.log_text()
    assert await asyncio.to_thread(broker.terminate) == 0


async def test_a_stopped_broker_loses_its_place_and_takes_it_again(tmp_path: Path) -> None:
    with BrokerProcess({"broker.session.timeout.ms": "1500"}) as broker:
        path = str(broker.data_dir / "cluster.db")
        await stopped_beyond_its_lease(broker, lambda: open_sqlite_store(real_env(), path, LONG_TIMEOUT_SECONDS))


async def test_the_same_with_zookeeper_and_a_killed_broker_is_back_at_once() -> None:
    """Its dead session still holds its node: the next process knows it as its own, and does not wait for it."""
    with ZooKeeperServer() as zookeeper:
        settings = {"zookeeper.connect": f"{zookeeper.connect}/c", "zookeeper.session.timeout.ms": "3000"}
        with BrokerProcess(settings) as broker:
            servers = [zookeeper.connect]
            await stopped_beyond_its_lease(
                broker,
                lambda: open_zookeeper_store(real_env(), servers, "/c", LONG_TIMEOUT_SECONDS, PATIENCE_SECONDS),
            )
            broker.overrides["zookeeper.session.timeout.ms"] = "60000"
            broker.start()
            broker.kill()
            killed = time.monotonic()
            broker.start()
            assert time.monotonic() - killed < PATIENCE_SECONDS / 2, "it waited for the session of its predecessor"
            write_and_read(broker, "again")
