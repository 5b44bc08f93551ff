"""A client that moves partitions to other brokers, to more or to fewer of them, and redirects its moves."""

from __future__ import annotations

import asyncio

from headrace.client.reassigning import alter_reassignments
from headrace.model.errors import KafkaError
from headrace.model.topics import TopicPartition
from headrace.testing.sim.clients import FAILURES, Known, SimClient
from headrace.testing.sim.world import World

REPLICAS = 3
FEWER_REPLICAS = 2
CANCEL_CHANCE = 0.15
FEWER_CHANCE = 0.3
LOOK_SECONDS = 0.5


class Mover(SimClient):
    """Starts moves, each as a fault of the schedule: it begins while others are under way."""

    def __init__(self, world: World, name: str, known: Known, places: list[TopicPartition]) -> None:
        super().__init__(world, name, known)
        self._brokers = [machine.id for machine in known.machines]
        self._all_places = places
        self._touched: set[TopicPartition] = set()

    def move(self) -> None:
        """Request one move, whatever becomes of it."""
        if not self.stopping:
            self.world.loop.create_task(self._move(), context=self.process.context)

    async def _move(self) -> None:
        place = self.rng.choice(self._all_places)
        target = None if self.rng.random() < CANCEL_CHANCE else self._target(place)
        self.world.say(f"{self.name}: {place} to {target}")
        await self._ask(place, target)

    def _target(self, place: TopicPartition) -> list[int]:
        """Random brokers as a target. Partitions of the brokers' own topics keep the full number of replicas."""
        fewer = not place.topic.startswith("__") and self.rng.random() < FEWER_CHANCE
        return self.rng.sample(self._brokers, FEWER_REPLICAS if fewer else REPLICAS)

    async def _ask(self, place: TopicPartition, target: list[int] | None) -> bool:
        """Request a move; returns whether it was accepted."""
        self._touched.add(place)
        try:
            outcome = (await alter_reassignments(self.cluster, {place: target}))[place]
        except FAILURES:
            await self.leave_entry()
            outcome = None
        refused = isinstance(outcome, KafkaError)
        self.world.count(f"move {outcome.code.name}" if isinstance(outcome, KafkaError) else "moves")
        return not refused

    async def run(self) -> None:
        """Wait, and in the end give every partition its three replicas again."""
        while not self.stopping:
            await asyncio.sleep(LOOK_SECONDS)
        for place in sorted(self._touched):
            while not await self._ask(place, self.rng.sample(self._brokers, REPLICAS)):
                await self.pause()
