"""Several brokers in the test's own loop, on one data directory and so in one cluster (the embedded store)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from headrace.config.broker_config import BrokerConfig
from headrace.env.real import RealDisk
from headrace.metadata.image import MetadataImage, PartitionImage
from headrace.model.topics import TopicPartition
from headrace.node import Node
from headrace.replication.partition import Partition
from headrace.testing.in_process import Client, connect, env_with

PATIENCE_SECONDS = 60.0


class InProcessCluster:
    def __init__(self, data: Path, settings: dict[str, str]) -> None:
        self._data = data
        self._settings = settings
        self.nodes: dict[int, Node] = {}
        self.addresses: dict[int, str] = {}
        self.failures: list[str] = []

    async def start(self, broker_id: int, disk: RealDisk | None = None, /, **settings: str) -> None:
        own = {name.replace("_", "."): value for name, value in settings.items()}
        flags = {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(self._data),
            "node.id": str(broker_id),
            **self._settings,
            **own,
        }
        node = Node(env_with(disk or RealDisk()), BrokerConfig.build(flags=flags), self.failures.append)
        self.addresses[broker_id] = await node.start()
        self.nodes[broker_id] = node

    async def stop(self, broker_id: int, hand_over: bool = True) -> None:
        del self.addresses[broker_id]
        await self.nodes.pop(broker_id).stop(hand_over)

    async def client(self, broker_id: int) -> Client:
        return await connect(self.addresses[broker_id])

    def image(self, broker_id: int) -> MetadataImage:
        return self.nodes[broker_id].image

    def replica(self, broker_id: int, partition: TopicPartition) -> Partition:
        replicas = self.nodes[broker_id].replicas
        return replicas.by_name[partition.topic.encode()][partition.partition]

    def state(self, partition: TopicPartition) -> PartitionImage:
        """As the first of the brokers sees it; `LookupError` if it has not heard of it yet."""
        found = self.image(next(iter(self.nodes))).partition(partition)
        if found is None:
            raise LookupError(f"{partition} is not known")
        return found

    async def until(self, holds: Callable[[], bool]) -> None:
        """Also while what it asks about is not there yet: brokers hear of a topic one after the other."""

        def holds_now() -> bool:
            with suppress(LookupError):
                return holds()
            return False

        async with asyncio.timeout(PATIENCE_SECONDS):
            while not holds_now():
                await asyncio.sleep(0.01)
        assert not self.failures, self.failures


@asynccontextmanager
async def running_cluster(data: Path, brokers: int = 3, **settings: str) -> AsyncIterator[InProcessCluster]:
    """Settings, with underscores for dots, are those of all brokers."""
    cluster = InProcessCluster(data, {name.replace("_", "."): value for name, value in settings.items()})
    try:
        for broker_id in range(1, brokers + 1):
            await cluster.start(broker_id)
        yield cluster
        assert not cluster.failures, cluster.failures
    finally:
        for broker_id in list(cluster.nodes):
            await cluster.stop(broker_id, hand_over=False)
