"""`python -m headrace.testing.drills.launcher DEFECT start ...`: a broker with a defect, for drills.

A drill proves something only if it fails when its defence is missing (`MUTANTS`). `failing-disk` is no mutant: the
second data directory fails when the process gets SIGUSR1.
"""

from __future__ import annotations

import errno
import runpy
import signal
import sys
from collections.abc import Callable
from typing import Any


def ack_before_replication() -> None:
    """acks=all is answered as soon as the leader has the record."""
    from headrace.replication.partition import Partition

    Partition.acknowledged = lambda self, end_offset, acks, leader_epoch: True  # type: ignore[method-assign]


def elect_anybody() -> None:
    """A leader need not be in sync."""
    from headrace.metadata import partition_decisions

    decide = partition_decisions.decide_leader

    def anybody(partition: Any, liveness: Any, allows_unclean: Any, min_in_sync: Any) -> Any:
        return decide(partition, liveness, lambda: True, min_in_sync)

    partition_decisions.decide_leader = anybody


def high_watermark_of_one() -> None:
    """The fastest follower decides what is committed."""
    from headrace.replication.leadership import Leadership

    def committed_end(self: Any, local_end: int, min_in_sync: int) -> int:
        return min(local_end, max(self._ends.values(), default=local_end))

    Leadership.committed_end = committed_end  # type: ignore[method-assign]


def endless_lease() -> None:
    """A broker that was stopped takes itself for alive."""
    from headrace.coordination.lease import LeaseState

    LeaseState.valid = lambda self: True  # type: ignore[method-assign]


def trust_every_disk() -> None:
    """A broker that may have lost records stays in the in-sync sets."""
    from headrace.metadata.partition_decisions import Liveness

    known = Liveness.of
    Liveness.of = staticmethod(lambda image: Liveness(known(image).epochs))  # type: ignore[method-assign]


def move_at_once() -> None:
    """A move is complete as soon as it is requested: nothing waits for the copies."""
    from dataclasses import replace

    from headrace.metadata import partition_decisions

    end = partition_decisions.end_move

    def at_once(partition: Any, liveness: Any) -> Any:
        is_alive = set(partition.target) <= set(liveness.epochs)
        return end(
            replace(partition, isr=partition.replicas) if partition.target and is_alive else partition, liveness
        )

    partition_decisions.end_move = at_once


def forget_ends() -> None:
    """A transaction that was open when its coordinator died is never aborted."""
    from headrace.services.transactions.shard import TransactionShard

    TransactionShard.abort_overdue = lambda self: None  # type: ignore[method-assign]


MUTANTS: dict[str, Callable[[], None]] = {
    "ack-before-replication": ack_before_replication,
    "elect-anybody": elect_anybody,
    "high-watermark-of-one": high_watermark_of_one,
    "endless-lease": endless_lease,
    "trust-every-disk": trust_every_disk,
    "move-at-once": move_at_once,
    "forget-ends": forget_ends,
}
"""What is broken, by name."""


def failing_disk() -> None:
    from headrace.env import real
    from headrace.testing.faulty_disk import FaultyDisk

    made: list[FaultyDisk] = []  # a broker has more than one

    class Disk(FaultyDisk):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)

    def fail_all(number: int, frame: object) -> None:
        second = next(arg for arg in sys.argv if arg.startswith("log.dirs=")).rsplit(",", 1)[1]
        for disk in made:
            disk.fail(second, errno.EIO)

    signal.signal(signal.SIGUSR1, fail_all)
    real.RealDisk = Disk  # type: ignore[misc]


def newer_format() -> None:
    """The next version of Headrace, as far as the format of the metadata goes."""
    from headrace.metadata import levels

    levels.METADATA_LEVEL += 1


LAUNCHES = {**MUTANTS, "failing-disk": failing_disk, "newer-format": newer_format}


def main() -> None:
    LAUNCHES[sys.argv.pop(1)]()
    runpy.run_module("headrace", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
