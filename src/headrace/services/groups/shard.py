"""One `GroupCoordinator` on one partition of `__consumer_offsets`, driven as its docstring asks.

A shard lives as long as this broker leads its partition in one epoch. While it loads, and after it resigned,
requests are refused with the code that sends the client on (commits wait a moment: `early_commits`). An `Answer`
is the coordinator's token: a parked join or sync is one that is not done.

A decision that raises is our bug. Nothing of it has happened, so it ends with an error for its own request and the
group continues. If a decision could not be applied, the group's state cannot be trusted: the group is refused
until it has been reloaded from the log, while all others continue.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

from headrace.env import Env
from headrace.groups.coordinator import GroupCoordinator
from headrace.groups.decision import Decision, GroupTimer, TimerKind
from headrace.groups.errors import GroupRequest, append_error, error_reply, undone
from headrace.groups.events import Event, TransactionEnded, group_of
from headrace.groups.messages import (
    CommitOffsets,
    ConsumerHeartbeat,
    DeleteOffsets,
    GroupReply,
    Heartbeat,
    HeartbeatReply,
    JoinGroup,
    LeaveGroup,
    OffsetToCommit,
    SyncGroup,
)
from headrace.model.errors import ErrorCode, KafkaError, ProtocolError
from headrace.model.topics import TopicPartition
from headrace.records.builder import ProducerStamp
from headrace.records.markers import EndMarker
from headrace.replication.partition import Partition
from headrace.services.groups.answer import Answer
from headrace.services.groups.early_commits import EarlyCommits
from headrace.services.groups.loading import load_events
from headrace.services.groups.locks import GroupLocks
from headrace.services.groups.quick_commit import AnswerOf, CommitHost, Member, QuickCommit, QuickCommits
from headrace.services.groups.settings import GroupConfigsFeed, ShellSettings
from headrace.services.groups.timers import TimerTable
from headrace.services.groups.topics import TopicsFeed
from headrace.services.groups.writer import DecisionWriter
from headrace.services.shards import ShardState
from headrace.storage.producer_state import VerificationGuard

log = logging.getLogger(__name__)

TIMER_RETRY_SECONDS = 1.0
"""Before a timer is fired again whose records could not be stored."""
TIMER_RETRY_AFTER_FAULT = 60.0
"""The same when the decision itself failed: it will most likely fail again, and each time is in the log."""
GROUPS_PER_TURN = 100
"""Looked at by the expiry before others get their turn."""

Decide = Callable[[int], Decision]
NOTHING = Decision()


class TransactionalCommit(NamedTuple):
    """A TxnOffsetCommit, and what the log must know of its producer."""

    request: CommitOffsets
    producer: ProducerStamp
    guard: VerificationGuard | None


class GroupShard:
    def __init__(
        self,
        env: Env,
        partition: Partition,
        coordinator: GroupCoordinator,
        settings: ShellSettings,
        topics: TopicsFeed,
        configs: GroupConfigsFeed,
        load_slots: asyncio.Semaphore,
    ) -> None:
        """`load_slots` are shared: many partitions that load at once would only take turns at one interpreter."""
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.state = ShardState.LOADING
        self._env = env
        self._settings = settings
        self._coordinator = coordinator
        self._topics = topics
        self._configs = configs
        self._load_slots = load_slots
        self._view = topics.current()
        self._settings_of = configs.current()
        coordinator.settings_changed(self._settings_of)
        self._locks = GroupLocks()
        self._timers = TimerTable(env.clock, self._timer_fired)
        self._writer = DecisionWriter(env.clock, partition, settings)
        host = CommitHost(coordinator, self._locks, self._timers, self._writer, self.distrust)
        self._commits = QuickCommits(env.clock, host)
        self._early = EarlyCommits(env.clock)
        self._loading: asyncio.Task[None] | None = None
        self._deleted_meanwhile: frozenset[TopicPartition] = frozenset()
        """Partitions that were deleted while this was loading."""
        self._distrusted: dict[str, ErrorCode] = {}
        """Groups whose state is not to be used, and what their requests are told."""
        self._reloading: set[asyncio.Task[None]] = set()
        self._ended_meanwhile: dict[str, list[TransactionEnded]] = {}
        """Transactions that ended while a group was reloaded."""
        self._deciders: dict[type, Callable[..., Decision]] = {
            JoinGroup: coordinator.join_group,
            SyncGroup: coordinator.sync_group,
            Heartbeat: coordinator.heartbeat,
            LeaveGroup: coordinator.leave_group,
            ConsumerHeartbeat: coordinator.consumer_heartbeat,
            CommitOffsets: coordinator.commit_offsets,
            DeleteOffsets: coordinator.delete_offsets,
            str: coordinator.delete_group,
        }

    # -- life

    def start(self) -> None:
        """Load in the background; an empty partition is ready at once."""
        if self.partition.log.start_offset == self.partition.log.end_offset:
            self._activate()
        else:
            self._loading = self._env.background.start(f"Loading {self.name}", self._load())

    async def _load(self) -> None:
        async with self._load_slots:
            began = self._env.clock.monotonic()
            try:
                count = await self._apply_log()
            except (KafkaError, ProtocolError, OSError) as error:
                self._fail()
                log.error("%s could not be loaded; its groups have no coordinator: %s", self.name, error)
                return
            except Exception:
                self._fail()
                log.exception("%s could not be loaded; its groups have no coordinator", self.name)
                return
        self._activate()
        self.forget_partitions(self._deleted_meanwhile)
        took_ms = (self._env.clock.monotonic() - began) * 1000
        groups = len(self._coordinator.group_ids())
        log.info("Loaded %d groups from %d records of %s in %.0f ms", groups, count, self.name, took_ms)

    async def _apply_log(self) -> int:
        """How many events there were."""
        count = 0
        async for events in load_events(self._env, self.partition, self._settings.load_buffer_bytes):
            for event in events:
                self._apply_loaded(event)
            count += len(events)
        return count

    def _apply_loaded(self, event: Event) -> None:
        """A failure affects only its own group."""
        group_id = group_of(event)
        if group_id in self._distrusted:
            return
        try:
            self._coordinator.apply(event)
        except Exception:
            if group_id is None:
                raise
            self._give_up(group_id)
            log.exception("Group '%s' of %s could not be loaded: its requests are refused", group_id, self.name)

    def _activate(self) -> None:
        self.state = ShardState.ACTIVE
        now_ms = self._env.clock.wall_ms()
        decision = self._coordinator.load_finished(now_ms)
        assert not decision.records
        self._carry_out(decision, now_ms)
        self._early.release(self._begin)

    def _fail(self) -> None:
        self.state = ShardState.FAILED
        self._early.refuse(self.state.refusal)

    def resign(self) -> None:
        """No longer the coordinator: waiting clients are told to look for the new one."""
        active = self.state is ShardState.ACTIVE
        self.state = ShardState.RESIGNED
        for task in (self._loading, *self._reloading):
            if task is not None:
                task.cancel()
        self._timers.clear()
        self._writer.close()
        self._early.refuse(self.state.refusal)
        if active:
            _answer(self._coordinator.resign().replies)

    @property
    def name(self) -> str:
        return f"{self.partition.topic_partition} (epoch {self.leader_epoch})"

    # -- requests

    def coordinator(self, group_id: str | None = None) -> GroupCoordinator:
        """For reading, all groups or this one; refused while it is not in charge."""
        if self.state is not ShardState.ACTIVE:
            raise KafkaError(self.state.refusal)
        if group_id in self._distrusted:
            raise KafkaError(self._distrusted[group_id])
        if group_id is not None and not self.partition.surely_leads:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)  # what another coordinator has stored since is not known
        self._look_at_metadata()
        return self._coordinator

    def knows(self, group_id: str) -> bool:
        return self._coordinator.group(group_id) is not None

    def ask(self, request: GroupRequest) -> Answer:
        """Decide a request about one group; the answer may take as long as a rebalance."""
        answer = Answer()
        if self.state is ShardState.ACTIVE:
            self._begin(request, answer)
        elif self.state is ShardState.LOADING and isinstance(request, CommitOffsets):
            self._early.hold(request, answer)
        elif self.state is ShardState.LOADING and isinstance(request, Heartbeat):
            answer.give(HeartbeatReply())  # as Kafka does: there is a client that takes a refusal for its end
        else:
            answer.give(error_reply(request, self.state.refusal))
        return answer

    def _begin(self, request: GroupRequest, answer: Answer) -> None:
        group_id = request if isinstance(request, str) else request.group_id
        work = _RequestWork(self, group_id, request, answer)
        self._locks.acquire(group_id, type(request) is CommitOffsets, work.run)

    # -- transactions

    def commit_in_transaction(self, commit: TransactionalCommit) -> Answer:
        """Offsets that count when their transaction is committed."""
        answer = Answer()
        request = commit.request
        if self.state is not ShardState.ACTIVE:
            answer.give(error_reply(request, self.state.refusal))
            return answer
        self._locks.acquire(request.group_id, True, _TransactionalWork(self, commit, answer).run)
        return answer

    def end_transaction(self, marker: EndMarker) -> asyncio.Future[None]:
        """Write a marker, and make the positions count, or forget them, once it is where the promise says.

        No group is locked for it: what is applied is applied in the order of the log. KafkaError if it cannot be.
        """
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.state is not ShardState.ACTIVE:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.name} is {self.state.value}")
        self._writer.write_marker(marker, _EndWork(self, marker, ended))
        return ended

    def _end(self, event: TransactionEnded) -> None:
        self._coordinator.apply(event)
        for ends in self._ended_meanwhile.values():
            ends.append(event)

    # -- heartbeats that change nothing

    def quick_heartbeat(self, group_id: str, generation: int, member_id: str, instance_id: str | None) -> bool:
        """Keep a classic member alive, if nothing else is to be done; otherwise the coordinator has to decide."""
        if not self._is_at_rest(group_id):
            return False
        member = self._coordinator.quiet_member(group_id, generation, member_id, instance_id)
        if member is None:
            return False
        return self._timers.prolong((TimerKind.SESSION, group_id, member_id), member.session_timeout_ms)

    def quick_consumer_heartbeat(
        self, group_id: str, member_id: str, member_epoch: int, client: tuple[str, str]
    ) -> int | None:
        """The same in a consumer group: the heartbeat interval, or None if it has to be asked."""
        if not self._is_at_rest(group_id):
            return None
        self._look_at_metadata()
        now_ms = self._env.clock.wall_ms
        settings = self._coordinator.quiet_consumer(group_id, member_id, member_epoch, client, now_ms)
        if settings is None:
            return None
        key = (TimerKind.SESSION, group_id, member_id)
        if not self._timers.prolong(key, settings.consumer_session_timeout_ms):
            return None
        return settings.consumer_heartbeat_interval_ms

    def quick_commit(
        self,
        member: Member,
        version: int,
        offsets: Sequence[OffsetToCommit],
        answer_of: AnswerOf,
    ) -> QuickCommit | None:
        """Store the commit of a valid member; None if the coordinator has to decide."""
        if self.state is not ShardState.ACTIVE or member[0] in self._distrusted:
            return None
        return self._commits.commit(member, version, offsets, answer_of)

    def _is_at_rest(self, group_id: str) -> bool:
        """Whether a request that changes nothing can be answered from the state as it is."""
        return (
            self.state is ShardState.ACTIVE
            and group_id not in self._distrusted
            and not self._locks.is_changing(group_id)
        )

    async def expire(self) -> None:
        """Remove offsets past their retention, and groups that are empty after that."""
        if self.state is not ShardState.ACTIVE:
            return
        for number, group_id in enumerate(self._coordinator.group_ids(), 1):
            decide = partial(self._coordinator.expire, group_id)
            self._locks.acquire(group_id, False, _Work(self, group_id, decide).run)
            if number % GROUPS_PER_TURN == 0:
                await self._env.clock.sleep(0)
                if self.state is not ShardState.ACTIVE:
                    return

    def forget_partitions(self, partitions: frozenset[TopicPartition]) -> None:
        """Their topics were deleted, and the offsets with them."""
        if self.state is ShardState.LOADING:
            self._deleted_meanwhile |= partitions
        if self.state is not ShardState.ACTIVE or not partitions:
            return
        offsets = self._coordinator.offsets
        names = {partition.topic for partition in partitions}
        if any(held.topic in names for group_id in offsets.group_ids() for held in offsets.of_group(group_id)):
            self._locks.run_alone(_DeletionWork(self, partitions).run)

    def _timer_fired(self, timer: GroupTimer) -> None:
        self._locks.acquire(timer.group_id, False, _TimerWork(self, timer).run)

    # -- when something is wrong with a group

    def refusal(self, group_id: str) -> ErrorCode | None:
        """The error for a request about the group while it cannot be decided."""
        if self.state is not ShardState.ACTIVE:
            return ErrorCode.NOT_COORDINATOR
        return self._distrusted.get(group_id)

    def distrust(self, group_ids: Iterable[str]) -> None:
        """Refuse the groups until they have been reloaded."""
        for group_id in group_ids:
            if group_id not in self._distrusted:
                self._distrusted[group_id] = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
                self._locks.acquire(group_id, False, partial(self._begin_reload, group_id))

    def _begin_reload(self, group_id: str) -> None:
        """The caller holds the group: no decision about it is still being written."""
        if self.state is not ShardState.ACTIVE:
            self._locks.release(group_id)
            return
        task = self._env.background.start(f"Reloading group {group_id}", self._reload(group_id))
        self._reloading.add(task)
        task.add_done_callback(partial(self._end_reload, group_id))

    def _end_reload(self, group_id: str, task: asyncio.Task[None]) -> None:
        self._reloading.discard(task)
        self._locks.release(group_id)

    async def _reload(self, group_id: str) -> None:
        ended: list[TransactionEnded] = []
        self._ended_meanwhile[group_id] = ended
        try:
            found = self._coordinator.empty()
            async for events in load_events(self._env, self.partition, self._settings.load_buffer_bytes):
                found.apply_all(event for event in events if group_of(event) in (group_id, None))
            found.apply_all(ended)
            now_ms = self._env.clock.wall_ms()
            decision = self._coordinator.replace_group(group_id, found, now_ms)
            self._timers.forget(group_id)
            self._carry_out(decision, now_ms)
            del self._distrusted[group_id]
            log.warning("Group '%s' of %s was reloaded from the log", group_id, self.name)
        except Exception:
            self._give_up(group_id)
            log.exception("Group '%s' of %s could not be reloaded: its requests are refused", group_id, self.name)
        finally:
            self._ended_meanwhile.pop(group_id, None)

    def _give_up(self, group_id: str) -> None:
        """The group's records cannot be read: no request is served from half of them."""
        self._distrusted[group_id] = ErrorCode.UNKNOWN_SERVER_ERROR
        self._timers.forget(group_id)
        self._coordinator.replace_group(group_id, self._coordinator.empty(), 0)

    # -- carrying out

    def _carry_out(self, decision: Decision, now_ms: int) -> None:
        self._coordinator.apply_all(decision.events)
        for timer in decision.timers:
            self._timers.set(timer, now_ms)
        _answer(decision.replies)

    def _look_at_metadata(self) -> None:
        view = self._topics.current()
        if view is not self._view:
            self._view = view
            self._coordinator.topics_changed(view)
        settings_of = self._configs.current()
        if settings_of is not self._settings_of:
            self._settings_of = settings_of
            self._coordinator.settings_changed(settings_of)


