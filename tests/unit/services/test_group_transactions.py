"""Positions in transactions (R-CON-5, KIP-447): they count from the commit marker on; an abort drops them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from functools import partial

import pytest

from headrace.groups.events import Event
from headrace.groups.messages import CommitOffsets, OffsetToCommit
from headrace.model.errors import ErrorCode, KafkaError
from headrace.records.batch import TRANSACTIONAL, parse_header
from headrace.records.builder import ProducerStamp
from headrace.records.markers import EndMarker
from headrace.services.groups import shard as shard_module
from headrace.services.groups.answer import Answer
from headrace.services.groups.shard import TransactionalCommit
from headrace.services.shards import ShardState
from headrace.storage.producer_state import VerificationGuard
from tests.unit.services.test_group_shard import NONE, PLACE, World, errors_of

GUARD = VerificationGuard(0, -1, False, 0)


def commit(
    world: World,
    offset: int,
    producer_id: int = 9,
    group: str = "g",
    guard: VerificationGuard | None = GUARD,
    generation: int = -1,
) -> Answer:
    request = CommitOffsets(group, (OffsetToCommit("t", 0, offset),), generation, producer_id=producer_id)
    return world.shard.commit_in_transaction(
        TransactionalCommit(request, ProducerStamp(producer_id, 4, -1), guard)
    )


def end(world: World, committed: bool, producer_id: int = 9) -> object:
    return world.shard.end_transaction(EndMarker(producer_id, 4, committed, 0))


def pending(world: World, group: str = "g") -> bool:
    return world.shard.coordinator().offsets.is_pending(group, PLACE)


@pytest.mark.parametrize("committed", [True, False])
async def test_positions_count_when_the_marker_is_replicated(committed: bool) -> None:
    world = World(follows=False)
    answer = commit(world, 5)
    assert not answer.done()
    world.partition.replicate(1)
    assert errors_of(answer) == (NONE,)
    header = parse_header(world.partition.batches[0])
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 4, -1)
    assert header.attributes == TRANSACTIONAL
    assert (world.stored(), pending(world)) == (None, True)
    ended = world.shard.end_transaction(EndMarker(9, 4, committed, 0))
    assert pending(world), "the marker may still be lost"
    assert not ended.done()
    world.partition.replicate(2)
    assert ended.done()
    assert (world.stored(), pending(world)) == (5 if committed else None, False)
    assert world.reloaded().offsets.of_group("g").keys() == ({PLACE} if committed else set())


async def test_plain_commits_keep_their_place_before_it() -> None:
    world = World()
    plain = world.commit(1)
    transactional = commit(world, 2)
    assert plain.done()
    assert transactional.done()
    end(world, True)
    assert world.stored() == 2
    assert world.reloaded().offsets.get("g", PLACE) == world.shard.coordinator().offsets.get("g", PLACE)


async def test_an_unverified_commit_is_refused_and_leaves_nothing() -> None:
    world = World()
    assert errors_of(commit(world, 5, guard=None)) == (ErrorCode.INVALID_TXN_STATE,)
    assert not pending(world)


async def test_a_zombie_is_fenced_by_its_generation() -> None:
    world = World()
    world.join()
    for _ in range(3):
        world.clock.turn()
        world.clock.advance(0.01)
    assert errors_of(commit(world, 5, generation=7)) == (ErrorCode.UNKNOWN_MEMBER_ID,)
    assert not pending(world)


@pytest.mark.parametrize("state", [ShardState.LOADING, ShardState.RESIGNED, ShardState.FAILED])
async def test_a_shard_that_is_not_in_charge_refuses(state: ShardState) -> None:
    world = World()
    world.shard.state = state
    expected = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if state is ShardState.LOADING else ErrorCode.NOT_COORDINATOR
    assert errors_of(commit(world, 5)) == (expected,)
    with pytest.raises(KafkaError) as error:
        end(world, True)
    assert error.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_marker_that_cannot_be_written_is_told() -> None:
    world = World()
    commit(world, 5)
    world.partition.failure = ErrorCode.NOT_ENOUGH_REPLICAS
    ended = world.shard.end_transaction(EndMarker(9, 4, True, 0))
    error = ended.exception()
    assert isinstance(error, KafkaError)
    assert error.code is ErrorCode.NOT_ENOUGH_REPLICAS
    assert pending(world)


async def test_a_marker_that_is_replicated_too_late_is_applied_all_the_same() -> None:
    world = World(follows=False)
    commit(world, 5)
    world.partition.replicate(1)
    ended = world.shard.end_transaction(EndMarker(9, 4, True, 0))
    world.clock.advance(6)
    error = ended.exception()
    assert isinstance(error, KafkaError)
    assert error.code is ErrorCode.REQUEST_TIMED_OUT
    world.partition.replicate(2)
    assert world.stored() == 5


async def test_a_transaction_that_ends_while_a_group_is_read_anew_is_not_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    commit(world, 5)
    commit(world, 6, group="another")

    async def loading(*_: object) -> AsyncIterator[list[Event]]:
        """The marker comes after the end of what is read."""
        async for events in world.events():
            yield events
        end(world, True)

    monkeypatch.setattr(shard_module, "load_events", loading)
    world.shard.distrust(["g"])
    while world.shard.refusal("g") is not None:
        await asyncio.sleep(0)
    assert (world.stored("g"), pending(world)) == (5, False)
    assert world.stored("another") == 6


@pytest.mark.parametrize("seed", range(20))
async def test_whoever_reads_the_log_knows_the_same(seed: int) -> None:
    """Random commits of all kinds, ends and slow replicas."""
    rng = random.Random(seed)
    world = World(follows=False)
    for number in range(200):
        group, producer_id = rng.choice("abc"), rng.randrange(4)
        rng.choice(
            (
                partial(commit, world, number, producer_id, group),
                partial(world.commit, number, group),
                partial(end, world, rng.random() < 0.6, producer_id),
                partial(world.shard.ask, group),
                world.clock.turn,
                partial(world.partition.replicate, world.partition.log.end_offset),
            )
        )()
    for _ in range(50):  # what waits for its turn at a group too
        world.clock.turn()
        world.partition.replicate(world.partition.log.end_offset)
    living, reloaded = world.shard.coordinator().offsets, world.reloaded().offsets
    for group in "abc":
        assert living.pending_partitions(group) == reloaded.pending_partitions(group)
        assert {at: stored.commit for at, stored in living.of_group(group).items()} == {
            at: stored.commit for at, stored in reloaded.of_group(group).items()
        }
