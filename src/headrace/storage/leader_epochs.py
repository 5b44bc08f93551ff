"""Which leader epoch began at which offset: how replicas find where their logs part (KIP-101, KIP-279)."""

from __future__ import annotations

from threading import Lock

from headrace.env import Disk
from headrace.storage.checkpoints import write_leader_epochs

NO_EPOCH = -1
NO_OFFSET = -1
_SAVING = Lock()
"""A flush in a thread and a roll on the loop may save the same checkpoint: one after the other."""


class LeaderEpochs:
    """Entries (epoch, start offset), both growing.

    Changes stay in memory until `save`: entries for batches above the recovery point are found again in the
    batches themselves, and `Log.flush` saves before it moves the recovery point.
    """

    __slots__ = ("_dirty", "_entries", "_path")

    def __init__(self, path: str, entries: list[tuple[int, int]] | None = None) -> None:
        self._path = path
        self._entries = entries or []
        self._dirty = False

    def copy_to(self, path: str) -> LeaderEpochs:
        """The same epochs, not yet written there."""
        copy = LeaderEpochs(path, list(self._entries))
        copy._dirty = True
        return copy

    @property
    def latest(self) -> int:
        return self._entries[-1][0] if self._entries else NO_EPOCH

    @property
    def entries(self) -> tuple[tuple[int, int], ...]:
        return tuple(self._entries)

    def assign(self, epoch: int, start_offset: int) -> None:
        """An epoch begins at an offset. Entries that contradict it were never committed and go."""
        entries = self._entries
        if epoch < 0 or (entries and entries[-1][0] == epoch and entries[-1][1] <= start_offset):
            return
        while entries and (entries[-1][0] >= epoch or entries[-1][1] >= start_offset):
            entries.pop()
        entries.append((epoch, start_offset))
        self._dirty = True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(epoch, end offset) of the largest epoch at or below `epoch`, by Kafka's OffsetForLeaderEpoch rules."""
        if epoch == NO_EPOCH or epoch > self.latest:
            return NO_EPOCH, NO_OFFSET
        if epoch == self.latest:
            return epoch, log_end_offset
        found, next_start = NO_EPOCH, NO_OFFSET
        for known, start in self._entries:
            if known > epoch:
                next_start = start
                break
            found = known
        # An epoch before all that are kept: everything of it ends where the first kept one begins.
        return (found if found != NO_EPOCH else epoch), next_start

    def epoch_for(self, offset: int) -> int:
        """The epoch that the record at `offset` was written in."""
        return next((epoch for epoch, start in reversed(self._entries) if start <= offset), NO_EPOCH)

    def truncate_from_end(self, end_offset: int) -> None:
        kept = [entry for entry in self._entries if entry[1] < end_offset]
        if len(kept) != len(self._entries):
            self._entries, self._dirty = kept, True

    def truncate_from_start(self, start_offset: int) -> None:
        """Forget epochs that ended before `start_offset`; the one in force there begins there now."""
        before = [entry for entry in self._entries if entry[1] <= start_offset]
        if before and (len(before) > 1 or before[0][1] < start_offset):
            self._entries[: len(before)] = [(before[-1][0], start_offset)]
            self._dirty = True

    def clear(self) -> None:
        self._dirty = self._dirty or bool(self._entries)
        self._entries = []

    def forget(self, disk: Disk) -> None:
        """Remove all epochs and the checkpoint file: removing it needs no space on the disk."""
        with _SAVING:
            self._entries = []
            self._dirty = False
            try:
                disk.unlink(self._path)
            except FileNotFoundError:
                pass

    def save(self, disk: Disk) -> None:
        """Write the checkpoint if something changed since the last time.

        Not synced: a checkpoint that power loss spoiled is rebuilt from the batches.
        """
        with _SAVING:
            if self._dirty:
                entries = tuple(self._entries)
                write_leader_epochs(disk, self._path, entries)
                self._dirty = tuple(self._entries) != entries
