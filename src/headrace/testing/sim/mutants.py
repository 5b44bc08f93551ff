"""Deliberate defects, each of which the simulation must find: a check that never fails proves nothing.

`python -m headrace.testing.sim --mutant NAME` runs seeds with one of them switched on. Each takes one defence away
by replacing a function of the broker; `faults` are the kinds that bring it to light, and `seeds` is the number
within which it must be found.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from headrace import node
from headrace.coordination.contract import Check, Op
from headrace.coordination.lease import LeaseState
from headrace.groups.events import OffsetRecord, TransactionEnded
from headrace.groups.offsets import OffsetStore
from headrace.metadata import eligible, partition_decisions, registration
from headrace.metadata.change_writer import ChangeWriter
from headrace.metadata.changes import Change
from headrace.metadata.controller import Controller, _granted_changes
from headrace.metadata.image import MetadataImage, PartitionImage
from headrace.metadata.partition_decisions import InSyncOutcome, InSyncWish, Liveness, decide_in_sync
from headrace.metadata.topic_rules import TopicRules
from headrace.model.errors import ErrorCode, KafkaError
from headrace.replication.leadership import Leadership
from headrace.replication.partition import ACKS_ALL, REPLICA, Partition
from headrace.replication.replica_set import ReplicaSet
from headrace.storage import log as log_module
from headrace.storage import retention
from headrace.storage.log import Log
from headrace.storage.log_config import LogConfig
from headrace.storage.log_directories import LogDirectories
from headrace.storage.producer_state import ProducerStates
from headrace.testing.sim.run import Given

Patched = Any
"""A class or module whose attribute is replaced."""


@dataclass(frozen=True, slots=True)
class Mutant:
    switch_on: Callable[[], None]
    faults: tuple[str, ...]
    seeds: int
    deletions: bool = False
    """Whether it shows only where records are deleted."""
    min_in_sync: int = 2

    @property
    def given(self) -> Given:
        return Given(self.faults, self.deletions, self.min_in_sync)


def _replace(owner: Patched, name: str, value: Any) -> None:
    setattr(owner, name, value)


def ack_before_replication() -> None:
    """acks=all is answered as soon as the leader has the records."""
    before = Partition.acknowledged

    def acknowledged(self: Partition, end_offset: int, acks: int, leader_epoch: int) -> bool:
        return before(self, end_offset, 1 if acks == ACKS_ALL else acks, leader_epoch)

    _replace(Partition, "acknowledged", acknowledged)


def no_epoch_check() -> None:
    """A leader does not ask where the log of a follower parts from its own."""
    _replace(Partition, "divergence", lambda self, offset, last_epoch: None)
    _replace(Partition, "check_epoch", lambda self, epoch: None)


def truncation_to_high_watermark() -> None:
    """A new follower drops what is above its high watermark, as before KIP-101."""
    before = Partition.become_follower

    def become_follower(self: Partition, image: PartitionImage) -> None:
        is_new = image.leader_epoch > self.leader_epoch
        before(self, image)
        if is_new and self.follows:
            self.log.truncate_to(self.high_watermark)

    _replace(Partition, "become_follower", become_follower)
    _replace(Partition, "divergence", lambda self, offset, last_epoch: None)


def stale_controller() -> None:
    """A controller's writes do not check whether it was replaced, and it does not notice."""
    before = ChangeWriter._operations

    def operations(self: ChangeWriter, *arguments: Any) -> list[Op]:
        return [op for op in before(self, *arguments) if not isinstance(op, Check)]

    _replace(ChangeWriter, "_operations", operations)
    _replace(Controller, "_resign", lambda self, reason: None)


def high_watermark_from_one_follower() -> None:
    """Committed is what any one follower has."""

    def committed_end(self: Leadership, local_end: int, min_in_sync: int) -> int:
        return min(local_end, max((self._ends[replica] for replica in self._ends), default=local_end))

    _replace(Leadership, "committed_end", committed_end)


def unfenced_in_sync_change() -> None:
    """The controller grants any in-sync set that any broker asks for, in whatever epochs."""

    def granted(image: Any, leader: int, wish: Any, rules: Any, unavailable: Any) -> PartitionImage:
        if wish.topic_id not in image.topics_by_id:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        partition: PartitionImage = image.topics_by_id[wish.topic_id].partitions[wish.partition]
        members = {broker for broker, _ in wish.isr} | {partition.leader}
        isr = tuple(replica for replica in partition.replicas if replica in members)
        return replace(partition, isr=isr, elr=()) if partition.leader >= 0 else partition

    async def alter_in_sync(self: Controller, leader: int, broker_epoch: int, wishes: Any) -> Any:
        def decide(image: MetadataImage) -> tuple[list[tuple[InSyncWish, InSyncOutcome]], list[Change]]:
            outcomes = decide_in_sync(image, leader, wishes, TopicRules(self._config, image))
            return outcomes, _granted_changes(image, outcomes)

        return [(wish, self._as_written(wish, outcome)) for wish, outcome in await self.change(decide)]

    _replace(partition_decisions, "_granted", granted)
    _replace(Controller, "alter_in_sync", alter_in_sync)


