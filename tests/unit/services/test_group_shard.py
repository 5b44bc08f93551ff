"""R-CON-3: a shard under slow replicas, failing appends and lost leadership, by hand and at random.

Whatever happens: every request is answered once, what was acknowledged is in the log, and a coordinator that reads
the log knows what the living one knows.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from functools import partial
from itertools import count
from typing import cast

import pytest

from headrace.config.broker_config import BrokerConfig
from headrace.env import Env
from headrace.env.real import real_env
from headrace.groups import classic_requests, offset_requests
from headrace.groups.coordinator import GroupCoordinator
from headrace.groups.events import ClassicProtocol, Event, group_of
from headrace.groups.messages import (
    CommitOffsets,
    CommitReply,
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
    DeleteGroupReply,
    GroupReply,
    Heartbeat,
    HeartbeatReply,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    Leaver,
    OffsetToCommit,
    SyncGroup,
    SyncReply,
)
from headrace.groups.settings import GroupSettings
from headrace.groups.topics import TopicsView
from headrace.metadata.image import MetadataImage
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicPartition
from headrace.replication.partition import Partition
from headrace.services.groups import shard as shard_module
from headrace.services.groups import writer
from headrace.services.groups.answer import Answer
from headrace.services.groups.early_commits import PATIENCE_SECONDS
from headrace.services.groups.records import decode_batch
from headrace.services.groups.settings import GroupConfigsFeed, ShellSettings
from headrace.services.groups.shard import GroupShard
from headrace.services.groups.topics import TopicsFeed
from headrace.services.shards import ShardState
from tests.unit.services.fakes import FakeClock, FakePartition

SETTINGS = GroupSettings(initial_rebalance_delay_ms=0, min_session_timeout_ms=100)
PLACE = TopicPartition("t", 0)
NONE = ErrorCode.NONE


class World:
    def __init__(self, follows: bool = True, start: bool = True) -> None:
        self.clock = FakeClock()
        self.image = MetadataImage("")
        self.partition = FakePartition(follows)
        self._ids = count()
        real = real_env()
        env = Env(self.clock, real.disk, real.rng, real.start_blocking)
        self.shard = GroupShard(
            env,
            cast(Partition, self.partition),
            self.new_coordinator(),
            ShellSettings(codec=0, commit_timeout_ms=5_000, load_buffer_bytes=1_000),
            TopicsFeed(lambda: self.image),
            GroupConfigsFeed(BrokerConfig.build(), lambda: self.image),
            asyncio.Semaphore(1),
        )
        if start:
            self.shard.start()

    async def events(self, *_: object) -> AsyncIterator[list[Event]]:
        """All that is in the log."""
        for batch in self.partition.batches:
            yield list(decode_batch(memoryview(batch)))

    def new_coordinator(self) -> GroupCoordinator:
        return GroupCoordinator(SETTINGS, TopicsView(), lambda: f"id{next(self._ids)}")

    def commit(self, offset: int, group: str = "g", **values: object) -> Answer:
        return self.shard.ask(CommitOffsets(group, (OffsetToCommit("t", 0, offset),), **values))  # type: ignore[arg-type]

    def join(self, member: str = "", group: str = "g") -> Answer:
        protocols = (ClassicProtocol("range", b""),)
        return self.shard.ask(JoinGroup(group, member, "consumer", protocols, 10_000, 10_000, version=3))

    def stored(self, group: str = "g") -> int | None:
        commit = self.shard.coordinator().offsets.get(group, PLACE)
        return None if commit is None else commit.offset

    def reloaded(self, batches: int | None = None) -> GroupCoordinator:
        """What a coordinator knows that finds only the log."""
        coordinator = self.new_coordinator()
        for batch in self.partition.batches[:batches]:
            coordinator.apply_all(decode_batch(memoryview(batch)))
        return coordinator


def reply_of(answer: Answer) -> GroupReply:
    assert answer.done()
    return answer.result()


def errors_of(answer: Answer) -> tuple[ErrorCode, ...]:
    reply = reply_of(answer)
    assert isinstance(reply, CommitReply)
    return reply.errors


async def test_a_commit_is_seen_when_it_is_acknowledged_and_not_before() -> None:
    world = World(follows=False)
    first, second = world.commit(1), world.commit(2)
    world.clock.turn()
    assert not first.done()
    assert world.stored() is None
    world.partition.replicate(2)
    assert (errors_of(first), errors_of(second), world.stored()) == ((NONE,), (NONE,), 2)


async def test_a_join_waits_for_the_commits_before_it() -> None:
    """Decided on a state that is about to change, it would be wrong."""
    world = World(follows=False)
    commit = world.commit(1)
    join = world.join()
    other = world.join(group="another")
    later = world.commit(2)
    world.clock.turn()
    assert not join.done()
    world.partition.replicate(world.partition.log.end_offset)
    world.clock.turn()
    assert commit.done()
    while not (later.done() and join.done() and other.done()):
        world.clock.turn()
        world.clock.advance(0.01)
        world.partition.replicate(world.partition.log.end_offset)
    joined = reply_of(join)
    assert isinstance(joined, JoinReply)
    assert joined.error is NONE
    assert errors_of(later) == (ErrorCode.UNKNOWN_MEMBER_ID,), "by then the group has a member"


async def test_nobody_waits_for_ever_and_what_happens_is_applied() -> None:
    world = World(follows=False)
    commit = world.commit(1)
    world.clock.turn()
    world.clock.advance(6)
    assert errors_of(commit) == (ErrorCode.COORDINATOR_NOT_AVAILABLE,)
    assert world.stored() is None
    world.partition.replicate(1)
    assert world.stored() == 1


async def test_a_failed_append_lets_the_next_one_go() -> None:
    world = World()
    world.partition.failure = ErrorCode.NOT_ENOUGH_REPLICAS
    failed, join = world.commit(1), world.join()
    world.clock.turn()
    assert errors_of(failed) == (ErrorCode.COORDINATOR_NOT_AVAILABLE,)
    world.clock.turn()
    refused = reply_of(join)
    assert isinstance(refused, JoinReply)
    assert refused.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.partition.failure = None
    commit = world.commit(2)
    world.clock.turn()
    assert (errors_of(commit), world.stored()) == ((NONE,), 2)


async def member_of(world: World) -> tuple[str, int]:
    """A stable group of one."""
    join = world.join()
    while not join.done():
        world.clock.turn()
        world.clock.advance(0.01)
    joined = reply_of(join)
    assert isinstance(joined, JoinReply)
    sync = world.shard.ask(
        SyncGroup("g", joined.generation, joined.member_id, assignments=((joined.member_id, b"all"),))
    )
    world.clock.turn()
    synced = reply_of(sync)
    assert isinstance(synced, SyncReply)
    assert (synced.error, synced.assignment) == (NONE, b"all")
    return joined.member_id, joined.generation


def beat(world: World, member: str, generation: int) -> ErrorCode:
    reply = reply_of(world.shard.ask(Heartbeat("g", generation, member)))
    assert isinstance(reply, HeartbeatReply)
    return reply.error


async def test_sessions_end_and_heartbeats_prolong_them() -> None:
    world = World()
    member, generation = await member_of(world)
    for _ in range(5):
        world.clock.advance(9)
        assert beat(world, member, generation) is NONE
    world.clock.advance(11)
    world.clock.turn()
    assert beat(world, member, generation) is ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_session_that_cannot_be_ended_is_ended_later() -> None:
    """The record of the empty group cannot be stored: the timer fires again."""
    world = World()
    member, generation = await member_of(world)
    world.partition.failure = ErrorCode.NOT_ENOUGH_REPLICAS
    world.clock.advance(11)
    world.clock.turn()
    world.partition.failure = None
    world.clock.advance(2)
    world.clock.turn()
    assert beat(world, member, generation) is ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_heartbeat_that_waited_saves_the_member() -> None:
    """The session ends while a commit is on its way; the heartbeat came first, so the end is void."""
    world = World()
    member, generation = await member_of(world)
    world.partition._follows = False
    world.commit(1, generation=generation, member_id=member)
    world.clock.turn()
    world.clock.advance(9)
    waiting = world.shard.ask(Heartbeat("g", generation, member))
    world.clock.advance(2)
    assert not waiting.done()
    world.partition._follows = True
    world.partition.replicate(world.partition.log.end_offset)
    world.clock.turn()
    assert waiting.done()
    assert beat(world, member, generation) is NONE


async def test_resigning_answers_everybody() -> None:
    world = World(follows=False)
    answers = [world.commit(1), world.join(), world.commit(2), world.join(group="h")]
    world.clock.turn()
    queued = world.commit(3, group="i")
    world.partition.is_leader = False
    world.shard.resign()
    for answer in (*answers, queued):
        reply = reply_of(answer)
        error = reply.errors[0] if isinstance(reply, CommitReply) else cast(JoinReply, reply).error
        assert error is ErrorCode.NOT_COORDINATOR
    world.clock.turn()
    world.clock.advance(100)
    assert errors_of(world.commit(4)) == (ErrorCode.NOT_COORDINATOR,)


@pytest.mark.parametrize("seed", range(40))
async def test_at_random(seed: int) -> None:
    rng = random.Random(seed)
    world = World(follows=False)
    answers: list[tuple[str, int, Answer]] = []
    acknowledged: dict[str, int] = {}
    members: dict[str, str] = {}
    for step in range(300):
        group = rng.choice("abc")
        match rng.randrange(10):
            case 0 | 1 | 2 | 3:
                generation = -1
                if group in members and (live := world.shard.coordinator().group(group)) is not None:
                    generation = getattr(live, "generation", -1)
                answer = world.commit(step, group, generation=generation, member_id=members.get(group, ""))
                answers.append((group, step, answer))
            case 4:
                join = world.join(members.get(group, ""), group)
                if join.done():
                    _note_member(members, group, join.result())
                else:
                    join.then(partial(_note_member, members, group))
                answers.append((group, -1, join))
            case 5 if group in members:
                left = world.shard.ask(LeaveGroup(group, (Leaver(members.pop(group)),)))
                answers.append((group, -1, left))
            case 6:
                world.partition.failure = ErrorCode.NOT_ENOUGH_REPLICAS if rng.random() < 0.3 else None
            case 7 | 8:
                end = world.partition.log.end_offset
                world.partition.replicate(rng.randint(world.partition.high_watermark, end))
            case _:
                world.clock.advance(rng.choice((0.01, 1, 7)))
        world.clock.turn()
        await asyncio.sleep(0)
        _note_acknowledged(answers, acknowledged)
        for group, offset in acknowledged.items():
            known = world.stored(group)
            assert known is not None, "acknowledged, and not known"
            assert known >= offset
    world.partition.failure = None
    for _ in range(20):
        world.partition.replicate(world.partition.log.end_offset)
        world.clock.turn()
    _check_log(world)
    world.shard.resign()
    assert all(answer.done() for _, _, answer in answers)


def _note_member(members: dict[str, str], group: str, reply: GroupReply) -> None:
    if isinstance(reply, JoinReply) and reply.error is NONE:
        members[group] = reply.member_id


def _note_acknowledged(answers: list[tuple[str, int, Answer]], acknowledged: dict[str, int]) -> None:
    for group, offset, answer in answers:
        if offset >= 0 and answer.done() and answer.result() == CommitReply((NONE,)):
            acknowledged[group] = max(offset, acknowledged.get(group, -1))


def _check_log(world: World) -> None:
    """The living coordinator and one that reads the log agree on every position and generation."""
    live, found = world.shard.coordinator(), world.reloaded()
    for group in "abc":
        ours, theirs = live.offsets.get(group, PLACE), found.offsets.get(group, PLACE)
        assert (ours and ours.offset) == (theirs and theirs.offset)


async def test_a_decision_that_raises_ends_with_an_error_and_the_group_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = World()
    with monkeypatch.context() as broken:
        broken.setattr(offset_requests, "decide_commit", _raise)
        failed = world.commit(1)
        assert errors_of(failed) == (ErrorCode.UNKNOWN_SERVER_ERROR,)
    assert [record.exc_info is not None for record in caplog.records] == [True], "told once, with the traceback"
    later, join = world.commit(2), world.join()
    world.clock.turn()
    assert (errors_of(later), world.stored()) == ((NONE,), 2)
    while not join.done():
        world.clock.turn()
        world.clock.advance(0.01)
    assert cast(JoinReply, reply_of(join)).error is NONE


async def test_records_that_cannot_be_written_fail_one_request_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    sharing = world.commit(1, group="other")
    with monkeypatch.context() as broken:
        broken.setattr(writer, "encode", _raise)
        failed = world.commit(1)
    later = world.commit(2)
    world.clock.turn()
    outcomes = [errors_of(answer) for answer in (sharing, failed, later)]
    assert outcomes == [(NONE,), (ErrorCode.UNKNOWN_SERVER_ERROR,), (NONE,)]


async def test_a_timer_whose_decision_raises_fires_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    member, generation = await member_of(world)
    with monkeypatch.context() as broken:
        broken.setattr(classic_requests, "decide_timer", _raise)
        world.clock.advance(11)
    world.clock.advance(60)
    world.clock.turn()
    assert beat(world, member, generation) is ErrorCode.UNKNOWN_MEMBER_ID


class OnlyOnce:
    """Raises when a group's event is applied for the first time, half way."""

    def __init__(self, coordinator: GroupCoordinator, group: str) -> None:
        self._apply = coordinator.apply
        self._group = group
        self.raised = False
        coordinator.apply = self  # type: ignore[method-assign]

    def __call__(self, event: Event) -> None:
        self._apply(event)
        if group_of(event) == self._group and not self.raised:
            self.raised = True
            raise AssertionError("our bug")


