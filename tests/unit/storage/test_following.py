"""What replication asks of a log: append as a follower, cut to where the leader's log parts, follow its start."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicId
from headrace.records.batch import CONTROL, TRANSACTIONAL, parse_header
from headrace.records.builder import NewRecord, ProducerStamp, build_batch
from headrace.storage.load_hints import LoadHints
from headrace.storage.loading import create_log, load_log
from headrace.storage.log import Log
from headrace.storage.log_config import LogConfig
from headrace.storage.resources import StorageResources
from headrace.testing.faulty_disk import FaultyDisk
from tests.unit.storage.conftest import PARTITION, Store

TOPIC_ID = TopicId(b"0123456789abcdef")
SMALL: dict[str, Any] = {"segment_bytes": 1500, "index_interval_bytes": 200}
COMMIT_KEY, COMMIT_VALUE = b"\0\0\0\1", b"\0\0\0\0\0\5"


class Follower:
    """A second log, in a directory of its own, that copies the store's."""

    def __init__(self, store: Store, path: Path) -> None:
        self.store = store
        self.directory = str(path)
        self.config = LogConfig(**SMALL)
        self.log = create_log(self.directory, PARTITION, TOPIC_ID, self.config, store.resources)

    def copy(self, max_bytes: int = 1 << 20, **arguments: Any) -> None:
        """Fetch until it is level with the leader."""
        leader = self.store.log
        while self.log.end_offset < leader.end_offset:
            before = self.log.end_offset
            found = leader.read(before, max_bytes, leader.end_offset, at_least_one=True)
            self.log.append_as_follower(self.store.bytes_of(found), **arguments)
            if self.log.end_offset == before:
                return

    def reopen(self) -> None:
        self.log.abandon()
        resources = StorageResources.create(self.store.env)
        hints = LoadHints(False, self.log.start_offset)
        self.log = load_log(self.directory, PARTITION, TOPIC_ID, self.config, resources, hints)

    def is_like(self, leader: Log) -> bool:
        """In everything that a reader, a producer or another replica can see."""
        mine, other = (
            (
                log.start_offset,
                log.end_offset,
                log.leader_epochs.entries,
                sorted(log.producers.snapshot()),
                log.last_stable_offset(log.end_offset),
                self._bytes(log),
            )
            for log in (self.log, leader)
        )
        assert mine == other
        return True

    def _bytes(self, log: Log) -> bytes:
        offset, parts = log.start_offset, []
        while offset < log.end_offset:
            data = self.store.bytes_of(log.read(offset, 1, log.end_offset, at_least_one=True))
            parts.append(data)
            offset = parse_header(data).next_offset
        return b"".join(parts)


@pytest.fixture
def follower(store: Store, tmp_path: Path) -> Follower:
    store.create(**SMALL)
    return Follower(store, tmp_path / "follower-0")


def marker(producer_id: int, epoch: int = 0) -> bytearray:
    """The end of a transaction, as a coordinator writes it."""
    return build_batch(
        [NewRecord(COMMIT_VALUE, COMMIT_KEY, 1_700_000_000_000)],
        attributes=TRANSACTIONAL | CONTROL,
        producer=ProducerStamp(producer_id, epoch, -1),
    )


def append_marker(log: Log, producer_id: int, leader_epoch: int = 0) -> int:
    """A leader has no way yet to write one, so it is taken as from another leader."""
    batch = marker(producer_id)
    batch[:8] = log.end_offset.to_bytes(8, "big")
    batch[12:16] = leader_epoch.to_bytes(4, "big")
    return log.append_as_follower(batch)


