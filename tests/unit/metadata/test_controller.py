"""The controller and the brokers' view of what it writes, over the simulated store (D5, R-REP-3)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from headrace.config.broker_config import BrokerConfig
from headrace.coordination.contract import ANY_VERSION, Create, Put, Store, Unknown
from headrace.coordination.memory import MemoryCluster, MemoryStore
from headrace.coordination.sqlite import open_sqlite_store
from headrace.env.real import real_env
from headrace.metadata.change_writer import KEPT_CHANGES
from headrace.metadata.cluster import ClusterMetadata
from headrace.metadata.controller import (
    ConfigAlteration,
    ConfigEdit,
    Controller,
    NewPartitions,
    TopicCreation,
)
from headrace.metadata.image import NO_CONTROLLER, BrokerImage, Endpoint, MetadataImage, TopicImage
from headrace.metadata.layout import BROKER_IDS, CHANGES, CONTROLLER, CONTROLLER_EPOCH, encode_json
from headrace.model.config_resources import ConfigOperation, ResourceType
from headrace.model.errors import ErrorCode, KafkaError

ENV = real_env()
ENDPOINTS = (Endpoint("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT"),)


@dataclass
class Node:
    """One broker's part of the cluster."""

    store: Store
    metadata: ClusterMetadata
    controller: Controller

    @property
    def image(self) -> MetadataImage:
        return self.metadata.image

    async def create(self, *names: str) -> list[TopicImage | KafkaError]:
        return await self.controller.create_topics([TopicCreation(name, 1, 1) for name in names])

    async def close(self) -> None:
        await self.controller.close()
        await self.metadata.close()
        await self.store.close()


async def start(store: Store, broker_id: int) -> Node:
    metadata = ClusterMetadata(ENV, store)
    await metadata.start()
    controller = Controller(ENV, store, metadata, broker_id, BrokerConfig.build())
    await controller.register_broker(BrokerImage(broker_id, 0, ENDPOINTS))
    await controller.start()
    return Node(store, metadata, controller)


@pytest.fixture
def ensemble() -> MemoryCluster:
    return MemoryCluster(ENV)


@pytest.fixture
async def node(ensemble: MemoryCluster) -> AsyncIterator[Node]:
    node = await start(ensemble.connect(), 0)
    yield node
    await node.close()


@pytest.fixture
async def other(ensemble: MemoryCluster, node: Node) -> AsyncIterator[Node]:
    """A second broker, which is not the controller."""
    other = await start(ensemble.connect(), 1)
    yield other
    await other.close()


async def test_the_first_broker_becomes_the_controller(node: Node) -> None:
    assert node.controller.active
    assert (node.image.controller_id, node.image.controller_epoch) == (0, 1)
    assert node.image.brokers == {0: BrokerImage(0, 1, ENDPOINTS)}
    assert len(node.image.cluster_id) == 22


async def test_a_topic_is_in_the_image_when_create_returns(node: Node) -> None:
    (topic,) = await node.create("t")
    assert isinstance(topic, TopicImage)
    assert node.image.topics["t"] == topic
    assert node.image.topics_by_id[topic.id] == topic


async def test_everything_is_there_for_a_broker_that_starts_later(node: Node, ensemble: MemoryCluster) -> None:
    await node.create("kept", "gone")
    await node.controller.create_partitions([NewPartitions("kept", 3)])
    await node.controller.alter_configs(
        [
            ConfigAlteration(ResourceType.TOPIC, "kept", [ConfigEdit("retention.ms", ConfigOperation.SET, "5")]),
            ConfigAlteration(
                ResourceType.BROKER, "", [ConfigEdit("message.max.bytes", ConfigOperation.SET, "6000")]
            ),
            group_alteration("team/a b%é", "50000"),
            group_alteration("dropped", "50000"),
        ]
    )
    await node.controller.alter_configs(
        [
            ConfigAlteration(
                ResourceType.GROUP, "dropped", [ConfigEdit(SESSION_TIMEOUT, ConfigOperation.DELETE, None)]
            )
        ]
    )
    await node.controller.delete_topics(["gone"])
    late = ClusterMetadata(ENV, ensemble.connect())
    await late.start()
    assert late.image == node.image
    assert list(late.image.topics) == ["kept"]
    assert len(late.image.topics["kept"].partitions) == 3
    assert late.image.topics["kept"].configs == {"retention.ms": "5"}
    assert late.image.broker_configs == {"": {"message.max.bytes": "6000"}}
    assert late.image.group_configs == {"team/a b%é": {SESSION_TIMEOUT: "50000"}}
    await late.close()


