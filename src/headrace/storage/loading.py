"""Loads a log from its directory (R-LOG-7). Blocking: done at start, or in a thread.

After a clean stop the checkpoints and index files are trusted once the last few batches agree with them.
After a crash every batch from the recovery point on is verified; the log is cut at the first byte that is not part
of a whole batch in its place, the indexes of what was scanned are rebuilt, and leader epochs and producer states
are replayed on top of what had been saved. Whatever the bytes are, the result is a log that starts: the longest
valid prefix.
Where only the process died (same boot of the kernel), what it had written is still in the page cache: verification
may then begin at what was written at the last checkpoint (`verified_point`) instead of what was synced.
"""

from __future__ import annotations

import logging

from headrace.env import Disk
from headrace.model.errors import KafkaError
from headrace.model.topics import TopicId, TopicPartition
from headrace.records.batch import HEADER_SIZE, MAGIC, BatchHeader, parse_header
from headrace.storage.checkpoints import (
    LEADER_EPOCHS,
    PARTITION_METADATA,
    read_leader_epochs,
    write_topic_id,
)
from headrace.storage.leader_epochs import NO_EPOCH, LeaderEpochs
from headrace.storage.load_hints import LoadHints
from headrace.storage.log import Log
from headrace.storage.log_config import LogConfig
from headrace.storage.partition_files import find_files, find_segments, set_aside_segment
from headrace.storage.producer_state import ProducerStates
from headrace.storage.replay import apply_batch, load_snapshot, replay_log, snapshot_offsets
from headrace.storage.resources import StorageResources
from headrace.storage.scan import Expectation, scan_headers, scan_verified
from headrace.storage.segment import (
    INDEX,
    LOG,
    SMALL_BYTES,
    SNAPSHOT,
    TIME_INDEX,
    TRANSACTION_INDEX,
    Segment,
)
from headrace.storage.segment_index import SegmentIndex, load_index
from headrace.storage.transaction_index import is_sane

logger = logging.getLogger(__name__)

PROGRESS_SECONDS = 2.0
_MEGABYTE = 1024 * 1024


def create_log(
    directory: str,
    partition: TopicPartition,
    topic_id: TopicId,
    config: LogConfig,
    resources: StorageResources,
    start_offset: int = 0,
) -> Log:
    """A new empty log in a directory of its own."""
    disk = resources.env.disk
    disk.make_directory(directory)
    write_topic_id(disk, f"{directory}/{PARTITION_METADATA}", topic_id)
    segment = Segment(directory, start_offset)
    segment.created_ms = resources.env.clock.wall_ms()
    segment.open_active(resources)
    log = Log(directory, partition, config, resources, [segment])
    log.topic_id = topic_id
    return log


def load_log(
    directory: str,
    partition: TopicPartition,
    topic_id: TopicId,
    config: LogConfig,
    resources: StorageResources,
    hints: LoadHints,
) -> Log:
    disk = resources.env.disk
    names = find_files(resources, directory)
    segments = find_segments(resources, directory, names, hints)
    if not segments:
        if hints.known_end:
            logger.error(
                "%s has no .log file, but the log had reached offset %d: its records are not here, and it starts "
                "empty at that offset. If there is a copy of its files, stop the broker and put them back",
                directory,
                hints.known_end,
            )
        return create_log(directory, partition, topic_id, config, resources, hints.known_end)
    snapshots = snapshot_offsets(names)
    saved_epochs = read_leader_epochs(disk, f"{directory}/{LEADER_EPOCHS}") if LEADER_EPOCHS in names else None
    epochs = LeaderEpochs(f"{directory}/{LEADER_EPOCHS}", saved_epochs)
    gaps_allowed = config.compacted or hints.first_dirty_offset >= 0
    recovery = _Recovery(config, resources, segments, snapshots, epochs, gaps_allowed)
    recovery.holes_possible = hints.power_lost
    # Without a readable epoch checkpoint the batches must tell all of it.
    epochs_known = saved_epochs is not None or not any(segment.size for segment in segments)
    end_offset = recovery.trust_tail(hints.recovery_point) if hints.clean and epochs_known else None
    if end_offset is None:
        whole = max(hints.recovery_point, hints.verified_point)
        end_offset = recovery.recover(whole if epochs_known else 0)
    log = Log(directory, partition, config, resources, recovery.segments)
    log.topic_id = topic_id
    start_offset = hints.start_of(directory, recovery.segments[0].base_offset, end_offset)
    log.first_dirty_offset = hints.dirty_from(directory, min(start_offset, end_offset), end_offset)
    if recovery.has_gaps and log.first_dirty_offset < 0:
        log.first_dirty_offset = min(start_offset, end_offset)
    if saved_epochs:
        hints.tell_what_was_deleted(directory, start_offset, saved_epochs[0][1])
    log.load_offsets(min(start_offset, end_offset), end_offset, min(hints.recovery_point, end_offset))
    epochs.truncate_from_end(end_offset)
    epochs.truncate_from_start(log.start_offset)
    log.set_leader_epochs(epochs)
    log.set_producers(recovery.producers, recovery.snapshot_offset)
    if start_offset > end_offset:
        # Not deleted: only two numbers in two small files contradict these records.
        for segment in reversed(recovery.segments):
            set_aside_segment(resources, segment, f"everything below offset {start_offset} had been deleted")
        log.truncate_fully_and_start_at(start_offset)
    _remove_stray_snapshots(disk, log, snapshots)
    return log