def shrink_before_written() -> None:
    """A leader counts with the in-sync set it asked for before the controller has written it."""

    def committed_end(self: Leadership, local_end: int, min_in_sync: int) -> int:
        isr = self.pending.isr if self.pending is not None else self._isr
        return min([local_end, *(self._ends[replica] for replica in isr if replica in self._ends)])

    _replace(Leadership, "committed_end", committed_end)


def answers_after_the_deadline() -> None:
    """A leader whose lease is over goes on as if it were not."""
    _replace(LeaseState, "valid", lambda self: True)


def follower_read_above_high_watermark() -> None:
    """A follower, or a leader, gives consumers everything it has."""
    before = Partition.read

    def read(self: Partition, offset: int, max_bytes: int, reader: int, at_least_one: bool) -> Any:
        return before(self, offset, max_bytes, REPLICA, at_least_one)

    _replace(Partition, "read", read)


def lost_checkpoint_taken_as_zero() -> None:
    """After a restart nothing is known of high watermarks."""
    _replace(ReplicaSet, "load_high_watermarks", lambda self: None)


def wiped_disk_taken_as_clean() -> None:
    """A broker that comes back without its records, on another disk, says nothing of it."""
    _say_nothing()
    before = registration._confess

    async def confess(store: Any, broker: Any) -> list[Op]:
        return [op for op in await before(store, broker) if "suspects" not in op.path]

    _replace(registration, "_confess", confess)


def crash_taken_as_clean() -> None:
    """A broker whose machine crashed says nothing of it."""
    _say_nothing()


def _say_nothing() -> None:
    _replace(LogDirectories, "may_have_lost", property(lambda self: False))
    _replace(node, "lacks_confirmed", lambda *arguments: frozenset())


def last_member_leaves() -> None:
    """A dead replica leaves the in-sync set, even the last one; any live one leads."""
    before = partition_decisions._elect

    def elect(partition: PartitionImage, liveness: Liveness, allows_unclean: Any) -> PartitionImage:
        return before(partition, liveness, lambda: True)

    _replace(partition_decisions, "_elect", elect)


def eligible_leaders_forgotten() -> None:
    """Who leaves the in-sync set cannot lead any more, however few are left in it."""

    def with_eligible(
        before: PartitionImage, after: PartitionImage, *rest: Any, at_leaders_wish: bool = False
    ) -> PartitionImage:
        return before if after == before else after

    _replace(partition_decisions, "with_eligible", with_eligible)


def last_member_unasked() -> None:
    """With `min.insync.replicas=1` the last member counts as there until it is missed."""
    _replace(eligible, "ASSURED", 1)


def commits_below_min_in_sync() -> None:
    """A leader commits with however few replicas, while others count as having everything."""
    before = Leadership.committed_end

    def committed_end(self: Leadership, local_end: int, min_in_sync: int) -> int:
        return before(self, local_end, 0)

    _replace(Leadership, "committed_end", committed_end)


def new_leader_trusts_its_log_end() -> None:
    """Everything that a new leader has counts as committed."""
    before = Partition.become_leader

    def become_leader(self: Partition, image: PartitionImage) -> None:
        self.high_watermark = self.log.end_offset
        before(self, image)

    _replace(Partition, "become_leader", become_leader)


def epochs_end_at_the_high_watermark() -> None:
    """A new leader tells consumers that an epoch ends where it last knew it to be committed."""
    before = Partition.epoch_end

    def epoch_end(self: Partition, epoch: int, reader: int) -> tuple[int, int]:
        found, end = before(self, epoch, reader)
        return found, end if reader == REPLICA else min(end, self.high_watermark)

    _replace(Partition, "epoch_end", epoch_end)


def followers_forget_producers() -> None:
    """The sequence numbers of producers are not kept by followers."""
    _replace(log_module, "apply_batch", lambda *arguments: None)


def no_verification() -> None:
    """KIP-890 switched off for clients of transactions version 1: partitions do not ask the coordinator."""
    before = Log.start_verification

    def start_verification(self: Log, id: int, epoch: int, sequence: int, bumps_epochs: bool) -> Any:
        return before(self, id, epoch, sequence, bumps_epochs) if bumps_epochs else None

    _replace(Log, "start_verification", start_verification)
    _replace(ProducerStates, "_check_verified", lambda self, header, entry, guard: None)


