"""A Produce that waits: looked at once a second, since its leader may have been replaced unawares."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.model.errors import ErrorCode, KafkaError
from headrace.services.delayed_produce import DelayedProduce, Unacknowledged
from headrace.wire.messages.produce import ProduceResponse

VERSION = 9
TOPIC = b"\x02t"


class Timers:
    """A clock whose timers are run by the test."""

    def __init__(self) -> None:
        self.set: list[tuple[float, Callable[[], None]]] = []

    def call_later(self, seconds: float, act: Callable[[], None]) -> Any:
        self.set.append((seconds, act))
        return SimpleNamespace(cancel=lambda: None)

    def fire(self) -> float:
        seconds, act = self.set.pop()
        act()
        return seconds


class Waited:
    """A partition whose followers do not confirm."""

    end_offset, leader_epoch, topic_id = 1, 0, b"0" * 16
    cut_off = False

    def __init__(self) -> None:
        self.waiters: dict[Any, None] = {}

    def acknowledged(self, *_: int) -> bool:
        return False

    def check_lease(self) -> None:
        if self.cut_off:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)


def produce(partition: Waited, timeout_ms: int) -> tuple[Timers, DelayedProduce]:
    timers = Timers()
    client = SimpleNamespace(broker=SimpleNamespace(env=SimpleNamespace(clock=timers)), listener="PLAINTEXT")
    answers = [b"acknowledged"]
    batch = Unacknowledged(cast(Any, partition), -1, 0, answers)
    return timers, DelayedProduce(cast(Any, client), VERSION, timeout_ms, [(TOPIC, answers)], [batch], [])


def error(pending: DelayedProduce) -> int:
    answer = ProduceResponse.decode(cast(bytes, pending.result()), VERSION, 0)
    return answer.responses[0].partition_responses[0].error_code


def test_one_whose_leader_is_cut_off_is_told_to_look_elsewhere() -> None:
    partition = Waited()
    timers, pending = produce(partition, 30_000)
    pending.wake()
    timers.fire()
    assert not pending.done
    partition.cut_off = True
    pending.wake()
    assert not pending.done, "the lease is looked at only after a wait: it costs every request"
    timers.fire()
    assert error(pending) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not partition.waiters


@pytest.mark.parametrize(
    ("timeout_ms", "waits"), [(0, [0.0]), (300, [0.3]), (1000, [1.0]), (2500, [1.0, 1.0, 0.5])]
)
def test_it_ends_when_its_time_is_up(timeout_ms: int, waits: list[float]) -> None:
    timers, pending = produce(Waited(), timeout_ms)
    assert [timers.fire() for _ in waits] == waits
    assert error(pending) == ErrorCode.REQUEST_TIMED_OUT
