"""What all partitions of a broker share: who is woken, whether the lease holds, and whom a leader asks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from headrace.env import Clock
from headrace.replication.waiters import WakeList

if TYPE_CHECKING:
    from headrace.replication.partition import Partition


class Lease(Protocol):
    def valid(self) -> bool:
        """Whether this broker's session is surely alive."""
        ...


class AlwaysValid:
    def valid(self) -> bool:
        return True


class InSyncRequests(Protocol):
    def ask(self, partition: Partition) -> None:
        """The in-sync set of a partition may have to change: look, and ask the controller."""
        ...


class NoRequests:
    def ask(self, partition: Partition) -> None:
        """No one to ask: a single broker."""


class Following(Protocol):
    def stir(self, partition: Partition) -> None:
        """What a follower has counts now: it may say so to its leader."""
        ...


class FollowsNobody:
    def stir(self, partition: Partition) -> None:
        """A broker that is alone."""


@dataclass(slots=True)
class InSyncChanges:
    """Counted by leaders: replicas that left and joined in-sync sets within an epoch."""

    left: int = 0
    joined: int = 0

    def note(self, before: tuple[int, ...], after: tuple[int, ...]) -> None:
        if before != after:
            self.left += len(set(before) - set(after))
            self.joined += len(set(after) - set(before))


class PartitionHost:
    __slots__ = (
        "broker_id",
        "clock",
        "following",
        "in_sync",
        "in_sync_changes",
        "lease",
        "silence_seconds",
        "wakes",
    )

    def __init__(
        self, broker_id: int, clock: Clock, lease: Lease | None = None, silence_seconds: float = 1.0
    ) -> None:
        self.broker_id = broker_id
        self.clock = clock
        self.wakes = WakeList(clock)
        self.lease: Lease = lease or AlwaysValid()
        self.silence_seconds = silence_seconds
        """Followers that have not asked for so long may follow another leader by now."""
        self.in_sync_changes = InSyncChanges()
        self.in_sync: InSyncRequests = NoRequests()
        self.following: Following = FollowsNobody()
