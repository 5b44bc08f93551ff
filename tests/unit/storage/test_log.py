"""Append, read, roll and cut of one log (R-LOG-1, R-LOG-2, R-LOG-3, R-LOG-4)."""

from __future__ import annotations

import dataclasses
import errno
import os
from typing import Any

import pytest

from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import NO_TOPIC_ID, TopicId
from headrace.records.batch import CONTROL, LOG_APPEND_TIME, TRANSACTIONAL, parse_header
from headrace.records.builder import NewRecord, ProducerStamp, build_batch, seal
from headrace.records.compression import Codec
from headrace.records.reader import read_records

SMALL = {"segment_bytes": 2000, "index_interval_bytes": 200}
HOUR_MS = 3_600_000


def code_of(error: pytest.ExceptionInfo[KafkaError]) -> ErrorCode:
    return error.value.code


def test_offsets_are_consecutive_and_stamped_into_the_batch(store: Any) -> None:
    """R-TOP-1."""
    assert [store.append(count, epoch=4) for count in (1, 3, 2)] == [0, 1, 4]
    assert [(h.base_offset, h.last_offset, h.leader_epoch) for h in store.headers()] == [
        (0, 0, 4),
        (1, 3, 4),
        (4, 5, 4),
    ]
    assert store.log.end_offset == 6


def test_read_starts_at_the_batch_that_holds_the_offset(store: Any) -> None:
    store.create(**SMALL)
    for _ in range(100):
        store.append(3)
    assert len(store.log.segments) > 4
    for offset in range(300):
        data = store.bytes_of(store.log.read(offset, 1 << 20, 300))
        assert parse_header(data).base_offset == offset // 3 * 3


