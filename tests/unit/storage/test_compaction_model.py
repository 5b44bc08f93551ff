"""R-LOG-5 against a plain model, and with the process ending at every step of the swap.

The model: of the records up to where a cleaning got, exactly those stay that have no later one with their key
there, nor are expired tombstones; everything after stays. What stays is equal in offset, key, value, headers and
timestamp.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.env.real import RealDisk
from headrace.records.builder import NO_PRODUCER, NewRecord, ProducerStamp, build_batch
from headrace.records.reader import Record
from headrace.storage.compaction.messages import CleanedGroup, CleaningReport
from headrace.storage.compaction.output import CLEANED
from headrace.storage.compaction.swap import SWAP, Cleaning, offer
from headrace.storage.load_hints import LoadHints
from headrace.storage.loading import load_log
from headrace.storage.segment import Segment
from tests.unit.storage.compaction_shell import (
    compact,
    latest,
    replies,
    request,
    stored_batches,
    stored_records,
    swap_in,
)
from tests.unit.storage.conftest import Store

DELETE_RETENTION_MS = 5000
KEYS = 6

key = st.integers(0, KEYS - 1).map(lambda number: b"key-%d" % number)
value = st.one_of(st.none(), st.binary(max_size=30))
headers = st.lists(st.tuples(st.text(max_size=4), st.one_of(st.none(), st.binary(max_size=4))), max_size=2)
record = st.builds(
    NewRecord,
    value,
    key,
    st.integers(1_700_000_000_000 - 10**9, 1_700_000_000_000 + 10**6),
    headers.map(tuple),
)
append = st.tuples(st.just("append"), st.lists(record, min_size=1, max_size=8), st.integers(0, 4), st.booleans())
step = st.one_of(
    append,
    append,
    append,
    st.tuples(st.just("roll")),
    st.tuples(st.just("clean"), st.sampled_from([200, 1 << 20]), st.sampled_from([500, 1 << 30])),
    st.tuples(st.just("wait"), st.integers(0, 8000)),
    st.tuples(st.just("restart")),
)


class Model:
    """Every record that should be there, and the horizon of each batch with tombstones."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.batch_of: dict[int, int] = {}
        self.horizons: dict[int, int] = {}

    def append(self, base_offset: int, records: list[NewRecord]) -> None:
        for number, new in enumerate(records):
            offset = base_offset + number
            self.records.append(Record(offset, new.timestamp, new.key, new.value, tuple(new.headers)))
            self.batch_of[offset] = base_offset

    def clean(self, end_offset: int, now_ms: int) -> None:
        newest = {item.key: item.offset for item in self.records if item.offset < end_offset}
        kept = []
        for item in self.records:
            horizon = self.horizons.get(self.batch_of[item.offset])
            expired = item.value is None and horizon is not None and horizon <= now_ms
            if item.offset >= end_offset or (newest[item.key] == item.offset and not expired):
                kept.append(item)
        self.records = kept
        for item in kept:
            base = self.batch_of[item.offset]
            if item.value is None and base < end_offset:
                self.horizons.setdefault(base, now_ms + DELETE_RETENTION_MS)


class Run:
    def __init__(self, store: Store) -> None:
        self.store = store
        store.create(
            cleanup_policy=frozenset({"compact"}),
            delete_retention_ms=DELETE_RETENTION_MS,
            index_interval_bytes=200,
        )
        self.model = Model()
        self.sequence = 0

    def append(self, records: list[NewRecord], codec: int, idempotent: bool) -> None:
        stamp = NO_PRODUCER
        if idempotent:
            stamp = ProducerStamp(9, 0, self.sequence)
            self.sequence += len(records)
        batch = build_batch(records, codec=codec, producer=stamp)
        self.model.append(self.store.log.append_as_leader(memoryview(batch), 0).base_offset, records)

    def roll(self) -> None:
        self.store.log.roll()

    def clean(self, memory_bytes: int, segment_bytes: int) -> None:
        report = compact(self.store, memory_bytes, segment_bytes=segment_bytes)
        if report is not None:
            self.model.clean(report.end_offset, self.store.clock.now_ms)
            self.check()

    def wait(self, passed_ms: int) -> None:
        self.store.clock.now_ms += passed_ms

    def restart(self) -> None:
        mark = self.store.log.first_dirty_offset
        self.store.reopen()
        self.store.log.first_dirty_offset = mark
        self.check()

    def check(self) -> None:
        log = self.store.log
        assert stored_records(log) == self.model.records
        bases = [batch.header.base_offset for batch in stored_batches(log)]
        assert bases == sorted(set(bases))
        known = [row for row in log.producers.describe() if row.producer_id == 9]
        assert [row.last_sequence for row in known] == ([self.sequence - 1] if self.sequence else [])


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(step, min_size=4, max_size=40))
def test_compaction_keeps_exactly_what_the_model_keeps(store: Store, steps: list[tuple[Any, ...]]) -> None:
    shutil.rmtree(store.directory, ignore_errors=True)
    store.clock.now_ms = 1_700_000_000_000
    with_disk(store, QuickDisk())
    run = Run(store)
    for name, *arguments in [*steps, ("roll",), ("clean", 1 << 20, 1 << 30), ("restart",)]:
        getattr(run, name)(*arguments)


class QuickDisk(RealDisk):
    """The real disk, which nobody waits for."""

    def fdatasync(self, fd: int) -> None:  # type: ignore[override]  # the base has a plain function here
        pass

    fsync = fdatasync  # type: ignore[assignment]  # as above

    def fsync_directory(self, path: str) -> None:
        pass


class ProcessEnds(Exception):
    pass


