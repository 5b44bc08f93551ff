"""Transactions in one log: who may write, what ends them, what a reader of committed records is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.model.errors import ErrorCode, KafkaError
from headrace.records.batch import CONTROL, TRANSACTIONAL, parse_header
from headrace.records.builder import ProducerStamp
from headrace.records.markers import ABORT, COMMIT, EndMarker, build_marker, read_marker
from headrace.records.reader import read_records
from headrace.storage.producer_state import VerificationGuard
from headrace.storage.segment import TRANSACTION_INDEX
from headrace.storage.transaction_index import AbortedTransaction, read_transaction_index
from tests.unit.storage.conftest import Store

PRODUCER = 7


def write(
    store: Store, sequence: int, producer_id: int = PRODUCER, producer_epoch: int = 0, count: int = 1
) -> int:
    """A batch of a transaction to which the coordinator agreed."""
    return store.append(
        count, attributes=TRANSACTIONAL, producer=ProducerStamp(producer_id, producer_epoch, sequence)
    )


def append(
    store: Store,
    sequence: int,
    guard: VerificationGuard | None,
    producer_epoch: int = 0,
    attributes: int = TRANSACTIONAL,
) -> int:
    batch = store.batch(attributes=attributes, producer=ProducerStamp(PRODUCER, producer_epoch, sequence))
    return store.log.append_as_leader(memoryview(batch), 0, guard).base_offset


def verify(store: Store, sequence: int, producer_epoch: int = 0, bumps: bool = False) -> VerificationGuard | None:
    return store.log.start_verification(PRODUCER, producer_epoch, sequence, bumps)


def code(error: pytest.ExceptionInfo[KafkaError]) -> ErrorCode:
    return error.value.code


def indexed(store: Store) -> list[AbortedTransaction]:
    """What the files hold, of all segments."""
    return [
        entry
        for segment in store.log.segments
        for entry in read_transaction_index(store.env.disk, segment.path(TRANSACTION_INDEX))
    ]


# Markers


@pytest.mark.parametrize(("commit", "kind"), [(True, COMMIT), (False, ABORT)])
def test_a_marker_is_a_control_batch_of_one_record(commit: bool, kind: int) -> None:
    batch = bytes(build_marker(EndMarker(9, 3, commit, 5), 1000, base_offset=42, leader_epoch=6))
    header = parse_header(batch)
    assert header.attributes == CONTROL | TRANSACTIONAL
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 3, -1)
    assert (header.base_offset, header.last_offset, header.leader_epoch) == (42, 42, 6)
    (record,) = read_records(batch)
    assert record.key == b"\0\0\0" + bytes([kind])
    assert record.value == b"\0\0\0\0\0\5"
    assert read_marker(batch) == (kind, 5)


# Who may write


def test_a_batch_that_was_not_verified_opens_no_transaction(store: Store) -> None:
    with pytest.raises(KafkaError) as error:
        append(store, 0, None)
    assert code(error) is ErrorCode.INVALID_TXN_STATE
    assert store.log.end_offset == 0


def test_a_verified_batch_opens_one_and_the_next_need_no_guard(store: Store) -> None:
    assert store.log.needs_verification(PRODUCER, 0)
    guard = verify(store, 0)
    append(store, 0, guard)
    assert not store.log.needs_verification(PRODUCER, 0)
    assert store.log.needs_verification(PRODUCER, 1)
    assert verify(store, 1) is None
    append(store, 1, None)
    assert store.log.last_stable_offset(2) == 0


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_between_verification_and_append_makes_the_guard_void(store: Store, commit: bool) -> None:
    """The hole of KAFKA-14561: the batch would open a transaction that nobody ends."""
    guard = verify(store, 0)
    store.end(PRODUCER, commit)
    with pytest.raises(KafkaError) as error:
        append(store, 0, guard)
    assert code(error) is ErrorCode.INVALID_TXN_STATE
    assert store.log.last_stable_offset(1) == 1
    again = verify(store, 0)
    assert again is not guard
    append(store, 0, again)


def test_the_late_marker_of_the_transaction_before_leaves_the_guard_of_the_next_alone(store: Store) -> None:
    """After a change of the leader the marker is sent anew, and the next transaction may ask before it comes."""
    append(store, 0, verify(store, 0, producer_epoch=3, bumps=True), producer_epoch=3)
    guard = verify(store, 0, producer_epoch=4, bumps=True)
    ending = EndMarker(PRODUCER, 4, True, 0, 2)
    store.log.append_marker(ending, 0)
    store.log.append_marker(ending, 0)  # sent again: its answer was lost
    append(store, 0, guard, producer_epoch=4)
    assert store.log.last_stable_offset(4) == 3


@pytest.mark.parametrize("epoch", [5, 6])
def test_the_end_of_its_own_transaction_makes_such_a_guard_void(store: Store, epoch: int) -> None:
    guard = verify(store, 0, producer_epoch=4, bumps=True)
    store.log.append_marker(EndMarker(PRODUCER, epoch, False, 0, 2), 0)
    with pytest.raises(KafkaError) as error:
        append(store, 0, guard, producer_epoch=4)
    assert code(error) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert verify(store, 0, producer_epoch=4, bumps=True) is not guard


def test_a_guard_opens_one_transaction_only(store: Store) -> None:
    guard = verify(store, 0)
    append(store, 0, guard)
    store.end(PRODUCER)
    with pytest.raises(KafkaError) as error:
        append(store, 1, guard)
    assert code(error) is ErrorCode.INVALID_TXN_STATE


def test_an_epoch_that_was_refused_gives_way_to_a_lower_one(store: Store) -> None:
    wrong = verify(store, 0, 9)
    assert wrong is not None
    with pytest.raises(KafkaError) as error:
        verify(store, 0, 3)
    assert code(error) is ErrorCode.INVALID_PRODUCER_EPOCH, "nobody knows yet which of them is right"
    wrong.refused = True
    assert append(store, 0, verify(store, 0, 3), 3) == 0


def test_an_epoch_that_is_asked_for_again_counts_again(store: Store) -> None:
    guard = verify(store, 0, 9)
    assert guard is not None
    guard.refused = True
    assert verify(store, 0, 9) is guard
    with pytest.raises(KafkaError):
        verify(store, 0, 3)


def test_a_guard_is_of_one_epoch(store: Store) -> None:
    old = verify(store, 0, producer_epoch=0)
    new = verify(store, 0, producer_epoch=1)
    assert new is not old
    with pytest.raises(KafkaError) as error:
        verify(store, 0, producer_epoch=0)
    assert code(error) is ErrorCode.INVALID_PRODUCER_EPOCH
    with pytest.raises(KafkaError) as error:
        append(store, 0, old, producer_epoch=0)
    assert code(error) is ErrorCode.INVALID_TXN_STATE
    append(store, 0, new, producer_epoch=1)


def test_a_later_batch_does_not_overtake_one_that_waits_for_its_verification(store: Store) -> None:
    verify(store, 0)
    guard = verify(store, 1)
    with pytest.raises(KafkaError) as error:
        append(store, 1, guard)
    assert code(error) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(store, 0, guard)
    append(store, 1, None)


def test_with_new_epochs_an_unknown_producer_begins_at_zero(store: Store) -> None:
    guard = verify(store, 4, bumps=True)
    with pytest.raises(KafkaError) as error:
        append(store, 4, guard)
    assert code(error) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(store, 0, guard)


def test_a_duplicate_of_an_ended_transaction_is_answered_as_such(store: Store) -> None:
    first = write(store, 0)
    store.end(PRODUCER)
    assert append(store, 0, None) == first


def test_a_plain_batch_does_not_mix_with_an_open_transaction(store: Store) -> None:
    write(store, 0)
    with pytest.raises(KafkaError) as error:
        append(store, 1, None, attributes=0)
    assert code(error) is ErrorCode.INVALID_TXN_STATE
    store.end(PRODUCER)
    append(store, 1, None, attributes=0)


def test_a_transaction_needs_a_producer(store: Store) -> None:
    batch = store.batch(attributes=TRANSACTIONAL)
    with pytest.raises(KafkaError) as error:
        store.log.append_as_leader(memoryview(batch), 0)
    assert code(error) is ErrorCode.INVALID_RECORD


def test_forgotten_guards_expire(store: Store) -> None:
    guard = verify(store, 0)
    store.clock.now_ms += 1000
    store.log.expire_producers(1000)
    with pytest.raises(KafkaError) as error:
        append(store, 0, guard)
    assert code(error) is ErrorCode.INVALID_TXN_STATE


# Who may end it


@pytest.mark.parametrize(
    ("marker", "answer"),
    [
        (EndMarker(PRODUCER, 3, True, 5), None),
        (EndMarker(PRODUCER, 4, True, 5), None),
        (EndMarker(PRODUCER, 4, True, 6, 2), None),
        (EndMarker(PRODUCER, 3, True, 5, 1), None),
        (EndMarker(PRODUCER, 2, True, 5), ErrorCode.INVALID_PRODUCER_EPOCH),
        (EndMarker(PRODUCER, 3, True, 5, 2), ErrorCode.INVALID_PRODUCER_EPOCH),
        (EndMarker(PRODUCER, 3, True, 4), ErrorCode.TRANSACTION_COORDINATOR_FENCED),
        (EndMarker(PRODUCER, 4, False, 4, 2), ErrorCode.TRANSACTION_COORDINATOR_FENCED),
        (EndMarker(99, 0, True, 0), None),
    ],
    ids=str,
)
def test_markers_are_fenced(store: Store, marker: EndMarker, answer: ErrorCode | None) -> None:
    """The producer by its epoch, which from version 2 on must be new, the coordinator by its own."""
    write(store, 0, producer_epoch=3)
    store.log.append_marker(EndMarker(PRODUCER, 3, True, 5), 0)
    write(store, 1, producer_epoch=3)
    if answer is None:
        assert store.log.append_marker(marker, 0).base_offset == 3
        assert store.log.needs_verification(PRODUCER, 3) is (marker.producer_id == PRODUCER)
        return
    with pytest.raises(KafkaError) as error:
        store.log.append_marker(marker, 0)
    assert code(error) is answer
    assert store.log.end_offset == 3
    assert store.log.last_stable_offset(3) == 2


def test_a_marker_with_a_new_epoch_fences_what_comes_late(store: Store) -> None:
    """KIP-890: the epoch of the marker is remembered, also where nothing was written in it."""
    guard = verify(store, 0, producer_epoch=3, bumps=True)
    append(store, 0, guard, producer_epoch=3)
    ending = EndMarker(PRODUCER, 4, True, 0, 2)
    store.log.append_marker(ending, 0)
    late = verify(store, 1, producer_epoch=3, bumps=True)
    with pytest.raises(KafkaError) as error:
        append(store, 1, late, producer_epoch=3)
    assert code(error) is ErrorCode.INVALID_PRODUCER_EPOCH
    store.log.append_marker(ending, 0)  # sent again: its answer was lost
    store.reopen()
    with pytest.raises(KafkaError) as error:
        append(store, 1, verify(store, 1, producer_epoch=3, bumps=True), producer_epoch=3)
    assert code(error) is ErrorCode.INVALID_PRODUCER_EPOCH
    append(store, 0, verify(store, 0, producer_epoch=4, bumps=True), producer_epoch=4)


# Aborted transactions


def test_the_index_names_what_was_aborted(store: Store) -> None:
    write(store, 0, producer_id=1, count=3)
    write(store, 0, producer_id=2)
    write(store, 0, producer_id=3)
    store.end(2, commit=False)
    store.end(1, commit=True)
    store.end(3, commit=False)
    store.end(3, commit=False)  # of nothing
    expected = [AbortedTransaction(2, 3, 5, 0), AbortedTransaction(3, 4, 7, 8)]
    assert indexed(store) == expected
    data = Path(store.log.segments[0].path(TRANSACTION_INDEX)).read_bytes()
    assert data[:34].hex() == "0000" + "".join(f"{number:016x}" for number in (2, 3, 5, 0))
    assert store.log.has_aborted


def test_a_log_without_aborted_transactions_has_no_index(store: Store) -> None:
    write(store, 0)
    store.end(PRODUCER)
    store.log.roll()
    assert not store.files(TRANSACTION_INDEX)
    assert not store.log.has_aborted


def test_a_reader_is_told_what_overlaps_its_range(store: Store) -> None:
    store.create(segment_bytes=400, index_interval_bytes=1)
    spans = []
    for number in range(30):
        first = write(store, number)
        write(store, 100 + number, producer_id=2)
        spans.append((first, store.end(PRODUCER, commit=False)))
        store.end(2)
    end = store.log.end_offset
    assert len(store.log.segments) > 5
    for offset in range(end):
        found = store.log.read(offset, 1, end, at_least_one=True)
        assert found is not None
        told = [(row.first_offset, row.last_offset) for row in store.log.aborted_transactions(offset, found)]
        last = parse_header(store.bytes_of(found)).last_offset
        needed = [span for span in spans if span[0] <= last and span[1] >= offset]
        assert [span for span in told if span in needed] == needed
        assert len(told) <= len(needed) + 3, "not all that comes later"
    whole = store.log.read(0, 1 << 20, end)
    assert whole is not None


@pytest.mark.parametrize("how", ["clean", "crash", "crash after a flush", "index lost", "index torn"])
def test_the_index_survives(store: Store, how: str) -> None:
    store.create(segment_bytes=700)
    for number in range(20):
        write(store, number)
        store.end(PRODUCER, commit=number % 2 == 0)
    expected = indexed(store)
    assert len(expected) == 10
    if how == "clean":
        store.log.close()
    if how == "crash after a flush":
        store.log.flush()
    point = store.log.recovery_point
    if how == "index lost":
        for path in store.files(TRANSACTION_INDEX):
            path.unlink()
    if how == "index torn":
        for path in store.files(TRANSACTION_INDEX):
            path.write_bytes(path.read_bytes()[:-3])
    store.reopen(clean=how == "clean", recovery_point=point)
    assert indexed(store) == expected
    assert store.log.has_aborted
    write(store, 20)
    store.end(PRODUCER, commit=False)
    assert indexed(store) == [*expected, AbortedTransaction(PRODUCER, 40, 41, 42)]


@pytest.mark.parametrize("entry", [b"\0\0" + bytes(31) + b"\1", b"\xa5" * 34], ids=["offsets", "version"])
def test_an_index_that_makes_no_sense_is_made_again(store: Store, entry: bytes) -> None:
    store.create(segment_bytes=700)
    for number in range(20):
        write(store, number)
        store.end(PRODUCER, commit=False)
    expected = indexed(store)
    store.log.close()
    path = store.files(TRANSACTION_INDEX)[0]
    path.write_bytes(entry + path.read_bytes()[34:])
    store.reopen(clean=True)
    assert indexed(store) == expected


def test_a_cut_reaches_the_index(store: Store) -> None:
    store.create(segment_bytes=700)
    for number in range(20):
        write(store, number)
        store.end(PRODUCER, commit=False)
    before = indexed(store)
    store.log.truncate_to(21)  # the marker goes, and the transaction is open again
    assert indexed(store) == before[:10]
    assert store.log.last_stable_offset(21) == 20
    store.end(PRODUCER, commit=True)
    store.reopen(recovery_point=store.log.recovery_point)
    assert indexed(store) == before[:10]
    store.log.truncate_fully_and_start_at(100)
    assert not store.log.has_aborted
    assert not store.files(TRANSACTION_INDEX)


def test_the_index_goes_with_its_segment(store: Store) -> None:
    store.create(segment_bytes=300)
    for number in range(8):
        write(store, number)
        store.end(PRODUCER, commit=number > 1)
    assert store.log.has_aborted
    store.log.remove_first_segments(len(store.log.segments) - 1)
    assert not store.files(TRANSACTION_INDEX)
    assert not store.log.has_aborted
    assert store.files(TRANSACTION_INDEX + ".deleted")


def test_open_transactions_are_found_again(store: Store) -> None:
    """From snapshots at rolls, from the batches alone, and by a follower."""
    store.create(segment_bytes=300)
    write(store, 0, producer_id=1)
    for number in range(10):
        write(store, number, producer_id=2)
        store.end(2)
    write(store, 10, producer_id=2)
    for clean in (False, True, False):
        if clean:
            store.log.close()
        store.reopen(clean=clean, recovery_point=5)
        assert store.log.last_stable_offset(store.log.end_offset) == 0
        assert store.log.producers.open_transactions == 2
    store.end(1)
    assert store.log.last_stable_offset(store.log.end_offset) == 21


def test_offsets_of_a_group_are_written_without_a_sequence(store: Store) -> None:
    stamp = ProducerStamp(PRODUCER, 3, -1)
    guard = store.log.start_verification(PRODUCER, 3, -1, bumps_epochs=True)
    with pytest.raises(KafkaError) as error:
        store.log.append_unsequenced(store.batch(2, attributes=TRANSACTIONAL, producer=stamp), 0, None)
    assert code(error) is ErrorCode.INVALID_TXN_STATE
    store.log.append_unsequenced(store.batch(2, attributes=TRANSACTIONAL, producer=stamp), 0, guard)
    store.log.append_unsequenced(store.batch(1, attributes=TRANSACTIONAL, producer=stamp), 0, None)
    (row,) = store.log.producers.describe()
    assert (row.epoch, row.last_sequence, row.transaction_first_offset) == (3, -1, 0)
    old = store.batch(1, attributes=TRANSACTIONAL, producer=ProducerStamp(PRODUCER, 2, -1))
    with pytest.raises(KafkaError) as error:
        store.log.append_unsequenced(old, 0, None)
    assert code(error) is ErrorCode.INVALID_PRODUCER_EPOCH
    store.reopen()
    assert store.log.producers.describe() == [row]
