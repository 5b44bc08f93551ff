"""Timers of groups: pushed back, kept, replaced, cancelled; each fires once, at its last deadline."""

from __future__ import annotations

from headrace.groups.decision import GroupTimer, TimerKind
from headrace.services.groups.timers import TimerTable
from tests.unit.services.fakes import FakeClock

SESSION, JOIN = TimerKind.SESSION, TimerKind.JOIN


def table() -> tuple[FakeClock, TimerTable, list[GroupTimer]]:
    clock = FakeClock()
    fired: list[GroupTimer] = []
    return clock, TimerTable(clock, fired.append), fired


def test_fires_once_at_the_deadline() -> None:
    clock, timers, fired = table()
    timer = GroupTimer(SESSION, "g", "m", clock.wall_ms() + 500)
    timers.set(timer, clock.wall_ms())
    assert timer.key in timers
    clock.advance(0.499)
    assert fired == []
    clock.advance(0.002)
    assert fired == [timer]
    assert timer.key not in timers
    clock.advance(100)
    assert len(fired) == 1


def test_pushed_back_again_and_again() -> None:
    clock, timers, fired = table()
    for _ in range(1000):
        timers.set(GroupTimer(SESSION, "g", "m", clock.wall_ms() + 1000), clock.wall_ms())
        clock.advance(0.1)
    assert fired == []
    assert len(timers._queue) < 10, "pushing back must not fill the queue"
    clock.advance(1)
    assert len(fired) == 1


def test_brought_forward() -> None:
    clock, timers, fired = table()
    timers.set(GroupTimer(JOIN, "g", "", clock.wall_ms() + 10_000), clock.wall_ms())
    soon = GroupTimer(JOIN, "g", "", clock.wall_ms() + 100, stamp=2)
    timers.set(soon, clock.wall_ms())
    clock.advance(0.2)
    assert fired == [soon]
    clock.advance(20)
    assert fired == [soon]


def test_cancelled() -> None:
    clock, timers, fired = table()
    timers.set(GroupTimer(SESSION, "g", "m", clock.wall_ms() + 100), clock.wall_ms())
    timers.set(GroupTimer(SESSION, "g", "m"), clock.wall_ms())
    timers.set(GroupTimer(SESSION, "g", "unknown"), clock.wall_ms())
    clock.advance(1)
    assert fired == []
    assert len(timers) == 0


def test_armed_again_after_a_cancellation() -> None:
    clock, timers, fired = table()
    timers.set(GroupTimer(SESSION, "g", "m", clock.wall_ms() + 100), clock.wall_ms())
    timers.set(GroupTimer(SESSION, "g", "m"), clock.wall_ms())
    late = GroupTimer(SESSION, "g", "m", clock.wall_ms() + 500)
    timers.set(late, clock.wall_ms())
    clock.advance(0.2)
    assert fired == []
    clock.advance(0.4)
    assert fired == [late]


def test_keeps_an_existing_one() -> None:
    clock, timers, fired = table()
    first = GroupTimer(SESSION, "g", "m", clock.wall_ms() + 100)
    timers.set(first, clock.wall_ms())
    timers.set(GroupTimer(SESSION, "g", "m", clock.wall_ms() + 900, keep_existing=True), clock.wall_ms())
    clock.advance(0.2)
    assert fired == [first]
    kept = GroupTimer(SESSION, "g", "m", clock.wall_ms() + 900, keep_existing=True)
    timers.set(kept, clock.wall_ms())
    clock.advance(1)
    assert fired == [first, kept]


def test_the_wall_clock_may_jump() -> None:
    """Only how long to wait counts, as of the decision."""
    clock, timers, fired = table()
    timers.set(GroupTimer(SESSION, "g", "m", 5_000 + 700), 5_000)
    clock.advance(0.6)
    assert fired == []
    clock.advance(0.2)
    assert len(fired) == 1


def test_in_order_and_after_clear() -> None:
    clock, timers, fired = table()
    for number in (3, 1, 2):
        timers.set(GroupTimer(SESSION, "g", str(number), clock.wall_ms() + number * 100), clock.wall_ms())
    clock.advance(0.25)
    assert [timer.member_id for timer in fired] == ["1", "2"]
    timers.clear()
    clock.advance(10)
    assert len(fired) == 2


def test_again() -> None:
    clock, timers, fired = table()
    timer = GroupTimer(SESSION, "g", "m", 0)
    timers.again(timer, 1.0)
    timers.again(timer, 0.1)
    clock.advance(0.5)
    assert fired == [], "the second changed nothing"
    clock.advance(0.6)
    assert fired == [timer]


def test_an_armed_timer_is_prolonged() -> None:
    clock, timers, fired = table()
    timer = GroupTimer(SESSION, "g", "m", clock.wall_ms() + 10_000)
    assert not timers.prolong(timer.key, 10_000)
    timers.set(timer, clock.wall_ms())
    clock.advance(9)
    assert timers.prolong(timer.key, 10_000)
    clock.advance(9)
    assert fired == []
    assert timers.prolong(timer.key, 500), "and shortened"
    clock.advance(0.5)
    assert fired == [timer]
    assert not timers.prolong(timer.key, 10_000)