@pytest.mark.parametrize("sizes", [(30_000,), (9000, 100, 100, 5000), (40, 12_000, 40, 40, 40, 4000)])
def test_large_batches_are_found_in_old_and_active_segments_and_after_a_start(
    store: Any, sizes: tuple[int, ...]
) -> None:
    """Batches with an index entry each, without one, and both in turn."""
    store.create(segment_bytes=100_000)
    first_offsets = [store.append(2, value=b"v" * (sizes[n % len(sizes)] // 2)) for n in range(40)]
    for _ in range(2):
        assert len(store.log.segments) > 1
        for first in first_offsets:
            for offset in (first, first + 1):
                data = store.bytes_of(store.log.read(offset, 100, 80, at_least_one=True))
                header = parse_header(data)
                assert (header.base_offset, header.size) == (first, len(data))
        store.log.close()
        store.reopen(clean=True)


def test_an_index_that_names_wrong_places_misleads_nobody(store: Any) -> None:
    store.create(segment_bytes=100_000)
    for _ in range(12):
        store.append(2, value=bytes(10_000))
    store.log.close()
    path = store.files(".index")[0]
    entries = bytearray(path.read_bytes())
    entries[12:16] = (int.from_bytes(entries[12:16], "big") - 100).to_bytes(4, "big")  # into the zeros before
    path.write_bytes(entries)
    store.reopen(clean=True)
    for offset in range(24):
        data = store.bytes_of(store.log.read(offset, 100, 24, at_least_one=True))
        assert parse_header(data).base_offset == offset // 2 * 2


def test_read_never_passes_the_limit(store: Any) -> None:
    """R-CON-1: nothing at or above the high watermark is served."""
    store.create(**SMALL)
    for _ in range(60):
        store.append(2)
    for offset in range(120):
        for limit in range(0, 121, 2):
            found = store.log.read(offset, 1 << 20, limit)
            if offset >= limit:
                assert found is None
                continue
            data = store.bytes_of(found)
            sizes = {header.base_offset: header.size for header in store.headers()}
            base, total = offset // 2 * 2, 0
            while total < len(data):
                assert base < limit
                total += sizes[base]
                base += 2
            assert total == len(data)
        if offset > 6:
            break


def test_read_respects_max_bytes_but_can_give_one_whole_batch(store: Any) -> None:
    store.append(1)
    store.append(10)
    size = store.headers()[0].size
    assert store.log.read(0, 10, 11).size == 10
    assert store.log.read(0, 10, 11, at_least_one=True).size == size
    assert store.log.read(0, size + 5, 11, at_least_one=True).size == size + 5
    assert store.log.read(0, 0, 11) is None


def test_read_outside_the_log_is_refused_and_its_end_is_empty(store: Any) -> None:
    store.append(2)
    assert store.log.read(2, 100, 2) is None
    for offset in (-1, 3):
        with pytest.raises(KafkaError) as error:
            store.log.read(offset, 100, 2)
        assert code_of(error) == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_deleted_segment_can_still_be_sent(store: Any) -> None:
    store.append(2)
    found = store.log.read(0, 1000, 2)
    store.log.truncate_fully_and_start_at(10)
    assert parse_header(os.pread(found.file.fd, found.size, 0)).base_offset == 0


def test_a_read_only_batch_is_copied(store: Any) -> None:
    batch = bytes(store.batch(2))
    store.log.append_as_leader(batch, 1)
    store.log.append_as_leader(memoryview(batch), 1)
    assert [header.base_offset for header in store.headers()] == [0, 2]
    assert parse_header(batch).base_offset == 0


def test_log_append_time_is_stamped_and_sealed(store: Any) -> None:
    store.create(message_timestamp_type="LogAppendTime")
    store.clock.now_ms += 5
    batch = store.batch(2, at=1)
    assert store.log.append_as_leader(batch, 0) == (0, store.clock.now_ms)
    data = store.bytes_of(store.log.read(0, 1000, 2))
    assert parse_header(data).attributes & LOG_APPEND_TIME
    assert [record.timestamp for record in read_records(data)] == [store.clock.now_ms] * 2
    store.log.truncate_to(0)
    store.log.append_as_follower(data)  # its CRC must hold


@pytest.mark.parametrize("codec", list(Codec))
def test_batches_stay_as_the_client_compressed_them(store: Any, codec: Codec) -> None:
    """R-LOG-3."""
    sent = store.batch(5, codec=codec)
    store.log.append_as_leader(bytes(sent), 0)
    stored = store.bytes_of(store.log.read(0, 1 << 20, 5))
    assert stored[61:] == sent[61:]
    assert parse_header(stored).codec == codec


@pytest.mark.parametrize("sent", list(Codec))
@pytest.mark.parametrize("wanted", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_a_topic_may_ask_for_its_own_codec(store: Any, sent: Codec, wanted: str) -> None:
    store.create(compression_type=wanted)
    store.append(5, codec=sent, producer=ProducerStamp(1, 0, 0))
    stored = store.bytes_of(store.log.read(0, 1 << 20, 5))
    assert parse_header(stored).codec == store.log.config.codec
    assert parse_header(stored).producer_id == 1
    assert [(r.offset, r.value) for r in read_records(stored)] == [(i, b"v" * 40) for i in range(5)]


def bad_batches() -> list[tuple[str, ErrorCode, dict[int, bytes]]]:
    """name, answer, bytes to set in an otherwise good batch of two"""
    return [
        ("count 0", ErrorCode.INVALID_RECORD, {57: bytes(4)}),
        ("count too large", ErrorCode.INVALID_RECORD, {57: b"\0\0\0\3"}),
        ("count negative", ErrorCode.INVALID_RECORD, {57: b"\xff\xff\xff\xff", 23: b"\xff\xff\xff\xfe"}),
        ("base offset", ErrorCode.INVALID_RECORD, {7: b"\x05"}),
        ("codec 5", ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, {22: b"\x05"}),
        ("control", ErrorCode.INVALID_RECORD, {22: bytes([CONTROL])}),
        ("transactional", ErrorCode.INVALID_RECORD, {22: bytes([TRANSACTIONAL])}),
        ("append time", ErrorCode.INVALID_TIMESTAMP, {22: bytes([LOG_APPEND_TIME])}),
        ("producer without sequence", ErrorCode.INVALID_RECORD, {43: bytes(8)}),
    ]


@pytest.mark.parametrize(("name", "answer", "changes"), bad_batches(), ids=lambda value: str(value)[:24])
def test_a_header_that_does_not_add_up_is_refused(
    store: Any, name: str, answer: ErrorCode, changes: dict[int, bytes]
) -> None:
    batch = store.batch(2)
    for position, data in changes.items():
        batch[position : position + len(data)] = data
    seal(batch)
    with pytest.raises(KafkaError) as error:
        store.log.append_as_leader(batch, 0)
    assert code_of(error) == answer
    assert store.log.end_offset == store.log.size == 0


def test_a_flipped_bit_is_refused(store: Any) -> None:
    batch = store.batch(2)
    batch[-1] ^= 1
    with pytest.raises(KafkaError) as error:
        store.log.append_as_leader(batch, 0)
    assert code_of(error) == ErrorCode.CORRUPT_MESSAGE


def test_sizes_are_limited(store: Any) -> None:
    store.create(max_message_bytes=200, segment_bytes=150)
    with pytest.raises(KafkaError) as error:
        store.append(1, value=b"x" * 200)
    assert code_of(error) == ErrorCode.MESSAGE_TOO_LARGE
    with pytest.raises(KafkaError) as error:
        store.append(1, value=b"x" * 100)
    assert code_of(error) == ErrorCode.RECORD_LIST_TOO_LARGE


@pytest.mark.parametrize(
    ("shift", "accepted"), [(HOUR_MS, True), (HOUR_MS + 1, False), (-500, True), (-501, False)]
)
def test_timestamps_are_limited(store: Any, shift: int, accepted: bool) -> None:
    store.create(message_timestamp_before_max_ms=500)
    at = store.clock.now_ms + shift
    if accepted:
        assert store.append(at=at) == 0
        return
    with pytest.raises(KafkaError) as error:
        store.append(at=at)
    assert code_of(error) == ErrorCode.INVALID_TIMESTAMP


def test_a_compacted_topic_refuses_records_without_a_key(store: Any) -> None:
    store.create(cleanup_policy=frozenset({"compact"}))
    store.log.append_as_leader(build_batch([NewRecord(b"v", b"k", store.clock.now_ms)]), 0)
    with pytest.raises(KafkaError) as error:
        store.append()
    assert code_of(error) == ErrorCode.INVALID_RECORD


def test_segments_roll_by_size(store: Any) -> None:
    """R-LOG-4."""
    store.create(segment_bytes=500)
    for _ in range(20):
        store.append()
    segments = store.log.segments
    assert all(segment.size <= 500 for segment in segments)
    assert len(segments) == len(store.files(".log")) == len(store.files(".snapshot")) + 1 > 3
    assert [f.name for f in store.files(".log")] == [f"{s.base_offset:020d}.log" for s in segments]
    assert len(store.headers()) == 20


def test_segments_roll_by_the_time_of_records(store: Any) -> None:
    store.create(segment_ms=1000)
    now = store.clock.now_ms
    for at in (now, now + 1000, now + 1001, now + 1500, now + 2002):
        store.append(at=at)
    assert [segment.base_offset for segment in store.log.segments] == [0, 2, 4]


def test_segments_without_timestamps_roll_by_the_clock(store: Any) -> None:
    store.create(segment_ms=1000)
    store.append(at=-1)
    store.clock.now_ms += 1000
    store.append(at=-1)
    store.clock.now_ms += 1
    store.append(at=-1)
    assert [segment.base_offset for segment in store.log.segments] == [0, 2]


def test_a_full_index_rolls(store: Any) -> None:
    store.create(index_interval_bytes=0, segment_index_bytes=64)
    for _ in range(20):
        store.append()
    assert len(store.log.segments) > 2
    assert len(store.headers()) == 20


@pytest.mark.parametrize("cut", range(31))
def test_truncate_at_every_offset(store: Any, cut: int) -> None:
    store.create(**SMALL)
    for _ in range(30):
        store.append(1, value=b"v" * 90, epoch=store.log.end_offset // 10)
    store.log.truncate_to(cut)
    assert store.log.end_offset == cut
    assert [header.base_offset for header in store.headers()] == list(range(cut))
    assert store.log.leader_epochs.latest == (cut - 1) // 10
    for _ in range(5):
        store.append(epoch=9)
    store.reopen()
    assert [header.base_offset for header in store.headers()] == list(range(cut + 5))


def test_truncate_inside_a_batch_drops_the_whole_batch(store: Any) -> None:
    store.append(3)
    store.append(3)
    store.log.truncate_to(4)
    assert store.log.end_offset == 3
    assert store.append(1) == 3


def test_truncation_restores_producers(store: Any) -> None:
    store.create(segment_bytes=500)
    for sequence in range(20):
        store.produce(sequence)
    store.log.truncate_to(7)
    assert store.log.producers.describe()[0].last_sequence == 6
    assert store.produce(7) == 7


def test_truncate_fully(store: Any) -> None:
    store.produce(0)
    store.log.truncate_fully_and_start_at(50)
    assert (store.log.start_offset, store.log.end_offset, store.log.size) == (50, 50, 0)
    assert store.append() == 50
    store.reopen()
    assert (store.log.start_offset, store.log.end_offset) == (50, 51)


def test_delete_records_raises_the_start(store: Any) -> None:
    """R-LOG-4."""
    store.create(**SMALL)
    for _ in range(40):
        store.append(1, epoch=store.log.end_offset // 20)
    assert store.log.delete_records_to(25) == 25
    assert store.log.delete_records_to(10) == 25
    with pytest.raises(KafkaError) as error:
        store.log.read(24, 100, 40)
    assert code_of(error) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert parse_header(store.bytes_of(store.log.read(25, 1000, 40))).base_offset == 25
    assert store.log.leader_epochs.entries == ((1, 25),)
    with pytest.raises(KafkaError):
        store.log.delete_records_to(41)
    before = len(store.log.segments)
    assert store.log.delete_expired(40) > 0
    assert len(store.log.segments) < before
    assert store.log.segments[0].base_offset <= 25
    store.reopen(start_offset=25)
    assert store.log.start_offset == 25


def test_follower_keeps_offsets_epochs_and_gaps(store: Any) -> None:
    data = b"".join(
        bytes(store.batch(2, base_offset=base, leader_epoch=epoch)) for base, epoch in ((0, 1), (2, 1), (7, 3))
    )
    assert store.log.append_as_follower(data + data[:30]) == 9  # the last one is cut off and left out
    assert store.log.leader_epochs.entries == ((1, 0), (3, 7))
    assert parse_header(store.bytes_of(store.log.read(5, 1000, 9))).base_offset == 7
    with pytest.raises(KafkaError):
        store.log.append_as_follower(data)


def test_a_jump_too_far_for_the_index_rolls(store: Any) -> None:
    """A follower may start far away: relative offsets are 31 bits."""
    far = 2**40
    store.log.append_as_follower(bytes(store.batch(2, base_offset=far)))
    store.log.append_as_follower(bytes(store.batch(2, base_offset=far + 2)))
    assert [segment.base_offset for segment in store.log.segments] == [far]
    store.reopen()
    assert (store.log.start_offset, store.log.end_offset) == (far, far + 4)


class FullDisk:
    """Stands for the real disk, but a write past some size fails or is cut short."""

    def __init__(self, real: Any, room: int, short: bool) -> None:
        self._real, self._room, self._short = real, room, short

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def pwrite(self, fd: int, data: Any, position: int) -> int:
        fits = self._room - position
        if len(data) <= fits:
            return int(self._real.pwrite(fd, data, position))
        if self._short:
            return int(self._real.pwrite(fd, data[: max(fits, 0)], position))
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("short", [True, False])
def test_a_full_disk_refuses_and_leaves_the_log_whole(store: Any, short: bool) -> None:
    store.env = dataclasses.replace(store.env, disk=FullDisk(store.env.disk, 1000, short))
    store.resources = dataclasses.replace(store.resources, env=store.env)
    store.create()
    stored = 0
    while store.log.size + len(store.batch()) <= 1000:
        store.produce(stored)
        stored += 1
    with pytest.raises(KafkaError) as error:
        store.produce(stored)
    assert code_of(error) == ErrorCode.KAFKA_STORAGE_ERROR
    assert store.log.end_offset == stored > 3
    assert len(store.headers()) == stored
    assert store.files(".log")[0].stat().st_size == store.log.size
    assert store.log.producers.describe()[0].last_sequence == stored - 1


def test_a_failed_sync_is_never_tried_again(store: Any) -> None:
    calls = []

    class DyingDisk(FullDisk):
        def fdatasync(self, fd: int) -> None:
            calls.append(fd)
            raise OSError(errno.EIO, "Input/output error")

    store.env = dataclasses.replace(store.env, disk=DyingDisk(store.env.disk, 1 << 30, False))
    store.resources = dataclasses.replace(store.resources, env=store.env)
    store.create()
    store.append()
    for _ in range(2):
        with pytest.raises(KafkaError) as error:
            store.log.flush()
        assert code_of(error) == ErrorCode.KAFKA_STORAGE_ERROR
    assert len(calls) == 1
    with pytest.raises(KafkaError):
        store.append()
    assert store.log.recovery_point == 0


def test_flush_moves_the_recovery_point(store: Any) -> None:
    store.append(3)
    store.log.flush()
    assert store.log.recovery_point == 3
    store.append(3)
    store.log.flush(up_to=3)
    assert store.log.recovery_point == 3


def test_a_cut_takes_the_recovery_point_back(store: Any) -> None:
    for _ in range(5):
        store.append()
    store.log.flush()
    store.log.truncate_to(2)
    assert store.log.recovery_point == 2
    store.append()
    assert store.log.recovery_point == 2


def test_a_cut_during_a_flush_keeps_the_recovery_point_down(store: Any) -> None:
    """The flush runs in a thread; what it synced is not what was written after the cut."""

    class CuttingDisk(FullDisk):
        def fdatasync(self, fd: int) -> None:
            store.log.truncate_to(2)
            for _ in range(5):
                store.append()

    store.env = dataclasses.replace(store.env, disk=CuttingDisk(store.env.disk, 1 << 30, False))
    store.resources = dataclasses.replace(store.resources, env=store.env)
    store.create()
    for _ in range(5):
        store.append()
    store.log.flush()
    assert store.log.end_offset == 7
    assert store.log.recovery_point <= 2


def test_a_flush_goes_on_when_retention_was_faster(store: Any) -> None:
    class DeletingDisk(FullDisk):
        def fdatasync(self, fd: int) -> None:
            store.log.delete_records_to(store.log.active_base_offset)
            store.log.delete_expired(store.log.end_offset)

    store.env = dataclasses.replace(store.env, disk=DeletingDisk(store.env.disk, 1 << 30, False))
    store.resources = dataclasses.replace(store.resources, env=store.env)
    store.create(**SMALL)
    for _ in range(60):
        store.append()
    store.log.flush()
    assert store.log.failure is None
    assert store.log.recovery_point == 60


def test_a_lost_topic_id_is_taken_on_again(store: Any) -> None:
    store.append()
    (store.files("partition.metadata")[0]).unlink()
    store.log.topic_id = NO_TOPIC_ID
    store.log.adopt(TopicId(b"0123456789abcdef"))
    assert store.files("partition.metadata")[0].read_bytes() == b"version: 0\ntopic_id: MDEyMzQ1Njc4OWFiY2RlZg"


def test_last_stable_offset_stops_at_the_first_open_transaction(store: Any) -> None:
    store.append(2)
    assert store.log.last_stable_offset(2) == 2
    store.append(1, attributes=TRANSACTIONAL, producer=ProducerStamp(3, 0, 0))
    store.append(1)
    assert store.log.last_stable_offset(4) == 2
    assert store.log.last_stable_offset(1) == 1
