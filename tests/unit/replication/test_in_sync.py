"""What a leader makes of the controller's answer to its wish for another in-sync set."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.metadata.image import PartitionImage
from headrace.model.errors import ErrorCode
from headrace.replication.in_sync import InSyncKeeper, _changed
from headrace.replication.leadership import InSyncChange, Leadership
from headrace.wire.messages.alter_partition import PartitionDataResult

BEFORE = PartitionImage((1, 2, 3), 1, 5, (1, 2), 7)


def test_who_left_may_be_eligible_until_the_image_tells() -> None:
    """Or the leader would commit what the controller believes is not."""
    answer = PartitionDataResult(leader_id=1, leader_epoch=5, isr=[1], partition_epoch=8)
    assert _changed(BEFORE, answer) == replace(BEFORE, isr=(1,), elr=(2,), partition_epoch=8)


def test_who_was_eligible_stays_so_until_the_image_tells() -> None:
    before = replace(BEFORE, isr=(1,), elr=(2,))
    answer = PartitionDataResult(leader_id=1, leader_epoch=5, isr=[1, 3], partition_epoch=8)
    assert _changed(before, answer) == replace(BEFORE, isr=(1, 3), elr=(2,), partition_epoch=8)


def concluded(result: PartitionDataResult | None) -> tuple[InSyncChange | None, list[PartitionImage]]:
    """What is left of a wish for broker 3 to join, and the states that the leader was told."""
    leadership = Leadership(1, BEFORE, 0)
    leadership.pending = InSyncChange((1, 2, 3), (7, 7, 7), BEFORE.partition_epoch)
    told: list[PartitionImage] = []

    def end_wish() -> None:
        leadership.pending = None

    partition: Any = SimpleNamespace(
        leadership=leadership,
        image=BEFORE,
        topic_partition="t-0",
        become_leader=told.append,
        end_wish=end_wish,
    )
    later = SimpleNamespace(clock=SimpleNamespace(call_later=lambda seconds, callback: None))
    keeper: Any = SimpleNamespace(_env=later, ask=None)
    InSyncKeeper._conclude(keeper, partition, result)
    return leadership.pending, told


@pytest.mark.parametrize(
    "result",
    [
        PartitionDataResult(leader_id=1, leader_epoch=6, isr=[1, 3], partition_epoch=8),
        PartitionDataResult(error_code=ErrorCode.INVALID_UPDATE_VERSION),
        PartitionDataResult(error_code=ErrorCode.FENCED_LEADER_EPOCH),
        PartitionDataResult(error_code=ErrorCode.NOT_CONTROLLER),
        None,
    ],
    ids=["granted with a new epoch", "repeated", "fenced", "not the controller", "no answer"],
)
def test_who_may_have_joined_is_waited_for_until_the_state_is_seen(result: PartitionDataResult | None) -> None:
    """Found by the simulation: the end of a move let a replica in, and the leader committed without it."""
    pending, told = concluded(result)
    assert pending is not None
    assert not told
    leadership = Leadership(1, BEFORE, 0)
    leadership.pending = pending
    leadership.follow(BEFORE)
    assert leadership.pending is pending
    leadership.follow(replace(BEFORE, partition_epoch=8))
    assert leadership.pending is None


def test_a_wish_whose_outcome_is_known_is_over() -> None:
    granted = PartitionDataResult(leader_id=1, leader_epoch=5, isr=[1, 2, 3], partition_epoch=8)
    assert concluded(granted) == (None, [replace(BEFORE, isr=(1, 2, 3), partition_epoch=8)])
    as_before = PartitionDataResult(leader_id=1, leader_epoch=5, isr=[1, 2], partition_epoch=7)
    assert concluded(as_before) == (None, [])
    refused = PartitionDataResult(error_code=ErrorCode.INELIGIBLE_REPLICA)
    assert concluded(refused) == (None, [])
