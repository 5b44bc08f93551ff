"""The controller keeps partitions led while brokers come and go, over the simulated store (R-REP-3)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

import pytest

from headrace.config.broker_config import BrokerConfig
from headrace.coordination.contract import ANY_VERSION, Delete, Op
from headrace.coordination.memory import MemoryCluster, MemoryStore
from headrace.env.real import real_env
from headrace.metadata.changes import PartitionsChanged, changed_states
from headrace.metadata.cluster import ClusterMetadata
from headrace.metadata.controller import (
    ConfigAlteration,
    ConfigEdit,
    Controller,
    TopicCreation,
)
from headrace.metadata.image import NO_LEADER, BrokerImage, Endpoint, MetadataImage, PartitionImage, TopicImage
from headrace.metadata.layout import encode_partitions, suspect_path
from headrace.metadata.leaders import Leaders
from headrace.metadata.loading import load_topics
from headrace.metadata.partition_decisions import InSyncWish
from headrace.metadata.topic_rules import MIN_IN_SYNC, UNCLEAN
from headrace.model.config_resources import ConfigOperation, ResourceType
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicId, TopicPartition

ENV = real_env()
ENDPOINTS = (Endpoint("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT"),)
PARTITION = TopicPartition("t", 0)


@dataclass
class Node:
    id: int
    store: MemoryStore
    metadata: ClusterMetadata
    controller: Controller
    broker: BrokerImage

    @property
    def image(self) -> MetadataImage:
        return self.metadata.image

    def partition(self) -> PartitionImage:
        found = self.image.partition(PARTITION)
        assert found is not None
        return found

    def knows(self, holds: Callable[[PartitionImage], bool]) -> bool:
        found = self.image.partition(PARTITION)
        return found is not None and holds(found)

    async def close(self) -> None:
        await self.controller.close()
        await self.metadata.close()
        await self.store.close()


@dataclass
class Cluster:
    ensemble: MemoryCluster
    nodes: dict[int, Node] = field(default_factory=dict)

    async def start(
        self,
        broker_id: int,
        suspect: bool = False,
        directories: tuple[str, ...] = ("d",),
        lacking: frozenset[tuple[TopicId, int]] = frozenset(),
    ) -> Node:
        store = self.ensemble.connect()
        metadata = ClusterMetadata(ENV, store)
        await metadata.start()
        config = BrokerConfig.build()
        controller = Controller(ENV, store, metadata, broker_id, config)
        broker = BrokerImage(broker_id, 0, ENDPOINTS, None, suspect, directories, lacking=lacking)
        registered = await controller.register_broker(broker)
        await controller.start()
        Leaders(ENV, metadata, controller, broker_id, config).start()
        self.nodes[broker_id] = Node(broker_id, store, metadata, controller, registered)
        return self.nodes[broker_id]

    async def stop(self, broker_id: int) -> None:
        await self.nodes.pop(broker_id).close()

    @property
    def controller(self) -> Node:
        return next(node for node in self.nodes.values() if node.controller.active)

    async def confirm(self) -> PartitionImage:
        """The leader asks for the in-sync set as it is; what every broker sees then."""
        state = self.controller.partition()
        leader = self.nodes[state.leader].broker
        members = [(broker, self.nodes[broker].broker.epoch) for broker in state.isr]
        topic_id = self.controller.image.topics[PARTITION.topic].id
        wish = InSyncWish(topic_id, 0, state.leader_epoch, state.partition_epoch, members)
        await self.controller.controller.alter_in_sync(leader.id, leader.epoch, [wish])
        return await self.until(lambda now: now.partition_epoch > state.partition_epoch)

    async def until(self, holds: Callable[[PartitionImage], bool]) -> PartitionImage:
        """What every broker sees then."""
        async with asyncio.timeout(60):
            while not all(node.knows(holds) for node in self.nodes.values()):
                await asyncio.sleep(0.005)
        return next(iter(self.nodes.values())).partition()


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    cluster = Cluster(MemoryCluster(ENV))
    for broker_id in (1, 2, 3):
        await cluster.start(broker_id)
    topic = TopicCreation("t", assignments=[(0, (1, 2, 3))])
    (outcome,) = await cluster.controller.controller.create_topics([topic])
    assert isinstance(outcome, TopicImage), outcome
    await cluster.until(lambda state: state.leader == 1)
    yield cluster
    for broker_id in list(cluster.nodes):
        await cluster.stop(broker_id)


async def test_a_dead_leader_is_replaced_also_if_it_was_the_controller(cluster: Cluster) -> None:
    assert cluster.controller.id == 1
    await cluster.stop(1)
    state = await cluster.until(lambda state: state.leader == 2)
    assert (state.isr, state.leader_epoch) == ((2, 3), 1)
    await cluster.stop(3)
    state = await cluster.until(lambda state: state.isr == (2,))
    assert (state.leader, state.leader_epoch) == (2, 1)


async def set_min_in_sync(cluster: Cluster, kind: ResourceType, name: str, value: str | None) -> None:
    operation = ConfigOperation.SET if value is not None else ConfigOperation.DELETE
    edit = ConfigEdit(MIN_IN_SYNC, operation, value)
    (error,) = await cluster.controller.controller.alter_configs([ConfigAlteration(kind, name, [edit])])
    assert error is None


@pytest.mark.parametrize(
    ("kind", "name"),
    [(ResourceType.TOPIC, "t"), (ResourceType.BROKER, ""), (ResourceType.BROKER, "1")],
    ids=["topic", "all brokers", "the leader"],
)
async def test_who_leaves_too_small_a_set_stays_eligible_while_it_is_too_small(
    cluster: Cluster, kind: ResourceType, name: str
) -> None:
    await set_min_in_sync(cluster, kind, name, "2")
    await cluster.stop(3)
    state = await cluster.until(lambda state: state.isr == (1, 2))
    assert state.elr == ()
    await cluster.stop(2)
    state = await cluster.until(lambda state: state.isr == (1,))
    assert state.elr == (2,)
    await set_min_in_sync(cluster, kind, name, "3")
    assert (await cluster.until(lambda state: state.isr == (1,))).elr == (2,)
    await set_min_in_sync(cluster, kind, name, None)
    assert (await cluster.confirm()).elr == ()


@pytest.mark.parametrize(("kind", "name"), [(ResourceType.TOPIC, "t"), (ResourceType.BROKER, "")])
async def test_fewer_replicas_are_enough_as_soon_as_that_is_set(
    cluster: Cluster, kind: ResourceType, name: str
) -> None:
    """The other lives and lags: no broker came or went since the last look, and nothing could be committed."""
    await set_min_in_sync(cluster, kind, name, "3")
    state = await cluster.until(lambda state: state.isr == (1, 2, 3))
    topic_id, leader = cluster.controller.image.topics["t"].id, cluster.nodes[1].broker
    members = [(broker, cluster.nodes[broker].broker.epoch) for broker in (1, 2)]
    wish = InSyncWish(topic_id, 0, state.leader_epoch, state.partition_epoch, members)
    await cluster.controller.controller.alter_in_sync(1, leader.epoch, [wish])
    assert (await cluster.until(lambda state: state.isr == (1, 2))).elr == (3,)
    await set_min_in_sync(cluster, kind, name, "2")
    assert (await cluster.until(lambda state: state.elr == ())).isr == (1, 2)


async def test_a_last_member_that_never_said_that_it_is_there_does_not_lead_alone(cluster: Cluster) -> None:
    """Its disk was lost before it was missed, and the others had stopped by then."""
    await cluster.stop(2)
    await cluster.until(lambda state: state.isr == (1, 3))
    leader = cluster.nodes[1].broker
    await cluster.controller.controller.vacate(1, leader.epoch)
    state = await cluster.until(lambda state: state.leader == 3)
    assert (state.isr, state.elr) == ((3,), (1,))
    await cluster.stop(1)
    await cluster.stop(3)
    await cluster.start(3, suspect=True)
    state = await cluster.until(lambda state: state.leader == NO_LEADER)
    assert (state.isr, state.last_known_elr) == ((1,), (3,))
    await cluster.start(1)
    await cluster.until(lambda state: state.leader == 1)


async def test_a_last_member_that_lost_records_does_not_lead_while_others_have_them(cluster: Cluster) -> None:
    """Seed 1021 of the simulation: killed brokers whose sessions ended first, and a machine that crashed."""
    await set_min_in_sync(cluster, ResourceType.TOPIC, "t", "2")
    for broker_id in (1, 2):
        await cluster.stop(broker_id)
    state = await cluster.until(lambda state: state.isr == (3,))
    assert (state.leader, state.elr) == (3, (1, 2))
    await cluster.stop(3)
    await cluster.start(3, suspect=True)
    state = await cluster.until(lambda state: state.leader == NO_LEADER)
    assert (state.isr, state.last_known_elr) == ((1, 2), (3,))
    await cluster.start(2)
    state = await cluster.until(lambda state: state.leader == 2)
    assert (state.isr, state.elr) == ((2,), (1,))


async def test_a_log_that_is_missing_is_suspected_alone(cluster: Cluster) -> None:
    """Found by the simulation: killed while a topic was made, a broker left every set, also those of others."""
    (made,) = await cluster.controller.controller.create_topics([TopicCreation("u", assignments=[(0, (1, 2, 3))])])
    assert isinstance(made, TopicImage)
    await set_min_in_sync(cluster, ResourceType.TOPIC, "t", "2")
    await cluster.stop(3)
    await cluster.stop(2)
    await cluster.until(lambda state: state.isr == (1,) and state.elr != ())
    await cluster.stop(1)
    await cluster.start(1, suspect=True, lacking=frozenset({(made.id, 0)}))
    state = await cluster.until(lambda state: state.leader == 1 and state.leader_epoch > 0)
    assert state.isr == (1,)
    async with asyncio.timeout(60):
        while cluster.controller.image.brokers[1].suspect:
            await asyncio.sleep(0.005)


async def test_the_last_member_is_waited_for(cluster: Cluster) -> None:
    for broker_id in (2, 3):
        await cluster.stop(broker_id)
    await cluster.until(lambda state: state.isr == (1,))
    await cluster.confirm()
    await cluster.start(2)
    await cluster.stop(1)
    state = await cluster.until(lambda state: state.leader == NO_LEADER)
    assert state.isr == (1,)
    await cluster.start(1)
    state = await cluster.until(lambda state: state.leader == 1)
    assert state.isr == (1,)


async def test_unclean_election_when_it_is_allowed_later(cluster: Cluster) -> None:
    for broker_id in (2, 3):
        await cluster.stop(broker_id)
    await cluster.until(lambda state: state.isr == (1,))
    await cluster.confirm()
    await cluster.start(2)
    await cluster.stop(1)
    await cluster.until(lambda state: state.leader == NO_LEADER)
    edit = ConfigEdit(UNCLEAN, ConfigOperation.SET, "true")
    alteration = ConfigAlteration(ResourceType.TOPIC, "t", (edit,), False)
    assert await cluster.controller.controller.alter_configs([alteration]) == [None]
    state = await cluster.until(lambda state: state.leader == 2)
    assert state.isr == (2,)


async def test_a_leader_that_restarts_gets_another_epoch(cluster: Cluster) -> None:
    for broker_id in (2, 3):
        await cluster.stop(broker_id)
    before = await cluster.until(lambda state: state.isr == (1,))
    await cluster.stop(1)
    node = await cluster.start(1)
    state = await cluster.until(lambda state: state.leader_incarnation == node.broker.epoch)
    assert state.leader == 1
    assert state.leader_epoch > before.leader_epoch


@pytest.mark.parametrize(("suspect", "directories"), [(True, ("d",)), (False, ("new",))])
async def test_one_that_may_have_lost_records_leaves_before_it_can_be_elected(
    cluster: Cluster, suspect: bool, directories: tuple[str, ...]
) -> None:
    await cluster.stop(3)
    await cluster.until(lambda state: state.isr == (1, 2))
    # As if nobody had noticed that it was away.
    state = cluster.controller.partition()
    await cluster.controller.controller.change(
        lambda image: (None, [PartitionsChanged("t", {0: _with_isr(state, (1, 2, 3))})])
    )
    await cluster.until(lambda state: state.isr == (1, 2, 3))
    await cluster.start(3, suspect, directories)
    await cluster.until(lambda state: state.isr == (1, 2))
    async with asyncio.timeout(60):
        while any(broker.suspect for broker in cluster.controller.image.brokers.values()):
            await asyncio.sleep(0.005)
    await cluster.stop(3)
    await cluster.start(3, False, directories)
    assert not cluster.controller.image.brokers[3].suspect


async def test_what_a_broker_reports_while_the_controller_decides_is_not_forgotten(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lacked records of one partition, restarts, and now lacks those of another."""
    controller = cluster.controller
    (made,) = await controller.controller.create_topics([TopicCreation("u", assignments=[(0, (1, 2, 3))])])
    assert isinstance(made, TopicImage)
    await cluster.stop(3)
    state = await cluster.until(lambda state: state.isr == (1, 2))
    # As if nobody had noticed that it was away.
    await controller.controller.change(
        lambda image: (None, [PartitionsChanged("t", {0: _with_isr(state, (1, 2, 3))})])
    )
    both = {(made.id, 0), (controller.image.topics["t"].id, 0)}
    outsider, multi = cluster.ensemble.connect(), controller.store.multi

    async def late(ops: Sequence[Op]) -> list[int]:
        if any(isinstance(op, Delete) and op.path == suspect_path(3) for op in ops):
            monkeypatch.undo()
            await outsider.put(suspect_path(3), encode_partitions(both), ANY_VERSION)
        return await multi(ops)

    monkeypatch.setattr(controller.store, "multi", late)
    await cluster.start(3, suspect=True, lacking=frozenset({(made.id, 0)}))
    async with asyncio.timeout(60):
        while any(broker.suspect for broker in controller.image.brokers.values()):
            await asyncio.sleep(0.005)
    assert controller.partition().isr == (1, 2)
    await outsider.close()


