"""The timers of one coordinator: a deadline per key, one timer of the loop for the earliest of them.

Members push their deadlines back all the time and almost never reach them. So pushing back only writes a table;
the queue keeps the earlier moment, and what comes up there too early is put back to its real one.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

from headrace.env import Clock
from headrace.env.env import Timer
from headrace.groups.decision import GroupTimer, TimerKey


class TimerTable:
    def __init__(self, clock: Clock, fire: Callable[[GroupTimer], None]) -> None:
        self._clock = clock
        self._fire = fire
        self._armed: dict[TimerKey, tuple[float, GroupTimer]] = {}
        self._queue: list[tuple[float, int, TimerKey]] = []
        self._queued: dict[TimerKey, float] = {}
        """The moment for which each key stands in the queue; older places of a key do not count."""
        self._order = count()
        self._alarm: Timer | None = None
        self._alarm_at = 0.0

    def __contains__(self, key: TimerKey) -> bool:
        return key in self._armed

    def __len__(self) -> int:
        return len(self._armed)

    def set(self, timer: GroupTimer, now_ms: int) -> None:
        """Arm, replace or cancel. `now_ms` is the wall time of the decision: how long to wait is what counts."""
        key = timer.key
        if timer.deadline_ms is None:
            self._armed.pop(key, None)
            return
        if timer.keep_existing and key in self._armed:
            return
        due = self._clock.monotonic() + (timer.deadline_ms - now_ms) / 1000
        self._armed[key] = (due, timer)
        queued = self._queued.get(key)
        if queued is None or due < queued:
            self._enqueue(key, due)
            self._set_alarm()

    def prolong(self, key: TimerKey, timeout_ms: int) -> bool:
        """Move an armed timer to a later or earlier time; False if it is not armed."""
        armed = self._armed.get(key)
        if armed is None:
            return False
        due = self._clock.monotonic() + timeout_ms / 1000
        self._armed[key] = (due, armed[1])
        if due < self._queued[key]:
            self._enqueue(key, due)
            self._set_alarm()
        return True

    def again(self, timer: GroupTimer, delay_seconds: float) -> None:
        """Fire once more after a while, unless it was armed again meanwhile."""
        if timer.key not in self._armed:
            due = self._clock.monotonic() + delay_seconds
            self._armed[timer.key] = (due, timer)
            self._enqueue(timer.key, due)
            self._set_alarm()

    def forget(self, group_id: str) -> None:
        """Cancel all of a group's; what stands in the queue for them comes to nothing."""
        for key in [key for key in self._armed if key[1] == group_id]:
            del self._armed[key]

    def clear(self) -> None:
        self._armed.clear()
        self._queue.clear()
        self._queued.clear()
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _enqueue(self, key: TimerKey, due: float) -> None:
        heappush(self._queue, (due, next(self._order), key))
        self._queued[key] = due

    def _set_alarm(self) -> None:
        if not self._queue:
            return
        due = self._queue[0][0]
        if self._alarm is not None:
            if self._alarm_at <= due:
                return
            self._alarm.cancel()
        self._alarm_at = due
        self._alarm = self._clock.call_later(max(due - self._clock.monotonic(), 0), self._ring)

    def _ring(self) -> None:
        self._alarm = None
        now = self._clock.monotonic()
        due: list[GroupTimer] = []
        while self._queue and self._queue[0][0] <= now:
            moment, _, key = heappop(self._queue)
            if self._queued.get(key) != moment:
                continue
            del self._queued[key]
            armed = self._armed.get(key)
            if armed is None:
                continue
            if armed[0] > now:
                self._enqueue(key, armed[0])
            else:
                del self._armed[key]
                due.append(armed[1])
        self._set_alarm()
        for timer in due:
            self._fire(timer)