SESSION_TIMEOUT = "consumer.session.timeout.ms"


def group_alteration(name: str, timeout_ms: str) -> ConfigAlteration:
    edit = ConfigEdit(SESSION_TIMEOUT, ConfigOperation.SET, timeout_ms)
    return ConfigAlteration(ResourceType.GROUP, name, [edit])


async def test_a_store_from_before_groups_had_settings(ensemble: MemoryCluster) -> None:
    """It lacks the node, and entries of `/changes` name no groups."""
    store = ensemble.connect()
    await ClusterMetadata(ENV, store).start()
    await store.delete("/config/groups", ANY_VERSION)
    await store.multi([Create("/changes/000000000001", encode_json(controller_epoch=1, topics=[], brokers=[]))])
    node = await start(ensemble.connect(), 0)
    assert await node.controller.alter_configs([group_alteration("g", "50000")]) == [None]
    assert node.image.group_configs == {"g": {SESSION_TIMEOUT: "50000"}}
    await node.close()


async def test_other_brokers_follow_every_kind_of_change(node: Node, other: Node) -> None:
    async def same() -> None:
        async with asyncio.timeout(60):
            await other.metadata.wait_for(lambda image: image == node.image)

    for timeout_ms in ("50000", "55000"):
        await node.controller.alter_configs([group_alteration("g", timeout_ms)])
        await same()

    await node.create("t", "u")
    await same()
    await node.controller.create_partitions([NewPartitions("t", 4)])
    await same()
    edit = ConfigEdit("message.max.bytes", ConfigOperation.SET, "6000")
    for _ in range(2):
        assert await node.controller.alter_configs([ConfigAlteration(ResourceType.BROKER, "1", [edit])]) == [None]
        await same()
    await node.controller.delete_topics(["t"])
    await node.create("t")
    await same()
    assert other.image.brokers.keys() == {0, 1}


async def test_validate_only_changes_nothing(node: Node) -> None:
    before = node.image
    (topic,) = await node.controller.create_topics([TopicCreation("t", 3, 1)], validate_only=True)
    assert isinstance(topic, TopicImage)
    assert len(topic.partitions) == 3
    assert node.image is before
    assert await node.store.children(CHANGES) == []


async def test_errors_do_not_touch_the_rest_of_a_request(node: Node) -> None:
    bad, good = await node.create("not/legal", "good")
    assert isinstance(bad, KafkaError)
    assert isinstance(good, TopicImage)
    assert list(node.image.topics) == ["good"]


async def test_concurrent_creates_of_one_topic_make_it_once(node: Node) -> None:
    results = await asyncio.gather(*(node.create("t") for _ in range(5)))
    outcomes = [outcome for (outcome,) in results]
    assert sum(isinstance(outcome, TopicImage) for outcome in outcomes) == 1
    errors = {outcome.code for outcome in outcomes if isinstance(outcome, KafkaError)}
    assert errors == {ErrorCode.TOPIC_ALREADY_EXISTS}


async def test_listeners_are_told_old_and_new(node: Node) -> None:
    seen: list[tuple[int, int]] = []
    unsubscribe = node.metadata.subscribe(lambda old, new: seen.append((len(old.topics), len(new.topics))))
    await node.create("a", "b")
    assert seen == [(0, 2)]
    unsubscribe()
    await node.create("c")
    assert seen == [(0, 2)]


