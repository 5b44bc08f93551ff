"""The smallest shell around a `GroupCoordinator`: a list for a log, a number for a clock.

It keeps the contract of `headrace.groups.coordinator` to the letter (append, apply, timers, replies), asserts what
the coordinator promises (every token is answered once, a decision changes nothing until it is applied), and can
fail an append or lose the coordinator's memory at any moment. Tests and simulations of groups run on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count
from typing import TypeVar

from headrace.groups.coordinator import GroupCoordinator
from headrace.groups.decision import Decision, GroupTimer, TimerKey
from headrace.groups.errors import GroupRequest, append_error, error_reply
from headrace.groups.events import Event
from headrace.groups.messages import (
    CommitOffsets,
    ConsumerHeartbeat,
    DeleteOffsets,
    GroupReply,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    SyncGroup,
)
from headrace.groups.settings import GroupSettings
from headrace.groups.topics import GroupTopic, TopicsView
from headrace.model.errors import ErrorCode
from headrace.model.topics import TopicId

R = TypeVar("R")


def topic(name: str, partition_count: int, incarnation: int = 0) -> GroupTopic:
    """A topic whose id follows from its name."""
    return GroupTopic(name, TopicId(f"{name}/{incarnation}".encode().ljust(16, b".")[:16]), partition_count)


class GroupShell:
    def __init__(self, settings: GroupSettings | None = None, topics: Iterable[GroupTopic] = ()) -> None:
        self.settings = settings or GroupSettings(consumer_assignment_interval_ms=0)
        self.topics = TopicsView(topics)
        self.now_ms = 1_000_000
        self.log: list[Event] = []
        self.timers: dict[TimerKey, GroupTimer] = {}
        self.answers: dict[int, GroupReply] = {}
        self.append_failure: ErrorCode | None = None
        """Set it, and the next append fails with it."""
        self._tokens = count(1)
        self._ids = count(1)
        self.coordinator = self._empty()

    def send(self, request: GroupRequest) -> int:
        """The token of the request; its answer is in `answers` now or later."""
        token = next(self._tokens)
        decision = self._decider(request)(token)
        if decision.records and self.append_failure is not None:
            error, self.append_failure = append_error(self.append_failure), None
            self._answer(token, error_reply(request, error))
        else:
            self.carry_out(decision)
        return token

    def ask(self, request: GroupRequest, kind: type[R]) -> R:
        """The answer to a request that does not have to wait."""
        reply = self.answers.pop(self.send(request))
        assert isinstance(reply, kind), reply
        return reply

    def carry_out(self, decision: Decision) -> None:
        self.log.extend(decision.records)
        self.coordinator.apply_all(decision.events)
        for timer in decision.timers:
            self._arm(timer)
        for token, reply in decision.replies:
            assert isinstance(token, int)
            self._answer(token, reply)

    def advance(self, duration_ms: int) -> None:
        """Let time pass and fire what becomes due, each at its own moment."""
        end_ms = self.now_ms + duration_ms
        while True:
            due = min(self.timers.values(), key=_deadline_ms, default=None)
            if due is None or _deadline_ms(due) > end_ms:
                break
            del self.timers[due.key]
            self.now_ms = max(self.now_ms, _deadline_ms(due))
            self.carry_out(self.coordinator.timer_fired(due, self.now_ms))
        self.now_ms = end_ms

    def set_topics(self, topics: Iterable[GroupTopic]) -> None:
        self.topics = TopicsView(topics, self.topics.version + 1)
        self.coordinator.topics_changed(self.topics)

    def restart(self) -> None:
        """Another coordinator takes over with nothing but the log; who waits is cut off."""
        self.coordinator = self._empty()
        self.coordinator.apply_all(self.log)
        self.timers.clear()
        self.carry_out(self.coordinator.load_finished(self.now_ms))

    def _empty(self) -> GroupCoordinator:
        return GroupCoordinator(self.settings, self.topics, lambda: f"id{next(self._ids)}")

    def _answer(self, token: int, reply: GroupReply) -> None:
        assert token not in self.answers, f"{token} is answered twice"
        self.answers[token] = reply

    def _arm(self, timer: GroupTimer) -> None:
        if timer.deadline_ms is None:
            self.timers.pop(timer.key, None)
        elif not (timer.keep_existing and timer.key in self.timers):
            self.timers[timer.key] = timer

    def _decider(self, request: GroupRequest) -> Callable[[int], Decision]:
        coordinator, now_ms = self.coordinator, self.now_ms
        match request:
            case JoinGroup():
                return lambda token: coordinator.join_group(request, token, now_ms)
            case SyncGroup():
                return lambda token: coordinator.sync_group(request, token, now_ms)
            case Heartbeat():
                return lambda token: coordinator.heartbeat(request, token, now_ms)
            case LeaveGroup():
                return lambda token: coordinator.leave_group(request, token, now_ms)
            case ConsumerHeartbeat():
                return lambda token: coordinator.consumer_heartbeat(request, token, now_ms)
            case CommitOffsets():
                return lambda token: coordinator.commit_offsets(request, token, now_ms)
            case DeleteOffsets():
                return lambda token: coordinator.delete_offsets(request, token, now_ms)
            case str():
                return lambda token: coordinator.delete_group(request, token, now_ms)


def _deadline_ms(timer: GroupTimer) -> int:
    assert timer.deadline_ms is not None
    return timer.deadline_ms
