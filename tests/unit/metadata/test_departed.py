"""Clients hear of a broker for a moment after it has left."""

from __future__ import annotations

from headrace.metadata.departed import KEPT_SECONDS, Departed
from headrace.metadata.image import BrokerImage, MetadataImage


class HandClock:
    """Only what is asked of a clock here."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


def image(*brokers: int) -> MetadataImage:
    return MetadataImage("c", brokers={number: BrokerImage(number, 0, ()) for number in brokers})


def test_one_that_left_is_kept_for_a_moment() -> None:
    clock = HandClock()
    departed = Departed(clock)  # type: ignore[arg-type]
    departed.follow(image(1, 2, 3), image(1, 3))
    assert [broker.id for broker in departed.recent()] == [2]
    clock.now += KEPT_SECONDS
    assert departed.recent() == []


def test_one_that_came_back_is_not_named_twice() -> None:
    departed = Departed(HandClock())  # type: ignore[arg-type]
    departed.follow(image(1, 2), image(1))
    departed.follow(image(1), image(1, 2))
    assert departed.recent() == []
