"""A long poll: answered when enough data is there, when something went wrong, or when its time is up.

Without a session it waits on each of its partitions; in a session the partitions tell the session, and the poll
waits on that alone. One with very many partitions is worked off in steps, with others served between.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from headrace.env import Timer
from headrace.replication.partition import REPLICA
from headrace.services.fetching.plan import FetchPlan, PartitionAnswer
from headrace.services.fetching.sessions import FetchSession
from headrace.services.reply import Body, Pending

logger = logging.getLogger(__name__)


def hurry(session: FetchSession) -> None:
    """The client asks again in the same session and gets no answer before the first: that poll is over.

    It is answered empty: any news belongs to the positions and the broker epoch of the new request.
    """
    for poll in list(session.polls):
        assert isinstance(poll, ParkedFetch)
        poll.give_way()


class ParkedFetch(Pending):
    __slots__ = ("_again", "_expired", "_plan", "_steps", "_timer")

    def __init__(self, plan: FetchPlan) -> None:
        super().__init__()
        self._plan = plan
        self._expired = False
        self._steps: Iterator[Body | None] | None = None
        """Under way, of a large one."""
        self._again = False
        """Whether something changed meanwhile."""
        is_large = plan.is_large
        if plan.session is not None:
            plan.session.wait(self)
        elif not is_large:
            self._wait_on_partitions()
        wait_seconds = max(plan.parameters.max_wait_ms, 0) / 1000
        self._timer: Timer = plan.broker.env.clock.call_later(wait_seconds, self.expire)
        if is_large:
            self._look_in_steps()

    def _wait_on_partitions(self) -> None:
        is_replica = self._plan.reader == REPLICA
        for partition in self._plan.partitions():
            (partition.end_waiters if is_replica else partition.waiters)[self] = None

    def wake(self) -> None:
        if self.done:
            return
        if self._steps is not None or self._plan.is_large:
            self._look_in_steps()
            return
        answers, size, final = self._plan.read()
        if final or size >= self._plan.parameters.min_bytes:
            self._finish(answers)

    def noted(self) -> None:
        """Not worth a response of its own."""

    def expire(self) -> None:
        """Answer with what is available."""
        self._expired = True
        if self._steps is not None or self._plan.is_large:
            self._look_in_steps()
        elif not self.done:
            try:
                self._finish(self._plan.read()[0])
            except Exception as error:
                logger.exception("A Fetch failed when its time was up")
                self.failed(error)

    def give_way(self) -> None:
        """Answer with nothing."""
        self._finish([])

    def _look_in_steps(self) -> None:
        self._again = self._steps is not None
        if self._steps is None:
            self._steps = self._plan.steps(last_call=self._expired)
            self._plan.broker.fetch_sessions.steps.add(self._step)

    def _step(self) -> bool:
        """One of many; whether there are more."""
        if self.done or self._steps is None:
            return False
        try:
            body = next(self._steps)
        except StopIteration:
            self._steps = None
            if self._again or self._expired:
                self._look_in_steps()
            elif self._plan.session is None:
                self._wait_on_partitions()
            return False
        except Exception as error:
            logger.exception("A Fetch of very many partitions failed")
            self.failed(error)
            return False
        if body is not None:
            self._let_go()
            self.complete(body)
        return body is None

    def _finish(self, answers: list[PartitionAnswer]) -> None:
        self._let_go()
        self.complete(self._plan.body(answers))

    def failed(self, error: Exception) -> None:
        self._let_go()
        self.hang_up()

    def cancel(self) -> None:
        self._let_go()
        super().cancel()

    def _let_go(self) -> None:
        self._timer.cancel()
        self._steps = None
        session = self._plan.session
        if session is not None:
            session.polls.pop(self, None)
            return
        for partition in self._plan.partitions():
            partition.waiters.pop(self, None)
            partition.end_waiters.pop(self, None)
