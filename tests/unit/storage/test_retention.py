"""Retention by time and by size (R-LOG-4), and the removal of what it deletes."""

from __future__ import annotations

from typing import Any

from headrace.records.batch import HEADER_SIZE, parse_header
from headrace.records.builder import assemble

DAY_MS = 86_400_000


def fill(store: Any, **settings: Any) -> None:
    """Ten segments of two batches, one a day."""
    store.create(segment_bytes=250, file_delete_delay_ms=1000, **settings)
    for _ in range(10):
        store.append()
        store.append()
        store.clock.now_ms += DAY_MS
    assert [segment.base_offset for segment in store.log.segments] == list(range(0, 20, 2))


def test_old_segments_go(store: Any) -> None:
    fill(store, retention_ms=3 * DAY_MS)
    assert store.log.delete_expired(high_watermark=20) == 7
    assert (store.log.start_offset, store.log.end_offset) == (14, 20)
    assert len(store.headers()) == 6
    assert store.log.delete_expired(high_watermark=20) == 0


def test_all_segments_may_go_and_the_offsets_go_on(store: Any) -> None:
    fill(store, retention_ms=DAY_MS)
    store.clock.now_ms += 30 * DAY_MS
    assert store.log.delete_expired(high_watermark=20) == 10
    assert (store.log.start_offset, store.log.end_offset, store.log.size) == (20, 20, 0)
    assert store.append() == 20
    assert store.log.delete_expired(high_watermark=21) == 0


def test_nothing_above_the_high_watermark_goes(store: Any) -> None:
    fill(store, retention_ms=0)
    assert store.log.delete_expired(high_watermark=5) == 2
    assert store.log.start_offset == 4


def test_the_log_is_kept_to_its_size(store: Any) -> None:
    fill(store, retention_ms=-1)
    size = store.log.size // 10
    store.log.update_config(
        type(store.log.config)(segment_bytes=250, retention_ms=-1, retention_bytes=3 * size + 1)
    )
    assert store.log.delete_expired(high_watermark=20) == 6
    assert store.log.size == 4 * size  # never less than what must be kept


def test_no_limit_keeps_everything(store: Any) -> None:
    fill(store, retention_ms=-1)
    store.clock.now_ms += 1000 * DAY_MS
    assert store.log.delete_expired(high_watermark=20) == 0


def test_a_compacted_topic_is_not_cut_by_age(store: Any) -> None:
    fill(store, retention_ms=1)
    store.log.update_config(type(store.log.config)(retention_ms=1, cleanup_policy=frozenset({"compact"})))
    assert store.log.delete_expired(high_watermark=20) == 0
    store.log.delete_records_to(7)
    assert store.log.delete_expired(high_watermark=20) == 3


def test_records_without_timestamps_age_by_the_file(store: Any) -> None:
    store.create(segment_bytes=250, retention_ms=1000)
    for _ in range(4):
        store.append(at=-1)
    store.clock.now_ms = store.env.disk.modified_ms(store.log.segments[0].path(".log")) + 999
    assert store.log.delete_expired(high_watermark=4) == 0
    store.clock.now_ms += 1000
    assert store.log.delete_expired(high_watermark=4) == 2


def test_a_batch_that_states_zero_is_not_of_1970(store: Any) -> None:
    """As librdkafka sends records without a timestamp: they age by the file, as in Kafka."""
    store.create(segment_bytes=150, retention_ms=DAY_MS)
    for _ in range(3):
        batch = store.batch(at=-1)
        store.log.append_as_leader(assemble(parse_header(batch)._replace(max_timestamp=0), batch[HEADER_SIZE:]), 0)
    store.clock.now_ms = store.env.disk.modified_ms(store.log.segments[0].path(".log")) + DAY_MS
    assert store.log.delete_expired(high_watermark=3) == 0
    store.clock.now_ms += DAY_MS
    assert store.log.delete_expired(high_watermark=3) == 3


def test_files_are_removed_after_the_delay(store: Any) -> None:
    fill(store, retention_ms=3 * DAY_MS)
    store.log.delete_expired(high_watermark=20)
    assert len(store.files(".log.deleted")) == 7
    graveyard = store.resources.graveyard
    assert graveyard.take_due() == []
    store.clock.now_ms += 1000
    graveyard.remove(graveyard.take_due())
    assert not store.files(".deleted")
    assert len(store.files(".log")) == 3
