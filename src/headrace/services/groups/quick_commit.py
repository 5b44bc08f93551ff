"""The usual commit, of a member to partitions that are there: one object from the frame to its answer.

It is decided at once (`GroupCoordinator.quiet_commit`), waits for its records to be stored like every decision,
shares its group with other commits meanwhile, and is applied and answered from there. Nothing in it is new: what
the long way (`GroupShard.ask`) would do, with nothing between.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from headrace.groups.coordinator import GroupCoordinator
from headrace.groups.errors import append_error
from headrace.groups.events import OffsetCommitted
from headrace.model.errors import ErrorCode
from headrace.services.groups.locks import GroupLocks
from headrace.services.reply import Pending

log = logging.getLogger(__name__)

AnswerOf = Callable[[ErrorCode], bytes]
"""The response that says this of every position."""


@dataclass(frozen=True, slots=True)
class CommitHost:
    """What commits need of their shard."""

    coordinator: GroupCoordinator
    locks: GroupLocks
    distrust: Callable[[Iterable[str]], None]


class QuickCommit(Pending):
    __slots__ = ("_answer_of", "_events", "_group_id", "_host")

    def __init__(
        self, host: CommitHost, group_id: str, events: list[OffsetCommitted], answer_of: AnswerOf
    ) -> None:
        super().__init__()
        self._host = host
        self._group_id = group_id
        self._events = events
        self._answer_of = answer_of

    @property
    def body(self) -> bytes:
        """Once it is done."""
        body = self.result()
        assert type(body) is bytes
        return body

    def stored(self) -> None:
        host = self._host
        try:
            host.coordinator.apply_commits(self._events)
        except Exception:
            log.exception("A commit of group '%s' could not be applied", self._group_id)
            self.lost()
            return
        host.locks.release(self._group_id)
        self._tell(ErrorCode.NONE)

    def failed(self, error: ErrorCode) -> None:
        self._host.locks.release(self._group_id)
        self.delayed(error)

    def delayed(self, error: ErrorCode) -> None:
        self._tell(append_error(error))

    def _tell(self, error: ErrorCode) -> None:
        """The others that share the batch must not suffer from what goes wrong here."""
        if self.done:
            return  # the connection is gone, or was told already that nobody knows
        try:
            body = self._answer_of(error)
        except Exception as problem:
            self.fail(problem)
        else:
            self.complete(body)

    def lost(self) -> None:
        self.delayed(ErrorCode.UNKNOWN_SERVER_ERROR)
        self._host.distrust({self._group_id})
        self._host.locks.release(self._group_id)
