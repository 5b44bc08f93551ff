"""One partition on this broker: its log, and what this broker's role lets it do with it.

Roles. As the leader it takes appends, serves every reader and decides the high watermark; as a follower it copies
the leader's log and may serve consumers below the high watermark it was told. Without a role it does neither.

The high watermark is the end of what every in-sync replica has; consumers read below it. With this broker as the
only replica it follows each append at once, or, where the topic commits to disk before the ack, each sync; with
others it waits for them (`leadership`). It never goes back within a leader epoch.

"Synced here" and "committed" are two things: the first is about this broker's device, the second about the in-sync
set. `acknowledged` says which of them an `acks` promises. A failed log or a lost role is looked at first: what is
not certain is not acknowledged.
"""

from __future__ import annotations

import logging

from headrace.metadata.image import NO_LEADER, PartitionImage
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import INTERNAL_TOPICS, TopicId, TopicPartition
from headrace.records.markers import EndMarker
from headrace.replication.flushing import Flusher
from headrace.replication.host import PartitionHost
from headrace.replication.leadership import Leadership, Poll
from headrace.replication.refusals import Refusals
from headrace.replication.waiters import FollowerWaiter, Waiter
from headrace.storage.files import FileRange
from headrace.storage.log import Log
from headrace.storage.producer_state import ProducerDescription, VerificationGuard
from headrace.storage.timestamps import TimestampOffset

logger = logging.getLogger(__name__)

ACKS_ALL = -1

_BY_HISTORY = frozenset(
    {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_EPOCH}
)
"""Errors that clients take as final. A former leader may return one only because it missed something."""

UNCOMMITTED, COMMITTED, REPLICA = range(3)
"""The kinds of readers: consumers up to the high watermark or the last stable offset, a replica up to the end."""

View = tuple[int, int, int, FileRange | None]
"""High watermark, last stable offset, log start and data, all of the same moment."""


