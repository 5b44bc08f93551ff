"""Getting a log onto the device, and knowing what of it is there. Syncs block: for threads, and for a stop.

A sync runs in a thread while the loop appends and cuts. What it may promise when it ends is the end offset of when
it began, unless something was cut meanwhile: then what was synced is not what is there now. So:
- whoever syncs asks for the number of cuts first and for the end offset after it;
- whoever cuts moves the end offset first and counts the cut after it;
- to compare and to note is one step, under a lock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock

from headrace.env.env import READ_ONLY
from headrace.storage.checkpoints import PARTITION_METADATA
from headrace.storage.files import OpenFile, parent_of
from headrace.storage.leader_epochs import LeaderEpochs
from headrace.storage.resources import StorageResources
from headrace.storage.segment import INDEX, LOG, TIME_INDEX, TRANSACTION_INDEX, Segment
from headrace.storage.segment_list import SegmentList

NOTING = Lock()
"""Held for a comparison and an assignment, so that one is enough for all logs."""


class Durability:
    """What of one log is on the device: everything below the recovery point, and the names of its files."""

    __slots__ = ("_directory_changes", "_directory_synced", "cuts", "recovery_point")

    def __init__(self, recovery_point: int) -> None:
        self.recovery_point = recovery_point
        self.cuts = 0
        self._directory_changes, self._directory_synced = 1, 0

    def directory_changed(self) -> None:
        """Files were made or renamed: their names must last before anything in them is promised."""
        self._directory_changes += 1

    def sync(
        self,
        resources: StorageResources,
        segments: SegmentList,
        directory: str,
        leader_epochs: LeaderEpochs | None,
        save_index: bool,
    ) -> None:
        """Everything that is in the log now, as far as the recovery point does not vouch for it."""
        changes = self._directory_changes
        sync_segments(
            resources, segments.from_offset(self.recovery_point), lambda segment: segment not in segments
        )
        if save_index:
            segments.active.save_index(resources, final=False)
        if leader_epochs is not None:
            leader_epochs.save(resources.env.disk)
        if self._directory_synced < changes:
            sync_directory(resources, directory)
            self._directory_synced = changes

    def synced(self, end_offset: int, cuts: int) -> None:
        """A sync ended well that had begun at `end_offset`, when there had been so many cuts."""
        with NOTING:
            if self.cuts == cuts:
                self.recovery_point = max(self.recovery_point, end_offset)

    def all_synced(self, end_offset: int) -> None:
        """Everything on the volume was synced at once, and nothing was written since."""
        self.recovery_point, self._directory_synced = end_offset, self._directory_changes

    def cut(self, end_offset: int) -> None:
        """The log was cut, and ends at this offset now."""
        with NOTING:
            self.cuts += 1
            self.recovery_point = min(self.recovery_point, end_offset)

    def restarted(self, offset: int) -> None:
        """The log is emptied and continues at an offset."""
        with NOTING:
            self.cuts += 1
            self.recovery_point = offset

    def not_before(self, start_offset: int) -> None:
        """The log starts later: what came before needs no sync any more."""
        with NOTING:
            self.recovery_point = max(self.recovery_point, start_offset)


def sync_segments(
    resources: StorageResources, segments: Sequence[Segment], is_gone: Callable[[Segment], bool]
) -> None:
    """Sync the batches of some segments, the active one last, and the index files of the closed ones.

    Below the recovery point the index files of closed segments are believed. `is_gone` says whether retention or a
    cut has removed a segment in the meantime.
    """
    for segment in segments:
        try:
            _sync_segment(resources, segment, with_index=segment is not segments[-1])
        except FileNotFoundError:
            if not is_gone(segment):
                raise


def _sync_segment(resources: StorageResources, segment: Segment, with_index: bool) -> None:
    disk = resources.env.disk
    file = segment.file or OpenFile(disk, segment.path(LOG), READ_ONLY)
    disk.fdatasync(file.fd)
    if segment.has_aborted:
        segment.aborted(resources).sync(disk, segment.path(TRANSACTION_INDEX))
    for suffix in (INDEX, TIME_INDEX) if with_index else ():
        file = OpenFile(disk, segment.path(suffix), READ_ONLY)
        disk.fdatasync(file.fd)


def sync_directory(resources: StorageResources, directory: str) -> None:
    """Make the names of new files last, and the topic's id with them, and the name of the directory itself."""
    disk = resources.env.disk
    metadata = f"{directory}/{PARTITION_METADATA}"
    if disk.exists(metadata):
        file = OpenFile(disk, metadata, READ_ONLY)
        disk.fsync(file.fd)
    disk.fsync_directory(directory)
    disk.fsync_directory(parent_of(directory))