def _with_isr(state: PartitionImage, isr: tuple[int, ...]) -> PartitionImage:
    return PartitionImage(
        state.replicas, state.leader, state.leader_epoch, isr, state.partition_epoch, state.leader_incarnation
    )


async def test_leaders_change_their_in_sync_sets(cluster: Cluster) -> None:
    leader, state = cluster.nodes[1], cluster.controller.partition()
    topic_id = cluster.controller.image.topics["t"].id

    async def ask(isr: tuple[int, ...], epoch: int, broker_epoch: int = leader.broker.epoch) -> object:
        members = [(broker, cluster.nodes[broker].broker.epoch) for broker in isr]
        wish = InSyncWish(topic_id, 0, state.leader_epoch, epoch, members)
        ((_, outcome),) = await cluster.controller.controller.alter_in_sync(1, broker_epoch, [wish])
        return outcome

    shrunk = await ask((1, 2), state.partition_epoch)
    assert isinstance(shrunk, PartitionImage)
    assert (shrunk.isr, shrunk.partition_epoch) == ((1, 2), state.partition_epoch + 1)
    assert await ask((1, 2), state.partition_epoch) == shrunk, "the answer may have been lost"
    stale = await ask((1, 3), state.partition_epoch)
    assert isinstance(stale, KafkaError)
    assert stale.code is ErrorCode.INVALID_UPDATE_VERSION
    with pytest.raises(KafkaError) as refusal:
        await ask((1,), shrunk.partition_epoch, broker_epoch=0)
    assert refusal.value.code is ErrorCode.STALE_BROKER_EPOCH


