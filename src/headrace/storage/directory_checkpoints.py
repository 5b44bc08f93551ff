"""The checkpoints of one data directory: read at start, and written by one thread at a time.

Kafka's files name topics, and a topic that was deleted and created again has the same name. So one more file,
ours, says whose numbers they are:

    headrace-topic-id-checkpoint   0 (version) · number of lines · one "topic partition topic-id" a line

It is written after the others, and with the first high watermark of a log. Numbers of a partition with another id,
or with none, are not believed: the worst that a crash between two files leaves is a log that is verified from its
start. Without the file (an older version wrote the others) all are believed.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from threading import Lock

from headrace.env import Disk
from headrace.model.topics import NO_TOPIC_ID, TopicId, TopicPartition
from headrace.storage.checkpoints import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    TOPIC_IDS,
    WRITTEN_OFFSETS,
    read_offsets,
    read_topic_ids,
    write_offsets,
    write_topic_ids,
)
from headrace.storage.load_hints import LastStop, LoadHints
from headrace.storage.log import Log

logger = logging.getLogger(__name__)

_BACK_AGAIN = (
    "records that were deleted with DeleteRecords can be read again if their segment files are still there. "
    "Delete them once more"
)
Logs = Mapping[TopicPartition, Log]
Offsets = dict[TopicPartition, int]


class DirectoryCheckpoints:
    """The checkpoints of one directory. Everything here blocks. `logs` is always the owner's live mapping, and is
    read under the lock."""

    __slots__ = (
        "_closed",
        "_dirty",
        "_disk",
        "_ids",
        "_marked",
        "_marks",
        "_path",
        "_points",
        "_starts",
        "_starts_known",
        "_writing",
        "_written",
    )

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._writing = Lock()
        """The timer, a move, a cleaning and a stop all write, each from a thread of its own."""
        self._closed = False
        self._ids: dict[TopicPartition, TopicId] | None = None
        """The topic ids in the file; None if there is no file."""
        self._marks: Offsets = {}
        """The high watermarks in their file."""
        self._marked: Mapping[TopicPartition, TopicId] = {}
        """The topic ids to which those belong."""
        self._points: Offsets = {}
        self._starts: Offsets = {}
        self._starts_known = True
        self._written: Offsets = {}
        self._dirty: Offsets = {}

    # At start

    def read(self, has_logs: bool = False, was_closed: bool = False) -> None:
        """Read the files. `was_closed`: the last stop was clean, and has written all of them."""
        ids = read_topic_ids(self._disk, f"{self._path}/{TOPIC_IDS}")
        if ids is None:
            self._tell_if_unreadable(TOPIC_IDS)
        self._ids = ids
        self._marks, self._marked = self._read(HIGH_WATERMARKS), ids or {}
        self._points = self._read(RECOVERY_POINTS)
        self._starts = self._read(LOG_START_OFFSETS)
        self._starts_known = not has_logs or self._disk.exists(f"{self._path}/{LOG_START_OFFSETS}")
        if not self._starts_known:
            self._tell_that_starts_are_lost(was_closed)
        self._written = self._read(WRITTEN_OFFSETS)
        self._dirty = self._read(CLEANER_OFFSETS)

    def _read(self, name: str) -> Offsets:
        offsets = read_offsets(self._disk, f"{self._path}/{name}")
        if offsets is None:
            self._tell_if_unreadable(name)
        return offsets or {}

    def _tell_if_unreadable(self, name: str) -> None:
        if self._disk.exists(f"{self._path}/{name}"):
            found_again = "its content is rebuilt from the logs"
            logger.warning(
                "%s/%s cannot be read and is ignored: %s",
                self._path,
                name,
                _BACK_AGAIN if name == LOG_START_OFFSETS else found_again,
            )

    def _tell_that_starts_are_lost(self, was_closed: bool) -> None:
        is_sure = was_closed or any(
            self._disk.exists(f"{self._path}/{name}") for name in (WRITTEN_OFFSETS, TOPIC_IDS)
        )
        early = "" if is_sure else " (unless the broker was killed in its first minute with this directory)"
        logger.log(
            logging.ERROR if is_sure else logging.WARNING,
            "%s/%s is missing%s: %s",
            self._path,
            LOG_START_OFFSETS,
            early,
            _BACK_AGAIN,
        )

    def topic_id(self, partition: TopicPartition) -> TopicId:
        """The topic id of the log in the last checkpoint; NO_TOPIC_ID if it has none."""
        return (self._ids or {}).get(partition, NO_TOPIC_ID)

    def hints(self, partition: TopicPartition, topic_id: TopicId, stop: LastStop) -> LoadHints:
        """The recorded facts about the log of a topic; nothing if they belong to another topic."""
        if self._ids is not None and self._ids.get(partition) != topic_id:
            return LoadHints(power_lost=stop.power_lost, starts_known=self._starts_known)
        written = self._written.get(partition, 0)
        return LoadHints(
            # A log without a recovery point was created after the last checkpoint.
            clean=stop.clean and partition in self._points,
            start_offset=self._starts.get(partition, 0),
            recovery_point=self._points.get(partition, 0),
            # Data that was written but not synced is only certain within the same boot.
            verified_point=written if stop.same_boot else 0,
            first_dirty_offset=self._dirty.get(partition, -1),
            written_offset=written,
            power_lost=stop.power_lost,
            starts_known=self._starts_known,
        )

    def read_high_watermarks(self, logs: Logs) -> Offsets:
        """The high watermarks of the existing logs, each limited to its log."""
        found = {}
        for partition, offset in self._read(HIGH_WATERMARKS).items():
            log = logs.get(partition)
            if log is None or (self._ids is not None and self._ids.get(partition) != log.topic_id):
                continue
            found[partition] = min(max(offset, log.start_offset), log.end_offset)
            if offset > log.end_offset:
                logger.warning(
                    "%s: the checkpoint says that its high watermark is %d, but it ends at %d",
                    log.directory,
                    offset,
                    log.end_offset,
                )
        return found

    # While it runs

    def write(self, logs: Logs) -> None:
        """Write where recovery must begin after a crash, where each log starts, and its topic id."""
        with self._writing:
            if not self._closed:
                self._write_all(logs)

    def write_dirty_offsets(self, logs: Logs) -> None:
        """Write where each log that was ever compacted is dirty from, if that is not written yet."""
        with self._writing:
            if self._closed:
                return
            held, ids = list(logs.items()), self._ids or {}
            if all(ids.get(name) == log.topic_id for name, log in held if log.first_dirty_offset >= 0):
                self._write_dirty_offsets(held)
            else:
                # Without its topic id the number would not be believed.
                self._write_all(logs)

    def write_high_watermarks(self, offsets: Mapping[TopicPartition, int], logs: Logs) -> None:
        """Write the high watermarks. If their topic ids are not written yet, write everything: after a crash they
        would be believed of any log."""
        with self._writing:
            if self._closed:
                return
            ids = {partition: log.topic_id for partition, log in list(logs.items()) if partition in offsets}
            self._write(HIGH_WATERMARKS, offsets)
            self._marks, self._marked = dict(offsets), ids
            known = self._ids or {}
            if any(known.get(partition) != topic_id for partition, topic_id in ids.items()):
                self._write_all(logs)

    def close(self) -> None:
        """Close: threads that are still running write nothing after this."""
        with self._writing:
            self._closed = True

    def _write_all(self, logs: Logs) -> None:
        held = list(logs.items())
        written = {partition: log.end_offset for partition, log in held}
        for partition, log in held:
            try:
                log.save_state()
            except FileNotFoundError:
                if logs.get(partition) is log:
                    raise
                # It was deleted since.
        points = {partition: log.recovery_point for partition, log in held}
        starts = {partition: log.start_offset for partition, log in held if log.start_raised}
        self._write(RECOVERY_POINTS, points)
        self._write(LOG_START_OFFSETS, starts)
        self._write(WRITTEN_OFFSETS, written)
        self._write_dirty_offsets(held)
        ids = {partition: log.topic_id for partition, log in held}
        self._drop_marks_of_others(ids)
        self._write_ids(ids)
        # The values from the start are no longer needed.
        self._points, self._starts, self._written = {}, {}, {}

    def _write_dirty_offsets(self, held: list[tuple[TopicPartition, Log]]) -> None:
        offsets = {partition: log.first_dirty_offset for partition, log in held if log.first_dirty_offset >= 0}
        if offsets != self._dirty:
            self._write(CLEANER_OFFSETS, offsets)
            self._dirty = offsets

    def _drop_marks_of_others(self, ids: Mapping[TopicPartition, TopicId]) -> None:
        """Drop high watermarks of topics that were created again: they must not pass for their successors'."""
        others = [name for name in self._marks if name in ids and self._marked.get(name) != ids[name]]
        if others:
            self._marks = {name: offset for name, offset in self._marks.items() if name not in others}
            self._write(HIGH_WATERMARKS, self._marks)

    def _write_ids(self, ids: dict[TopicPartition, TopicId]) -> None:
        if ids != self._ids:
            write_topic_ids(self._disk, f"{self._path}/{TOPIC_IDS}", ids)
            self._ids = ids

    def _write(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        write_offsets(self._disk, f"{self._path}/{name}", offsets)
