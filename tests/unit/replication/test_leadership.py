"""The high watermark and the acknowledgements of a leader with followers (R-PRO-1, R-REP-2)."""

from __future__ import annotations

import pytest

from headrace.metadata.image import PartitionImage
from headrace.replication.leadership import UNKNOWN_OFFSET, Leadership


def image(
    isr: tuple[int, ...] = (1, 2, 3), replicas: tuple[int, ...] = (1, 2, 3), epoch: int = 0
) -> PartitionImage:
    return PartitionImage(replicas, 1, 5, isr, epoch)


def led(isr: tuple[int, ...] = (1, 2, 3), **ends: int) -> Leadership:
    leadership = Leadership(1, image(isr), 0)
    for name, end in ends.items():
        leadership.fetched(int(name.removeprefix("r")), end)
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


def test_one_that_is_about_to_join_is_waited_for_but_not_counted() -> None:
    leadership = led((1, 2), r2=10, r3=8)
    leadership.joining[3] = None
    assert leadership.committed_end(12, 2) == 8
    assert leadership.committed_end(12, 3) == UNKNOWN_OFFSET


def test_one_that_leaves_is_waited_for_until_the_change_is_seen() -> None:
    leadership = led(r2=10, r3=2)
    assert leadership.committed_end(12, 1) == 2
    leadership.follow(image((1, 2), epoch=1))
    assert leadership.committed_end(12, 1) == 10


def test_one_that_joined_is_no_longer_joining() -> None:
    leadership = led((1, 2), r2=10, r3=10)
    leadership.joining[3] = None
    leadership.follow(image(epoch=1))
    assert leadership.joining == {}
    assert leadership.committed_end(10, 3) == 10


def test_a_replica_that_moved_away_is_forgotten() -> None:
    leadership = led(r2=10, r3=10)
    leadership.follow(image((1, 2), (1, 2), 1))
    assert leadership.end_of(3) == UNKNOWN_OFFSET
    assert not leadership.fetched(3, 11)
    assert leadership.end_of(3) == UNKNOWN_OFFSET


@pytest.mark.parametrize(("end", "count"), [(5, 3), (7, 3), (8, 2), (10, 2), (11, 1)])
def test_how_many_have_it(end: int, count: int) -> None:
    assert led(r2=10, r3=7).in_sync_at(end) == count
