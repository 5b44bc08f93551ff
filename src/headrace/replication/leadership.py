"""What a leader knows of its followers in one epoch: how far each has come, and who is in sync.

Two in-sync sets while a change is asked for: the *committed* one, which the controller wrote, and the *maximal*
one, which adds whoever is about to join. The high watermark waits for every member of the maximal set, so that it
is right whichever of the two turns out to hold; `min.insync.replicas` counts the committed one. A member leaves
only when the controller's write is seen.
"""

from __future__ import annotations

from headrace.metadata.image import PartitionImage

UNKNOWN_OFFSET = -1


class Leadership:
    __slots__ = ("_ends", "_isr", "_local_id", "epoch_start", "joining")

    def __init__(self, local_id: int, image: PartitionImage, epoch_start: int) -> None:
        self._local_id = local_id
        self.epoch_start = epoch_start
        """Where this epoch begins in the log."""
        self._ends = {replica: UNKNOWN_OFFSET for replica in image.replicas if replica != local_id}
        """Up to where each follower has the log; unknown until it fetches in this epoch."""
        self._isr = image.isr
        self.joining: dict[int, None] = {}
        """Followers that the controller was asked to add."""

    def follow(self, image: PartitionImage) -> None:
        """The controller changed replicas or in-sync set within the epoch."""
        self._isr = image.isr
        self._ends = {
            replica: self._ends.get(replica, UNKNOWN_OFFSET)
            for replica in image.replicas
            if replica != self._local_id
        }
        still = [replica for replica in self.joining if replica in self._ends and replica not in image.isr]
        self.joining = dict.fromkeys(still)

    @property
    def isr(self) -> tuple[int, ...]:
        return self._isr

    def end_of(self, replica: int) -> int:
        return self._ends.get(replica, UNKNOWN_OFFSET)

    def fetched(self, replica: int, offset: int) -> bool:
        """A follower has everything below `offset`; whether that is news. Only replicas are counted."""
        if self._ends.get(replica, offset) == offset:
            return False
        self._ends[replica] = offset
        return True

    def committed_end(self, local_end: int, min_in_sync: int) -> int:
        """Up to where every member of the maximal set has the log; nothing new while too few are in sync."""
        if len(self._isr) < min_in_sync:
            return UNKNOWN_OFFSET
        end = local_end
        ends = self._ends
        for replica in self._isr:
            if replica != self._local_id and ends[replica] < end:
                end = ends[replica]
        for replica in self.joining:
            if ends[replica] < end:
                end = ends[replica]
        return end

    def in_sync_at(self, end_offset: int) -> int:
        """How many in-sync replicas, this one included, have everything below `end_offset`."""
        return 1 + sum(self._ends[replica] >= end_offset for replica in self._isr if replica != self._local_id)
