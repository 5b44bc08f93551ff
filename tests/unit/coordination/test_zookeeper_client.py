"""What a client of ZooKeeper does while no server can be reached."""

from __future__ import annotations

import asyncio

import pytest

from headrace.coordination.contract import Unknown
from headrace.coordination.zookeeper_client import ZooKeeperClient
from headrace.env.real import real_env
from headrace.metrics.requests import RequestMeter
from headrace.server.steps import rest_of


async def test_a_request_whose_first_step_is_outside_a_task_waits_too() -> None:
    """As the dispatcher does it: CreateTopics ended with an internal error while ZooKeeper was down."""
    client = ZooKeeperClient(real_env(), ["127.0.0.1:1"], 0.2, {})
    steps = client.call(lambda kazoo: kazoo.get_children_async("/"), "/topics")
    loop = asyncio.get_running_loop()
    first: asyncio.Future[object] = loop.create_future()

    def step() -> None:
        try:
            first.set_result(steps.send(None))
        except RuntimeError as error:
            first.set_exception(error)

    loop.call_soon(step)
    waits_for = await first
    with pytest.raises(Unknown, match=r"no ZooKeeper server of .* can be reached"):
        await rest_of(steps, waits_for, RequestMeter(), real_env().clock.monotonic)
