"""R-LOG-5 and transactions: aborted data goes, markers stay as long as they are needed."""

from __future__ import annotations

import pytest

from headrace.records.batch import CONTROL, DELETE_HORIZON, TRANSACTIONAL
from headrace.records.builder import NewRecord, ProducerStamp, build_batch
from headrace.storage.segment import TRANSACTION_INDEX
from headrace.storage.transaction_index import (
    AbortedTransaction,
    read_transaction_index,
)
from tests.unit.storage.compaction_shell import compact, put, request, stored_batches, stored_pairs
from tests.unit.storage.conftest import Store

DAY_MS = 24 * 60 * 60 * 1000


@pytest.fixture(autouse=True)
def compacted(store: Store) -> None:
    store.create(cleanup_policy=frozenset({"compact"}), index_interval_bytes=100)


def marker(store: Store, producer_id: int, kind: int) -> None:
    batch = build_batch(
        [NewRecord(b"\0\0\0\0\0\0", b"\0\0" + kind.to_bytes(2, "big"), store.clock.now_ms)],
        base_offset=store.log.end_offset,
        attributes=CONTROL | TRANSACTIONAL,
        producer=ProducerStamp(producer_id, 0, -1),
        leader_epoch=0,
    )
    store.log.append_as_follower(bytes(batch))


def transactional(store: Store, producer_id: int, sequence: int, *records: tuple[str, str]) -> int:
    stamp = ProducerStamp(producer_id, 0, sequence)
    return put(store, *records, producer=stamp, attributes=TRANSACTIONAL)


def test_aborted_data_goes_and_does_not_supersede(store: Store) -> None:
    put(store, ("a", "1"))
    transactional(store, 7, 0, ("a", "aborted"))
    marker(store, 7, 0)
    transactional(store, 7, 1, ("b", "committed"))
    marker(store, 7, 1)
    put(store, ("c", "1"))
    store.log.roll()
    compact(store)
    assert stored_pairs(store.log) == [(0, "a", "1"), (3, "b", "committed"), (5, "c", "1")]
    markers = [
        batch.header.base_offset for batch in stored_batches(store.log) if batch.header.attributes & CONTROL
    ]
    assert markers == [2, 4]
    path = store.log.segments[0].path(TRANSACTION_INDEX)
    assert read_transaction_index(store.env.disk, path) == [AbortedTransaction(7, 1, 2, 3)]


def test_a_marker_goes_only_after_its_data_and_its_horizon(store: Store) -> None:
    transactional(store, 7, 0, ("a", "1"))
    marker(store, 7, 1)
    transactional(store, 7, 1, ("b", "1"))
    marker(store, 7, 1)
    store.log.roll()
    put(store, ("a", "2"))
    store.log.roll()

    def markers() -> list[tuple[int, bool]]:
        return [
            (batch.header.base_offset, bool(batch.header.attributes & DELETE_HORIZON))
            for batch in stored_batches(store.log)
            if batch.header.attributes & CONTROL
        ]

    compact(store)
    assert markers() == [(1, False), (3, False)]
    put(store, ("c", "1"))
    store.log.roll()
    compact(store)
    assert markers() == [(1, True), (3, False)]
    store.clock.now_ms += DAY_MS
    put(store, ("d", "1"))
    store.log.roll()
    compact(store)
    assert markers() == [(3, False)]


def test_nothing_after_an_open_transaction_is_cleaned(store: Store) -> None:
    put(store, ("a", "1"))
    store.log.roll()
    transactional(store, 7, 0, ("a", "2"))
    store.log.roll()
    put(store, ("a", "3"))
    store.log.roll()
    asked = request(store)
    assert asked is not None
    assert asked.upper_offset == 1
