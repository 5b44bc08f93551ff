"""The usual commits, of members to partitions that are there: those of one turn are one write.

A commit is decided at once (`GroupCoordinator.quiet_commit`) and joins the batch that its shard's next append will
store. The batch holds the commits' groups, shared with other commits, and when it is stored it applies and answers
them one after the other. Nothing in it is new: what the long way (`GroupShard.ask`) would do for each, with
nothing between. Commits of one turn wait for each other anyway, so their order is that of the batch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from headrace.env import Clock
from headrace.groups.coordinator import GroupCoordinator
from headrace.groups.decision import TimerKind
from headrace.groups.errors import append_error
from headrace.groups.events import OffsetCommitted
from headrace.groups.messages import OffsetToCommit
from headrace.model.errors import ErrorCode
from headrace.records.batch import HEADER_SIZE
from headrace.records.builder import NewRecord
from headrace.services.groups.locks import GroupLocks
from headrace.services.groups.timers import TimerTable
from headrace.services.groups.writer import DecisionWriter, add_records
from headrace.services.reply import Pending

log = logging.getLogger(__name__)

MAX_BYTES = 64 * 1024
"""The limit of one batch of commits; further commits begin another."""

AnswerOf = Callable[[ErrorCode], bytes]
"""Returns the response that has this result for every offset."""
Member = tuple[str, int, str, str | None]
"""Group id, generation or epoch, member id, instance id."""


@dataclass(frozen=True, slots=True)
class CommitHost:
    """The parts of its shard that commits need."""

    coordinator: GroupCoordinator
    locks: GroupLocks
    timers: TimerTable
    writer: DecisionWriter
    distrust: Callable[[Iterable[str]], None]


class QuickCommit(Pending):
    __slots__ = ("answer_of", "events", "group_id")

    def __init__(self, group_id: str, events: list[OffsetCommitted], answer_of: AnswerOf) -> None:
        self._body = self._error = self._deliver = None
        self.done = False
        self.group_id = group_id
        self.events = events
        self.answer_of = answer_of

    @property
    def body(self) -> bytes:
        """The response. Only once it is done."""
        body = self.result()
        assert type(body) is bytes
        return body

    def tell(self, error: ErrorCode) -> None:
        """Answer the client. An error here must not affect the others that share the batch."""
        self.complete_with(self.answer_of, error)


class CommitBatch:
    """A write that grows until it is taken; see `DecisionWaiter`."""

    __slots__ = ("_host", "commits", "flushes", "groups", "limit", "now_ms", "records", "size")

    def __init__(self, host: CommitHost, now_ms: int) -> None:
        self._host = host
        self.now_ms = now_ms
        self.flushes = host.writer.flushes
        """The writer's count of flushes when this began: it grows until the next flush."""
        self.limit = min(MAX_BYTES, host.writer.batch_limit()) - HEADER_SIZE
        self.records: list[NewRecord] = []
        self.size = 0
        self.commits: list[QuickCommit] = []
        self.groups: set[str] = set()
        """The groups whose locks it holds."""

    @property
    def outcome(self) -> CommitBatch:
        return self

    def stored(self) -> None:
        apply = self._host.coordinator.apply_commits
        for commit in self.commits:
            try:
                apply(commit.events)
            except Exception:
                log.exception("A commit of group '%s' could not be applied", commit.group_id)
                commit.tell(ErrorCode.UNKNOWN_SERVER_ERROR)
                self._host.distrust({commit.group_id})
        self._release()
        for commit in self.commits:
            commit.tell(ErrorCode.NONE)
        self.commits = []

    def failed(self, error: ErrorCode) -> None:
        self._release()
        self.delayed(error)

    def delayed(self, error: ErrorCode) -> None:
        told = append_error(error)
        for commit in self.commits:
            commit.tell(told)

    def lost(self) -> None:
        self.delayed(ErrorCode.UNKNOWN_SERVER_ERROR)
        self._host.distrust(self.groups)
        self._release()

    def _release(self) -> None:
        for group_id in self.groups:
            self._host.locks.release(group_id)


class QuickCommits:
    """The quick commits of one shard."""

    def __init__(self, clock: Clock, host: CommitHost) -> None:
        self._clock = clock
        self._host = host
        self._writer = host.writer
        self._batch = CommitBatch(host, 0)

    def commit(
        self, member: Member, version: int, offsets: Sequence[OffsetToCommit], answer_of: AnswerOf
    ) -> QuickCommit | None:
        """Store the commit of a valid member; None if the coordinator has to decide."""
        host, writer, batch = self._host, self._writer, self._batch
        if batch.flushes != writer.flushes or not batch.commits:
            batch = self._batch = CommitBatch(host, self._clock.wall_ms())
        decided = host.coordinator.quiet_commit(member, version, offsets, batch.now_ms)
        if decided is None:
            return None
        events, timeout_ms = decided
        group_id, _, member_id, _ = member
        if timeout_ms and not host.timers.prolong((TimerKind.SESSION, group_id, member_id), timeout_ms):
            return None
        commit = QuickCommit(group_id, events, answer_of)
        records: list[NewRecord] = []
        try:
            size = add_records(records, events, batch.now_ms)
        except Exception:
            log.exception("A commit of group '%s' could not be written; none of it took effect", group_id)
            commit.tell(append_error(ErrorCode.UNKNOWN_SERVER_ERROR))
            return commit
        if batch.commits and batch.size + size > batch.limit:
            writer.flush()
            batch = self._batch = CommitBatch(host, batch.now_ms)
        if group_id not in batch.groups:
            if not host.locks.try_share(group_id):
                return None
            batch.groups.add(group_id)
        batch.records += records
        batch.size += size
        batch.commits.append(commit)
        if len(batch.commits) == 1:
            writer.add(batch)
        else:
            writer.grown(size)
        return commit
