"""One waiter that fails is ended; the others are woken all the same."""

from __future__ import annotations

from headrace.env.real import RealClock
from headrace.replication.waiters import Waiter, WakeList
from tests.unit.replication.test_sync_rounds import turns


class Recorder:
    def __init__(self, error: Exception | None = None, then: dict[Waiter, None] | None = None) -> None:
        self.woken = 0
        self.failure: Exception | None = None
        self._error = error
        self.then = then
        self.wakes: WakeList | None = None

    def wake(self) -> None:
        self.woken += 1
        if self._error is not None:
            raise self._error
        if self.then is not None and self.wakes is not None:
            self.wakes.wake(self.then)

    def failed(self, error: Exception) -> None:
        self.failure = error


async def test_a_waiter_that_raises_drops_nobody_else() -> None:
    first, broken, last = Recorder(), Recorder(ZeroDivisionError()), Recorder()
    wakes = WakeList(RealClock())
    wakes.wake(dict.fromkeys([first, broken, last]))
    await turns()
    assert (first.woken, broken.woken, last.woken) == (1, 1, 1)
    assert isinstance(broken.failure, ZeroDivisionError)
    wakes.wake({last: None})
    await turns()
    assert last.woken == 2


async def test_who_is_woken_by_somebody_woken_has_a_turn_too() -> None:
    poll = Recorder()
    wakes = WakeList(RealClock())
    watched = [Recorder(then={poll: None}) for _ in range(3)]
    for one in watched:
        one.wakes = wakes
    wakes.wake(dict.fromkeys(watched))
    await turns()
    assert poll.woken == 1
