"""Commits of members in good standing, the short way: stored, applied, answered and refused like all others."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace.groups.messages import OffsetToCommit
from headrace.model.errors import ErrorCode
from headrace.model.topics import TopicPartition
from headrace.services.groups import quick_commit, writer
from headrace.services.groups import shard as shard_module
from headrace.services.groups.quick_commit import QuickCommit
from tests.unit.services.test_group_shard import World, beat, member_of

NONE = ErrorCode.NONE
PLACE = TopicPartition("t", 0)


def answer_of(error: ErrorCode) -> bytes:
    return error.name.encode()


def commit(world: World, member: str, generation: int, offset: int) -> QuickCommit:
    found = world.shard.quick_commit(
        ("g", generation, member, None), 9, [OffsetToCommit("t", 0, offset)], answer_of
    )
    assert found is not None
    return found


async def test_it_is_answered_and_seen_when_it_is_stored() -> None:
    world = World()
    member, generation = await member_of(world)
    world.partition._follows = False
    first, second = (commit(world, member, generation, offset) for offset in (1, 2))
    world.clock.turn()
    assert not first.done
    assert world.stored() is None
    join = world.join()
    assert not join.done(), "who wants to change the group waits for them"
    assert world.shard.quick_commit(("g", generation, member, None), 9, [], answer_of) is None, "after the join"
    world.partition._follows = True
    world.partition.replicate(world.partition.log.end_offset)
    assert (first.body, second.body, world.stored()) == (b"NONE", b"NONE", 2)
    found = world.reloaded().offsets.get("g", PLACE)
    assert found is not None
    assert found.offset == 2


async def test_those_of_one_turn_are_one_batch_as_far_as_it_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    member, generation = await member_of(world)
    ends = []
    for count, limit in ((3, 65_536), (3, 200), (1, 1)):
        monkeypatch.setattr(quick_commit, "MAX_BYTES", limit)
        before = len(world.partition.batches)
        found = [commit(world, member, generation, offset) for offset in range(count)]
        world.clock.turn()
        assert {one.body for one in found} == {b"NONE"}
        ends.append((len(world.partition.batches) - before, world.stored()))
    assert ends == [(1, 2), (2, 2), (1, 0)]
    assert not world.shard._locks._locks, "nobody holds the group"


async def test_it_keeps_its_member_alive() -> None:
    world = World()
    member, generation = await member_of(world)
    for offset in range(5):
        world.clock.advance(9)
        commit(world, member, generation, offset)
        world.clock.turn()
    assert beat(world, member, generation) is NONE
    world.clock.advance(11)
    world.clock.turn()
    assert beat(world, member, generation) is ErrorCode.UNKNOWN_MEMBER_ID


async def test_what_is_not_usual_has_to_be_asked() -> None:
    world = World()
    member, generation = await member_of(world)
    usual = [OffsetToCommit("t", 0, 1)]
    too_long = [OffsetToCommit("t", 0, 1, metadata="x" * 5000)]
    for asked, offsets in (
        (("none", generation, member, None), usual),
        (("g", generation + 1, member, None), usual),
        (("g", generation, "nobody", None), usual),
        (("g", generation, member, "seat"), usual),
        (("g", generation, member, None), too_long),
    ):
        assert world.shard.quick_commit(asked, 9, offsets, answer_of) is None, asked
    world.join()
    world.clock.turn()
    assert world.shard.quick_commit(("g", generation, member, None), 9, usual, answer_of) is not None, (
        "members commit before they join again"
    )
    world.shard.resign()
    assert world.shard.quick_commit(("g", generation, member, None), 9, usual, answer_of) is None


async def test_a_failed_append_is_told_and_lets_the_next_one_go() -> None:
    world = World()
    member, generation = await member_of(world)
    world.partition.failure = ErrorCode.NOT_ENOUGH_REPLICAS
    failed = commit(world, member, generation, 1)
    world.clock.turn()
    assert failed.body == b"COORDINATOR_NOT_AVAILABLE"
    world.partition.failure = None
    later = commit(world, member, generation, 2)
    world.clock.turn()
    assert (later.body, world.stored()) == (b"NONE", 2)
    assert not world.shard._locks._locks, "nobody holds the group"


async def test_nobody_waits_for_ever_and_what_happens_is_applied() -> None:
    world = World()
    member, generation = await member_of(world)
    world.partition._follows = False
    late, gone = commit(world, member, generation, 1), commit(world, member, generation, 2)
    gone.cancel()
    world.clock.turn()
    world.clock.advance(6)
    assert late.body == b"COORDINATOR_NOT_AVAILABLE"
    assert world.stored() is None
    world.partition.replicate(world.partition.log.end_offset)
    assert world.stored() == 2
    assert late.body == b"COORDINATOR_NOT_AVAILABLE"


async def test_resigning_answers_it() -> None:
    world = World()
    member, generation = await member_of(world)
    world.partition._follows = False
    waiting = commit(world, member, generation, 1)
    world.clock.turn()
    queued = commit(world, member, generation, 2)
    world.partition.is_leader = False
    world.shard.resign()
    assert (waiting.body, queued.body) == (b"NOT_COORDINATOR", b"NOT_COORDINATOR")


async def test_our_own_faults_end_one_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """In encoding, in answering, and in applying, after which the group is read anew."""
    world = World()
    monkeypatch.setattr(shard_module, "load_events", world.events)
    member, generation = await member_of(world)
    with monkeypatch.context() as broken:
        broken.setattr(writer, "encode", _raise)
        failed = commit(world, member, generation, 1)
    assert failed.body == b"UNKNOWN_SERVER_ERROR"
    unanswerable = commit(world, member, generation, 2)
    unanswerable.answer_of = _raise
    sharing = commit(world, member, generation, 3)
    world.clock.turn()
    with pytest.raises(AssertionError):
        unanswerable.result()
    assert (sharing.body, world.stored()) == (b"NONE", 3)
    with monkeypatch.context() as broken:
        broken.setattr(world.shard._coordinator, "apply_commits", _raise)
        lost = commit(world, member, generation, 4)
        world.clock.turn()
    assert lost.body == b"UNKNOWN_SERVER_ERROR"
    waiting = world.commit(5, generation=generation, member_id=member)
    while not waiting.done():
        await asyncio.sleep(0)
        world.clock.turn()
    assert world.stored() == 5


def _raise(*_: object) -> Any:
    raise AssertionError("our bug")
