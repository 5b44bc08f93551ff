"""What a decider hands back, and the draft it is written in.

A decider reads the state and writes into a `Draft`; nothing else is touched. `Draft.decision()` freezes it. Timers
and decisions are tuples and not dataclasses: some are made for every request.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple, TypeAlias

from headrace.groups.events import Event, Volatile
from headrace.groups.messages import GroupReply, Token
from headrace.groups.settings import GroupSettings
from headrace.groups.topics import TopicsView


class TimerKind(IntEnum):
    """Numbers, because they are looked up with every heartbeat: the hash of a plain enum is computed in Python."""

    SESSION = 0
    """A member, or one that got an id and has not joined, has stopped sending heartbeats."""
    JOIN = 1
    """The join phase of a classic rebalance ends, or the initial delay of an empty group."""
    SYNC = 2
    """Members of a classic group have not asked for their assignment."""
    REVOKE = 3
    """A member of a consumer group has not given up what it must."""
    MEMBER_JOIN = 4
    """A classic member of a consumer group was told to rejoin and did not."""
    MEMBER_SYNC = 5
    """A classic member of a consumer group joined and has not asked for its assignment."""


TimerKey: TypeAlias = tuple[TimerKind, str, str]


class GroupTimer(NamedTuple):
    """A deadline to arm, or to forget when `deadline_ms` is None. One per key: a later one replaces it."""

    kind: TimerKind
    group_id: str
    member_id: str = ""
    deadline_ms: int | None = None
    stamp: int = 0
    """The generation or epoch it is about: one that fires late is recognised and ignored."""
    keep_existing: bool = False
    """Do not replace one that is armed already."""

    @property
    def key(self) -> TimerKey:
        return self[:3]


class Decision(NamedTuple):
    events: tuple[Event, ...] = ()
    replies: tuple[tuple[Token, GroupReply], ...] = ()
    timers: tuple[GroupTimer, ...] = ()
    shared: bool = False
    """True for offset commits: several may be under way in one group at a time."""

    @property
    def records(self) -> list[Event]:
        """The events that must be stored, as one batch, before anything else of the decision happens."""
        return [event for event in self.events if not isinstance(event, Volatile)]


class Draft:
    """A decision in the making, with all it may be based on besides the group itself."""

    __slots__ = ("events", "new_id", "now_ms", "replies", "settings", "timers", "topics")

    def __init__(
        self, settings: GroupSettings, topics: TopicsView, new_id: Callable[[], str], now_ms: int
    ) -> None:
        self.settings = settings
        self.topics = topics
        self.new_id = new_id
        self.now_ms = now_ms
        self.events: list[Event] = []
        self.replies: list[tuple[Token, GroupReply]] = []
        self.timers: list[GroupTimer] = []

    def reply(self, token: Token, reply: GroupReply) -> None:
        self.replies.append((token, reply))

    def arm(self, kind: TimerKind, group_id: str, member_id: str = "", *, after_ms: int, stamp: int = 0) -> None:
        self.timers.append(GroupTimer(kind, group_id, member_id, self.now_ms + after_ms, stamp))

    def arm_once(self, kind: TimerKind, group_id: str, member_id: str, after_ms: int) -> None:
        self.timers.append(GroupTimer(kind, group_id, member_id, self.now_ms + after_ms, keep_existing=True))

    def cancel(self, kind: TimerKind, group_id: str, member_id: str = "") -> None:
        self.timers.append(GroupTimer(kind, group_id, member_id))

    def decision(self, *, shared: bool = False) -> Decision:
        return Decision(tuple(self.events), tuple(self.replies), tuple(self.timers), shared)