def moves_end_at_once() -> None:
    """The replicas of before leave before the new ones have copied anything."""
    before = partition_decisions.end_move

    def end_move(partition: PartitionImage, liveness: Liveness) -> PartitionImage:
        there = {*partition.isr, *partition.target}
        isr = tuple(replica for replica in partition.replicas if replica in there)
        return before(replace(partition, isr=isr) if partition.target else partition, liveness)

    _replace(partition_decisions, "end_move", end_move)


def aborted_positions_count() -> None:
    """The offsets of a transaction count however it ended."""
    before = OffsetStore.apply

    def apply(self: OffsetStore, event: OffsetRecord) -> None:
        before(self, replace(event, committed=True) if isinstance(event, TransactionEnded) else event)

    _replace(OffsetStore, "apply", apply)


def aborted_transactions_forgotten() -> None:
    """read_committed readers are not told which transactions were aborted."""
    _replace(Log, "aborted_transactions", lambda self, offset, found: [])


def deletions_not_waited_for() -> None:
    """DeleteRecords is answered as soon as the leader has let go of the records."""
    _replace(Leadership, "lowest_start", lambda self, local_start: local_start)


def retention_by_any_policy() -> None:
    """Retention lets go of records of topics that are only compacted."""
    _replace(LogConfig, "deletes", property(lambda self: True))


def retention_a_segment_too_many() -> None:
    """Retention lets go of one segment more than it may."""
    before = retention.expired_segments

    def expired_segments(log: Log, resources: Any, high_watermark: int) -> int:
        count = before(log, resources, high_watermark)
        return min(count + 1, len(log.segments) - 1) if count else 0

    _replace(log_module, "expired_segments", expired_segments)


MUTANTS: dict[str, Mutant] = {
    "ack-before-replication": Mutant(ack_before_replication, ("kill", "isolate"), 3),
    "no-epoch-check": Mutant(no_epoch_check, ("kill", "isolate"), 20),
    "truncation-to-high-watermark": Mutant(truncation_to_high_watermark, ("kill", "kill all"), 20),
    "epochs-end-at-the-high-watermark": Mutant(epochs_end_at_the_high_watermark, ("kill",), 10),
    "stale-controller": Mutant(stale_controller, ("expire", "pause"), 10),
    "high-watermark-from-one-follower": Mutant(high_watermark_from_one_follower, ("kill", "cut"), 5),
    "unfenced-in-sync-change": Mutant(unfenced_in_sync_change, ("isolate",), 20),
    "shrink-before-written": Mutant(shrink_before_written, ("isolate", "cut"), 10),
    "answers-after-the-deadline": Mutant(answers_after_the_deadline, ("isolate",), 20),
    "read-above-high-watermark": Mutant(follower_read_above_high_watermark, ("kill",), 3),
    "lost-checkpoint-taken-as-zero": Mutant(lost_checkpoint_taken_as_zero, ("stop",), 3),
    "wiped-disk-taken-as-clean": Mutant(wiped_disk_taken_as_clean, ("lose one of all",), 10),
    "crash-taken-as-clean": Mutant(crash_taken_as_clean, ("lose one of all",), 10),
    "last-member-leaves": Mutant(last_member_leaves, ("kill", "kill all"), 20),
    "eligible-leaders-forgotten": Mutant(eligible_leaders_forgotten, ("lose one of all",), 20),
    "last-member-unasked": Mutant(last_member_unasked, ("lose one of all", "stop"), 20, min_in_sync=1),
    "commits-below-min-in-sync": Mutant(commits_below_min_in_sync, ("kill", "kill all"), 20),
    "new-leader-trusts-its-log-end": Mutant(new_leader_trusts_its_log_end, ("kill", "isolate"), 10),
    "followers-forget-producers": Mutant(followers_forget_producers, ("kill",), 5),
    "no-verification": Mutant(no_verification, ("kill",), 20),
    "moves-end-at-once": Mutant(moves_end_at_once, ("move", "kill"), 10),
    "aborted-positions-count": Mutant(aborted_positions_count, ("kill",), 20),
    "aborted-transactions-forgotten": Mutant(aborted_transactions_forgotten, ("kill",), 3),
    "deletions-not-waited-for": Mutant(deletions_not_waited_for, ("kill",), 10, deletions=True),
    "retention-by-any-policy": Mutant(retention_by_any_policy, ("kill",), 10, deletions=True),
    "retention-a-segment-too-many": Mutant(retention_a_segment_too_many, ("kill",), 10, deletions=True),
}