def _remove_stray_snapshots(disk: Disk, log: Log, offsets: list[int]) -> None:
    """Snapshots of segments that are gone, or of offsets that were cut. The newest may stand at no segment."""
    kept = {segment.base_offset for segment in log.segments}
    kept.update([offset for offset in offsets if offset <= log.end_offset][-1:])
    for offset in offsets:
        path = f"{log.directory}/{offset:020d}{SNAPSHOT}"
        if (offset not in kept or offset > log.end_offset) and disk.exists(path):
            disk.unlink(path)


class _Distrusted(Exception):
    """The log does not have what the checkpoints claim."""


class _Progress:
    """Logs the progress of a long verification; a short one is not logged."""

    __slots__ = ("_clock", "_done", "_since", "_total")

    def __init__(self, resources: StorageResources, segments: list[Segment], position: int) -> None:
        self._clock = resources.env.clock
        self._since = self._clock.monotonic()
        self._total = sum(segment.size for segment in segments) - position
        self._done = -position

    def verified(self, segment: Segment) -> None:
        self._done += segment.size
        now = self._clock.monotonic()
        if now - self._since >= PROGRESS_SECONDS and self._done < self._total:
            self._since = now
            done, total = self._done // _MEGABYTE, self._total // _MEGABYTE
            logger.info("%s: verified %d of %d MB", segment.directory, done, total)


