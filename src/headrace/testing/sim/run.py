"""One run: a cluster, its clients, a schedule of faults, a quiet phase in which all heals, and the verdict."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from headrace.model.topics import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition
from headrace.testing.sim.brokers import Machine
from headrace.testing.sim.checks import Checks
from headrace.testing.sim.clients import ACKS_LEADER, Administrator, Known, Producer, Reader, SimClient
from headrace.testing.sim.faults import Faults
from headrace.testing.sim.history import History
from headrace.testing.sim.loop import SimulationStuck
from headrace.testing.sim.members import ClassicMember, ConsumerMember, GroupMember
from headrace.testing.sim.movers import Mover
from headrace.testing.sim.transactors import Ledger, Transactor
from headrace.testing.sim.trimmers import TRIMMED, TURNED, KeyedProducer, TrimmedReader, Trimmer
from headrace.testing.sim.world import LogLines, Violation, World

T = TypeVar("T")

SETTINGS = {
    "log.cleaner.backoff.ms": "1000",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "default.replication.factor": "3",
    "offsets.topic.num.partitions": "2",
    "log.roll.ms": "4000",
    "transaction.state.log.num.partitions": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "3000",
    "group.initial.rebalance.delay.ms": "100",
}
DELETION_SETTINGS = {
    "log.retention.ms": "-1",
    "log.retention.check.interval.ms": "1000",
    "log.flush.offset.checkpoint.interval.ms": "4000",
}
"""Where records are deleted besides; other topics keep theirs, whose time is 0."""
DELETIONS_CHANCE = 0.5
ALONE_CHANCE = 0.25
"""That one replica in sync is enough to commit."""
INTERNAL = [
    TopicPartition(topic, index) for topic in (CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC) for index in (0, 1)
]
_KEPT: list[World] = []
"""Worlds of this process: what killed brokers left in the middle of something is not taken apart."""
HEALING_SECONDS = 60.0
ALIKE_ATTEMPTS = 20
MAX_VIOLATIONS = 5
"""After so many a run ends: the first ones tell."""


@dataclass
class SeedResult:
    seed: int
    violations: list[str]
    counts: dict[str, int] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    digest: int = 0
    virtual_seconds: float = 0.0
    turns: int = 0


@dataclass(frozen=True, slots=True)
class Given:
    """What a run does not draw from its seed."""

    faults: Sequence[str] | None = None
    """Their kinds."""
    deletions: bool | None = None
    """Whether there are topics besides whose records are deleted, and whose settings change (`trimmers`)."""
    min_in_sync: int | None = None


ALL_DRAWN = Given()


def run_seed(seed: int, tell: Callable[[str], None] | None = None, given: Given = ALL_DRAWN) -> SeedResult:
    """Everything that happens is decided by the seed, and by what is given."""
    world = World(seed, tell)
    _KEPT.append(world)
    logger = logging.getLogger("headrace")
    handler = LogLines(world)
    level, propagates = logger.level, logger.propagate
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.addHandler(handler)
    collecting = gc.isenabled()
    gc.disable()  # what dead brokers leave must not be finished off in the middle of the others
    try:
        _run(world, given)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagates
        if collecting:
            gc.enable()
    return SeedResult(
        seed,
        world.violations,
        dict(sorted(world.counts.items())),
        list(world.lines),
        world.network.digest,
        world.loop.time(),
        world.loop.turns,
    )


def _run(world: World, given: Given) -> None:
    scenario = Scenario(world, given)
    asyncio.set_event_loop(world.loop)
    try:
        world.loop.run_until_complete(scenario.play())
    except SimulationStuck as stuck:
        world.violated(str(stuck))
    except Violation:
        pass
    finally:
        for task in asyncio.all_tasks(world.loop):
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # killed processes end nothing
        asyncio.set_event_loop(None)


class Scenario:
    def __init__(self, world: World, given: Given) -> None:
        self._world = world
        rng = self._rng = world.fork()
        self._seconds = rng.uniform(10.0, 25.0)
        world.store.latency = rng.uniform(0.0, 0.01)
        world.store.jitter = rng.uniform(0.0, 0.01)
        world.store.watch_delay = rng.uniform(0.0, 0.05)
        world.network.mean_delay = rng.uniform(0.0001, 0.003)
        world.slow_disks = rng.random() < 0.3
        count = rng.choice((3, 3, 3, 4, 5))
        drawn = rng.random() < DELETIONS_CHANCE
        deletions = self._deletions = drawn if given.deletions is None else given.deletions
        min_in_sync = 1 if rng.random() < ALONE_CHANCE else 2
        settings = SETTINGS | {"min.insync.replicas": str(given.min_in_sync or min_in_sync)}
        if deletions:
            settings |= DELETION_SETTINGS
        self._machines = [Machine(world, number, settings) for number in range(1, count + 1)]
        self._checks = Checks(world, world.store, self._machines)
        self._checks.ledger.trimmed = frozenset({TRIMMED, TURNED})
        self._checks.ledger.compacted = frozenset({TURNED})
        self._history = History(world, self._checks.ledger)
        for machine in self._machines:
            machine.before_death = self._checks.look
        self._places = [TopicPartition("orders", 0), TopicPartition("orders", 1)]
        self._moves = [TopicPartition("moves", 0), TopicPartition("moves", 1)]
        """Where transactions are written."""
        self._trims = [TopicPartition(TRIMMED, 0), TopicPartition(TRIMMED, 1)] if deletions else []
        self._turns = [TopicPartition(TURNED, 0)] if deletions else []
        """Where records are deleted."""
        self._faults = Faults(world, self._machines, given.faults)

    async def play(self) -> None:
        world, client = self._world, Known(self._machines, self._checks, self._history, self._places)
        for machine in self._machines:
            machine.start()
        world.loop.look = self._look
        admin = Administrator(world, "admin", client)
        await self._inside(admin, admin.create("orders", 2))
        await self._inside(admin, admin.create("moves", len(self._moves)))
        if self._deletions:
            await self._inside(admin, admin.create(TRIMMED, len(self._trims), segment_ms="1000"))
            await self._inside(admin, admin.create(TURNED, len(self._turns), segment_ms="1000"))
        producers = [Producer(world, f"safe{number}", client) for number in range(2)]
        lossy = Producer(world, "lossy", client)
        lossy.acks = ACKS_LEADER
        readers = [Reader(world, f"reader{number}", client) for number in range(2)]
        members = [
            kind(world, f"{name}{number}", client, name, place)
            for name, kind in (("classic", ClassicMember), ("consumer", ConsumerMember))
            for number, place in enumerate(self._places)
        ]
        transactions = Ledger()
        moving = replace(client, places=self._moves)
        transactors = [
            Transactor(world, f"transactor{number}", moving, transactions, second=number < 2)
            for number in range(3)
        ]
        everywhere = [*self._places, *self._moves, *self._trims, *self._turns, *INTERNAL]
        mover = Mover(world, "mover", client, everywhere)
        self._faults.move = mover.move
        clients: list[SimClient] = [*producers, lossy, *readers, admin, *members, *transactors, mover]
        if self._deletions:
            clients += self._begin_deletions(client)
        for one in clients:
            one.begin()
        await self._faults.run(self._seconds, [one.name for one in clients])
        self._faults.heal()
        await asyncio.sleep(1.0)
        for one in clients:
            one.stopping = True
        await self._until_done(clients)
        await self._until_healed()
        await self._judge(readers[0], members)
        if self._deletions:
            await self._judge_trimmed()
        await self._judge_transactions(transactors, transactions)

    def _look(self) -> None:
        self._checks.look()
        if len(self._world.violations) >= MAX_VIOLATIONS:
            raise Violation

    async def _inside(self, client: SimClient, work: Coroutine[Any, Any, T]) -> T:
        return await self._world.loop.create_task(work, context=client.process.context)

    async def _until_done(self, clients: Sequence[SimClient]) -> None:
        tasks = [one.task for one in clients if one.task is not None]
        done, pending = await asyncio.wait(tasks, timeout=HEALING_SECONDS)
        for task in done:
            task.result()
        if pending:
            self._checks.describe()
            names = [one.name for one in clients if one.task in pending]
            self._world.violated(f"after all faults were over, {names} could not finish")
            raise Violation

    async def _until_healed(self) -> None:
        problems: list[str] = []
        for _ in range(int(HEALING_SECONDS * 2)):
            problems = self._checks.unhealed()
            if not problems:
                break
            await asyncio.sleep(0.5)
        else:
            self._checks.describe()
            self._world.violated(f"not healed {HEALING_SECONDS} s after the faults: {problems}")
            raise Violation
        await asyncio.sleep(3.0)

    async def _until_alike(self) -> None:
        """All replicas end where what is committed ends."""
        for _ in range(ALIKE_ATTEMPTS):
            if not self._checks.differing():
                return
            await asyncio.sleep(0.5)
        for problem in self._checks.differing():
            self._world.violated(problem)

    async def _judge(self, reader: Reader, members: Sequence[GroupMember]) -> None:
        await self._until_alike()
        self._checks.compare_replicas()
        for place in self._places:
            committed = self._checks.ledger.by_name(place)
            assert committed is not None
            found = await self._inside(reader, reader.read_all(place, committed.end_offset))
            self._history.judge(place, found)
        for member in members:
            if self._history.commits_of(member.group, member.place).acknowledged >= 0:
                offset = await self._inside(member, member.committed())
                self._history.committed_offset_is(member.group, member.place, offset)

    def _begin_deletions(self, client: Known) -> list[SimClient]:
        world = self._world
        trims, turns = replace(client, places=self._trims), replace(client, places=self._turns)
        self._trimmer = Trimmer(world, "trimmer", trims, self._checks.deletions)
        self._late = TrimmedReader(world, "late", trims)
        keyed = [KeyedProducer(world, "trimmed", trims), KeyedProducer(world, "turned", turns)]
        return [*keyed, self._late, self._trimmer]

    async def _judge_trimmed(self) -> None:
        reader = self._late
        for place in self._trims:
            committed = self._checks.ledger.by_name(place)
            assert committed is not None
            start, found = await self._inside(reader, reader.read_rest(place, committed.end_offset))
            self._history.judge_trimmed(place, start, found)
        for place in (self._trims[0], self._turns[0]):
            held = [(machine.id, machine.partition(place)) for machine in self._machines]
            configs = {broker: partition.log.config for broker, partition in held if partition is not None}
            self._trimmer.check_settings(place.topic, configs)

    async def _judge_transactions(self, transactors: Sequence[Transactor], transactions: Ledger) -> None:
        found, reader = {}, transactors[0]
        for place in self._moves:
            committed = self._checks.ledger.by_name(place)
            assert committed is not None
            found[place] = await self._inside(reader, reader.read_committed(place, committed.end_offset))
        transactions.judge(self._world, found)
        for transactor in transactors:
            await self._inside(transactor, transactor.check_position(found))