@pytest.mark.parametrize(
    ("states", "expected"),
    [(changed_states, []), (lambda *_: {}, ["/brokers/topics/wide/partitions/7/state"])],
    ids=["now", "of an older controller"],
)
async def test_a_change_of_one_partition_is_in_its_entry_or_reads_one_partition(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, states: object, expected: list[str]
) -> None:
    (outcome,) = await cluster.controller.controller.create_topics([TopicCreation("wide", 50, 3)])
    assert isinstance(outcome, TopicImage)
    follower = next(node for node in cluster.nodes.values() if not node.controller.active)
    async with asyncio.timeout(60):
        while "wide" not in follower.image.topics:
            await asyncio.sleep(0.005)
    reads: list[str] = []
    get_many = follower.store.get_many

    async def counted(paths: list[str]) -> object:
        reads.extend(paths)
        return await get_many(paths)

    monkeypatch.setattr(follower.store, "get_many", counted)
    monkeypatch.setattr("headrace.metadata.change_writer.changed_states", states)
    before = follower.image.topics["wide"]
    shrunk = _with_isr(before.partitions[7], before.partitions[7].isr[:2])
    await cluster.controller.controller.change(lambda image: (None, [PartitionsChanged("wide", {7: shrunk})]))
    async with asyncio.timeout(60):
        while follower.image.topics["wide"].partitions[7].isr != shrunk.isr:
            await asyncio.sleep(0.005)
    assert [path for path in reads if "wide" in path] == expected
    after = follower.image.topics["wide"]
    assert after == (await load_topics(follower.store, ["wide"]))["wide"], "its epoch too"
    assert all(after.partitions[n] is before.partitions[n] for n in range(50) if n != 7)