class _Work:
    """One decision about a group, from the moment its turn comes until the group is free again."""

    __slots__ = ("_decide", "_decision", "_group_id", "_now_ms", "_shard")

    def __init__(self, shard: GroupShard, group_id: str, decide: Decide) -> None:
        self._shard = shard
        self._group_id = group_id
        self._decide = decide
        self._decision = NOTHING
        self._now_ms = 0

    def run(self) -> None:
        """Decide, and carry it out now or once its records are stored. Never raises."""
        shard = self._shard
        refusal = shard.refusal(self._group_id)
        if refusal is not None:
            self.failed(refusal)
            return
        try:
            shard._look_at_metadata()
            self._now_ms = now_ms = shard._env.clock.wall_ms()
            self._decision = decision = self._decided(now_ms)
            records = decision.records
            if records:
                self._write(records, now_ms)
        except Exception:
            log.exception("A decision about group '%s' failed; none of it took effect", self._group_id)
            self.failed(ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        if not records:
            self.stored()

    def _decided(self, now_ms: int) -> Decision:
        return self._decide(now_ms)

    def _write(self, records: Sequence[Event], now_ms: int) -> None:
        self._shard._writer.write(records, now_ms, self)

    def finish(self) -> None:
        self._shard._locks.release(self._group_id)

    def stored(self) -> None:
        try:
            self._shard._carry_out(self._decision, self._now_ms)
        except Exception:
            log.exception("What was decided about group '%s' could not be applied", self._group_id)
            self.lost()
            return
        self.finish()

    def lost(self) -> None:
        self.delayed(ErrorCode.UNKNOWN_SERVER_ERROR)
        _answer((token, undone(reply, ErrorCode.NOT_COORDINATOR)) for token, reply in self._decision.replies)
        self._shard.distrust(self._touched())
        self.finish()

    def _touched(self) -> set[str]:
        """The groups that the decision is about."""
        return {self._group_id} | {group_of(event) or self._group_id for event in self._decision.events}

    def failed(self, error: ErrorCode) -> None:
        self.finish()

    def delayed(self, error: ErrorCode) -> None:
        """No client waits for it."""


class _RequestWork(_Work):
    __slots__ = ("_answer", "_request")

    def __init__(self, shard: GroupShard, group_id: str, request: GroupRequest, answer: Answer) -> None:
        self._shard = shard
        self._group_id = group_id
        self._decision = NOTHING
        self._request = request
        self._answer = answer

    def _decided(self, now_ms: int) -> Decision:
        request = self._request
        return self._shard._deciders[type(request)](request, self._answer, now_ms)

    def failed(self, error: ErrorCode) -> None:
        self.delayed(error)
        self.finish()

    def delayed(self, error: ErrorCode) -> None:
        self._answer.give(error_reply(self._request, append_error(error)))


class _TransactionalWork(_RequestWork):
    __slots__ = ("_guard", "_producer")

    def __init__(self, shard: GroupShard, commit: TransactionalCommit, answer: Answer) -> None:
        super().__init__(shard, commit.request.group_id, commit.request, answer)
        self._producer = commit.producer
        self._guard = commit.guard

    def _write(self, records: Sequence[Event], now_ms: int) -> None:
        self._shard._writer.write_for_producer(records, now_ms, self._producer, self._guard, self)


class _EndWork:
    """The end of a transaction on its way into the log; see `DecisionWaiter`."""

    __slots__ = ("_ended", "_event", "_shard")

    def __init__(self, shard: GroupShard, marker: EndMarker, ended: asyncio.Future[None]) -> None:
        self._shard = shard
        self._event = TransactionEnded(marker.producer_id, marker.commit)
        self._ended = ended

    def stored(self) -> None:
        self._shard._end(self._event)
        if not self._ended.done():
            self._ended.set_result(None)

    def failed(self, error: ErrorCode) -> None:
        self.delayed(error)

    def delayed(self, error: ErrorCode) -> None:
        if not self._ended.done():
            self._ended.set_exception(KafkaError(error))

    def lost(self) -> None:
        self.delayed(ErrorCode.UNKNOWN_SERVER_ERROR)


class _TimerWork(_Work):
    __slots__ = ("_timer",)

    def __init__(self, shard: GroupShard, timer: GroupTimer) -> None:
        super().__init__(shard, timer.group_id, partial(shard._coordinator.timer_fired, timer))
        self._timer = timer

    def run(self) -> None:
        if self._timer.key in self._shard._timers:
            # Armed again while this one waited for its turn: the member has sent something.
            self.finish()
            return
        super().run()

    def failed(self, error: ErrorCode) -> None:
        if self._shard.refusal(self._timer.group_id) is None:
            ours = error is ErrorCode.UNKNOWN_SERVER_ERROR
            self._shard._timers.again(self._timer, TIMER_RETRY_AFTER_FAULT if ours else TIMER_RETRY_SECONDS)
        self.finish()


class _DeletionWork(_Work):
    """Touches many groups at once, so it holds all of them."""

    __slots__ = ()

    def __init__(self, shard: GroupShard, partitions: frozenset[TopicPartition]) -> None:
        super().__init__(shard, "", partial(shard._coordinator.partitions_deleted, partitions))

    def _touched(self) -> set[str]:
        return super()._touched() - {self._group_id}

    def finish(self) -> None:
        self._shard._locks.release_alone()


def _answer(replies: Iterable[tuple[object, GroupReply]]) -> None:
    for token, reply in replies:
        assert type(token) is Answer
        token.give(reply)
