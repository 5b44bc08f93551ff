"""R-LOG-5: what compaction keeps and what it drops, rule by rule."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace.model.errors import ErrorCode, KafkaError
from headrace.records.batch import DELETE_HORIZON, checked_header, parse_header
from headrace.records.builder import NewRecord, ProducerStamp, build_batch, seal
from headrace.records.reader import read_records
from headrace.storage.compaction.batches import BatchFilter, ProducerEnd
from headrace.storage.compaction.choice import find_cleanable
from headrace.storage.compaction.messages import CleanedGroup
from headrace.storage.compaction.offset_map import OffsetMap
from headrace.storage.compaction.output import CLEANED
from headrace.storage.compaction.transactions import (
    TransactionView,
)
from headrace.storage.compaction.worker import DamagedSegment
from tests.unit.storage.compaction_shell import (
    compact,
    latest,
    put,
    replies,
    request,
    stored_batches,
    stored_pairs,
    stored_records,
    swap_in,
)
from tests.unit.storage.conftest import Store

COMPACT = frozenset({"compact"})
DAY_MS = 24 * 60 * 60 * 1000


@pytest.fixture(autouse=True)
def compacted(store: Store) -> None:
    store.create(cleanup_policy=COMPACT, index_interval_bytes=100)


def test_only_the_last_value_of_a_key_stays_under_its_offset(store: Store) -> None:
    put(store, ("a", "1"), ("b", "1"))
    put(store, ("a", "2"))
    store.log.roll()
    put(store, ("c", "1"), ("b", "2"))
    store.log.roll()
    before = stored_records(store.log)
    report = compact(store)
    assert report is not None
    assert stored_pairs(store.log) == [(2, "a", "2"), (3, "c", "1"), (4, "b", "2")]
    assert stored_records(store.log) == [record for record in before if record.offset >= 2]
    assert (report.records_in, report.records_out, report.end_offset) == (5, 3, 5)
    assert store.log.end_offset == 5


def test_the_active_segment_is_not_touched_and_not_counted(store: Store) -> None:
    put(store, ("a", "1"))
    store.log.roll()
    put(store, ("a", "2"))
    active = store.log.segments[-1]
    compact(store)
    assert store.log.segments[-1] is active
    assert stored_pairs(store.log) == [(0, "a", "1"), (1, "a", "2")]


def test_the_next_cleaning_drops_what_the_dirty_part_supersedes(store: Store) -> None:
    for value in ("1", "2", "3"):
        put(store, ("a", value), (f"only-{value}", "x"))
        store.log.roll()
        compact(store)
    assert stored_pairs(store.log) == [(1, "only-1", "x"), (3, "only-2", "x"), (4, "a", "3"), (5, "only-3", "x")]


def test_small_segments_become_one(store: Store) -> None:
    for number in range(10):
        put(store, (f"k{number}", "v"))
        store.log.roll()
    compact(store)
    assert [segment.base_offset for segment in store.log.segments] == [0, 10]
    assert len(store.files(".log")) == 2
    assert len(stored_pairs(store.log)) == 10


def test_segments_are_not_merged_beyond_segment_bytes(store: Store) -> None:
    for number in range(8):
        put(store, (f"k{number}", "v" * 100))
        store.log.roll()
    size = store.log.segments[0].size
    compact(store, segment_bytes=3 * size)
    assert [segment.base_offset for segment in store.log.segments] == [0, 3, 6, 8]


def test_a_segment_that_loses_nothing_is_left_alone(store: Store) -> None:
    put(store, ("a", "1"), ("b", "1"))
    store.log.roll()
    segment = store.log.segments[0]
    report = compact(store)
    assert report is not None
    assert store.log.segments[0] is segment
    assert not store.files(CLEANED)


def test_a_batch_that_keeps_all_records_is_copied_to_the_byte(store: Store) -> None:
    put(store, ("a", "1"))
    put(store, ("b", "1"), ("c", "1"), codec=4)
    put(store, ("a", "2"))
    store.log.roll()
    before = {batch.header.base_offset: batch.data for batch in stored_batches(store.log)}
    compact(store)
    after = {batch.header.base_offset: batch.data for batch in stored_batches(store.log)}
    assert set(after) == {1, 3}
    assert all(before[offset] == data for offset, data in after.items())


@pytest.mark.parametrize("codec", range(5))
def test_a_batch_that_loses_records_keeps_its_codec_offsets_and_headers(store: Store, codec: int) -> None:
    put(store, *((f"k{number % 7}", f"v{number}") for number in range(20)), codec=codec)
    store.log.roll()
    before = {record.offset: record for record in stored_records(store.log)}
    compact(store)
    (batch,) = stored_batches(store.log)
    assert checked_header(batch.data).codec == codec
    assert (batch.header.base_offset, batch.header.last_offset, batch.header.record_count) == (0, 19, 7)
    after = list(read_records(batch.data))
    assert after == [before[offset] for offset in range(13, 20)]
    assert batch.header.max_timestamp == after[-1].timestamp


def test_the_largest_timestamp_is_that_of_the_records_that_stay(store: Store) -> None:
    late = store.clock.now_ms + 1000
    batch = build_batch([NewRecord(b"1", b"a", late), NewRecord(b"2", b"a", late - 500)])
    store.log.append_as_leader(memoryview(batch), 0)
    store.log.roll()
    compact(store)
    assert stored_batches(store.log)[0].header.max_timestamp == late - 500
    found = store.log.max_timestamp_offset()
    assert found is not None
    assert (found.timestamp, found.offset) == (late - 500, 1)


def test_log_append_time_stays_what_it_was(store: Store) -> None:
    store.create(cleanup_policy=COMPACT, message_timestamp_type="LogAppendTime")
    put(store, ("a", "1"), ("a", "2"), ("b", None), at=1)
    store.log.roll()
    before = stored_records(store.log)
    store.clock.now_ms += 60_000
    compact(store)
    assert stored_records(store.log) == before[1:]


def test_records_without_a_key_are_refused(store: Store) -> None:
    with pytest.raises(KafkaError) as caught:
        store.append()
    assert caught.value.code == ErrorCode.INVALID_RECORD
    assert store.log.end_offset == 0


def test_records_without_a_key_from_before_the_topic_was_compacted_go(store: Store) -> None:
    store.create()
    store.append(3)
    put(store, ("a", "1"))
    store.log.roll()
    store.reopen(cleanup_policy=COMPACT)
    store.log.roll()
    compact(store)
    assert stored_pairs(store.log) == [(3, "a", "1")]


# Tombstones


def test_a_tombstone_stays_until_its_delete_horizon(store: Store) -> None:
    put(store, ("a", "1"), ("b", "1"))
    put(store, ("a", None), ("c", "1"))
    store.log.roll()
    compact(store)
    horizon = store.clock.now_ms + DAY_MS
    assert stored_pairs(store.log) == [(1, "b", "1"), (2, "a", None), (3, "c", "1")]
    header = stored_batches(store.log)[-1].header
    assert header.attributes & DELETE_HORIZON
    assert header.base_timestamp == horizon
    # Timestamps are what they were, though they count from the horizon now.
    assert [record.timestamp for record in stored_records(store.log)[1:]] == [
        store.clock.now_ms,
        store.clock.now_ms + 1,
    ]
    for passed_ms, stays in ((DAY_MS - 1, True), (1, False)):
        store.clock.now_ms += passed_ms
        put(store, (f"other-{passed_ms}", "x"))
        store.log.roll()
        compact(store)
        assert ((2, "a", None) in stored_pairs(store.log)) is stays
    assert (3, "c", "1") in stored_pairs(store.log)


def test_a_second_cleaning_does_not_move_the_horizon(store: Store) -> None:
    put(store, ("a", None))
    store.log.roll()
    compact(store)
    first = stored_batches(store.log)[0].data
    store.clock.now_ms += 1000
    put(store, ("b", "1"))
    store.log.roll()
    compact(store)
    assert stored_batches(store.log)[0].data == first


def test_a_key_written_again_after_its_tombstone_lives(store: Store) -> None:
    put(store, ("a", "1"))
    put(store, ("a", None))
    put(store, ("a", "2"))
    store.log.roll()
    compact(store)
    assert stored_pairs(store.log) == [(2, "a", "2")]


# Producers


def test_the_batch_of_a_producers_last_sequence_stays_as_a_header(store: Store) -> None:
    put(store, ("a", "1"), ("b", "1"), producer=ProducerStamp(7, 0, 0))
    put(store, ("a", "2"), ("b", "2"), producer=ProducerStamp(7, 0, 2))
    put(store, ("a", "3"), ("b", "3"))
    store.log.roll()
    compact(store)
    emptied, _ = stored_batches(store.log)
    assert (emptied.header.base_offset, emptied.header.last_offset) == (2, 3)
    assert (emptied.header.record_count, len(emptied.data)) == (0, 61)
    assert (emptied.header.producer_id, emptied.header.base_sequence) == (7, 2)
    # Recovered from the bytes alone, the producer goes on where it was, and its last batch is known again.
    for snapshot in store.files(".snapshot"):
        os.unlink(snapshot)
    store.reopen()
    assert put(store, ("a", "2"), ("b", "2"), producer=ProducerStamp(7, 0, 2)) == 2
    with pytest.raises(KafkaError) as caught:
        put(store, ("a", "9"), producer=ProducerStamp(7, 0, 9))
    assert caught.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert put(store, ("a", "4"), producer=ProducerStamp(7, 0, 4)) == 6


def test_an_emptied_batch_goes_once_its_producer_has_gone_on(store: Store) -> None:
    put(store, ("a", "1"), producer=ProducerStamp(7, 0, 0))
    put(store, ("a", "2"))
    store.log.roll()
    compact(store)
    assert [batch.header.record_count for batch in stored_batches(store.log)] == [0, 1]
    put(store, ("b", "1"), producer=ProducerStamp(7, 0, 1))
    store.log.roll()
    compact(store)
    assert [batch.header.record_count for batch in stored_batches(store.log)] == [1, 1]


def test_the_last_batch_of_a_segment_stays_so_that_its_end_is_known(store: Store) -> None:
    put(store, ("a", "1"))
    put(store, ("b", "1"))
    store.log.roll()
    put(store, ("a", "2"), ("b", "2"))
    store.log.roll()
    size = store.log.segments[1].size
    compact(store, segment_bytes=size)
    (emptied, _) = stored_batches(store.log)
    assert (emptied.header.base_offset, emptied.header.record_count) == (1, 0)
    assert latest(stored_records(store.log)) == {b"a": b"2", b"b": b"2"}


# Choice


def test_what_is_younger_than_the_minimal_lag_is_not_cleaned(store: Store) -> None:
    store.create(cleanup_policy=COMPACT, min_compaction_lag_ms=1000)
    put(store, ("a", "1"))
    put(store, ("a", "2"))
    store.log.roll()
    store.clock.now_ms += 1000
    put(store, ("a", "3"))
    store.log.roll()
    asked = request(store)
    assert asked is not None
    assert asked.upper_offset == 2
    compact(store)
    assert stored_pairs(store.log) == [(1, "a", "2"), (2, "a", "3")]


def test_a_log_is_due_by_its_dirty_share(store: Store) -> None:
    store.create(cleanup_policy=COMPACT, min_cleanable_dirty_ratio=0.5)

    def is_due() -> bool:
        target = find_cleanable(store.log, store.resources, store.log.end_offset, store.clock.now_ms)
        return target is not None and target.is_due

    assert not is_due()
    put(store, *((f"k{number}", "v" * 50) for number in range(10)))
    assert not is_due()
    store.log.roll()
    assert is_due()
    compact(store)
    assert not is_due()
    put(store, *((f"k{number}", "v" * 50) for number in range(9)))
    store.log.roll()
    assert not is_due()
    put(store, *((f"k{number}", "v" * 50) for number in range(2)))
    store.log.roll()
    assert is_due()


def test_a_log_is_due_by_the_maximal_lag_and_its_segments_close_in_time(store: Store) -> None:
    store.create(cleanup_policy=COMPACT, max_compaction_lag_ms=1000, min_cleanable_dirty_ratio=1.0)
    put(store, ("a", "1"))
    store.clock.now_ms += 1001
    put(store, ("a", "2"))
    assert len(store.log.segments) == 2, "the age of the lag closes a segment"
    target = find_cleanable(store.log, store.resources, store.log.end_offset, store.clock.now_ms)
    assert target is not None
    assert target.is_due
    store.reopen()
    target = find_cleanable(store.log, store.resources, store.log.end_offset, store.clock.now_ms)
    assert target is not None
    assert target.is_due


def test_nothing_at_or_above_the_high_watermark_is_cleaned(store: Store) -> None:
    for _ in range(3):
        put(store, ("a", "1"), ("b", "1"))
        store.log.roll()
    target = find_cleanable(store.log, store.resources, 3, store.clock.now_ms)
    assert target is not None
    assert target.upper_offset == 2


def test_a_mark_beyond_the_end_means_that_all_is_dirty(store: Store) -> None:
    put(store, ("a", "1"))
    store.log.roll()
    store.log.first_dirty_offset = 99
    asked = request(store)
    assert asked is not None
    assert asked.dirty_offset == 0


# Bounds and damage


def test_a_full_map_cleans_as_far_as_it_got(store: Store) -> None:
    for number in range(300):
        put(store, *((f"k{number}-{part}", "1") for part in range(10)))
    for number in range(300):
        put(store, *((f"k{number}-{part}", "2") for part in range(10)))
    store.log.roll()
    ends = []
    while (report := compact(store, memory_bytes=20_000)) is not None:
        ends.append(report.end_offset)
        assert report.keys <= 20_000 // 24
        assert len(latest(stored_records(store.log))) == 3000
    assert len(ends) > 5
    assert ends == sorted(set(ends))
    assert ends[-1] == 6000
    assert len(stored_records(store.log)) == 3000


def test_a_batch_with_more_keys_than_the_map_holds_is_passed_over(store: Store) -> None:
    put(store, *((f"k{number}", "1") for number in range(1000)))
    put(store, ("k1", "2"))
    store.log.roll()
    report = compact(store, memory_bytes=5000)
    assert report is not None
    assert report.end_offset == 1001
    assert (1, "k1", "1") not in stored_pairs(store.log)
    assert len(stored_pairs(store.log)) == 1000


def test_what_is_no_record_though_its_crc_is_right_stays(store: Store) -> None:
    put(store, ("a", "1"))
    batch = bytearray(build_batch([NewRecord(b"2", b"a", store.clock.now_ms)], base_offset=1, leader_epoch=0))
    batch[61] = 0x7F
    seal(batch)
    store.log.append_as_follower(bytes(batch))
    put(store, ("a", "3"))
    store.log.roll()
    report = compact(store)
    assert report is not None
    assert report.batches_unread == 1
    assert [found.header.base_offset for found in stored_batches(store.log)] == [1, 2]
    assert stored_batches(store.log)[0].data == bytes(batch)


def test_damage_is_an_error_and_never_sealed(store: Store) -> None:
    put(store, ("a", "1"))
    put(store, ("a", "2"))
    store.log.roll()
    path = Path(store.log.segments[0].path(".log"))
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    asked = request(store)
    assert asked is not None
    with pytest.raises(DamagedSegment, match="no valid batch at position"):
        list(replies(store, asked))


def test_a_worker_never_writes_over_a_file_that_is_there(store: Store) -> None:
    put(store, ("a", "1"))
    put(store, ("a", "2"))
    store.log.roll()
    other = Path(store.log.segments[0].path(".log") + CLEANED)
    other.write_bytes(b"of another worker")
    asked = request(store)
    assert asked is not None
    with pytest.raises(FileExistsError):
        list(replies(store, asked))
    assert other.read_bytes() == b"of another worker"


def test_a_range_of_a_replaced_segment_can_still_be_read(store: Store) -> None:
    put(store, ("a", "1"))
    put(store, ("a", "2"))
    store.log.roll()
    held = store.log.read(0, 1 << 20, store.log.end_offset)
    before = store.bytes_of(held)
    compact(store)
    assert store.bytes_of(held) == before
    assert store.bytes_of(store.log.read(0, 1 << 20, store.log.end_offset)) != before


def test_retention_waits_for_a_cleaning(store: Store) -> None:
    store.create(cleanup_policy=frozenset({"compact", "delete"}), retention_ms=1000)
    put(store, ("a", "1"))
    store.log.roll()
    store.clock.now_ms += 5000
    store.log.cleaning = object()  # type: ignore[assignment]  # only whether there is one matters
    assert store.log.delete_expired(store.log.end_offset) == 0
    store.log.cleaning = None
    assert store.log.delete_expired(store.log.end_offset) == 1


def test_compact_and_delete_together(store: Store) -> None:
    store.create(cleanup_policy=frozenset({"compact", "delete"}), retention_ms=10_000)
    put(store, ("a", "1"), ("b", "1"))
    store.log.roll()
    store.clock.now_ms += 8_000
    put(store, ("a", "2"))
    store.log.roll()
    size = max(segment.size for segment in store.log.segments)
    compact(store, segment_bytes=size)
    assert stored_pairs(store.log) == [(1, "b", "1"), (2, "a", "2")]
    store.clock.now_ms += 8_000
    assert store.log.delete_expired(store.log.end_offset) == 1
    assert stored_pairs(store.log) == [(2, "a", "2")]


def test_reads_over_gaps_begin_at_the_next_record(store: Store) -> None:
    for number in range(50):
        put(store, (f"k{number % 5}", f"{number}"))
    store.log.roll()
    put(store, ("z", "1"))
    compact(store)
    for offset in range(51):
        first = stored_batches(store.log, offset)[0].header
        assert first.base_offset == max(offset, 45)


def test_a_log_with_gaps_recovers_also_when_it_is_no_longer_compacted(store: Store) -> None:
    for number in range(50):
        put(store, (f"k{number % 5}", f"{number}"))
        if number % 10 == 9:
            store.log.roll()
    compact(store)
    before = stored_records(store.log)
    store.log.abandon()
    from headrace.storage.load_hints import LoadHints
    from headrace.storage.loading import load_log
    from headrace.storage.log_config import LogConfig

    hints = LoadHints(first_dirty_offset=store.log.first_dirty_offset)
    store.log = load_log(
        store.directory, store.log.partition, store.log.topic_id, LogConfig(), store.resources, hints
    )
    assert stored_records(store.log) == before
    assert store.log.end_offset == 50
    assert store.log.first_dirty_offset == 50


def test_cutting_the_log_takes_the_mark_back(store: Store) -> None:
    put(store, ("a", "1"))
    put(store, ("b", "1"))
    store.log.roll()
    compact(store)
    assert store.log.first_dirty_offset == 2
    store.log.truncate_to(1)
    assert store.log.first_dirty_offset == 1


def test_offset_map_is_exact_and_bounded() -> None:
    offset_map = OffsetMap(24 * 1000, 10**9, -1)
    room = offset_map.room
    assert 700 < room <= 1000
    offset_map.put_all((b"%d" % number, number) for number in range(room))
    assert offset_map.room == 0
    offset_map.put_all((b"%d" % number, number + 5000) for number in range(0, room, 2))
    assert len(offset_map) == room
    for number in range(room):
        assert offset_map.get(b"%d" % number) == (number + 5000 if number % 2 == 0 else number)
    assert offset_map.get(b"none") == -1


def test_a_group_says_what_it_stands_for(store: Store) -> None:
    for _ in range(3):
        put(store, ("a", "1"))
        store.log.roll()
    asked = request(store)
    assert asked is not None
    group = next(replies(store, asked))
    assert isinstance(group, CleanedGroup)
    assert (group.base_offset, group.sources, group.changed) == (0, (0, 1, 2), True)
    swap_in(store, group)
    assert stored_pairs(store.log) == [(2, "a", "1")]


def test_an_unknown_producer_keeps_nothing() -> None:
    batch = memoryview(build_batch([NewRecord(b"1", b"a")], producer=ProducerStamp(7, 0, 0)))
    offset_map = OffsetMap(1000, 10, 5)
    offset_map.put_all([(b"a", 5)])
    for producers, stays in (({}, False), ({7: ProducerEnd(0, 0)}, True), ({7: ProducerEnd(0, 4)}, False)):
        rules = BatchFilter(offset_map, TransactionView([]), producers, 0, 0, 1 << 20)
        assert (rules.apply(parse_header(batch), batch, is_last=False) is not None) is stays
