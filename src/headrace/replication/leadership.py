"""What a leader knows of its followers in one epoch: how far each has come, and who is in sync.

Two in-sync sets while a change is asked for: the *committed* one, which the controller wrote, and the *maximal*
one, which adds whoever is about to join. The high watermark waits for every member of the maximal set, so that it
is right whichever of the two turns out to hold; `min.insync.replicas` counts the committed one. A member leaves
only when the controller's write is seen. While the controller counts others as eligible to lead because nothing
was committed since they left (KIP-966), nothing is.

Lag is measured without a cost per append: at every look (`mark`) the end of the log is noted, and a member that
has not reached an end noted `replica.lag.time.max.ms` ago lags.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from headrace.metadata.image import BrokerImage, PartitionImage

UNKNOWN_OFFSET = -1
UNKNOWN_EPOCH = -1


class Poll(Protocol):
    """How a follower asks: with a fetch session, or with a single fetch."""

    @property
    def followed_at(self) -> float:
        """The last time at which it certainly still followed this leader."""


@dataclass(frozen=True, slots=True)
class SingleFetch:
    followed_at: float = float("-inf")


@dataclass(frozen=True, slots=True)
class InSyncChange:
    """An in-sync set that was requested from the controller, and the state on which it was requested."""

    isr: tuple[int, ...]
    epochs: tuple[int, ...]
    """The epochs of the members' brokers, as this leader knows them."""
    partition_epoch: int
    unsure: bool = False
    """It was requested before with an unknown outcome: it may have been granted."""
    withdrawn: bool = False
    """Whether the request is withdrawn: it asks for the set as it is, in a new partition epoch, so that this one
    can no longer be granted."""


