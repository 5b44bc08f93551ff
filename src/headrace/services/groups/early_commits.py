"""Commits that arrive while their shard loads wait a moment for it.

Clients ask again and again for everything else, but some give a commit up after a few tries within half a second
(librdkafka), and the application gets an error because a coordinator has moved.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

from headrace.env import Clock
from headrace.groups.errors import error_reply
from headrace.groups.messages import CommitOffsets
from headrace.model.errors import ErrorCode
from headrace.services.groups.answer import Answer

PATIENCE_SECONDS = 3.0
"""Times three tries: a machine with far too much to do needed more than three seconds to load a shard."""
MAX_HELD = 1_000


class EarlyCommits:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._held: deque[tuple[CommitOffsets, Answer]] = deque()

    def hold(self, request: CommitOffsets, answer: Answer) -> None:
        if len(self._held) >= MAX_HELD:
            _refuse(request, answer, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            return
        self._held.append((request, answer))
        late = partial(_refuse, request, answer, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        self._clock.call_later(PATIENCE_SECONDS, late)

    def release(self, ask: Callable[[CommitOffsets, Answer], None]) -> None:
        """The shard has loaded: those who still wait, in the order they came."""
        while self._held:
            request, answer = self._held.popleft()
            if not answer.done():
                ask(request, answer)

    def refuse(self, error: ErrorCode) -> None:
        """The shard was not loaded, and will not be."""
        while self._held:
            _refuse(*self._held.popleft(), error)


def _refuse(request: CommitOffsets, answer: Answer, error: ErrorCode) -> None:
    if not answer.done():
        answer.give(error_reply(request, error))
