"""A clock that stands still until it is told, and a partition whose replicas are as slow as a test wants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicPartition
from headrace.records.batch import parse_header
from headrace.records.markers import EndMarker, build_marker
from headrace.storage.log_config import LogConfig
from headrace.storage.producer_state import VerificationGuard


@dataclass
class FakeTimer:
    due: float
    callback: Callable[[], object]
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


class FakeClock:
    def __init__(self) -> None:
        self.now = 1000.0
        self.timers: list[FakeTimer] = []
        self.soon: list[Callable[[], object]] = []

    def monotonic(self) -> float:
        return self.now

    def boottime(self) -> float:
        return self.monotonic()

    def wall_ms(self) -> int:
        return int(self.now * 1000)

    def call_later(self, delay: float, callback: Callable[[], object]) -> FakeTimer:
        timer = FakeTimer(self.now + delay, callback)
        self.timers.append(timer)
        return timer

    def call_soon(self, callback: Callable[[], object]) -> object:
        self.soon.append(callback)
        return None

    async def sleep(self, delay: float) -> None:
        raise AssertionError("nobody sleeps on this clock")

    def turn(self) -> None:
        """One turn of the loop."""
        soon, self.soon = self.soon, []
        for callback in soon:
            callback()

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while True:
            due = [timer for timer in self.timers if not timer.cancelled and timer.due <= end]
            if not due:
                break
            first = min(due, key=lambda timer: timer.due)
            self.timers.remove(first)
            self.now = max(self.now, first.due)
            first.callback()
        self.now = end


class FakeLog:
    def __init__(self) -> None:
        self.config = LogConfig()
        self.start_offset = self.end_offset = 0
        self.failure: OSError | None = None


class FakePartition:
    """Appends at once; `replicate` moves the high watermark, unless it follows by itself."""

    def __init__(self, follows: bool = True) -> None:
        self.surely_leads = True
        self.topic_partition = TopicPartition("__consumer_offsets", 0)
        self.log = FakeLog()
        self.is_leader = True
        self.leader_epoch = 3
        self.high_watermark = 0
        self.waiters: dict[Any, None] = {}
        self.batches: list[bytes] = []
        self.failure: ErrorCode | None = None
        self._follows = follows

    def append_own(self, batch: bytearray) -> int:
        if self.failure is not None:
            raise KafkaError(self.failure)
        base_offset = self.log.end_offset
        self.batches.append(bytes(batch))
        self.log.end_offset += parse_header(batch).record_count
        if self._follows:
            self.high_watermark = self.log.end_offset
        return base_offset

    def append_unsequenced(self, batch: bytearray, guard: VerificationGuard | None = None) -> int:
        if guard is None:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE)
        return self.append_own(batch)

    def append_marker(self, marker: EndMarker) -> int:
        return self.append_own(build_marker(marker, 0)) + 1

    def replicate(self, offset: int) -> None:
        self.high_watermark = offset
        for waiter in list(self.waiters):
            waiter.wake()
