"""Getting a log onto the device. Blocking: for threads, and for a stop."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headrace.env.env import READ_ONLY
from headrace.storage.checkpoints import PARTITION_METADATA
from headrace.storage.files import OpenFile
from headrace.storage.resources import StorageResources
from headrace.storage.segment import INDEX, LOG, TIME_INDEX, Segment


def sync_segments(
    resources: StorageResources, segments: Sequence[Segment], is_gone: Callable[[Segment], bool]
) -> None:
    """Sync the batches of some segments, the active one last, and the index files of the closed ones.

    Below the recovery point the index files of closed segments are believed. `is_gone` tells of a segment that
    retention, or a cut, removed meanwhile.
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
    for suffix in (INDEX, TIME_INDEX) if with_index else ():
        file = OpenFile(disk, segment.path(suffix), READ_ONLY)
        disk.fdatasync(file.fd)


def sync_directory(resources: StorageResources, directory: str) -> None:
    """Make the names of new files last, and the topic's id with them."""
    disk = resources.env.disk
    metadata = f"{directory}/{PARTITION_METADATA}"
    if disk.exists(metadata):
        file = OpenFile(disk, metadata, READ_ONLY)
        disk.fsync(file.fd)
    disk.fsync_directory(directory)
