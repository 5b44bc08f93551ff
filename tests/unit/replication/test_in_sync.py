"""What a leader makes of the controller's answer to its wish for another in-sync set."""

from __future__ import annotations

from dataclasses import replace

from headrace.metadata.image import PartitionImage
from headrace.replication.in_sync import _changed
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
