"""Markers where they are written: each is appended at once, and the answer says which of them are replicated."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from typing import Any, TypeVar, cast

from headrace.env.real import real_env
from headrace.model.errors import ErrorCode
from headrace.model.topics import TopicPartition
from headrace.node import TRANSACTION_REQUEST_SECONDS
from headrace.records.markers import EndMarker
from headrace.services.markers import TransactionMarkers
from tests.unit.services.fakes import FakeClock

T = TypeVar("T")
TURNS = 20


class Leader:
    """A partition, and whether its in-sync replicas fetch."""

    leader_epoch = 4

    def __init__(self, replicated: bool) -> None:
        self.replicated = replicated
        self.waiters: dict[Any, None] = {}

    def append_marker(self, marker: EndMarker) -> int:
        return 1

    def acknowledged(self, end_offset: int, acks: int, leader_epoch: int) -> bool:
        return self.replicated


class Leaders:
    def __init__(self, *replicated: bool) -> None:
        self.partitions = [Leader(one) for one in replicated]

    def leader(self, partition: TopicPartition) -> Leader:
        return self.partitions[partition.partition]


async def each(items: Iterable[T]) -> AsyncIterator[T]:
    for item in items:
        yield item


async def settle() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)


async def test_partitions_with_slow_replicas_do_not_hide_from_the_coordinator_what_is_written() -> None:
    leaders = Leaders(False, False, False, True)
    clock = FakeClock()
    markers = TransactionMarkers(replace(real_env(), clock=clock), cast(Any, leaders), cast(Any, None))
    wanted = [(EndMarker(7, 0, True, 1, 0), TopicPartition("t", index)) for index in range(4)]
    answer = asyncio.ensure_future(markers.write(wanted, each))
    await settle()
    assert not answer.done()
    clock.advance(TRANSACTION_REQUEST_SECONDS * 0.9)
    await settle()
    assert answer.done(), "the coordinator gives the request up, and knows of none"
    slow = ErrorCode.REQUEST_TIMED_OUT
    assert await answer == [slow, slow, slow, ErrorCode.NONE]
    assert not any(leader.waiters for leader in leaders.partitions)


async def test_a_marker_is_told_as_soon_as_it_is_replicated() -> None:
    leaders = Leaders(False)
    markers = TransactionMarkers(replace(real_env(), clock=FakeClock()), cast(Any, leaders), cast(Any, None))
    answer = asyncio.ensure_future(markers.write([(EndMarker(7, 0, True, 1, 0), TopicPartition("t", 0))], each))
    await settle()
    (leader,) = leaders.partitions
    leader.replicated = True
    for waiter in list(leader.waiters):
        waiter.wake()
    await settle()
    assert await answer == [ErrorCode.NONE]
