"""Transactions against a plain model: whatever is cut, cleaned and found again, readers see what is committed.

The model keeps every batch in a list. A reader of committed records sees those below the first open transaction,
without the aborted ones. Compaction may take away, up to where it got, what a later committed record with the same
key stands for, and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.client.fetching import Fetched, split_batches
from headrace.records.batch import TRANSACTIONAL
from headrace.records.builder import NO_PRODUCER, NewRecord, ProducerStamp, build_batch
from headrace.records.markers import EndMarker
from headrace.wire.messages.fetch import AbortedTransaction
from tests.unit.storage.compaction_shell import compact
from tests.unit.storage.conftest import PARTITION, Store

DELETE_RETENTION_MS = 5000
PLAIN = -1

producer = st.integers(0, 3)
step = st.one_of(
    st.tuples(st.just("write"), producer, st.lists(st.integers(0, 4), min_size=1, max_size=3)),
    st.tuples(st.just("write"), producer, st.lists(st.integers(0, 4), min_size=1, max_size=3)),
    st.tuples(st.just("write"), st.just(PLAIN), st.lists(st.integers(0, 4), min_size=1, max_size=3)),
    st.tuples(st.just("end"), producer, st.booleans(), st.booleans()),
    st.tuples(st.just("end"), producer, st.booleans(), st.booleans()),
    st.tuples(st.just("roll")),
    st.tuples(st.just("cut"), st.integers(0, 100)),
    st.tuples(st.just("crash"), st.booleans()),
    st.tuples(st.just("stop")),
    st.tuples(st.just("clean")),
    st.tuples(st.just("wait"), st.integers(0, 8000)),
    st.tuples(st.just("trim"), st.integers(0, 100)),
)


class Row(NamedTuple):
    offset: int
    key: int
    value: int


@dataclass
class Written:
    """A batch, or a marker if it has no rows."""

    base_offset: int
    end_offset: int
    producer_id: int
    epoch: int
    rows: list[Row]
    committed: bool = False


@dataclass
class Model:
    batches: list[Written] = field(default_factory=list)
    start_offset: int = 0
    cleaned_to: int = 0

    @property
    def end_offset(self) -> int:
        return self.batches[-1].end_offset if self.batches else 0

    def producer(self, producer_id: int) -> tuple[int, int]:
        """(epoch, next sequence)"""
        epoch = sequence = 0
        for batch in self.batches:
            if batch.producer_id == producer_id:
                if batch.epoch != epoch:
                    epoch, sequence = batch.epoch, 0
                sequence += len(batch.rows)
        return epoch, sequence

    def open_transactions(self, from_offset: int = 0) -> dict[int, int]:
        began: dict[int, int] = {}
        for batch in self.batches:
            if batch.end_offset <= from_offset:
                continue
            if batch.producer_id != PLAIN:
                if batch.rows:
                    began.setdefault(batch.producer_id, batch.base_offset)
                else:
                    began.pop(batch.producer_id, None)
        return began

    @property
    def last_stable_offset(self) -> int:
        first = min(self.open_transactions().values(), default=self.end_offset)
        return max(first, self.start_offset)

    def possible_stable_offsets(self) -> tuple[int, int]:
        """What comes before the start may be known still, or not any more."""
        known = self.open_transactions(self.start_offset).values()
        return self.last_stable_offset, max(min(known, default=self.end_offset), self.start_offset)

    def visible(self, end: int) -> list[Row]:
        committed: list[Row] = []
        waiting: dict[int, list[Row]] = {}
        for batch in self.batches:
            if batch.producer_id == PLAIN:
                committed += batch.rows
            elif batch.rows:
                waiting.setdefault(batch.producer_id, []).extend(batch.rows)
            else:
                ended = waiting.pop(batch.producer_id, [])
                committed += ended if batch.committed else []
        return sorted(row for row in committed if self.start_offset <= row.offset < end)


class Run:
    def __init__(self, store: Store) -> None:
        self.store = store
        store.create(
            cleanup_policy=frozenset({"compact"}),
            delete_retention_ms=DELETE_RETENTION_MS,
            index_interval_bytes=100,
        )
        self.model = Model()
        self.values = 0

    def write(self, producer_id: int, keys: list[int]) -> None:
        base_offset, rows = self.store.log.end_offset, []
        for number, key in enumerate(keys):
            self.values += 1
            rows.append(Row(base_offset + number, key, self.values))
        records = [NewRecord(b"%d" % row.value, b"%d" % row.key, self.store.clock.now_ms) for row in rows]
        stamp, attributes, epoch = NO_PRODUCER, 0, 0
        if producer_id != PLAIN:
            epoch, sequence = self.model.producer(producer_id)
            stamp, attributes = ProducerStamp(producer_id, epoch, sequence), TRANSACTIONAL
        batch = build_batch(records, producer=stamp, attributes=attributes)
        self.store.log.append_as_leader(memoryview(batch), 0, self.store.verified(batch))
        self.model.batches.append(Written(base_offset, self.store.log.end_offset, producer_id, epoch, rows))

    def end(self, producer_id: int, commit: bool, bumps: bool) -> None:
        epoch = self.model.producer(producer_id)[0] + bumps
        offset, _ = self.store.log.append_marker(EndMarker(producer_id, epoch, commit, 0, 2 if bumps else 1), 0)
        self.model.batches.append(Written(offset, offset + 1, producer_id, epoch, [], commit))

    def roll(self) -> None:
        self.store.log.roll()

    def cut(self, percent: int) -> None:
        """At a batch, and not where a cleaning was: what it took is not there to go back to."""
        lowest = max(self.model.cleaned_to, self.model.start_offset)
        bases = [batch.base_offset for batch in self.model.batches if batch.base_offset >= lowest]
        if not bases:
            return
        offset = bases[percent * (len(bases) - 1) // 100]
        self.store.log.truncate_to(offset)
        self.model.batches = [batch for batch in self.model.batches if batch.base_offset < offset]

    def crash(self, verifies_all: bool) -> None:
        mark, point = self.store.log.first_dirty_offset, 0 if verifies_all else self.store.log.recovery_point
        self.store.reopen(recovery_point=point, start_offset=self.model.start_offset)
        self.store.log.first_dirty_offset = mark

    def stop(self) -> None:
        mark = self.store.log.first_dirty_offset
        self.store.log.close()
        self.store.reopen(clean=True, start_offset=self.model.start_offset)
        self.store.log.first_dirty_offset = mark

    def clean(self) -> None:
        self.store.log.flush()
        stable = max(self.model.possible_stable_offsets())
        report = compact(self.store)
        if report is not None:
            assert report.end_offset <= stable, "nothing that is not stable is cleaned"
            self.model.cleaned_to = max(self.model.cleaned_to, report.end_offset)

    def wait(self, passed_ms: int) -> None:
        self.store.clock.now_ms += passed_ms

    def trim(self, percent: int) -> None:
        """Records are deleted at the start, and whole segments with them."""
        stable = self.model.last_stable_offset
        start = self.model.start_offset + percent * (stable - self.model.start_offset) // 100
        self.store.log.delete_records_to(start)
        self.model.start_offset = start
        gone = sum(segment.base_offset <= start for segment in self.store.log.segments) - 1
        if gone > 0:
            self.store.log.remove_first_segments(gone)

    # What readers see

    def read(self, max_bytes: int) -> list[Row]:
        log = self.store.log
        offset, rows = log.start_offset, []
        stable = log.last_stable_offset(log.end_offset)
        while offset < stable:
            found = log.read(offset, max_bytes, stable, at_least_one=True, skip_empty=True)
            if found is None:
                break
            aborted = [
                AbortedTransaction(producer_id=row.producer_id, first_offset=row.first_offset)
                for row in (log.aborted_transactions(offset, found) if log.has_aborted else [])
            ]
            batches = tuple(split_batches(self.store.bytes_of(found)))
            fetched = Fetched(PARTITION, offset, stable, batches, aborted)
            for record in fetched.records():
                assert record.key is not None
                assert record.value is not None
                rows.append(Row(record.offset, int(record.key), int(record.value)))
            assert fetched.next_offset > offset
            offset = fetched.next_offset
        return rows

    def check(self) -> None:
        log, model = self.store.log, self.model
        assert log.end_offset == model.end_offset
        stable = log.last_stable_offset(log.end_offset)
        assert stable in model.possible_stable_offsets()
        known, all_open = model.open_transactions(model.start_offset), model.open_transactions()
        assert len(known) <= log.producers.open_transactions <= len(all_open)
        expected = model.visible(stable)
        for max_bytes in (1, 300, 1 << 20):
            rows = self.read(max_bytes)
            assert rows == sorted(set(rows) & set(expected)), "only what is committed, and in order"
            last = {row.key: row.offset for row in expected if row.offset < model.cleaned_to}
            needed = [row for row in expected if row.offset >= model.cleaned_to or row.offset == last[row.key]]
            assert not set(needed) - set(rows), "all of what is committed"
        for row in log.producers.describe():
            epoch, sequence = model.producer(row.producer_id)
            assert row.epoch == epoch
            assert row.last_sequence == sequence - 1


@given(steps=st.lists(step, min_size=1, max_size=60))
@settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_readers_see_what_is_committed(store: Store, steps: list[tuple]) -> None:  # type: ignore[type-arg]
    for path in store.files(""):
        if path.is_file():
            path.unlink()
    run = Run(store)
    for name, *arguments in steps:
        getattr(run, name)(*arguments)
        if name not in ("write", "wait", "roll"):
            run.check()
    run.check()
