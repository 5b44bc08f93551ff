"""The high watermark and the acknowledgements of a leader with followers (R-PRO-1, R-REP-2)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.metadata.image import BrokerImage, PartitionImage
from headrace.replication.leadership import (
    UNKNOWN_EPOCH,
    UNKNOWN_OFFSET,
    InSyncChange,
    Leadership,
    SingleFetch,
)

NOW = SingleFetch(100.0)
BROKERS = {broker: BrokerImage(broker, 7, ()) for broker in (1, 2, 3)}


def image(
    isr: tuple[int, ...] = (1, 2, 3),
    replicas: tuple[int, ...] = (1, 2, 3),
    epoch: int = 0,
    elr: tuple[int, ...] = (),
) -> PartitionImage:
    return PartitionImage(replicas, 1, 5, isr, epoch, elr=elr)


def led(isr: tuple[int, ...] = (1, 2, 3), **ends: int) -> Leadership:
    leadership = Leadership(1, image(isr), 0)
    for name, end in ends.items():
        leadership.fetched(int(name.removeprefix("r")), end, 7, NOW)
    return leadership


def test_nothing_is_committed_before_every_member_has_fetched_in_this_epoch() -> None:
    assert led(r2=10).committed_end(10, 1) == UNKNOWN_OFFSET


def test_the_slowest_member_decides() -> None:
    assert led(r2=10, r3=7).committed_end(12, 1) == 7


def test_who_is_not_in_sync_does_not_count() -> None:
    assert led((1, 2), r2=10, r3=7).committed_end(12, 2) == 10


def test_alone_in_sync_the_own_end_decides() -> None:
    assert led((1,), r2=3).committed_end(12, 1) == 12


def test_nothing_new_is_committed_while_too_few_are_in_sync() -> None:
    assert led((1,), r2=12, r3=12).committed_end(12, 2) == UNKNOWN_OFFSET


def test_nothing_new_is_committed_while_others_count_as_having_everything() -> None:
    """Whatever this broker thinks of how many are needed."""
    leadership = led((1, 2), r2=12)
    leadership.follow(image((1,), epoch=1, elr=(2,)))
    assert leadership.committed_end(12, 1) == UNKNOWN_OFFSET
    leadership.follow(image((1,), epoch=2))
    assert leadership.committed_end(12, 1) == 12
    assert Leadership(1, image((1,), elr=(2,)), 0).committed_end(12, 1) == UNKNOWN_OFFSET


def test_one_that_is_about_to_join_is_waited_for_but_not_counted() -> None:
    leadership = led((1, 2), r2=10, r3=8)
    leadership.pending = InSyncChange((1, 2, 3), (7, 7, 7), 0)
    assert leadership.committed_end(12, 2) == 8
    assert leadership.committed_end(12, 3) == UNKNOWN_OFFSET


def test_one_that_leaves_is_waited_for_until_the_change_is_seen() -> None:
    leadership = led(r2=10, r3=2)
    assert leadership.committed_end(12, 1) == 2
    leadership.follow(image((1, 2), epoch=1))
    assert leadership.committed_end(12, 1) == 10


def test_one_that_joined_is_no_longer_joining() -> None:
    leadership = led((1, 2), r2=10, r3=10)
    leadership.pending = InSyncChange((1, 2, 3), (7, 7, 7), 0)
    leadership.follow(image(epoch=1))
    assert leadership.pending is None
    assert leadership.committed_end(10, 3) == 10


def test_a_replica_that_moved_away_is_forgotten() -> None:
    leadership = led(r2=10, r3=10)
    leadership.follow(image((1, 2), (1, 2), 1))
    assert leadership.end_of(3) == UNKNOWN_OFFSET
    assert not leadership.fetched(3, 11, 7, NOW)
    assert leadership.end_of(3) == UNKNOWN_OFFSET


@pytest.mark.parametrize(("end", "count"), [(5, 3), (7, 3), (8, 2), (10, 2), (11, 1)])
def test_how_many_have_it(end: int, count: int) -> None:
    assert led(r2=10, r3=7).in_sync_at(end) == count


def wanted(
    leadership: Leadership,
    high_watermark: int,
    laggards: list[int] | None = None,
    log_start: int = 0,
    min_in_sync: int = 1,
) -> tuple[int, ...] | None:
    change = leadership.wanted(high_watermark, log_start, laggards or [], BROKERS, 4, min_in_sync)
    return None if change is None else change.isr


def test_who_has_all_that_is_committed_and_the_start_of_the_epoch_may_join() -> None:
    leadership = Leadership(1, image((1, 2)), epoch_start=6)
    leadership.fetched(3, 5, 7, NOW)
    assert wanted(leadership, 5) is None
    leadership.fetched(3, 6, 7, NOW)
    assert wanted(leadership, 7) is None
    assert wanted(leadership, 6) == (1, 2, 3)


def test_a_follower_of_another_incarnation_does_not_join() -> None:
    leadership = led((1, 2), r2=10)
    leadership.fetched(3, 10, 6, NOW)
    assert wanted(leadership, 10) is None


def test_a_follower_that_was_not_registered_when_it_fetched_does_not_join() -> None:
    """It may have lost its records since, and be registered again: it must say what it has now."""
    leadership = led((1, 2), r2=10)
    leadership.fetched(3, 10, UNKNOWN_EPOCH, NOW)
    assert wanted(leadership, 10) is None
    leadership.fetched(3, 10, 7, NOW)
    assert wanted(leadership, 10) == (1, 2, 3)


def test_what_a_follower_said_before_it_restarted_counts_no_more() -> None:
    """It comes late, on the connection of before: the follower may have lost what it had then."""
    leadership = led(r2=10, r3=8)
    assert not leadership.fetched(3, 10, 6, NOW)
    assert leadership.committed_end(10, 1) == 8
    assert leadership.fetched(3, 9, UNKNOWN_EPOCH, NOW), "it has lost its place for a moment"
    assert leadership.committed_end(10, 1) == 9


@pytest.mark.parametrize(("min_in_sync", "expected"), [(1, (1,)), (2, None)])
def test_a_leader_alone_asks_for_the_set_as_it_is_if_that_is_enough(
    min_in_sync: int, expected: tuple[int, ...] | None
) -> None:
    """The controller waits for a sign that it is there."""
    leadership = Leadership(1, replace(image((1,)), elr=(2,)), epoch_start=6)
    assert wanted(leadership, 5, min_in_sync=min_in_sync) == expected
    leadership.heard = True
    assert wanted(leadership, 5, min_in_sync=min_in_sync) is None
    leadership.follow(replace(image((1,)), elr=(2,), partition_epoch=5))
    assert wanted(leadership, 5, min_in_sync=min_in_sync) == expected
    leadership.follow(replace(image((1,)), partition_epoch=6))
    assert wanted(leadership, 5, min_in_sync=min_in_sync) is None


def test_who_has_what_was_deleted_does_not_join() -> None:
    """As the next leader it would bring the records back."""
    leadership = led((1, 2), r2=10, r3=10)
    leadership.starts(3, 4)
    assert wanted(leadership, 10, log_start=5) is None
    leadership.starts(3, 5)
    assert wanted(leadership, 10, log_start=5) == (1, 2, 3)


def test_members_that_lag_in_time_leave() -> None:
    leadership = led(r2=5, r3=10)
    leadership.mark(0.0, 8, -10.0)
    assert leadership.laggards(-10.0, 10, None) == []
    leadership.mark(5.0, 10, -5.0)
    leadership.mark(10.0, 12, 0.0)
    assert leadership.laggards(0.0, 12, None) == [2]
    assert wanted(leadership, 5, [2]) == (1, 3)
    leadership.fetched(2, 8, 7, NOW)
    assert leadership.laggards(0.0, 12, None) == []


def test_members_that_lag_in_records_leave_if_that_is_limited() -> None:
    leadership = led(r2=5, r3=10)
    assert leadership.laggards(0.0, 12, 6) == [2]
    assert leadership.laggards(0.0, 12, 7) == []


def test_an_idle_partition_has_no_laggards() -> None:
    leadership = led(r2=5, r3=5)
    for tick in range(10):
        leadership.mark(float(tick), 5, tick - 3.0)
    assert leadership.laggards(6.0, 5, None) == []


def test_whether_all_still_follow() -> None:
    leadership = led((1, 2), r2=5)
    assert leadership.all_fetched_since(99.0)
    assert not leadership.all_fetched_since(101.0)
    assert not led((1, 2, 3), r2=5).all_fetched_since(99.0)
    assert led((1,)).all_fetched_since(1000.0)


def test_an_eligible_leader_that_does_not_follow_may_lead() -> None:
    """Found by the simulation: alone in sync, without a lease, it answered beside the one that replaced it."""
    leadership = led((1, 2), r2=5)
    leadership.follow(image((1,), epoch=1, elr=(2,)))
    assert leadership.all_fetched_since(99.0)
    assert not leadership.all_fetched_since(101.0)
    assert not Leadership(1, image((1,), elr=(2, 3)), 0).all_fetched_since(99.0)


def test_who_says_that_it_left_is_not_believed_to_follow() -> None:
    """Its session goes on for other partitions, and proves nothing for this one."""
    leadership = led((1, 2), r2=10)
    assert leadership.all_fetched_since(50.0)
    leadership.left(2, SingleFetch(100.0))
    assert leadership.all_fetched_since(50.0), "another way of asking, which it had left before"
    leadership.left(2, NOW)
    assert not leadership.all_fetched_since(50.0)
    leadership.fetched(2, 10, 7, NOW)
    assert leadership.all_fetched_since(50.0)


def test_the_low_watermark_waits_for_every_member() -> None:
    leadership = led((1, 2), r2=10)
    assert leadership.lowest_start(4) == UNKNOWN_OFFSET
    assert leadership.starts(2, 3)
    assert not leadership.starts(2, 3)
    leadership.starts(3, 0)
    assert leadership.lowest_start(4) == 3
    leadership.starts(2, 6)
    assert leadership.lowest_start(4) == 4


def test_the_low_watermark_waits_for_everybody_who_may_lead() -> None:
    """Who is about to join, or eligible, would bring back what was deleted."""
    leadership = led((1, 2), r2=10, r3=10)
    leadership.starts(2, 6)
    leadership.starts(3, 3)
    assert leadership.lowest_start(6) == 6
    leadership.pending = InSyncChange((1, 2, 3), (7, 7, 7), 0)
    assert leadership.lowest_start(6) == 3
    leadership.follow(image((1, 2), epoch=1, elr=(3,)))
    assert leadership.lowest_start(6) == 3