class Partition:
    __slots__ = (
        "_host",
        "_refusals",
        "_synced_before_ack",
        "end_waiters",
        "flusher",
        "follows",
        "high_watermark",
        "image",
        "internal",
        "is_leader",
        "leader_epoch",
        "leadership",
        "log",
        "settled",
        "topic_id",
        "topic_partition",
        "waiters",
        "wakes",
    )

    def __init__(self, topic_partition: TopicPartition, topic_id: TopicId, log: Log, host: PartitionHost) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.internal = topic_partition.topic in INTERNAL_TOPICS
        """Whether it is written by the broker itself, not by its clients."""
        self.log = log
        self.is_leader = False
        self.follows = False
        """Whether it copies the log of a leader."""
        self.leader_epoch = -1
        self.high_watermark = log.start_offset
        self.image: PartitionImage | None = None
        self.leadership: Leadership | None = None
        """The progress of its followers, if this broker leads and has some."""
        self.flusher: Flusher | None = None
        """The flusher, where the topic's flush policy asks for more than the page cache."""
        self._synced_before_ack = False
        self.settled = True
        """Whether an append is acknowledged as soon as it is in the log: no follower and no sync to wait for."""
        self.waiters: dict[Waiter, None] = {}
        """Waiters for the high watermark or the role to change; a dict because sets have no order."""
        self.end_waiters: dict[FollowerWaiter, None] = {}
        """Followers that wait for the end of the log to move."""
        self.wakes = host.wakes
        self._host = host
        self._refusals = Refusals(host.clock)
        """The batches that producers have to send again."""

    # -- roles

    def become_leader(self, image: PartitionImage) -> None:
        """Lead from now on in a new epoch, or take over a change of the in-sync set in this one."""
        local_id = self._host.broker_id
        assert image.leader_epoch >= self.leader_epoch
        assert image.leader == local_id
        new_epoch = image.leader_epoch > self.leader_epoch or not self.is_leader
        if new_epoch:
            self.log.assign_leader_epoch(image.leader_epoch)
            self.leadership = None
            self._refusals.begin()
        self.image = image
        self.leader_epoch = image.leader_epoch
        self.is_leader, self.follows = True, False
        if len(image.replicas) == 1:
            self.leadership = None
        elif self.leadership is None:
            self.leadership = Leadership(local_id, image, self.log.end_offset)
        else:
            self._host.in_sync_changes.note(self.leadership.isr, image.isr)
            self.leadership.follow(image)
        self._settle()
        self._advance_high_watermark()
        if self.leadership is not None and self.leadership.may_ask(self.high_watermark, self.log.start_offset):
            self._host.in_sync.ask(self)  # a follower may have caught up during another change
        self.wakes.wake(self.waiters)
        self.wakes.wake(self.end_waiters)

    def become_follower(self, image: PartitionImage) -> None:
        """Follow the leader of the image from now on; there may be none."""
        assert image.leader_epoch >= self.leader_epoch
        self.image = image
        self.leader_epoch = image.leader_epoch
        self.resign()
        self.follows = image.leader not in (NO_LEADER, self._host.broker_id)

    def resign(self) -> None:
        """Neither lead nor follow any longer: waiting requests must ask again for the leader."""
        self.is_leader = self.follows = False
        self.leadership = None
        self.wakes.wake(self.waiters)
        self.wakes.wake(self.end_waiters)

    def check_epoch(self, epoch: int) -> None:
        """Refuse a client whose knowledge of the leader is older, or newer, than ours (KIP-320)."""
        if epoch < self.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        if epoch > self.leader_epoch:
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    # -- appending

    def append(self, batch: memoryview, acks: int, guard: VerificationGuard | None = None) -> tuple[int, int, int]:
        """Append one batch as the leader: (base offset, log append time or -1, log start offset).

        `guard` is what `start_verification` gave, for a batch that begins a transaction here.
        """
        log = self.log
        if self._refusals.lately:
            self._refusals.check_beginning(log, batch)
        try:
            if self.leadership is not None:
                if acks != 1:
                    self._check_enough_replicas(acks)
                if 0 <= acks <= 1 and not self._host.lease.valid():
                    self._check_not_replaced()
            elif acks > 1:
                self._check_enough_replicas(acks)
            base_offset, append_time = log.append_as_leader(batch, self.leader_epoch, guard)
        except KafkaError as error:
            self._explain(error)
            raise
        if self.flusher is not None:
            self.flusher.appended()
        self._advance_high_watermark()
        if self.end_waiters:
            self.wakes.wake(self.end_waiters)
        return base_offset, append_time, log.start_offset

    def _explain(self, error: KafkaError) -> None:
        """Raise a more precise error for a batch that was refused: a gap is only one if the producer caused it."""
        self._refusals.note(error)
        if error.code not in _BY_HISTORY:
            return
        if self.log.failure is not None:  # what it misses could not be written
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(self.log.failure)) from error
        if self.leadership is not None and not self._host.lease.valid():
            self._check_not_replaced()  # else another leader may know better what came before
        if error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            self._refusals.excuse_gap(after_election=self.leadership is not None)

    def _appended(self) -> None:
        if self.flusher is not None:
            self.flusher.appended()
        self._advance_high_watermark()
        if self.end_waiters:
            self.wakes.wake(self.end_waiters)

    def append_own(self, batch: bytearray) -> int:
        """Append a batch that this broker built, for `acks=all`; returns its base offset."""
        if self.leadership is not None:
            self._check_enough_replicas(ACKS_ALL)
        base_offset = self.log.append_own(batch, self.leader_epoch)
        self._appended()
        return base_offset

    def append_unsequenced(self, batch: bytearray, guard: VerificationGuard | None = None) -> int:
        """Append a transactional batch of the broker for a producer, for `acks=all`; returns its base offset."""
        self._check_enough_replicas(ACKS_ALL)
        base_offset, _ = self.log.append_unsequenced(batch, self.leader_epoch, guard)
        self._appended()
        return base_offset

    def append_marker(self, marker: EndMarker) -> int:
        """End a producer's transaction here for its coordinator; returns the offset to wait for with `acks=all`.

        INVALID_PRODUCER_EPOCH for a former epoch of the producer, TRANSACTION_COORDINATOR_FENCED for a former
        coordinator.
        """
        self._check_enough_replicas(ACKS_ALL)
        base_offset, _ = self.log.append_marker(marker, self.leader_epoch)
        self._appended()
        return base_offset + 1

    # -- verification of transactional appends (KIP-890)

    def needs_verification(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether the coordinator must verify a transactional batch before an append, as none is open here."""
        return self.log.needs_verification(producer_id, producer_epoch)

    def start_verification(
        self, producer_id: int, producer_epoch: int, base_sequence: int, bumps_epochs: bool
    ) -> VerificationGuard | None:
        """The guard to pass to `append` once the coordinator has agreed; None if no verification is needed.

        A marker that is written meanwhile makes it void, and the append fails with INVALID_TXN_STATE, unless it
        surely ends an earlier transaction. `bumps_epochs`: the client takes a new epoch at every end (transactions
        version 2).
        """
        return self.log.start_verification(producer_id, producer_epoch, base_sequence, bumps_epochs)

    def acknowledged(self, end_offset: int, acks: int, leader_epoch: int) -> bool:
        """Whether what was appended below `end_offset` in that epoch is as safe as `acks` promises.

        Raises the `KafkaError` to answer with once that can no longer be known.
        """
        failure = self.log.failure
        if failure is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure))
        if not self.is_leader or self.leader_epoch != leader_epoch:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, "The leader changed before the batch was acknowledged"
            )
        if acks == ACKS_ALL:
            if self.high_watermark >= end_offset:
                return True
            self._check_enough_replicas(acks, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
            return False
        if self.synced_end < end_offset:
            return False
        if acks <= 1 or self.leadership is None:
            return True
        return self.leadership.in_sync_at(end_offset) >= acks

    def _check_enough_replicas(self, acks: int, code: ErrorCode = ErrorCode.NOT_ENOUGH_REPLICAS) -> None:
        assert self.image is not None
        if acks == ACKS_ALL:
            needed = self.min_in_sync
        elif acks > len(self.image.replicas):
            raise KafkaError(
                ErrorCode.INVALID_REQUIRED_ACKS,
                f"acks={acks} can never be met: {self.topic_partition} has {len(self.image.replicas)} replicas",
            )
        else:
            needed = acks
        if len(self.image.isr) < needed:
            raise KafkaError(
                code,
                f"{self.topic_partition} has {len(self.image.isr)} in-sync replicas where {needed} are needed",
            )

    @property
    def min_in_sync(self) -> int:
        """The replicas that must be in sync for `acks=all`; never more than there are, or were before a move."""
        image = self.image
        assert image is not None
        return min(self.log.config.min_insync_replicas, len(image.original or image.replicas))

    @property
    def surely_leads(self) -> bool:
        """Whether no other broker can be the leader: for answers for which nothing is written."""
        if self.leadership is None or self._host.lease.valid():
            return True
        return self.leadership.all_fetched_since(self._host.clock.monotonic() - self._host.silence_seconds)

    def check_lease(self) -> None:
        """NOT_LEADER_OR_FOLLOWER if this leader may have been replaced without noticing."""
        if self.leadership is not None and not self._host.lease.valid():
            self._check_not_replaced()

    def _check_not_replaced(self) -> None:
        """Without a lease there may be another leader, unless all who could be one still follow this one.

        What all of them confirm (`acks` above 1) needs no lease: none of them confirms to a former leader.
        """
        assert self.leadership is not None
        if not self.leadership.all_fetched_since(self._host.clock.monotonic() - self._host.silence_seconds):
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, "This broker has lost its lease and may be replaced"
            )

    # -- reading

    def read(self, offset: int, max_bytes: int, reader: int, at_least_one: bool) -> View:
        """The records from `offset` on that this kind of reader may see, and where the log stands."""
        log = self.log
        if self.leadership is not None and reader != REPLICA and not self._host.lease.valid():
            self._check_not_replaced()
        high_watermark = self.high_watermark
        stable = log.last_stable_offset(high_watermark)
        if reader == UNCOMMITTED:
            limit = high_watermark
        elif reader == COMMITTED:
            limit = stable
        else:
            limit = log.end_offset
        if offset == limit or not (max_bytes > 0 or at_least_one):
            return high_watermark, stable, log.start_offset, None
        found = log.read(offset, max_bytes, limit, at_least_one, reader != REPLICA)
        return high_watermark, stable, log.start_offset, found

    def visible_end(self, reader: int) -> int:
        """Where the log ends for this kind of reader, if that is known."""
        if reader != REPLICA and not self.is_confirmed:
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
        return self.readable_end(reader)

    def readable_end(self, reader: int) -> int:
        """Up to where this kind of reader may read."""
        if reader == REPLICA:
            return self.log.end_offset
        self.check_lease()
        return self.last_stable_offset if reader == COMMITTED else self.high_watermark

    @property
    def is_confirmed(self) -> bool:
        """Whether the in-sync set has confirmed the start of this epoch (KIP-207): only then is the end known."""
        return self.leadership is None or self.high_watermark >= self.leadership.epoch_start

    @property
    def end_offset(self) -> int:
        return self.log.end_offset

    @property
    def last_stable_offset(self) -> int:
        return self.log.last_stable_offset(self.high_watermark)

    @property
    def start(self) -> TimestampOffset:
        """The start of the log, and its epoch."""
        offset = self.log.start_offset
        return TimestampOffset(-1, offset, self.log.leader_epochs.epoch_for(offset))

    def find_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record that is not older than `timestamp`. May block: it decompresses a batch."""
        return self.log.find_offset_by_timestamp(timestamp)

    def find_max_timestamp(self) -> TimestampOffset | None:
        """The first record with the largest timestamp. May block: it decompresses a batch."""
        return self.log.max_timestamp_offset()

    @property
    def size(self) -> int:
        """The size of the log in bytes."""
        return self.log.size

    @property
    def lag(self) -> int:
        """The number of committed records that this replica still lacks."""
        return max(0, self.high_watermark - self.log.end_offset)

    @property
    def open_transactions(self) -> int:
        return self.log.open_transactions

    def producers(self) -> list[ProducerDescription]:
        return self.log.producers.describe()

    def epoch_end(self, epoch: int, reader: int) -> tuple[int, int]:
        """(epoch, end offset) of the largest epoch at or below `epoch`: where two logs diverge (KIP-101, 279).

        Consumers too get it for the whole log: a new leader's high watermark can be behind what they have read,
        which would look to them as if records had been lost.
        """
        if reader != REPLICA:
            self.check_lease()
        return self.log.leader_epochs.end_offset_for(epoch, self.log.end_offset)

    # -- the high watermark

    @property
    def synced_end(self) -> int:
        """The end of the records that count as stored: in the page cache, or on the device if required."""
        return self.log.recovery_point if self._synced_before_ack else self.log.end_offset

    def set_flusher(self, flusher: Flusher | None) -> None:
        """Set the topic's flush policy, which is new or has changed."""
        if self.flusher is not None:
            self.flusher.close()
        self.flusher = flusher
        self._synced_before_ack = flusher is not None and flusher.commits
        if flusher is not None:
            flusher.appended()
        self._settle()
        if self.is_leader:
            self._advance_high_watermark()

    def config_changed(self) -> None:
        """Check the waiters again: fewer in-sync replicas may be needed now."""
        if self.is_leader:
            self._advance_high_watermark()
            if self.leadership is not None and self.leadership.names_eligible:
                self.leadership.heard = False
                self._host.in_sync.ask(self)

    def flushed(self) -> None:
        """Called when a sync has succeeded or failed: waiters must check again."""
        if self.follows:
            self._host.following.stir(self)
        if self.log.failure is not None or not self.is_leader:
            self.wakes.wake(self.waiters)
            return
        self._advance_high_watermark()
        if self.leadership is not None:
            self.wakes.wake(self.waiters)  # acks below all wait for the sync, not for the high watermark

    def _settle(self) -> None:
        self.settled = self.leadership is None and not self._synced_before_ack

    def _advance_high_watermark(self) -> None:
        log = self.log
        end = log.recovery_point if self._synced_before_ack else log.end_offset
        if self.leadership is not None:
            end = self.leadership.committed_end(end, self.min_in_sync)
        if end > self.high_watermark:
            assert end <= log.end_offset
            self.high_watermark = end
            if self.waiters:
                self.wakes.wake(self.waiters)
            if self.end_waiters:
                for follower in self.end_waiters:
                    follower.noted()

    def follower_fetched(self, replica: int, offset: int, broker_epoch: int, poll: Poll) -> None:
        """A follower fetches from `offset` on in this epoch: it has everything before.

        Unless `offset` is beyond the end: an empty log that begins further on, where a former leader began, has no
        epoch by which the difference could be found (after an unclean election), and does not have what is
        appended up to there.
        """
        leadership = self.leadership
        if leadership is None or not leadership.is_follower(replica):
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"Broker {replica} is not a replica of this partition"
            )
        if offset > self.log.end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.topic_partition} ends at {self.log.end_offset}, not {offset}",
            )
        if leadership.is_of_the_past(replica, broker_epoch):
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"Broker {replica} asked for this before it restarted"
            )
        if leadership.fetched(replica, offset, broker_epoch, poll):
            self._advance_high_watermark()
            if self.waiters:
                self.wakes.wake(self.waiters)  # acks below all wait for some followers, not for all
        if leadership.pending is None and leadership.may_join(replica, self.high_watermark, self.log.start_offset):
            self._host.in_sync.ask(self)

    def follower_starts(self, replica: int, log_start: int) -> None:
        """Note the start of a follower's log."""
        leadership = self.leadership
        if leadership is not None and leadership.starts(replica, log_start) and self.waiters:
            self.wakes.wake(self.waiters)

    def follower_left(self, replica: int, poll: Poll) -> None:
        if self.leadership is not None:
            self.leadership.left(replica, poll)

    @property
    def low_watermark(self) -> int:
        """The lowest start of a log that leads or may lead."""
        start = self.log.start_offset
        return start if self.leadership is None else self.leadership.lowest_start(start)

    def end_wish(self) -> None:
        """An in-sync set was refused: the high watermark no longer waits for replicas that were to join."""
        if self.leadership is not None:
            self.leadership.pending = None
            self._advance_high_watermark()
            self.wakes.wake(self.waiters)  # a deletion of records does not wait for it either

    def divergence(self, offset: int, last_epoch: int) -> tuple[int, int] | None:
        """(epoch, end offset) where the reader's log diverges from this one, unless it ends inside this one."""
        epoch, end_offset = self.log.leader_epochs.end_offset_for(last_epoch, self.log.end_offset)
        return None if epoch == last_epoch and offset <= end_offset else (epoch, end_offset)

    # -- following

    def append_from_leader(self, batches: memoryview | bytes) -> None:
        """Store what the leader sent, byte for byte."""
        assert self.follows
        self.log.append_as_follower(batches, self.leader_epoch)
        if self.flusher is not None:
            self.flusher.appended()

    def follow_marks(self, high_watermark: int, log_start: int) -> None:
        """Take over the leader's high watermark and the start of its log."""
        assert self.follows
        log = self.log
        reached = min(high_watermark, log.end_offset)
        if reached > self.high_watermark:
            self.high_watermark = reached
            self.wakes.wake(self.waiters)
        if log_start > log.start_offset:
            log.delete_records_to(min(log_start, log.end_offset))

    def cut_to_leader(self, epoch: int, end_offset: int) -> None:
        """Truncate what the leader does not have: its log has `epoch` up to `end_offset` and differs after that.

        Repeated, one epoch further back each time, until both logs agree (KIP-101, KIP-279). Never by the high
        watermark; below it only after an unclean election.
        """
        assert self.follows
        log = self.log
        local_epoch, local_end = log.leader_epochs.end_offset_for(epoch, log.end_offset)
        target = min(end_offset if local_end < 0 else local_end, log.end_offset)
        if local_epoch == epoch:
            target = min(target, end_offset)
        target = max(target, log.start_offset)
        before = log.end_offset
        log.truncate_to(target)
        dropped, committed = before - log.end_offset, self.high_watermark - log.end_offset
        if committed > 0:
            logger.error(
                "%s: dropped %d records, at least %d of them committed: a leader that was not in sync lacks them",
                *(self.topic_partition, dropped, committed),
            )
            self.high_watermark = log.end_offset
        elif dropped:
            # After a crash it is unknown how much was committed: the high watermark is noted now and then.
            logger.info("%s: dropped %d records that the leader lacks", self.topic_partition, dropped)

    def restart_at(self, offset: int) -> None:
        """Restart the log at the leader's start: the leader no longer has earlier records."""
        assert self.follows
        logger.warning("%s: starting over at offset %d", self.topic_partition, offset)
        self.log.truncate_fully_and_start_at(offset)
        self.high_watermark = offset

    def delete_expired(self) -> int:
        """Apply retention; returns how many segments were deleted. Followers learn where the log starts now."""
        removed = self.log.delete_expired(self.high_watermark)
        if removed:
            self.wakes.wake(self.end_waiters)
        return removed

    def delete_records(self, offset: int) -> int:
        """Delete everything below `offset` (-1: the high watermark); returns the new low watermark."""
        config = self.log.config
        if config.compacted and not config.deletes:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION, f"{self.topic_partition}: cleanup.policy does not contain delete"
            )
        if offset == -1:
            offset = self.high_watermark
        if offset < 0 or offset > self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{offset} is beyond the high watermark {self.high_watermark} of {self.topic_partition}",
            )
        self.log.delete_records_to(offset)
        self.wakes.wake(self.waiters)
        self.wakes.wake(self.end_waiters)
        return self.log.start_offset