async def test_a_group_whose_state_is_in_doubt_is_read_anew_from_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = World()
    monkeypatch.setattr(shard_module, "load_events", world.events)
    member, generation = await member_of(world)
    parked = world.join()
    assert not parked.done()
    world.commit(1, group="other")
    world.clock.turn()
    caplog.clear()
    OnlyOnce(world.shard._coordinator, "g")
    failed = world.commit(3, generation=generation, member_id=member)
    world.clock.turn()
    assert errors_of(failed) == (ErrorCode.UNKNOWN_SERVER_ERROR,)
    waiting = world.commit(4, generation=generation, member_id=member)
    assert not waiting.done()
    with pytest.raises(KafkaError, match="COORDINATOR_LOAD_IN_PROGRESS"):
        world.shard.coordinator("g")
    other = world.commit(2, group="other")
    world.clock.turn()
    assert errors_of(other) == (NONE,), "the others do not notice"
    while not waiting.done():
        await asyncio.sleep(0)
        world.clock.turn()
    assert cast(JoinReply, reply_of(parked)).error is ErrorCode.NOT_COORDINATOR, "it has to ask again"
    assert (errors_of(waiting), world.stored()) == ((NONE,), 4)
    assert beat(world, member, generation) is NONE
    world.clock.advance(11)
    world.clock.turn()
    assert beat(world, member, generation) is ErrorCode.UNKNOWN_MEMBER_ID, "its session has a timer again"
    assert sum(record.exc_info is not None for record in caplog.records) == 1