class Leadership:
    __slots__ = (
        "_brokers",
        "_committing",
        "_electable",
        "_ends",
        "_isr",
        "_local_id",
        "_marks",
        "_partition_epoch",
        "_polls",
        "_removed",
        "_replicas",
        "_starts",
        "epoch_start",
        "heard",
        "pending",
    )

    def __init__(self, local_id: int, image: PartitionImage, epoch_start: int) -> None:
        self._local_id = local_id
        self.epoch_start = epoch_start
        """The offset at which this epoch begins."""
        self._replicas = image.replicas
        self._ends = {replica: UNKNOWN_OFFSET for replica in image.replicas if replica != local_id}
        """The end of each follower's log; unknown until it fetches in this epoch."""
        self._starts: dict[int, int] = {}
        """The start of each follower's log."""
        self._brokers: dict[int, int] = {}
        """The broker epochs that followers fetched with."""
        self._polls: dict[int, Poll] = {}
        self._isr = image.isr
        self._removed: set[int] = set()
        """Replicas that left the in-sync set and have not fetched since: the end that is known of them is old."""
        self._electable = (*image.isr, *image.elr)
        """The replicas that the controller may make the leader."""
        self._committing = _committing(image)
        self.pending: InSyncChange | None = None
        self._partition_epoch = image.partition_epoch
        self.heard = False
        """Whether the controller has answered this leader since the state became what it is."""
        self._marks: deque[tuple[float, int]] = deque()

    def follow(self, image: PartitionImage) -> None:
        """Take over a change of the replicas or the in-sync set within the epoch."""
        if self.pending is not None and image.partition_epoch > self.pending.partition_epoch:
            self.pending = None  # it was granted, or can no longer be granted
        if image.partition_epoch > self._partition_epoch:
            self._partition_epoch, self.heard = image.partition_epoch, False
        self._removed.update(set(self._isr) - set(image.isr))
        self._isr = image.isr
        self._electable = (*image.isr, *image.elr)
        self._committing = _committing(image)
        self._replicas = image.replicas
        others = [replica for replica in image.replicas if replica != self._local_id]
        self._ends = {replica: self._ends.get(replica, UNKNOWN_OFFSET) for replica in others}

    @property
    def isr(self) -> tuple[int, ...]:
        return self._isr

    @property
    def names_eligible(self) -> bool:
        """Whether the controller counts others as eligible to lead, so that nothing is committed."""
        return len(self._electable) > len(self._isr)

    def end_of(self, replica: int) -> int:
        return self._ends.get(replica, UNKNOWN_OFFSET)

    def is_follower(self, replica: int) -> bool:
        return replica in self._ends

    # -- how far they are

    def fetched(self, replica: int, offset: int, broker_epoch: int, poll: Poll) -> bool:
        """A follower has everything below `offset`; returns whether that is new. Only replicas are counted."""
        if replica not in self._ends or self.is_of_the_past(replica, broker_epoch):
            return False
        self._polls[replica] = poll
        self._brokers[replica] = broker_epoch
        self._removed.discard(replica)
        if self._ends[replica] == offset:
            return False
        self._ends[replica] = offset
        return True

    def is_of_the_past(self, replica: int, broker_epoch: int) -> bool:
        """Whether a broker sent this before it restarted: it may have lost what it had then.

        The request may arrive late, on the old connection. An unregistered broker has no epoch to compare.
        """
        return UNKNOWN_EPOCH < broker_epoch < self._brokers.get(replica, UNKNOWN_EPOCH)

    def starts(self, replica: int, offset: int) -> bool:
        """A follower's log starts at `offset`; returns whether that is new."""
        if self._starts.get(replica) == offset:
            return False
        self._starts[replica] = offset
        return True

    def lowest_start(self, local_start: int) -> int:
        """The lowest start of a log that may become the leader's: of those in sync, eligible, or about to join."""
        starts = self._starts
        joining = self.pending.isr if self.pending is not None else ()
        others = {*self._electable, *joining} - {self._local_id}
        return min([local_start, *(starts.get(replica, UNKNOWN_OFFSET) for replica in others)])

    def left(self, replica: int, poll: Poll) -> None:
        """A follower no longer asks for this partition with this poll: it may follow another leader."""
        if self._polls.get(replica) is poll:
            del self._polls[replica]

    def committed_end(self, local_end: int, min_in_sync: int) -> int:
        """The end that every member of the maximal set has reached; it does not move while too few are in sync."""
        if self._committing < min_in_sync:
            return UNKNOWN_OFFSET
        end = local_end
        ends = self._ends
        for replica in self._isr:
            if replica != self._local_id and ends[replica] < end:
                end = ends[replica]
        if self.pending is not None:
            for replica in self.pending.isr:
                if replica != self._local_id and ends.get(replica, end) < end:
                    end = ends[replica]
        return end

    def in_sync_at(self, end_offset: int) -> int:
        """How many in-sync replicas, this one included, have everything below `end_offset`."""
        return 1 + sum(self._ends[replica] >= end_offset for replica in self._isr if replica != self._local_id)

    def all_fetched_since(self, time: float) -> bool:
        """Whether all others that may be elected, in sync or eligible, have fetched since then: none leads."""
        others = [replica for replica in self._electable if replica != self._local_id]
        return all(replica in self._polls and self._polls[replica].followed_at >= time for replica in others)

    # -- who is in sync

    def may_join(self, replica: int, high_watermark: int, log_start: int) -> bool:
        """Whether it has everything that is committed, the start of this epoch, and nothing that was deleted."""
        if replica in self._isr or replica in self._removed or self._starts.get(replica, 0) < log_start:
            return False
        end = self._ends.get(replica, UNKNOWN_OFFSET)
        return end >= high_watermark and end >= self.epoch_start

    def may_ask(self, high_watermark: int, log_start: int) -> bool:
        """Whether there may be a reason to ask the controller, other than a member that lags."""
        return self.pending is None and (self.names_eligible or self.any_may_join(high_watermark, log_start))

    def any_may_join(self, high_watermark: int, log_start: int) -> bool:
        return any(self.may_join(replica, high_watermark, log_start) for replica in self._ends)

    def mark(self, now: float, end_offset: int, oldest: float) -> None:
        """Note the end of the log now; of the notes before `oldest`, one is kept."""
        self._marks.append((now, end_offset))
        while len(self._marks) > 1 and self._marks[1][0] <= oldest:
            self._marks.popleft()

    def laggards(self, oldest: float, end_offset: int, max_lag_records: int | None) -> list[int]:
        """Members that have not reached the end that the log had at `oldest`, or are too many records behind."""
        must_have = next((end for time, end in reversed(self._marks) if time <= oldest), None)
        return [
            replica
            for replica in self._isr
            if replica != self._local_id
            and (
                (must_have is not None and self._ends[replica] < must_have)
                or (max_lag_records is not None and end_offset - self._ends[replica] > max_lag_records)
            )
        ]

    def wanted(
        self,
        high_watermark: int,
        log_start: int,
        laggards: list[int],
        brokers: Mapping[int, BrokerImage],
        partition_epoch: int,
        min_in_sync: int,
    ) -> InSyncChange | None:
        """The in-sync set to request; None if it is right.

        The present one is requested too while others count as eligible although it is large enough: the controller
        waits for a sign of life from the leader.
        """
        joining = [
            replica
            for replica in self._ends
            if self.may_join(replica, high_watermark, log_start) and self._is_registered(replica, brokers)
        ]
        members = [
            replica
            for replica in self._replicas
            if replica in joining or (replica in self._isr and replica not in laggards)
        ]
        waited_for = self.names_eligible and not self.heard and len(members) >= min_in_sync
        if set(members) == set(self._isr) and not waited_for:
            return None
        epochs = tuple(
            brokers[member].epoch if member == self._local_id else self._brokers.get(member, UNKNOWN_EPOCH)
            for member in members
        )
        return InSyncChange(tuple(members), epochs, partition_epoch)

    def _is_registered(self, replica: int, brokers: Mapping[int, BrokerImage]) -> bool:
        """Whether it is registered as it was when it fetched: one that was not registered then may have lost its
        records, and be back."""
        known = brokers.get(replica)
        return known is not None and self._brokers.get(replica, UNKNOWN_EPOCH) == known.epoch


def _committing(image: PartitionImage) -> int:
    """The number of in-sync replicas that count for `min.insync.replicas`."""
    return 0 if image.elr else len(image.isr)