def write_history(store: Store) -> None:
    """Plain, idempotent and transactional batches in three leader epochs, over several segments."""
    for number in range(60):
        epoch = number // 20
        if number % 20 == 0:
            store.log.assign_leader_epoch(epoch)
        store.append(1 + number % 3, epoch)
        store.append(2, epoch, producer=ProducerStamp(7, 0, 2 * number))
        store.append(1, epoch, producer=ProducerStamp(100 + number, 3, 0))
        if number % 10 == 3:
            store.append(1, epoch, attributes=TRANSACTIONAL, producer=ProducerStamp(9, 0, number // 10))
        if number % 10 == 7:
            append_marker(store.log, 9, epoch)
    store.append(1, 2, attributes=TRANSACTIONAL, producer=ProducerStamp(8, 1, 0))
    assert len(store.log.segments) > 8


@pytest.mark.parametrize("max_bytes", [1, 1000, 1 << 20])
def test_a_follower_builds_what_the_leader_has(store: Store, follower: Follower, max_bytes: int) -> None:
    write_history(store)
    follower.copy(max_bytes)
    assert follower.is_like(store.log)
    follower.reopen()
    assert follower.is_like(store.log)


@pytest.mark.parametrize("cut", range(0, 300, 23))
def test_a_follower_that_was_cut_catches_up_to_the_same(store: Store, follower: Follower, cut: int) -> None:
    """Its producers are found again as they were at the cut: the history after it fits on."""
    write_history(store)
    follower.copy()
    follower.log.truncate_to(cut)
    assert follower.log.end_offset <= cut
    assert all(start < max(follower.log.end_offset, 1) for _, start in follower.log.leader_epochs.entries)
    whole = follower.log.end_offset
    follower.reopen()
    assert follower.log.end_offset == whole
    follower.copy()
    assert follower.is_like(store.log)


def test_a_bad_batch_ends_an_append_before_it(store: Store, follower: Follower) -> None:
    for _ in range(3):
        store.append(2)
    data = bytearray(store.bytes_of(store.log.read(0, 1 << 20, 6)))
    data[-1] ^= 1
    with pytest.raises(KafkaError) as error:
        follower.log.append_as_follower(data)
    assert error.value.code == ErrorCode.CORRUPT_MESSAGE
    assert follower.log.end_offset == 4
    follower.copy()
    assert follower.is_like(store.log)


def at(offset: int, count: int = 2, epoch: int = 0) -> bytearray:
    return build_batch([NewRecord(b"v", timestamp=5)] * count, base_offset=offset, leader_epoch=epoch)


def test_offsets_grow_and_may_have_gaps(follower: Follower) -> None:
    log = follower.log
    assert log.append_as_follower(at(0) + at(7) + at(20)) == 22
    for offset in (0, 7, 19, 20, 21):
        with pytest.raises(KafkaError) as error:
            log.append_as_follower(at(offset))
        assert error.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    with pytest.raises(KafkaError):
        log.append_as_follower(at(30) + at(24))
    assert log.end_offset == 32


def test_the_copy_of_a_log_with_gaps_is_whole_after_a_crash(follower: Follower) -> None:
    """Found by the simulation: where the topic was not compacted any more, a start cut it at its first gap."""
    end = follower.log.append_as_follower(at(4) + at(9) + at(15) + at(17) + at(30))
    noted = follower.log.first_dirty_offset
    follower.reopen()
    assert follower.log.end_offset == end == 32
    assert noted == follower.log.first_dirty_offset == 0


def test_a_wrong_offset_is_no_gap(follower: Follower) -> None:
    """It is not under the checksum, but it reaches beyond the batch behind it, or has none."""
    batches = at(0) + at(2) + at(4) + at(6)
    size = len(at(0))
    for number in (1, 3):
        for bit in range(1, 16):
            follower.log.truncate_fully_and_start_at(0)
            follower.log.append_as_follower(batches)
            with open(follower.log.segments[-1].path(".log"), "r+b") as file:
                file.seek(number * size + 7 - bit // 8)
                byte = file.read(1)[0] ^ 1 << bit % 8
                file.seek(-1, os.SEEK_CUR)
                file.write(bytes([byte]))
            follower.reopen()
            assert follower.log.end_offset == 2 * number


def test_a_batch_that_is_cut_off_is_left_for_the_next_fetch(follower: Follower) -> None:
    whole = at(0) + at(2)
    for size in range(len(at(0)), len(whole)):
        follower.log.truncate_fully_and_start_at(0)
        assert follower.log.append_as_follower(whole[:size]) == 2


def test_batches_of_a_later_epoch_wait_until_it_is_known(follower: Follower) -> None:
    """KAFKA-18723: they may come before this replica has heard of their leader."""
    data = at(0, epoch=3) + at(2, epoch=4) + at(4, epoch=4)
    assert follower.log.append_as_follower(data, leader_epoch=3) == 2
    assert follower.log.leader_epochs.entries == ((3, 0),)
    assert follower.log.append_as_follower(data[len(at(0)) :], leader_epoch=4) == 6


def test_an_empty_follower_begins_where_the_leader_deleted_inside_a_batch(
    store: Store, follower: Follower
) -> None:
    store.append(10)
    store.append(10, 1)
    store.log.delete_records_to(14)
    follower.log.truncate_fully_and_start_at(14)
    follower.copy()
    assert (follower.log.start_offset, follower.log.end_offset) == (14, 20)
    assert [header.base_offset for header in store.headers(14)] == [10]
    assert follower.log.leader_epochs.entries == store.log.leader_epochs.entries == ((1, 14),)
    follower.reopen()
    assert (follower.log.start_offset, follower.log.end_offset) == (14, 20)


@pytest.mark.parametrize("start", [0, 5, 60, 119, 120, 300])
def test_following_the_leaders_start(store: Store, follower: Follower, start: int) -> None:
    for epoch in range(3):
        for _ in range(20):
            store.append(2, epoch)
    follower.copy()
    if start > follower.log.end_offset:
        follower.log.truncate_fully_and_start_at(start)
    else:
        follower.log.delete_records_to(start)
    assert follower.log.start_offset == start
    assert follower.log.end_offset == max(start, 120)
    if start <= 120:
        store.log.delete_records_to(start)
        assert follower.log.leader_epochs.entries == store.log.leader_epochs.entries


def test_an_epoch_without_records_is_dropped_by_a_cut_at_the_end(store: Store) -> None:
    """Kafka too: this broker led for a moment and wrote nothing; the next leader's history has no such epoch."""
    store.append(3, 1)
    store.log.assign_leader_epoch(2)
    assert end_offset_for(store.log, 2) == (2, 3)
    store.log.truncate_to(3)
    assert store.log.end_offset == 3
    assert store.log.leader_epochs.entries == ((1, 0),)
    assert end_offset_for(store.log, 2) == (-1, -1)
    store.reopen()
    assert store.log.leader_epochs.entries == ((1, 0),)


def end_offset_for(log: Log, epoch: int) -> tuple[int, int]:
    return log.leader_epochs.end_offset_for(epoch, log.end_offset)


def diverge(ours: list[int], theirs: list[int], store: Store, follower: Follower) -> None:
    """One record for each number, written in the epoch that it is."""
    for epoch in theirs:
        store.append(1, epoch)
    for offset, epoch in enumerate(ours):
        follower.log.append_as_follower(at(offset, 1, epoch))


def reconcile(log: Log, ask: Callable[[int], tuple[int, int]]) -> list[int]:
    """What a follower does (KIP-101, KIP-279): ask for its last epoch, cut, and ask again until the logs agree."""
    asked = []
    while True:
        latest = log.leader_epochs.latest
        asked.append(latest)
        epoch, end_offset = ask(latest)
        mine, my_end = end_offset_for(log, epoch)
        agreed = min(end_offset, my_end) if mine == epoch else my_end
        log.truncate_to(agreed)
        if log.leader_epochs.latest in (epoch, -1):
            return asked


@pytest.mark.parametrize(
    ("ours", "theirs", "common"),
    [
        ([0, 0, 0], [0, 0, 0, 1], 3),
        ([0, 0, 0], [0, 0, 1, 1], 2),
        ([0, 0, 1, 1], [0, 0, 0, 2], 2),
        ([0, 0, 1], [0, 0, 2, 2], 2),
        ([0, 1, 1, 3, 3], [0, 1, 2, 2, 4], 2),
        ([0, 0, 1, 3, 3, 3], [0, 0, 2, 2, 4], 2),
        ([1, 1, 2], [0, 3, 3], 0),
    ],
)
def test_logs_that_parted_find_where(
    store: Store, follower: Follower, ours: list[int], theirs: list[int], common: int
) -> None:
    diverge(ours, theirs, store, follower)
    assert len(reconcile(follower.log, partial(end_offset_for, store.log))) <= len(set(ours))
    assert follower.log.end_offset <= common or ours[:common] == theirs[:common]
    same = [header.leader_epoch for header in store.headers()][: follower.log.end_offset]
    assert ours[: follower.log.end_offset] == same
    assert follower.log.end_offset == common
    follower.log.truncate_to(common)
    follower.copy()
    assert [epoch for epoch, _ in follower.log.leader_epochs.entries] == sorted(set(theirs))


def test_a_log_that_begins_anew_knows_nothing_of_before(store: Store) -> None:
    """Also not from a snapshot of a clean stop, which stands at no segment."""
    store.produce(0)
    store.append(1, 4, attributes=TRANSACTIONAL, producer=ProducerStamp(9, 0, 0))
    store.log.close()
    store.reopen(clean=True)
    assert store.files(".snapshot")
    store.log.truncate_fully_and_start_at(1000)
    assert not store.files(".snapshot")
    assert len(store.log.producers) == 0
    assert store.log.last_stable_offset(1000) == 1000
    store.reopen()
    assert (store.log.start_offset, store.log.end_offset) == (1000, 1000)
    assert store.log.leader_epochs.entries == ()
    assert len(store.log.producers) == 0


def test_the_last_stable_offset_waits_until_a_marker_is_committed(store: Store) -> None:
    """A marker above the high watermark may still be lost, and with it how the transaction ended."""
    log = store.log
    store.append(5)
    store.append(1, attributes=TRANSACTIONAL, producer=ProducerStamp(9, 0, 0))
    store.append(4)
    store.append(1, attributes=TRANSACTIONAL, producer=ProducerStamp(8, 0, 0))
    assert append_marker(log, 9) == 12
    store.append(3)
    assert [log.last_stable_offset(hw) for hw in (4, 5, 8, 11)] == [4, 5, 5, 5]
    assert log.last_stable_offset(12) == 10  # the other one is open
    assert append_marker(log, 8) == 16
    assert log.last_stable_offset(15) == 10
    assert log.last_stable_offset(16) == 16


def test_the_last_stable_offset_is_not_before_the_start(store: Store) -> None:
    store.append(1, attributes=TRANSACTIONAL, producer=ProducerStamp(9, 0, 0))
    store.append(5)
    store.log.delete_records_to(4)
    assert store.log.last_stable_offset(6) == 4


def test_ended_transactions_are_forgotten_with_the_high_watermark(store: Store) -> None:
    """A follower is never asked for the last stable offset, and must not remember every transaction."""
    log = store.log
    for number in range(20):
        store.append(1, attributes=TRANSACTIONAL, producer=ProducerStamp(9, 0, number))
        append_marker(log, 9)
    assert len(log.producers._ended_transactions) == 20
    log.delete_expired(high_watermark=40)
    assert len(log.producers._ended_transactions) == 0


def test_a_cut_is_on_the_device_before_anything_is_written_in_its_place(store: Any) -> None:
    """Found by the simulation: a loss of power brought a batch of the old leader back between those of the new."""
    disk = FaultyDisk()
    store.env = replace(store.env, disk=disk)
    store.resources = StorageResources.create(store.env)
    store.create()
    for _ in range(5):
        store.append()
    disk.fail(store.log.directory, errno.EIO, "fsync")
    with pytest.raises(KafkaError):
        store.log.truncate_to(3)
    assert len(disk.failed_calls) == 1
    assert store.log.failure is not None


def test_a_segment_begins_where_the_one_before_ends_whatever_compaction_left_out(
    store: Store, tmp_path: Path
) -> None:
    store.create(**SMALL, cleanup_policy=frozenset({"compact"}))
    follower = Follower(store, tmp_path / "follower")
    offset = 0
    while len(follower.log.segments) < 3:
        batch = build_batch([NewRecord(b"v" * 300)], base_offset=offset, leader_epoch=0)
        follower.log.append_as_follower(bytes(batch))
        offset += 10
    starts = [segment.base_offset for segment in follower.log.segments]
    assert all(start % 10 == 1 for start in starts[1:]), starts


@pytest.mark.parametrize("power_lost", [True, False])
def test_a_tail_that_was_lost_with_the_power_is_no_gap_of_compaction(store: Store, power_lost: bool) -> None:
    """Found by the simulation: a replica that lacked records of a compacted log passed for a whole one."""
    log = store.create(**SMALL, cleanup_policy=frozenset({"compact"}))
    record = NewRecord(b"v" * 300, b"k", store.clock.now_ms)
    while len(log.segments) < 3:
        log.append_as_leader(memoryview(build_batch([record])), 0)
    second, third = (segment.base_offset for segment in log.segments[1:])
    ends = [header.base_offset for header in store.headers() if header.base_offset < third]
    log.abandon()
    path = store.files(".log")[1]
    lost = parse_header(path.read_bytes()[-len(build_batch([record])) :])
    assert lost.base_offset == ends[-1] > second
    os.truncate(path, path.stat().st_size - lost.size)
    store.load(LoadHints(power_lost=power_lost))
    end = ends[-1] if power_lost else log.end_offset
    assert store.log.end_offset == end
    assert [header.base_offset for header in store.headers()][-1] == end - 1
