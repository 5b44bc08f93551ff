"""A broker without sockets: the real parts on a store in memory and a data directory of the test.

`bench.call(request, version)` goes through the bytes of that version both ways, so that what a test sees is what a
client would see.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headrace.config.broker_config import BrokerConfig
from headrace.config.topic_config import DynamicConfigs, topic_defaults, topic_values
from headrace.coordination.memory import MemoryCluster
from headrace.env.real import real_env
from headrace.handlers import load_all
from headrace.handlers.broker import Broker
from headrace.handlers.context import ANONYMOUS, Context
from headrace.handlers.registry import APIS
from headrace.metadata.cluster import ClusterMetadata
from headrace.metadata.controller import Controller
from headrace.metadata.departed import Departed
from headrace.metadata.image import BrokerImage, Endpoint, MetadataImage, TopicImage
from headrace.metadata.topic_decisions import TopicCreation
from headrace.model.topics import TopicPartition
from headrace.node import answer_as_controller, answer_here, transaction_parts
from headrace.replication.broker_link import BrokerLink
from headrace.replication.controller_link import ControllerLink
from headrace.replication.host import PartitionHost
from headrace.replication.partition import Partition
from headrace.replication.peers import Peer, Peers
from headrace.replication.replica_set import ReplicaSet
from headrace.services.departing import Departing
from headrace.services.fetching.sessions import FetchSessions
from headrace.services.groups.service import GroupService
from headrace.services.log_moves import LogMoves
from headrace.services.producer_ids import ProducerIds
from headrace.storage.log_config import LogConfig
from headrace.storage.log_directories import LogDirectories
from headrace.testing.raw_client import BatchShape, build_batch
from headrace.wire.schema import Request, Response

LISTENER = "PLAINTEXT"
load_all()


class Bench:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    @property
    def image(self) -> MetadataImage:
        return self.broker.metadata.image

    async def call(self, request: Request, version: int, listener: str = LISTENER) -> Any:
        api = APIS[request.api_key]
        assert api.cold is not None
        assert version in api.versions
        received = type(request).decode(request.encode(version), version)
        context = Context(self.broker, version, "test", ANONYMOUS, "127.0.0.1", listener)
        work = api.cold(context, received)
        response = work if isinstance(work, Response) else await work
        return type(response).decode(response.encode(version), version)

    async def create_topic(self, name: str, partitions: int = 1, **configs: str) -> TopicImage:
        named = {key.replace("_", "."): value for key, value in configs.items()}
        topic = TopicCreation(name, partitions, 1, configs=named)
        (outcome,) = await self.broker.controller.create_topics([topic])
        assert isinstance(outcome, TopicImage), outcome
        await self.broker.replicas.settled()
        return outcome

    def partition(self, topic: str, index: int = 0) -> Partition:
        return self.broker.replicas.leader(TopicPartition(topic, index))

    def append(self, topic: str, timestamp: int, count: int = 1, producer_id: int = -1) -> None:
        sequence = 0 if producer_id >= 0 else -1
        shape = BatchShape(
            timestamp=timestamp, producer_id=producer_id, producer_epoch=sequence, base_sequence=sequence
        )
        self.partition(topic).append(memoryview(build_batch([b"v"] * count, shape)), acks=-1)


def _log_config(config: BrokerConfig) -> Callable[[TopicImage, MetadataImage], LogConfig]:
    def config_of(topic: TopicImage, image: MetadataImage) -> LogConfig:
        dynamic = DynamicConfigs.of(image.broker_configs, config.node_id)
        return LogConfig.from_settings(topic_values(topic.configs, topic_defaults(config, dynamic)))

    return config_of


async def _nowhere(endpoint: Endpoint) -> Peer:
    raise AssertionError("this broker is alone")


@asynccontextmanager
async def running_bench(data: Path, settings: Mapping[str, str]) -> AsyncIterator[Bench]:
    config = BrokerConfig.build(flags={"log.dirs": str(data), "node.id": "1", **settings})
    env = real_env()
    store = MemoryCluster(env).connect()
    metadata = ClusterMetadata(env, store)
    await metadata.start()
    directories = LogDirectories(env, config.log_dirs, 1)
    directories.open(metadata.image.cluster_id, lambda partition, topic_id: LogConfig())
    replicas = ReplicaSet(PartitionHost(1, env.clock), env, directories, _log_config(config))
    metadata.subscribe(replicas.follow)
    controller = Controller(env, store, metadata, 1, config)
    endpoints = (
        Endpoint(LISTENER, "localhost", 9092, "PLAINTEXT"),
        Endpoint("INSIDE", "inner", 9095, "PLAINTEXT"),
    )
    await controller.register_broker(BrokerImage(1, 0, endpoints, "rack-a"))
    await controller.start()
    link = ControllerLink(env, metadata, Peers(_nowhere, lambda: metadata.image, LISTENER), 1)
    departed = Departed(env.clock)
    metadata.subscribe(departed.follow)
    groups = GroupService(env, config, metadata, controller, replicas)
    replicas.subscribe(groups.follow)
    producer_ids = ProducerIds(controller)
    brokers = BrokerLink(Peers(_nowhere, lambda: metadata.image, LISTENER), 1)
    transactions, verifier = transaction_parts(env, config, metadata, controller, replicas, producer_ids, brokers)
    replicas.subscribe(transactions.follow)
    broker = Broker(
        id=1,
        env=env,
        config=config,
        metadata=metadata,
        departed=departed,
        departing=Departing(env, config, 1, metadata, brokers),
        controller=controller,
        link=link,
        replicas=replicas,
        directories=directories,
        fetch_sessions=FetchSessions(env, slots=100),
        fetch_max_bytes=10_000_000,
        producer_ids=producer_ids,
        groups=groups,
        transactions=transactions,
        verifier=verifier,
        log_moves=LogMoves(env, directories),
    )
    link.call_here = partial(answer_as_controller, broker)
    brokers.call_here = partial(answer_here, broker)
    yield Bench(broker)
    groups.close()
    transactions.close()
    await env.background.close()
    await controller.close()
    await metadata.close()
    await store.close()
    directories.close()


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with running_bench(tmp_path / "data", {}) as running:
        yield running


@pytest.fixture
def bench_with(tmp_path: Path) -> Callable[[Mapping[str, str]], AbstractAsyncContextManager[Bench]]:
    """A bench with settings of the test's own."""
    return lambda settings: running_bench(tmp_path / "own", settings)