async def test_only_the_controller_may_change_topics(other: Node) -> None:
    assert not other.controller.active
    with pytest.raises(KafkaError) as caught:
        await other.create("t")
    assert caught.value.code is ErrorCode.NOT_CONTROLLER


async def test_another_broker_takes_over_when_the_controller_goes(
    node: Node, other: Node, ensemble: MemoryCluster
) -> None:
    await node.create("before")
    ensemble.expire(node.store.session.id)
    assert not node.controller.active
    async with asyncio.timeout(60):
        await other.metadata.wait_for(lambda image: image.controller_id == 1 and 0 not in image.brokers)
    assert other.image.controller_epoch == 2
    (topic,) = await other.create("after")
    assert isinstance(topic, TopicImage)
    assert set(other.image.topics) == {"before", "after"}


async def test_a_broker_that_is_stopped_gets_replicas_for_when_it_is_back(node: Node, other: Node) -> None:
    """As in Kafka: while one of three brokers is down, topics with three replicas can be made."""
    wanted = [TopicCreation("before", 1, 2), TopicCreation("too-many", 1, 3)]
    _, refused = await node.controller.create_topics(wanted)
    assert isinstance(refused, KafkaError)
    await other.close()
    async with asyncio.timeout(10):
        await node.metadata.wait_for(lambda image: 1 not in image.brokers)
    wanted = [TopicCreation("factor", 1, 2), TopicCreation("named", assignments=[(0, (1, 0))])]
    for topic in await node.controller.create_topics(wanted):
        assert isinstance(topic, TopicImage)
        (partition,) = topic.partitions
        assert set(partition.replicas) == {0, 1}
        assert (partition.isr, partition.leader) == ((0,), 0)
    (grown,) = await node.controller.create_partitions([NewPartitions("before", 2)])
    assert isinstance(grown, TopicImage)
    assert grown.partitions[1].replicas == (0, 1)
    wanted = [
        TopicCreation("nobody", assignments=[(0, (1,))]),
        TopicCreation("unknown", assignments=[(0, (0, 2))]),
    ]
    for refused in await node.controller.create_topics(wanted):
        assert isinstance(refused, KafkaError)
        assert refused.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    (refused,) = await node.controller.create_topics([TopicCreation("factor-3", 1, 3)])
    assert isinstance(refused, KafkaError)
    assert refused.code is ErrorCode.INVALID_REPLICATION_FACTOR


async def test_a_replaced_controller_that_does_not_know_it_cannot_write(
    node: Node, other: Node, ensemble: MemoryCluster
) -> None:
    """One controller per controller epoch; a stale one cannot write."""
    ensemble.watch_delay = 60
    await other.store.put(CONTROLLER_EPOCH, b"2", ANY_VERSION)
    assert node.controller.active
    with pytest.raises(KafkaError) as caught:
        await node.create("t")
    assert caught.value.code is ErrorCode.NOT_CONTROLLER
    assert not node.controller.active
    assert await other.store.children("/brokers/topics") == []


async def test_the_office_is_taken_again_when_it_falls_free(node: Node) -> None:
    await node.store.delete(CONTROLLER, ANY_VERSION)
    async with asyncio.timeout(60):
        await node.metadata.wait_for(lambda image: image.controller_epoch == 2 and image.controller_id == 0)
    assert node.controller.active
    await node.create("t")


async def test_many_brokers_elect_one(ensemble: MemoryCluster) -> None:
    nodes = await asyncio.gather(*(start(ensemble.connect(), number) for number in range(5)))
    assert sum(node.controller.active for node in nodes) == 1
    (leader,) = (node for node in nodes if node.controller.active)
    ensemble.expire(leader.store.session.id)
    rest = [node for node in nodes if node is not leader]
    async with asyncio.timeout(60):
        for node in rest:
            await node.metadata.wait_for(lambda image: image.controller_epoch == 2)
            await node.metadata.wait_for(lambda image: image.controller_id != NO_CONTROLLER)
        while not any(node.controller.active for node in rest):
            await asyncio.sleep(0.01)
    assert sum(node.controller.active for node in rest) == 1
    assert {broker.epoch for broker in rest[0].image.brokers.values()} <= {1, 2, 3, 4, 5}
    for node in nodes:
        await node.close()


