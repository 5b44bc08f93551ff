"""Idempotent producers (R-PRO-3): duplicates answered, gaps refused, zombies fenced, memory kept and given up."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.model.errors import ErrorCode, KafkaError
from headrace.records.batch import TRANSACTIONAL
from headrace.records.builder import ProducerStamp
from headrace.storage.producer_snapshot import SnapshotEntry, decode_snapshot, encode_snapshot
from headrace.storage.producer_state import MAX_SEQUENCE, ProducerStates

EXPIRATION_MS = 86_400_000


def refused(store: Any, code: ErrorCode, **fields: Any) -> None:
    end = store.log.end_offset
    with pytest.raises(KafkaError) as error:
        store.produce(**fields)
    assert error.value.code == code
    assert store.log.end_offset == end


def test_a_repeated_batch_gets_its_first_offset_and_is_not_stored(store: Any) -> None:
    offsets = [store.produce(sequence, 2) for sequence in range(0, 20, 2)]
    for sequence in range(10, 20, 2):  # the last five
        assert store.produce(sequence, 2) == offsets[sequence // 2]
    assert store.log.end_offset == 20
    assert len(store.headers()) == 10
    refused(store, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, sequence=8, count=2)


def test_a_repeat_with_another_length_is_no_duplicate(store: Any) -> None:
    store.produce(0, 3)
    refused(store, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, sequence=0, count=2)


def test_a_gap_is_refused(store: Any) -> None:
    store.produce(0)
    refused(store, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, sequence=2)
    assert store.produce(1) == 1


def test_an_unknown_producer_may_begin_anywhere(store: Any) -> None:
    assert store.produce(1234) == 0
    assert store.produce(1235) == 1
    assert store.produce(77, producer_id=8) == 2


def test_epochs(store: Any) -> None:
    store.produce(0, producer_epoch=3)
    refused(store, ErrorCode.INVALID_PRODUCER_EPOCH, sequence=1, producer_epoch=2)
    refused(store, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, sequence=1, producer_epoch=4)
    assert store.produce(0, producer_epoch=4) == 1
    refused(store, ErrorCode.INVALID_PRODUCER_EPOCH, sequence=1, producer_epoch=3)


def test_the_sequence_wraps(store: Any) -> None:
    store.produce(MAX_SEQUENCE - 1, 2)
    assert store.produce(0, 1) == 2
    store.log.truncate_fully_and_start_at(0)
    first = store.produce(MAX_SEQUENCE - 1, 4)  # MAX-1, MAX, 0, 1
    assert store.produce(MAX_SEQUENCE - 1, 4) == first
    assert store.log.producers.describe()[0].last_sequence == 1
    refused(store, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, sequence=3)
    assert store.produce(2) == 4


@pytest.mark.parametrize("clean", [True, False])
def test_the_memory_survives_a_restart(store: Any, clean: bool) -> None:
    for sequence in range(6):
        store.produce(sequence)
    if clean:
        store.log.close()
    store.reopen(clean=clean)
    assert store.produce(5) == 5
    refused(store, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, sequence=7)
    assert store.produce(6) == 6


def test_all_batches_that_may_be_repeated_survive_a_stop_and_a_cut(store: Any) -> None:
    """With several batches in flight the first of them comes again, not the last.

    A leader that knew only the last one refused it, and the client sent it once more in a new epoch.
    """
    for sequence in range(7):
        store.produce(sequence)
    store.log.close()
    store.reopen(clean=True)
    assert [store.produce(sequence) for sequence in range(2, 7)] == [2, 3, 4, 5, 6]
    store.produce(7)
    store.log.truncate_to(7)
    assert [store.produce(sequence) for sequence in range(2, 7)] == [2, 3, 4, 5, 6]
    assert store.log.end_offset == 7
    refused(store, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, sequence=1)


def test_a_snapshot_of_kafka_has_one_entry_for_a_producer() -> None:
    states = ProducerStates()
    states.load([SnapshotEntry(3, 1, 9, 40, 2, 1000, -1, 38), SnapshotEntry(4, 0, -1, -1, 0, 5, 2, -1)])
    assert [(row.producer_id, row.last_sequence) for row in states.describe()] == [(3, 9), (4, -1)]
    assert states.first_open_transaction() == 38
    assert len(states.snapshot()) == 2


def test_silent_producers_are_forgotten(store: Any) -> None:
    store.produce(0)
    store.clock.now_ms += 1000
    store.produce(0, producer_id=8)
    store.log.expire_producers(EXPIRATION_MS)
    store.clock.now_ms += EXPIRATION_MS - 1000
    store.produce(1, producer_id=8)
    store.clock.now_ms += 1000
    store.log.expire_producers(EXPIRATION_MS)
    assert [row.producer_id for row in store.log.producers.describe()] == [8]
    assert store.produce(55) == 3


def test_a_producer_of_old_records_is_remembered_as_long_as_any_other(store: Any) -> None:
    """Records that are copied from an archive have the times of then."""
    stamp = ProducerStamp(3, 0, 0)
    first = store.append(1, at=1000, producer=stamp)
    store.log.expire_producers(EXPIRATION_MS)
    store.clock.now_ms += EXPIRATION_MS - 1
    store.log.expire_producers(EXPIRATION_MS)
    assert store.append(1, at=1000, producer=stamp) == first
    assert store.log.end_offset == 1


def test_an_open_transaction_is_not_forgotten(store: Any) -> None:
    store.append(1, attributes=TRANSACTIONAL, producer=ProducerStamp(3, 0, 0))
    store.clock.now_ms += 2 * EXPIRATION_MS
    store.log.expire_producers(EXPIRATION_MS)
    assert store.log.producers.describe()[0].transaction_first_offset == 0


def test_snapshots_refuse_every_damage() -> None:
    entries = [SnapshotEntry(7, 1, 2, 3, 4, 5, 6, -1), SnapshotEntry(2**60, 0, -1, -1, 0, -1, -1, 9)]
    data = encode_snapshot(entries)
    assert decode_snapshot(data) == entries
    assert decode_snapshot(encode_snapshot([])) == []
    for size in range(len(data)):
        assert decode_snapshot(data[:size]) is None
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x10
        assert decode_snapshot(bytes(damaged)) is None


def test_a_partition_remembers_a_bounded_number_of_producers(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that were silent longest go first; the others go on without a gap."""
    monkeypatch.setattr("headrace.storage.producer_state.MAX_PRODUCERS_PER_PARTITION", 20)
    store.create()
    for producer_id in range(100):
        store.clock.now_ms += 1
        store.produce(0, producer_id=producer_id)
        assert len(store.log.producers) <= 20
    known = {row.producer_id for row in store.log.producers.describe()}
    assert 99 in known
    assert 0 not in known
    assert store.produce(1, producer_id=99) == 100