async def test_a_group_that_cannot_be_loaded_is_refused_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    before = World()
    before.commit(1)
    before.commit(2, group="other")
    before.clock.turn()
    monkeypatch.setattr(shard_module, "load_events", before.events)
    world = World(start=False)
    world.partition.log.end_offset = 2
    OnlyOnce(world.shard._coordinator, "g")
    world.shard.start()
    while world.shard.state is ShardState.LOADING:
        await asyncio.sleep(0)
    refused, other = world.commit(3), world.commit(4, group="other")
    world.clock.turn()
    assert errors_of(refused) == (ErrorCode.UNKNOWN_SERVER_ERROR,)
    assert errors_of(other) == (NONE,)


async def test_a_commit_that_comes_while_it_loads_waits_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by a rolling restart: librdkafka gives a commit up after some tries, and its application fails."""
    before = World()
    before.commit(1)
    before.clock.turn()
    monkeypatch.setattr(shard_module, "load_events", before.events)
    world = World(start=False)
    world.partition.log.end_offset = 1
    world.shard.start()
    late = world.commit(2)
    world.clock.advance(PATIENCE_SECONDS - 0.1)
    world.clock.turn()
    assert not late.done()
    world.clock.advance(0.2)
    world.clock.turn()
    assert errors_of(late) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,)
    early = world.commit(3)
    while world.shard.state is ShardState.LOADING:
        await asyncio.sleep(0)
    world.clock.turn()
    assert (errors_of(early), world.stored()) == ((NONE,), 3)


async def test_a_heartbeat_that_comes_while_it_loads_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Kafka does. Found by a rolling restart: to aiokafka a refusal is the end of its membership."""
    monkeypatch.setattr(shard_module, "load_events", World().events)
    world = World(start=False)
    world.partition.log.end_offset = 1
    world.shard.start()
    assert beat(world, "somebody", 3) is NONE