@pytest.mark.parametrize("happens", [True, False])
async def test_an_unknown_write_is_looked_up(node: Node, happens: bool) -> None:
    assert isinstance(node.store, MemoryStore)
    node.store.lose_next_result(happens=happens)
    if happens:
        (topic,) = await node.create("t")
        assert isinstance(topic, TopicImage)
        assert "t" in node.image.topics
    else:
        with pytest.raises(KafkaError) as caught:
            await node.create("t")
        assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
        assert "t" not in node.image.topics
    (again,) = await node.create("u")
    assert isinstance(again, TopicImage)


async def test_a_write_is_not_taken_for_the_one_before_it(
    node: Node, ensemble: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store fails for a while, and of two topics the first is created: the second was reported as created."""
    assert isinstance(node.store, MemoryStore)
    ensemble.watch_delay = 3600.0  # the controller does not learn of its write by itself

    async def fail(path: str) -> None:
        raise Unknown(path, "no server can be reached")

    node.store.lose_next_result(happens=True)
    with monkeypatch.context() as patch:
        patch.setattr(node.store, "get", fail)
        with pytest.raises(KafkaError):
            await node.create("first")
    node.store.lose_next_result(happens=False)
    with pytest.raises(KafkaError) as caught:
        await node.create("second")
    assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
    (again,) = await node.create("second")
    assert isinstance(again, TopicImage)
    assert {"first", "second"} <= set(node.image.topics)


async def test_a_role_that_another_has_taken_since_is_not_taken_up(ensemble: MemoryCluster) -> None:
    """The node was read before it was removed, the epoch after the next election: its version fences others."""
    store = ensemble.connect()
    metadata = ClusterMetadata(ENV, store)
    await metadata.start()
    value = encode_json(brokerid=0, epoch=1, session=store.session.id)
    await store.multi([Create(CONTROLLER, value, ephemeral=True), Put(CONTROLLER_EPOCH, b"2", ANY_VERSION)])
    await metadata.catch_up(CONTROLLER)
    controller = Controller(ENV, store, metadata, 0, BrokerConfig.build())
    await controller.start()
    assert not controller.active
    await controller.close()
    await metadata.close()


@pytest.mark.parametrize("happens", [True, False])
async def test_an_election_with_an_unknown_result_ends_with_one_controller(
    ensemble: MemoryCluster, happens: bool
) -> None:
    store = ensemble.connect()
    metadata = ClusterMetadata(ENV, store)
    await metadata.start()
    controller = Controller(ENV, store, metadata, 0, BrokerConfig.build())
    store.lose_next_result(happens=happens)
    await controller.start()
    assert controller.active
    assert metadata.image.controller_epoch == 1
    await controller.register_broker(BrokerImage(0, 0, ENDPOINTS))
    (topic,) = await controller.create_topics([TopicCreation("t")])
    assert isinstance(topic, TopicImage)
    await controller.close()
    await metadata.close()


@pytest.mark.parametrize("happens", [True, False])
async def test_a_registration_with_an_unknown_result_is_made_once(ensemble: MemoryCluster, happens: bool) -> None:
    store = ensemble.connect()
    metadata = ClusterMetadata(ENV, store)
    await metadata.start()
    controller = Controller(ENV, store, metadata, 4, BrokerConfig.build())
    store.lose_next_result(happens=happens)
    registered = await controller.register_broker(BrokerImage(4, 0, ENDPOINTS, "rack"))
    assert registered == BrokerImage(4, 1, ENDPOINTS, "rack")
    assert metadata.image.brokers == {4: registered}
    await metadata.close()


async def test_a_duplicate_broker_id_is_refused(node: Node, ensemble: MemoryCluster) -> None:
    """R-OPS-9."""
    with pytest.raises(KafkaError) as caught:
        await start(ensemble.connect(), 0)
    assert caught.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION


async def test_a_broker_that_comes_back_has_a_larger_epoch(
    node: Node, other: Node, ensemble: MemoryCluster
) -> None:
    await other.close()
    again = await start(ensemble.connect(), 1)
    assert again.image.brokers[1].epoch == 3
    await again.close()


async def test_producer_id_blocks_never_overlap(node: Node, other: Node) -> None:
    """R-PRO-3: a producer id is never handed out twice, also when a write's result is unknown."""
    assert isinstance(other.store, MemoryStore)
    assert await node.controller.allocate_producer_id_block() == range(1000)
    other.store.lose_next_result(happens=True)
    blocks = await asyncio.gather(
        *(part.controller.allocate_producer_id_block() for part in (node, other, node, other))
    )
    ids = [number for block in blocks for number in block]
    assert len(set(ids)) == 4000
    assert min(ids) >= 1000


async def test_old_changes_are_dropped_and_a_broker_far_behind_reads_all(
    node: Node, other: Node, ensemble: MemoryCluster
) -> None:
    ensemble.watch_delay = 3600.0  # it hears of nothing while they are made, however long that takes
    for number in range(KEPT_CHANGES + 10):
        await node.create(f"t{number}")
    assert len(await node.store.children(CHANGES)) == KEPT_CHANGES
    assert not other.image.topics
    await other.metadata.catch_up(CHANGES)
    assert other.image == node.image
    assert len(other.image.topics) == KEPT_CHANGES + 10


async def test_the_view_recovers_from_a_store_that_did_not_answer(
    node: Node, other: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, failures = other.store.children, [Unknown("/"), Unknown("/")]

    async def children(path: str) -> list[str]:
        if failures:
            raise failures.pop()
        return await real(path)

    monkeypatch.setattr(other.store, "children", children)
    await node.create("t")
    async with asyncio.timeout(60):
        await other.metadata.wait_for(lambda image: "t" in image.topics)
    assert not failures


async def test_two_brokers_on_one_sqlite_file(tmp_path: Path) -> None:
    path = str(tmp_path / "cluster.db")
    first = await start(await open_sqlite_store(ENV, path), 0)
    second = await start(await open_sqlite_store(ENV, path), 1)
    await first.create("t")
    async with asyncio.timeout(60):
        await second.metadata.wait_for(lambda image: "t" in image.topics)
        await first.close()
        await second.metadata.wait_for(lambda image: image.controller_id == 1)
    (topic,) = await second.create("u")
    assert isinstance(topic, TopicImage)
    await second.close()
    third = await start(await open_sqlite_store(ENV, path), 0)
    assert set(third.image.topics) == {"t", "u"}
    assert third.image.controller_epoch == 3
    await third.close()


class Unwatched(ClusterMetadata):
    """Reads only when it is told to."""

    def _on_change(self, path: str) -> None: ...


async def test_what_was_read_before_the_store_failed_is_read_again(
    node: Node, ensemble: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by the simulation: a controller whose image lacked one change for ever elected nobody any more."""
    metadata = Unwatched(ENV, ensemble.connect())
    await metadata.start()
    await node.create("t")

    async def fail(store: Store) -> None:
        raise Unknown("/", "the answer was lost")

    with monkeypatch.context() as patch:
        patch.setattr("headrace.metadata.cluster.load_brokers", fail)
        with pytest.raises(Unknown):
            await metadata.catch_up(CHANGES, BROKER_IDS)
    await metadata.catch_up(CHANGES)
    assert metadata.image.topics == node.image.topics
    await metadata.close()


async def test_a_broker_that_stops_gives_the_role_up_at_once(node: Node, other: Node) -> None:
    """Its session goes on until its logs are closed: until then nobody else could control."""
    await node.controller.hand_over()
    async with asyncio.timeout(60):
        while not other.controller.active:
            await asyncio.sleep(0.005)
    assert not node.controller.active
    await node.controller.hand_over()
    assert other.controller.active, "the role of another is not given up"
