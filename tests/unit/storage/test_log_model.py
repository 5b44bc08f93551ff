"""The log against a plain model, under any order of calls and with a crash after any write (R-LOG-1, R-LOG-7)."""

from __future__ import annotations

import dataclasses
import os
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from headrace.records.batch import parse_header
from headrace.records.builder import NewRecord, build_batch
from headrace.records.reader import read_records
from headrace.storage.scan import split_batches

CONFIG = {"segment_bytes": 700, "index_interval_bytes": 100, "retention_ms": -1}


def read_all(store: Any) -> list[tuple[int, bytes | None]]:
    """(offset, value) of every record, by way of reads of many sizes."""
    log, found, rng = store.log, [], random.Random(store.log.end_offset)
    offset = log.start_offset
    while offset < log.end_offset:
        data = store.bytes_of(log.read(offset, rng.randrange(1, 900), log.end_offset, at_least_one=True))
        for position, size in split_batches(memoryview(data)):
            batch = data[position : position + size]
            found += [(r.offset, r.value) for r in read_records(batch) if r.offset >= log.start_offset]
            offset = parse_header(batch).next_offset
    return found


def test_any_order_of_calls_agrees_with_a_list(store: Any, tmp_path: Path) -> None:
    counter = iter(range(10**9))

    class Machine(RuleBasedStateMachine):
        @initialize()
        def begin(self) -> None:
            store.directory = str(tmp_path / f"t-{next(counter)}")
            store.create(**CONFIG)
            self.batches: list[list[bytes]] = []
            self.base = 0
            self.start = 0

        def values(self) -> list[bytes]:
            return [value for batch in self.batches for value in batch]

        @rule(count=st.integers(1, 4), size=st.integers(0, 120))
        def append(self, count: int, size: int) -> None:
            values = [b"%d-%d" % (next(counter), size) + b"x" * size for _ in range(count)]
            batch = build_batch([NewRecord(value, timestamp=store.clock.now_ms) for value in values])
            assert store.log.append_as_leader(batch, 0).base_offset == self.base + len(self.values())
            self.batches.append(values)

        @rule(share=st.floats(0, 1))
        def truncate(self, share: float) -> None:
            cut = self.start + int((store.log.end_offset - self.start) * share)
            store.log.truncate_to(cut)
            while self.base + len(self.values()) > cut:
                self.batches.pop()
            assert store.log.end_offset == self.base + len(self.values())
            self.start = min(self.start, store.log.end_offset)

        @rule()
        def roll(self) -> None:
            store.log.roll()

        @rule(share=st.floats(0, 1))
        def delete_records(self, share: float) -> None:
            self.start += int((store.log.end_offset - self.start) * share)
            store.log.delete_records_to(self.start)
            store.log.delete_expired(store.log.end_offset)

        @rule(clean=st.booleans(), share=st.floats(0, 1))
        def restart(self, clean: bool, share: float) -> None:
            if share < 0.5:
                store.log.flush()
            point = store.log.recovery_point
            if clean:
                store.log.close()
            store.reopen(clean=clean, recovery_point=point, start_offset=self.start)

        @invariant()
        def agrees(self) -> None:
            if not hasattr(self, "batches"):
                return
            log = store.log
            assert (log.start_offset, log.end_offset) == (self.start, self.base + len(self.values()))
            expected = list(enumerate(self.values(), self.base))
            assert read_all(store) == [(offset, value) for offset, value in expected if offset >= self.start]

    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=40,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=[HealthCheck.function_scoped_fixture],
        ),
    )


class Crash(BaseException):
    """Not an Exception: nothing in the product may catch it."""


class CrashingDisk:
    """The real disk for some number of changing calls; then the process dies, perhaps in the middle of a write."""

    def __init__(self, real: Any, calls: int, torn: float) -> None:
        self._real, self.calls, self._torn = real, calls, torn

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._real, name)
        if name not in ("rename", "unlink", "truncate", "open", "make_directory", "fdatasync", "fsync"):
            return call

        def counted(*arguments: Any) -> Any:
            self._count()
            return call(*arguments)

        return counted

    def _count(self) -> None:
        self.calls -= 1
        if self.calls < 0:
            raise Crash

    def pwrite(self, fd: int, data: Any, position: int) -> int:
        self.calls -= 1
        if self.calls < 0:
            os.pwrite(fd, bytes(data)[: int(len(data) * self._torn)], position)
            raise Crash
        return os.pwrite(fd, data, position)


def work(store: Any, acked: list[int], cut: list[int]) -> None:
    """Appends, rolls, flushes, cuts. `acked` holds what was acknowledged and not cut since."""
    for step in range(60):
        acked.append(store.produce(len(acked)))
        if step % 17 == 16:
            store.log.flush()
        if step % 23 == 22:
            cut[0] = store.log.end_offset - 3
            del acked[cut[0] :]
            store.log.truncate_to(cut[0])


@pytest.mark.parametrize("torn", [0.0, 0.6, 1.0])
def test_a_crash_at_every_call_loses_nothing_acknowledged(store: Any, tmp_path: Path, torn: float) -> None:
    real = store.env
    for calls in range(0, 400, 3):
        store.directory = str(tmp_path / f"t-{calls}")
        acked: list[int] = []
        cut = [0]
        store.env = real
        store.resources = type(store.resources).create(real)
        store.create(**CONFIG)
        disk: Any = CrashingDisk(real.disk, calls, torn)
        store.log.abandon()
        store.env = dataclasses.replace(real, disk=disk)
        store.resources = type(store.resources).create(store.env)
        try:
            store.reopen()
            work(store, acked, cut)
        except Crash:
            pass
        point = store.log.recovery_point
        store.log.abandon()
        store.env = real
        store.reopen(recovery_point=point)
        offsets = [offset for offset, _ in read_all(store)]
        assert offsets == list(range(len(offsets)))
        assert len(offsets) >= len(acked)
        last = store.log.producers.describe()[0].last_sequence if offsets else -1
        assert last == len(offsets) - 1
        assert store.produce(len(offsets)) == len(offsets)
        if disk.calls >= 0:
            return
    raise AssertionError("the work was longer than the crashes tried")