async def test_a_commit_that_waits_is_sent_on_when_it_resigns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_module, "load_events", World().events)
    world = World(start=False)
    world.partition.log.end_offset = 1
    world.shard.start()
    waits = world.commit(2)
    world.shard.resign()
    assert errors_of(waits) == (ErrorCode.NOT_COORDINATOR,)


def _raise(*_: object, **__: object) -> None:
    raise AssertionError("our bug")


async def test_a_deleted_group_is_gone_from_the_log_too() -> None:
    world = World()
    world.commit(1)
    world.clock.turn()
    deleted = world.shard.ask("g")
    world.clock.turn()
    assert reply_of(deleted) == DeleteGroupReply(NONE)
    assert world.reloaded().group_ids() == ()


def consumer_beat(world: World, epoch: int) -> ConsumerHeartbeatReply:
    answer = world.shard.ask(
        ConsumerHeartbeat("g", "m", epoch, rebalance_timeout_ms=60_000, topics=("t",), owned={})
        if epoch == 0
        else ConsumerHeartbeat("g", "m", epoch)
    )
    world.clock.turn()
    reply = reply_of(answer)
    assert isinstance(reply, ConsumerHeartbeatReply)
    return reply


async def test_a_consumer_group_has_settings_of_its_own() -> None:
    """They hold from the next heartbeat on, and go back to the broker's when they are taken away."""
    world = World()
    joined = consumer_beat(world, 0)
    assert (joined.error, joined.heartbeat_interval_ms) == (NONE, 5_000)
    own = {"consumer.session.timeout.ms": "55000", "consumer.heartbeat.interval.ms": "7000"}
    world.image = MetadataImage("", group_configs={"g": own})
    assert consumer_beat(world, joined.member_epoch).heartbeat_interval_ms == 7_000
    world.clock.advance(50)
    assert consumer_beat(world, joined.member_epoch).error is NONE, "the broker's 45 s are not its session"
    world.image = MetadataImage("")
    assert consumer_beat(world, joined.member_epoch).heartbeat_interval_ms == 5_000
    world.clock.advance(50)
    world.clock.turn()
    assert consumer_beat(world, joined.member_epoch).error is ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_coordinator_that_may_be_replaced_tells_no_positions() -> None:
    """Without its lease it cannot know what was committed with its successor."""
    world = World()
    assert world.shard.coordinator("g") is not None
    world.partition.surely_leads = False
    with pytest.raises(KafkaError) as refused:
        world.shard.coordinator("g")
    assert refused.value.code is ErrorCode.NOT_COORDINATOR
    assert world.shard.coordinator() is not None, "figures of all groups are told"