async def test_a_broker_that_stops_hands_over_some_partitions_at_a_time(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that it leads first; however many there are, each request is answered soon."""
    monkeypatch.setattr("headrace.metadata.controller.VACATED_AT_ONCE", 2)
    placed = [(index, (1, 2, 3) if index % 2 else (2, 1, 3)) for index in range(5)]
    (outcome,) = await cluster.controller.controller.create_topics([TopicCreation("wide", assignments=placed)])
    assert isinstance(outcome, TopicImage)
    node, leaders = cluster.controller, []
    while left := await node.controller.vacate(1, cluster.nodes[1].broker.epoch):
        leaders.append([len(left), sum(one.leader == 1 for one in node.image.topics["wide"].partitions)])
    assert leaders == [[4, 1], [2, 0]]
    topics = node.image.topics.values()
    assert not any(1 in partition.isr for topic in topics for partition in topic.partitions)


async def test_a_broker_that_stops_waits_for_nobody_where_it_holds_the_only_replica(cluster: Cluster) -> None:
    """Each stop would take five seconds in a cluster with one such topic."""
    single = TopicCreation("single", assignments=[(0, (1,))])
    (outcome,) = await cluster.controller.controller.create_topics([single])
    assert isinstance(outcome, TopicImage)
    node = cluster.controller
    assert await node.controller.vacate(1, cluster.nodes[1].broker.epoch) == []
    assert node.image.topics["single"].partitions[0].leader == 1, "it serves until it closes"
    assert node.partition().leader != 1
