"""One `GroupCoordinator` on one partition of `__consumer_offsets`, driven as its docstring asks.

A shard lives as long as this broker leads its partition in one epoch. While it loads, and after it resigned,
requests are refused with the code that sends the client on. Futures are the coordinator's tokens: a parked join or
sync is a future that is not done.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from enum import Enum
from functools import partial

from headrace.env import Env
from headrace.groups.coordinator import GroupCoordinator
from headrace.groups.decision import Decision, Timer
from headrace.groups.errors import Request, append_error, error_reply
from headrace.groups.messages import (
    CommitOffsets,
    ConsumerHeartbeat,
    DeleteOffsets,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    Reply,
    SyncGroup,
)
from headrace.model.errors import ErrorCode, KafkaError, ProtocolError
from headrace.model.topics import TopicPartition
from headrace.replication.partition import Partition
from headrace.services.groups.loading import load_events
from headrace.services.groups.locks import GroupLocks
from headrace.services.groups.settings import ShellSettings
from headrace.services.groups.timers import TimerTable
from headrace.services.groups.topics import TopicsFeed
from headrace.services.groups.writer import DecisionWriter

log = logging.getLogger(__name__)

TIMER_RETRY_SECONDS = 1.0
"""Before a timer is fired again whose records could not be stored."""
GROUPS_PER_TURN = 100
"""Looked at by the expiry before others get their turn."""

Answer = asyncio.Future[Reply]
Decide = Callable[[int], Decision]


class ShardState(Enum):
    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"
    RESIGNED = "resigned"


_REFUSALS = {
    ShardState.LOADING: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ShardState.FAILED: ErrorCode.NOT_COORDINATOR,
    ShardState.RESIGNED: ErrorCode.NOT_COORDINATOR,
}


class GroupShard:
    def __init__(
        self,
        env: Env,
        partition: Partition,
        coordinator: GroupCoordinator,
        settings: ShellSettings,
        topics: TopicsFeed,
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
        self._load_slots = load_slots
        self._view = topics.current()
        self._locks = GroupLocks()
        self._timers = TimerTable(env.clock, self._timer_fired)
        self._writer = DecisionWriter(env.clock, partition, settings.codec, settings.commit_timeout_ms)
        self._loading: asyncio.Task[None] | None = None
        self._deleted_meanwhile: frozenset[TopicPartition] = frozenset()
        """Partitions that were deleted while this was loading."""
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
            self._loading = asyncio.get_running_loop().create_task(self._load())

    async def _load(self) -> None:
        async with self._load_slots:
            began = self._env.clock.monotonic()
            try:
                count = await self._apply_log()
            except (KafkaError, ProtocolError, OSError) as error:
                self.state = ShardState.FAILED
                log.error("%s could not be loaded, its groups have no coordinator: %s", self.name, error)
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
            self._coordinator.apply_all(events)
            count += len(events)
        return count

    def _activate(self) -> None:
        self.state = ShardState.ACTIVE
        now_ms = self._env.clock.wall_ms()
        decision = self._coordinator.load_finished(now_ms)
        assert not decision.records
        self._carry_out(decision, now_ms)

    def resign(self) -> None:
        """No longer the coordinator: whoever waits is told to look for the new one."""
        active = self.state is ShardState.ACTIVE
        self.state = ShardState.RESIGNED
        if self._loading is not None:
            self._loading.cancel()
        self._timers.clear()
        self._writer.close()
        if active:
            for token, reply in self._coordinator.resign().replies:
                _answer(token, reply)

    @property
    def name(self) -> str:
        return f"{self.partition.topic_partition} (epoch {self.leader_epoch})"

    # -- requests

    def coordinator(self) -> GroupCoordinator:
        """For reading; refused while it is not in charge."""
        if self.state is not ShardState.ACTIVE:
            raise KafkaError(_REFUSALS[self.state])
        self._look_at_topics()
        return self._coordinator

    def ask(self, request: Request) -> Answer:
        """Decide a request about one group; the answer may take as long as a rebalance."""
        answer: Answer = asyncio.get_running_loop().create_future()
        if self.state is not ShardState.ACTIVE:
            answer.set_result(error_reply(request, _REFUSALS[self.state]))
            return answer
        group_id = request if isinstance(request, str) else request.group_id
        decider = self._deciders[type(request)]
        work = _RequestWork(self, group_id, request, answer, lambda now_ms: decider(request, answer, now_ms))
        self._locks.acquire(group_id, isinstance(request, CommitOffsets), work.run)
        return answer

    async def expire(self) -> None:
        """Let go of offsets past their retention and of groups that nothing is left of."""
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
        """Their topics are gone, and so are the positions in them."""
        if self.state is ShardState.LOADING:
            self._deleted_meanwhile |= partitions
        if self.state is not ShardState.ACTIVE or not partitions:
            return
        offsets = self._coordinator.offsets
        names = {partition.topic for partition in partitions}
        if any(held.topic in names for group_id in offsets.group_ids() for held in offsets.of_group(group_id)):
            self._locks.run_alone(_DeletionWork(self, partitions).run)

    def _timer_fired(self, timer: Timer) -> None:
        self._locks.acquire(timer.group_id, False, _TimerWork(self, timer).run)

    # -- carrying out

    def decided(self, work: _Work, decision: Decision, now_ms: int) -> None:
        """Carry a decision out now, or once its records are stored."""
        if decision.records:
            self._writer.write(decision, now_ms, work)
        else:
            self._carry_out(decision, now_ms)
            work.finish()

    def _carry_out(self, decision: Decision, now_ms: int) -> None:
        self._coordinator.apply_all(decision.events)
        for timer in decision.timers:
            self._timers.set(timer, now_ms)
        for token, reply in decision.replies:
            _answer(token, reply)

    def _look_at_topics(self) -> None:
        view = self._topics.current()
        if view is not self._view:
            self._view = view
            self._coordinator.topics_changed(view)


class _Work:
    """One decision about a group, from the moment its turn comes until the group is free again."""

    __slots__ = ("_decide", "_decision", "_group_id", "_now_ms", "_shard")

    def __init__(self, shard: GroupShard, group_id: str, decide: Decide) -> None:
        self._shard = shard
        self._group_id = group_id
        self._decide = decide
        self._decision = Decision()
        self._now_ms = 0

    def run(self) -> None:
        shard = self._shard
        if shard.state is not ShardState.ACTIVE:
            self.failed(ErrorCode.NOT_COORDINATOR)
            return
        shard._look_at_topics()
        self._now_ms = now_ms = shard._env.clock.wall_ms()
        self._decision = self._decide(now_ms)
        shard.decided(self, self._decision, now_ms)

    def finish(self) -> None:
        self._shard._locks.release(self._group_id)

    def stored(self) -> None:
        self._shard._carry_out(self._decision, self._now_ms)
        self.finish()

    def failed(self, error: ErrorCode) -> None:
        self.finish()

    def delayed(self, error: ErrorCode) -> None:
        """Nobody waits for it."""


class _RequestWork(_Work):
    __slots__ = ("_answer", "_request")

    def __init__(self, shard: GroupShard, group_id: str, request: Request, answer: Answer, decide: Decide) -> None:
        super().__init__(shard, group_id, decide)
        self._request = request
        self._answer = answer

    def failed(self, error: ErrorCode) -> None:
        self.delayed(error)
        self.finish()

    def delayed(self, error: ErrorCode) -> None:
        _answer(self._answer, error_reply(self._request, append_error(error)))


class _TimerWork(_Work):
    __slots__ = ("_timer",)

    def __init__(self, shard: GroupShard, timer: Timer) -> None:
        super().__init__(shard, timer.group_id, partial(shard._coordinator.timer_fired, timer))
        self._timer = timer

    def run(self) -> None:
        if self._timer.key in self._shard._timers:
            # Armed anew while this one waited for its turn: the member was heard of.
            self.finish()
            return
        super().run()

    def failed(self, error: ErrorCode) -> None:
        if self._shard.state is ShardState.ACTIVE:
            self._shard._timers.again(self._timer, TIMER_RETRY_SECONDS)
        self.finish()


class _DeletionWork(_Work):
    """Touches many groups at once, so it holds all of them."""

    __slots__ = ()

    def __init__(self, shard: GroupShard, partitions: frozenset[TopicPartition]) -> None:
        super().__init__(shard, "", partial(shard._coordinator.partitions_deleted, partitions))

    def finish(self) -> None:
        self._shard._locks.release_alone()


def _answer(token: object, reply: Reply) -> None:
    assert isinstance(token, asyncio.Future)
    if not token.done():
        token.set_result(reply)