class EndingDisk(QuickDisk):
    """The real disk in a process that ends before its n-th change of a name."""

    def __init__(self, left: int) -> None:
        self.left = left

    def _count(self) -> None:
        if not self.left:
            raise ProcessEnds
        self.left -= 1

    def rename(self, old: str, new: str) -> None:  # type: ignore[override]  # the base has a plain function here
        self._count()
        super().rename(old, new)

    def unlink(self, path: str) -> None:  # type: ignore[override]  # as above
        self._count()
        super().unlink(path)


def with_disk(store: Store, disk: RealDisk) -> None:
    """From here on everything goes through this disk."""
    from headrace.storage.resources import StorageResources

    store.env = replace(store.env, disk=disk)
    store.resources = StorageResources.create(store.env)
    store.log.relocate(store.log.directory, store.resources)


def prepared(store: Store) -> dict[bytes | None, bytes | None]:
    """A log of several segments with superseded records and producers in each."""
    store.create(cleanup_policy=frozenset({"compact"}), index_interval_bytes=100)
    chance = random.Random(1)
    sequence = 0
    for _ in range(6):
        for _ in range(5):
            records = [
                NewRecord(chance.choice([None, b"%d" % chance.randrange(10**6)]), b"k%d" % chance.randrange(9))
                for _ in range(4)
            ]
            stamp = ProducerStamp(9, 0, sequence)
            sequence += 4
            store.log.append_as_leader(memoryview(build_batch(records, producer=stamp)), 0)
        store.log.roll()
    store.log.append_as_leader(memoryview(build_batch([NewRecord(b"last", b"k0")])), 0)
    store.log.flush()
    return latest(stored_records(store.log))


def reloaded(store: Store, disk: RealDisk) -> None:
    with_disk(store, disk)
    hints = LoadHints(recovery_point=store.log.recovery_point)
    store.log = load_log(
        store.directory, store.log.partition, store.log.topic_id, store.log.config, store.resources, hints
    )


def clean_and_swap(store: Store) -> None:
    asked = request(store, segment_bytes=1500)
    assert asked is not None
    for reply in replies(store, asked):
        if isinstance(reply, CleanedGroup) and reply.changed:
            swap_in(store, reply)


@pytest.mark.parametrize("also_in_recovery", [False, True])
def test_the_process_may_end_at_every_step_of_the_swap(store: Store, also_in_recovery: bool) -> None:
    """Last value per key, end offset and producer state are right wherever the process ends."""
    steps = 0
    while True:
        shutil.rmtree(store.directory, ignore_errors=True)
        with_disk(store, QuickDisk())
        expected = prepared(store)
        end_offset = store.log.end_offset
        with_disk(store, EndingDisk(steps))
        try:
            clean_and_swap(store)
            ended = False
        except ProcessEnds:
            ended = True
        if also_in_recovery and ended:
            finish_in_pieces(store)
        reloaded(store, QuickDisk())
        assert latest(stored_records(store.log)) == expected, f"after {steps} steps"
        assert store.log.end_offset == end_offset
        assert store.log.producers.describe()[0].last_sequence == 119
        leftovers = [path.name for path in Path(store.directory).iterdir() if path.suffix in (CLEANED, SWAP)]
        assert not leftovers
        compact(store)
        assert latest(stored_records(store.log)) == expected
        if not ended:
            break
        steps += 1
    assert steps > 30, "the swap has many steps"


def finish_in_pieces(store: Store) -> None:
    """Starts that end themselves, a step later each time."""
    for left in range(40):
        try:
            reloaded(store, EndingDisk(left))
        except ProcessEnds:
            continue
        return
    raise AssertionError("a start never ends")


def test_an_aborted_cleaning_leaves_nothing_that_a_start_would_finish(store: Store) -> None:
    """A cut between the decision and the swap: what was cut must not come back."""
    prepared(store)
    asked = request(store, segment_bytes=1500)
    assert asked is not None
    killed: list[bool] = []
    group = next(reply for reply in replies(store, asked) if isinstance(reply, CleanedGroup) and reply.changed)
    cleaning = store.log.cleaning = Cleaning(store.resources, lambda: killed.append(True))
    new = Segment(store.directory, group.base_offset, group.size)
    offer(store.env.disk, new)
    cleaning.offered = new
    store.log.truncate_to(3)
    assert cleaning.is_aborted
    assert killed == [True]
    store.reopen()
    assert store.log.end_offset == 0, "the first batch held offset 3, and went whole"


@pytest.mark.parametrize("end", ["delete", "close"])
def test_whoever_gives_up_the_log_aborts_its_cleaning(store: Store, end: str) -> None:
    prepared(store)
    cleaning = store.log.cleaning = Cleaning(store.resources, lambda: None)
    acts: dict[str, Callable[[], None]] = {"delete": store.log.abandon, "close": store.log.close}
    acts[end]()
    assert cleaning.is_aborted


def test_a_load_like_that_of_committed_offsets_shrinks(store: Store) -> None:
    """Many commits of few keys: what is left is about one record a key."""
    store.create(cleanup_policy=frozenset({"compact"}), segment_bytes=20_000)
    for number in range(3000):
        records = [NewRecord(b"%d" % number, b"group-%d/topic/%d" % (number % 5, part)) for part in range(4)]
        store.log.append_as_leader(memoryview(build_batch(records)), 0)
    before = store.log.size
    expected = latest(stored_records(store.log))
    report = compact(store)
    assert isinstance(report, CleaningReport)
    assert store.log.size < before / 10
    assert latest(stored_records(store.log)) == expected
    store.log.roll()
    compact(store, segment_bytes=20_000)
    assert len(store.log.segments) <= 3, "what has become small is merged"
