"""A broker that reaches a minority of the others leaves the cluster to them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, cast

import pytest

from headrace.env.real import real_env
from headrace.metadata.image import BrokerImage, MetadataImage
from headrace.model.errors import ErrorCode, KafkaError
from headrace.replication.isolation import Isolation
from headrace.wire.messages.api_versions import ApiVersionsResponse

SESSION_SECONDS = 6.0


class FakeClock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


class Link:
    """To some brokers."""

    def __init__(self, reached: set[int]) -> None:
        self.reached = reached
        self.asked: set[int] = set()

    async def ask(self, broker_id: int, request: Any, answer: Any, timeout_s: float) -> Any:
        self.asked.add(broker_id)
        if broker_id not in self.reached:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE)
        return ApiVersionsResponse()


class Looking:
    """Broker 1 among some others."""

    def __init__(self, registered: int, reached: set[int]) -> None:
        brokers = {id: BrokerImage(id, 5, ()) for id in range(1, registered + 1)}
        self.image = MetadataImage(cluster_id="c", brokers=brokers)
        self.clock = cast(Any, FakeClock())
        self.link = cast(Any, Link(reached))
        self.withdrawn: list[int] = []
        env = replace(real_env(), clock=self.clock)
        self.isolation = Isolation(env, 1, self.link, lambda: self.image, SESSION_SECONDS, self._withdraw)

    async def _withdraw(self, broker: BrokerImage) -> None:
        self.withdrawn.append(broker.id)

    async def look_for_long(self) -> None:
        await self.isolation._look()
        self.clock.now += 3 * SESSION_SECONDS
        await self.isolation._look()
        if (task := self.isolation._withdrawing) is not None:
            await asyncio.wait([task])


@pytest.mark.parametrize(
    ("registered", "reached", "gives_way"),
    [
        (3, {2, 3}, False),
        (3, {2}, False),
        (3, set(), True),
        (2, set(), False),
        (1, set(), False),
        (4, {2}, False),
        (4, set(), True),
        (5, {2}, True),
        (5, {2, 3}, False),
    ],
)
async def test_who_reaches_less_than_half_gives_way(registered: int, reached: set[int], gives_way: bool) -> None:
    """Of two halves neither: it is the same for both."""
    looking = Looking(registered, reached)
    await looking.look_for_long()
    assert looking.isolation.is_cut_off() is gives_way
    assert looking.withdrawn == ([1] if gives_way else [])


async def test_silence_counts_when_it_was_long_and_ends_with_an_answer() -> None:
    looking = Looking(3, set())
    await looking.isolation._look()
    assert not looking.isolation.is_cut_off(), "the others have just been seen for the first time"
    await looking.look_for_long()
    assert looking.isolation.is_cut_off()
    looking.link.reached = {3}
    await looking.isolation._look()
    assert not looking.isolation.is_cut_off()


async def test_brokers_that_are_gone_or_new_are_not_missed() -> None:
    looking = Looking(3, set())
    await looking.look_for_long()
    brokers = looking.image.brokers
    looking.image = MetadataImage(cluster_id="c", brokers={id: brokers[id] for id in (1, 2)})
    assert not looking.isolation.is_cut_off(), "one of two"
    anew = {id: BrokerImage(id, 6, ()) for id in (2, 3)}
    looking.image = MetadataImage(cluster_id="c", brokers={1: brokers[1], **anew})
    await looking.isolation._look()
    assert not looking.isolation.is_cut_off(), "they have just registered"
