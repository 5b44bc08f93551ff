"""The log of one partition: append, read, roll, cut. What it is made of is in `log_parts`.

Rules:
- An append is one `pwrite` of the whole batch; nothing is done per record. Whatever fails, size and end offset
  still say what they said before, and the next append writes over the rest.
- A read is a range of one file; batches are never looked into. Its cost does not depend on the size of the log.
- Producer state and leader epochs are changed in memory with the batch.
- A cut reaches every part: files, offsets, durability, epochs, producers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from headrace.model.buffers import Buffer
from headrace.model.errors import ErrorCode, KafkaError
from headrace.records.batch import (
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    OFFSET_LENGTH_EPOCH,
    TRANSACTIONAL,
    BatchHeader,
    checked_header,
    parse_header,
)
from headrace.records.markers import ABORT, COMMIT, EndMarker, build_marker
from headrace.storage.append_checks import adapted, check_header, check_size
from headrace.storage.files import FileRange, OpenFile
from headrace.storage.health import cut_short
from headrace.storage.log_parts import LogParts
from headrace.storage.producer_state import VerificationGuard
from headrace.storage.replay import apply_batch, apply_end
from headrace.storage.retention import expired_segments
from headrace.storage.scan import split_batches
from headrace.storage.segment import MAX_RELATIVE_OFFSET, Segment
from headrace.storage.timestamps import TimestampOffset, find_by_timestamp, find_max_timestamp
from headrace.storage.transaction_index import AbortedTransaction

_SEARCHES = 5
_new_tuple = tuple.__new__
"""Makes a named tuple without a call into Python: reads are hot."""


class Append(NamedTuple):
    """Where a batch is now. `append_time` is -1 unless the topic stamps its records."""

    base_offset: int
    append_time: int


class Log(LogParts):
    __slots__ = ()

    # Append

    def append_as_leader(
        self,
        batch: memoryview | bytearray | bytes,
        leader_epoch: int,
        guard: VerificationGuard | None = None,
    ) -> Append:
        """Store one batch from a client; it gets the next offsets. A duplicate is answered, not stored.

        `batch` is changed in place where it is writable. A transactional one that is the first of its transaction
        needs the `guard` with which it was verified.
        """
        config = self.config
        size = len(batch)
        if size > config.max_message_bytes or size > config.segment_bytes:
            check_size(size, config)
        header = checked_header(memoryview(batch))
        now_ms = self._resources.env.clock.wall_ms()
        odd_times = check_header(header, config, now_ms)
        producer_id = header.producer_id
        states = self._producers.states
        if producer_id >= 0 and (states is not None or header.attributes & TRANSACTIONAL):
            duplicate = (self.producers if states is None else states).check(header, guard)
            if duplicate is not None:
                return Append(duplicate.base_offset, duplicate.timestamp if config.append_time else -1)
        append_time = -1
        if odd_times or not config.as_sent:
            header, batch, append_time = adapted(header, batch, config, now_ms, odd_times)
        base_offset = self.end_offset
        try:
            OFFSET_LENGTH_EPOCH.pack_into(batch, 0, base_offset, header.batch_length, leader_epoch)
        except (TypeError, BufferError):
            batch = bytearray(batch)
            OFFSET_LENGTH_EPOCH.pack_into(batch, 0, base_offset, header.batch_length, leader_epoch)
        self._write(header, batch, base_offset, now_ms)
        if leader_epoch != self._leader_epoch:
            self.leader_epochs.assign(leader_epoch, base_offset)
            self._leader_epoch = self.leader_epochs.latest
        if producer_id >= 0:
            self._producers.made().apply(header, base_offset)
        return _new_tuple(Append, (base_offset, append_time))

    def append_own(self, batch: memoryview | bytearray | bytes, leader_epoch: int) -> int:
        """Store a batch of no producer that this broker built, without looking into it; its base offset."""
        config = self.config
        size = len(batch)
        if size > config.max_message_bytes or size > config.segment_bytes:
            check_size(size, config)
        now_ms = self._resources.env.clock.wall_ms()
        header = parse_header(batch)
        if not config.as_sent:
            header, batch, _ = adapted(header, batch, config, now_ms, our_own=True)
        base_offset = self.end_offset
        OFFSET_LENGTH_EPOCH.pack_into(batch, 0, base_offset, header.batch_length, leader_epoch)
        self._write(header, batch, base_offset, now_ms)
        if leader_epoch != self._leader_epoch:
            self.leader_epochs.assign(leader_epoch, base_offset)
            self._leader_epoch = self.leader_epochs.latest
        return base_offset

    def append_unsequenced(
        self, batch: bytearray, leader_epoch: int, guard: VerificationGuard | None = None
    ) -> Append:
        """Store a transactional batch that the broker itself wrote for a producer: offsets of its group."""
        now_ms = self._resources.env.clock.wall_ms()
        check_size(len(batch), self.config)
        OFFSET_LENGTH_EPOCH.pack_into(batch, 0, self.end_offset, len(batch) - LENGTH_OVERHEAD, leader_epoch)
        header = parse_header(batch)
        self.producers.check_unsequenced(header, guard)
        self._write_own(header, batch, now_ms)
        self._apply(header, batch)
        return Append(header.base_offset, -1)

    def append_marker(self, marker: EndMarker, leader_epoch: int) -> Append:
        """End a transaction here."""
        now_ms = self._resources.env.clock.wall_ms()
        self.producers.check_marker(marker)
        batch = build_marker(marker, now_ms, self.end_offset, leader_epoch)
        header = parse_header(batch)
        self._write_own(header, batch, now_ms)
        kind = COMMIT if marker.commit else ABORT
        self._note(apply_end(self.producers, header, kind, marker.coordinator_epoch))
        return Append(header.base_offset, -1)

    def _write_own(self, header: BatchHeader, batch: bytearray, now_ms: int) -> None:
        """A batch of the broker's own with its offset and epoch in it."""
        self._write(header, batch, header.base_offset, now_ms)
        if header.leader_epoch != self._leader_epoch:
            self.leader_epochs.assign(header.leader_epoch, header.base_offset)
            self._leader_epoch = self.leader_epochs.latest

    def _apply(self, header: BatchHeader, batch: memoryview | bytearray) -> None:
        """What a stored batch says of its producer, and of a transaction that it aborted."""
        self._note(apply_batch(self.producers, header, batch))

    def _note(self, aborted: AbortedTransaction | None) -> None:
        if aborted is not None:
            if not self._segments.active.has_aborted:
                self._durability.directory_changed()
            self._segments.add_aborted(aborted)

    # Transactions (KIP-890)

    def start_verification(
        self, producer_id: int, producer_epoch: int, base_sequence: int, bumps_epochs: bool
    ) -> VerificationGuard | None:
        """Called before the coordinator is asked for a producer's transaction; None if it need not be."""
        now_ms = self._resources.env.clock.wall_ms()
        return self.producers.start_verification(producer_id, producer_epoch, base_sequence, bumps_epochs, now_ms)

    def needs_verification(self, producer_id: int, producer_epoch: int) -> bool:
        states = self._producers.states
        return states is None or states.needs_verification(producer_id, producer_epoch)

    def aborted_transactions(self, offset: int, found: FileRange) -> list[AbortedTransaction]:
        """What of a range that was read from `offset` on belongs to aborted transactions, and maybe a few more."""
        try:
            return self._segments.aborted_in(offset, found, self.end_offset)
        except OSError as error:
            raise self._refused(error) from error

    def append_as_follower(self, batches: Buffer, leader_epoch: int | None = None) -> int:
        """Store whole batches as the leader sent them, offsets and epochs kept; the new end offset.

        Every batch is checked against its CRC, and offsets must grow; gaps are the leader's compaction. A batch
        that is cut off at the end is left out, and so is everything from the first of a later epoch than
        `leader_epoch` on: another leader wrote it, and this replica must hear of that one first.
        """
        view = memoryview(batches)
        now_ms = self._resources.env.clock.wall_ms()
        for position, size in split_batches(view):
            batch = view[position : position + size]
            header = checked_header(batch)
            if leader_epoch is not None and header.leader_epoch > leader_epoch:
                break
            start_offset = self._make_room(header)
            if self.first_dirty_offset < 0 and (
                header.base_offset != self.end_offset or header.record_count <= header.last_offset_delta
            ):
                self.first_dirty_offset = self.start_offset  # the leader has compacted: the next start must know
            self._write(header, batch, header.base_offset, now_ms)
            if header.leader_epoch != self._leader_epoch:
                self.leader_epochs.assign(header.leader_epoch, header.base_offset)
                self._leader_epoch = self.leader_epochs.latest
            if header.producer_id >= 0:
                self._apply(header, batch)
            if start_offset != self.start_offset:
                self.delete_records_to(start_offset)
        return self.end_offset

    def _make_room(self, header: BatchHeader) -> int:
        """Refuse a batch of the leader that does not follow the log; where the log starts with it.

        An empty log may start inside the batch, where records of the leader were deleted: then it starts over.
        """
        start_offset, end_offset = self.start_offset, self.end_offset
        if header.last_offset_delta < 0:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{self.partition}: a batch ends before it begins")
        if header.base_offset >= end_offset:
            return start_offset
        if not start_offset == end_offset <= header.last_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.partition}: a batch of offsets {header.base_offset} to {header.last_offset} "
                f"after {end_offset}",
            )
        self.truncate_fully_and_start_at(header.base_offset)
        return start_offset

    def _write(
        self, header: BatchHeader, batch: memoryview | bytearray | bytes, base_offset: int, now_ms: int
    ) -> None:
        """One write at the end of the active segment, after rolling where it is due."""
        segment = self._segments.active
        size = len(batch)
        config = self.config
        position = segment.size
        last_offset = base_offset + header.last_offset_delta
        if last_offset - segment.base_offset > MAX_RELATIVE_OFFSET or (
            position
            and (
                position + size > config.segment_bytes
                or segment.index_full
                or (header.max_timestamp if segment.first_timestamp >= 0 else now_ms)
                - (segment.first_timestamp if segment.first_timestamp >= 0 else segment.created_ms)
                > self._roll_ms
            )
        ):
            # Where this one ends, so that a start can tell a lost tail from the gaps that compaction leaves.
            is_far = last_offset - self.end_offset > MAX_RELATIVE_OFFSET
            segment = self.roll(base_offset if is_far else None)
            position = 0
        resources = self._resources
        if resources.health.failure is not None:
            raise self._storage_error(resources.health.failure)
        file = segment.file
        assert file is not None
        try:
            written = resources.env.disk.pwrite(file.fd, batch, position)
        except OSError as error:
            raise self._undo_write(file, position, error) from error
        if written != size:
            raise self._undo_write(file, position, cut_short(written, size))
        indexed = segment.last_index_position
        segment.note_append(header, last_offset, position, config.index_interval_bytes)
        if segment.last_index_position != indexed:
            segment.check_index_full(config.segment_index_bytes)
        segment.size = position + size
        self.end_offset = last_offset + 1

    def _undo_write(self, file: OpenFile, position: int, error: OSError) -> KafkaError:
        """Give back what a failed write took. If that fails too, the next append or start gets rid of it."""
        try:
            self._resources.env.disk.truncate(file.fd, position)
        except OSError as second:
            error.add_note(f"truncating back to {position} failed too: {second}")
        return self._refused(error)

    def roll(self, base_offset: int | None = None) -> Segment:
        """Close the active segment and begin the next one at the end of the log."""
        active = self._segments.active
        base_offset = max(self.end_offset, base_offset or 0)
        if not active.size and active.base_offset == base_offset:
            return active
        try:
            segment = self._create_segment(base_offset)
            self._producers.save(self._resources.env.disk, self.directory, self.end_offset)
            self._save_leader_epochs()
            self._segments.push(segment, self.config.file_delete_delay_ms)
        except OSError as error:
            raise self._refused(error) from error
        self._roll_ms = self.config.jittered_roll_ms(self._resources.env.rng)
        return segment

    def _create_segment(self, base_offset: int) -> Segment:
        segment = self._segments.create(self.directory, base_offset)
        self._durability.directory_changed()
        return segment

    # Read

    def read(
        self,
        offset: int,
        max_bytes: int,
        limit_offset: int,
        at_least_one: bool = False,
        skip_empty: bool = False,
    ) -> FileRange | None:
        """The batches from the one that holds `offset`, up to `max_bytes` and before `limit_offset`.

        Never a batch that begins at or after the limit. The last one may be cut by `max_bytes`, but with
        `at_least_one` the first is whole. None where there is nothing to read yet.
        With `skip_empty` batches that compaction left without records are skipped: a consumer that gets
        nothing else for a while believes that its buffer is too small. A replica needs them.
        """
        end_offset = self.end_offset
        if not self.start_offset <= offset <= end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Offset {offset} of {self.partition} is outside {self.start_offset} to {end_offset}",
            )
        if offset >= limit_offset:
            return None
        segments = self._segments
        try:
            segment, place = segments.find(offset)
            if place is None:
                return None
            position, first_size, base_offset, _ = place
            if base_offset >= limit_offset:
                return None
            if skip_empty and first_size == HEADER_SIZE:
                segment, place = segments.past_empty(segment, place, limit_offset)
                position, first_size, _, _ = place
            end = segment.size if limit_offset >= end_offset else segments.end_before(segment, place, limit_offset)
            size = end - position
            if size > max_bytes:
                size = max_bytes
            if at_least_one and size < first_size:
                size = first_size
            if size <= 0:
                return None
            file = segment.file or segment.open_file(self._resources)
        except OSError as error:
            raise self._refused(error) from error
        return _new_tuple(FileRange, (file, position, size))

    def batch_at(self, offset: int) -> FileRange | None:
        """The one batch that holds `offset`, or the next after a gap; None at the end."""
        try:
            segment, place = self._segments.find(offset)
            if place is None:
                return None
            return FileRange(segment.open_file(self._resources), place.position, place.size)
        except OSError as error:
            raise self._refused(error) from error

    def find_offset_by_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """May block (it decompresses a batch). The first record that is as late as `timestamp`."""
        return self._search(lambda: find_by_timestamp(self, self._resources, timestamp))

    def max_timestamp_offset(self) -> TimestampOffset | None:
        """May block (it decompresses a batch). The record with the largest timestamp, the first of them."""
        return self._search(lambda: find_max_timestamp(self, self._resources))

    def _search(self, search: Callable[[], TimestampOffset | None]) -> TimestampOffset | None:
        """In a thread. A file that is missing means nothing if its segment was removed meanwhile: then again."""
        for _ in range(_SEARCHES):
            segments = self.segments
            try:
                return search()
            except FileNotFoundError as error:
                if segments == self.segments:
                    raise self._refused(error) from error
            except OSError as error:
                raise self._refused(error) from error
        raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"Segments of {self.partition} are being removed")

    # Cut at the end

    def truncate_to(self, offset: int) -> None:
        """Drop everything from `offset` on. A batch that holds it goes whole, so the end may come before it."""
        if offset >= self.end_offset:
            # An epoch that began here, and in which nothing was written, is not in the leader's history.
            self._cut_leader_epochs()
            return
        if offset <= self._segments.first_offset:
            self.truncate_fully_and_start_at(offset)
            return
        self._abort_cleaning()
        try:
            self.end_offset = self._segments.cut(offset, self.config.file_delete_delay_ms)
            self._durability.cut(self.end_offset)
            self.start_offset = min(self.start_offset, self.end_offset)
            self.first_dirty_offset = min(self.first_dirty_offset, self.end_offset)
            self._producers.reload(self.directory, self.segments, self.end_offset, self._resources)
        except OSError as error:
            raise self._failed(error) from error
        self._cut_leader_epochs()

    def _cut_leader_epochs(self) -> None:
        """If the disk is full, the previous checkpoint stays: the next start corrects it from the batches."""
        self.leader_epochs.truncate_from_end(self.end_offset)
        self._leader_epoch = self.leader_epochs.latest
        try:
            self._save_leader_epochs()
        except OSError as error:
            raise self._refused(error) from error

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything and continue at `offset`. Without room for a new file the log stays unchanged."""
        self._abort_cleaning()
        try:
            fresh = self._segments.create_beside(self.directory, offset)
        except OSError as error:
            raise self._refused(error) from error
        try:
            self._segments.restart(fresh, self.config.file_delete_delay_ms)
            self.start_offset = self.end_offset = offset
            self._durability.restarted(offset)
            self._durability.directory_changed()
            self.first_dirty_offset = -1
            self.leader_epochs.forget(self._resources.env.disk)
            self._leader_epoch = -1
            self._producers.clear(self.directory, self._resources.env.disk)
        except OSError as error:
            raise self._failed(error) from error

    # Cut at the start

    def delete_records_to(self, offset: int) -> int:
        """Raise the start offset; whole segments below it go with the next cleaning. The new start offset."""
        if offset > self.end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Offset {offset} is beyond the end {self.end_offset} of {self.partition}",
            )
        if offset > self.start_offset:
            self.start_offset = offset
            self.leader_epochs.truncate_from_start(offset)
            self._durability.not_before(offset)
        return self.start_offset

    def remove_first_segments(self, count: int) -> None:
        """Delete the oldest segments; if that is all of them, a new one is begun first."""
        if count == len(self.segments):
            self.roll()
            count = min(count, len(self.segments) - 1)
        self.delete_records_to(max(self.start_offset, self.segments[count].base_offset))
        try:
            self._segments.drop_first(count, self.config.file_delete_delay_ms)
        except OSError as error:
            raise self._refused(error) from error

    def delete_expired(self, high_watermark: int) -> int:
        """Apply retention by time, size and start offset; how many segments went."""
        if self._producers.states is not None:
            self._producers.states.committed_to(high_watermark)
        try:
            count = expired_segments(self, self._resources, high_watermark)
        except OSError as error:
            raise self._refused(error) from error
        if count:
            self.remove_first_segments(count)
        return count

    def expire_producers(self, expiration_ms: int) -> None:
        """Forget producers that have been silent for so long."""
        if self._producers.states is not None:
            self._producers.states.expire(self._resources.env.clock.wall_ms(), expiration_ms)

    # Compaction

    def replace_segments(self, old: Sequence[Segment], new: Segment) -> None:
        """A compacted segment, whose files have their `.swap` names, takes the place of those it was made from."""
        self._durability.directory_changed()
        try:
            self._segments.replace(old, new, self.config.file_delete_delay_ms)
        except OSError as error:
            raise self._failed(error) from error