class _Recovery:
    """The work on one log: segments in, valid ones out with the last one open, producers and epochs replayed."""

    __slots__ = (
        "_config",
        "_disk",
        "_epochs",
        "_epochs_lost",
        "_gaps_allowed",
        "_resources",
        "_snapshots",
        "_vouched",
        "has_gaps",
        "holes_possible",
        "producers",
        "segments",
        "snapshot_offset",
    )

    def __init__(
        self,
        config: LogConfig,
        resources: StorageResources,
        segments: list[Segment],
        snapshots: list[int],
        epochs: LeaderEpochs,
        gaps_allowed: bool,
    ) -> None:
        """`gaps_allowed`: compaction is, or once was, at work here."""
        self._gaps_allowed = gaps_allowed
        self.has_gaps = False
        """Whether there turned out to be some: it is the copy of a log that was compacted."""
        self.holes_possible = False
        """Whether a segment may have lost its tail while the next one is there."""
        self._snapshots = snapshots
        self._config = config
        self._resources = resources
        self._disk = resources.env.disk
        self._epochs = epochs
        self._epochs_lost = False
        self._vouched = 0
        """Below this the saved epochs know every batch."""
        self.segments = segments
        self.producers = ProducerStates()
        self.snapshot_offset = -1

    # After a clean stop

    def trust_tail(self, recovery_point: int) -> int | None:
        """Open the last segment as its index describes it. The end offset, or None if it is not as it was left."""
        active = self.segments[-1]
        index = SegmentIndex()
        if active.size:
            found = load_index(self._disk, active.path(INDEX), active.path(TIME_INDEX), active.size)
            if found is None and active.size > SMALL_BYTES:
                return None
            index = active.index = found or SegmentIndex()
            active.own_index_from = active.size
        active.open_active(self._resources)
        active.created_ms = self._resources.env.clock.wall_ms()
        try:
            end_offset = self._walk_tail(active, index)
            self._check_transactions(self.segments, end_offset)
            if active.has_aborted:
                active.transactions = active.aborted(self._resources)
            if end_offset == recovery_point:
                self._restore_producers(end_offset)
                return end_offset
        except (KafkaError, _Distrusted):
            pass
        return None

    def _check_epoch(self, header: BatchHeader) -> None:
        """The saved epochs must know a batch as it is. They forget what is below the start of the log."""
        if self._epochs.epoch_for(header.last_offset) not in (NO_EPOCH, header.leader_epoch):
            logger.warning(
                "%s: its leader-epoch-checkpoint does not fit the records: all of them are read to rebuild it",
                self.segments[0].directory,
            )
            self._epochs.clear()
            self._epochs_lost = True
            raise _Distrusted

    def _walk_tail(self, active: Segment, index: SegmentIndex) -> int:
        """Follow the batches after the last index entry: they must end where the file ends."""
        assert active.file is not None
        fd = active.file.fd
        active.max_timestamp = index.last_timestamp
        if index.timestamps:
            active.max_timestamp_offset = active.base_offset + index.time_offsets[-1]
        active.last_index_position = index.last_position
        position, end_offset = index.last_position, active.base_offset
        for position, header in scan_headers(self._disk, fd, index.last_position, active.size):
            if header.magic != MAGIC or header.base_offset < end_offset:
                return -1
            end_offset = header.next_offset
            active.note_last_batch(position, header)
            if header.max_timestamp > active.max_timestamp:
                active.max_timestamp, active.max_timestamp_offset = header.max_timestamp, header.last_offset
            position += header.size
        if position != active.size:
            return -1
        if active.size:
            self._check_epoch(header)
            active.first_timestamp = parse_header(self._disk.pread(fd, HEADER_SIZE, 0)).max_timestamp
        return end_offset

    # After a crash

    def recover(self, recovery_point: int) -> int:
        """Verify everything from the recovery point on and cut what is not valid; the end offset.

        If even what was trusted is damaged or missing, everything is verified.
        """
        try:
            end_offset = self._recover_from(0 if self._epochs_lost else recovery_point)
        except _Distrusted:
            return self._recover_from(0)
        if end_offset >= recovery_point:
            return end_offset
        logger.warning(
            "%s: checkpoints say that all is valid up to offset %d, but the log ends at %d: it is verified again",
            self.segments[0].directory,
            recovery_point,
            end_offset,
        )
        return self._recover_from(0)

    def _recover_from(self, recovery_point: int) -> int:
        self.producers = ProducerStates()
        self._vouched = recovery_point
        for segment in self.segments:
            segment.index = segment.file = segment.transactions = None
        first = max(sum(segment.base_offset <= recovery_point for segment in self.segments) - 1, 0)
        position, from_offset = self._trusted_start(self.segments[first], recovery_point)
        self._check_transactions(self.segments[: first + 1], from_offset)
        self._restore_producers(from_offset)
        expected = Expectation(from_offset, -1, self._gaps_allowed, gaps_provable=True)
        kept = self.segments[:first]
        progress = _Progress(self._resources, self.segments[first:], position)
        rest = self.segments[first:]
        while rest:
            segment = rest[0]
            if segment is not self.segments[first] and not self._follows(segment, expected):
                if segment.base_offset > expected.next_offset:
                    break
                why = f"the log reaches up to offset {expected.next_offset} without it"
                set_aside_segment(self._resources, rest.pop(0), why)
                continue
            del rest[0]
            if kept and kept[-1].file is not None:
                kept[-1].retire(self._resources)
            kept.append(segment)
            if not self._recover_segment(segment, position, expected):
                break
            position = 0
            progress.verified(segment)
        for dropped in rest:
            why = f"the log ends before it, at offset {expected.next_offset}"
            set_aside_segment(self._resources, dropped, why)
        self.segments = kept
        self.has_gaps = expected.gaps_allowed and not self._gaps_allowed
        kept[-1].created_ms = self._resources.env.clock.wall_ms()
        return max(expected.next_offset, kept[-1].base_offset)

    def _follows(self, segment: Segment, expected: Expectation) -> bool:
        if segment.base_offset < expected.next_offset:
            return False
        # Compaction keeps the last batch of a segment, and a roll names the next one by where that ended.
        if segment.base_offset > expected.next_offset and (not self._gaps_allowed or self.holes_possible):
            return False
        expected.next_offset = segment.base_offset
        return True

    def _trusted_start(self, segment: Segment, recovery_point: int) -> tuple[int, int]:
        """(position, offset) to verify from: the last indexed batch before the recovery point, if it is there."""
        index = load_index(self._disk, segment.path(INDEX), segment.path(TIME_INDEX), segment.size)
        if index is not None and recovery_point > segment.base_offset:
            relative, position = index.position_before(recovery_point - 1 - segment.base_offset)
            file = segment.open_file(self._resources)
            data = self._disk.pread(file.fd, HEADER_SIZE, position)
            if relative >= 0 and len(data) == HEADER_SIZE:
                header = parse_header(data)
                if header.magic == MAGIC and header.last_offset == segment.base_offset + relative:
                    index.truncate(relative + 1, position + 1)
                    segment.index, segment.last_index_position = index, position
                    segment.own_index_from = position
                    return position, header.base_offset
        return 0, segment.base_offset

    def _recover_segment(self, segment: Segment, position: int, expected: Expectation) -> bool:
        """Verify one segment from a position on, rebuild its index, cut it where it stops being valid.

        False if it was cut: nothing after it can be part of the log.
        """
        index = segment.index or SegmentIndex()
        index.forget_files()
        segment.index = index
        segment.max_timestamp, segment.max_timestamp_offset = index.last_timestamp, -1
        if index.timestamps:
            segment.max_timestamp_offset = segment.base_offset + index.time_offsets[-1]
        size, end = segment.size, position
        segment.drop_caches(self._resources)
        segment.open_active(self._resources)
        assert segment.file is not None
        fd = segment.file.fd
        if segment.has_aborted:
            # What is verified below makes its entries again.
            from_offset = expected.next_offset if position else segment.base_offset
            segment.aborted(self._resources).truncate(self._disk, segment.path(TRANSACTION_INDEX), from_offset)
        if position:
            segment.first_timestamp = parse_header(self._disk.pread(fd, HEADER_SIZE, 0)).max_timestamp
        interval = self._config.index_interval_bytes
        for start, header, batch in scan_verified(self._disk, fd, position, size, expected):
            segment.note_append(header, expected.next_offset - 1, start, interval)
            if header.leader_epoch != self._epochs.latest:
                if header.last_offset < self._vouched:
                    self._check_epoch(header)
                self._epochs.assign(header.leader_epoch, header.base_offset)
            if header.producer_id >= 0:
                aborted = apply_batch(self.producers, header, batch)
                if aborted is not None:
                    segment.add_aborted(aborted, self._resources)
            end = start + len(batch)
        segment.size = end
        if not end:
            segment.first_timestamp = -1
        if end < size:
            logger.warning(
                "%s: cut %d bytes at position %d, where offset %d should begin: no complete record batch",
                segment.path(LOG),
                size - end,
                end,
                expected.next_offset,
            )
            self._keep_what_follows(segment, fd, end, size)
            self._disk.truncate(fd, end)
            segment.save_index(self._resources, final=False)
        return end == size

    def _keep_what_follows(self, segment: Segment, fd: int, end: int, size: int) -> None:
        """An incomplete write is the last thing in a file. If more follows, keep it, because somebody may want to
        look at it.
        """
        data = self._disk.pread(fd, HEADER_SIZE, end)
        if len(data) < HEADER_SIZE or not HEADER_SIZE <= (batch_size := parse_header(data).size) < size - end:
            return
        why = f"the batch at position {end} is damaged, and {size - end - batch_size} bytes follow it"
        self._resources.strays.copy_aside(fd, end, size, segment.path(LOG), why)

    def _check_transactions(self, segments: list[Segment], end_offset: int) -> None:
        """The aborted transactions below an offset must be plausible: they are recorded nowhere else."""
        ends = [*(segment.base_offset for segment in segments[1:]), end_offset]
        for segment, end in zip(segments, ends, strict=True):
            if not segment.has_aborted or segment.base_offset >= end_offset:
                continue
            if not is_sane(self._disk, segment.path(TRANSACTION_INDEX), segment.base_offset, min(end, end_offset)):
                logger.warning("%s is invalid and is rebuilt", segment.path(TRANSACTION_INDEX))
                raise _Distrusted

    def _restore_producers(self, end_offset: int) -> None:
        """The state as of an offset: the newest snapshot up to there, and the batches between."""
        found = load_snapshot(self._disk, self.segments[0].directory, self._snapshots, end_offset)
        from_offset = self.segments[0].base_offset
        if found is not None:
            self.producers, from_offset = found
            self.snapshot_offset = from_offset
        try:
            replay_log(self.producers, self.segments, from_offset, end_offset, self._resources)
        except KafkaError as error:
            raise _Distrusted from error
