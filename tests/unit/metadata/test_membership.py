"""A broker keeps its place in the cluster: its lease, and a session and a registration anew when they are lost."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.config.broker_config import BrokerConfig
from headrace.coordination.contract import Store, Unknown
from headrace.coordination.memory import MemoryCluster, MemoryStore
from headrace.env.real import RealClock, RealRng, real_env
from headrace.metadata.cluster import ClusterMetadata
from headrace.metadata.controller import Controller, TopicCreation
from headrace.metadata.image import BrokerImage, Endpoint, TopicImage
from headrace.metadata.layout import BROKER_IDS, CONTROLLER, broker_path, decode_json
from headrace.metadata.membership import Membership
from headrace.metadata.registration import evict
from headrace.model.errors import ErrorCode, KafkaError

ENV = real_env()
ENDPOINTS = (Endpoint("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT"),)
LONG = 30.0


class Member:
    """One broker's part of the cluster, wired as `node.py` does it."""

    def __init__(self, ensemble: MemoryCluster, note: Path, broker_id: int = 1, timeout: float = LONG) -> None:
        self.ensemble = ensemble
        self.failures: list[str] = []
        self.stores: list[MemoryStore] = []
        self.name = f"broker-{broker_id}"
        self.id = broker_id

        async def open_store() -> Store:
            self.stores.append(await ensemble.open(ENV, self.name, timeout))
            return self.stores[-1]

        self.membership = Membership(ENV, broker_id, open_store, str(note), self.failures.append)
        self.metadata = ClusterMetadata(ENV, self.membership.store)
        self.controller = Controller(ENV, self.membership.store, self.metadata, broker_id, BrokerConfig.build())
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> BrokerImage:
        await self.membership.open()
        self._tasks.append(asyncio.create_task(self.membership.run()))
        await self.metadata.start()

        async def rejoined() -> None:
            await self.metadata.catch_up(BROKER_IDS)
            await self.controller.stand()

        registered = await self.membership.join(BrokerImage(self.id, 0, ENDPOINTS), rejoined)
        await rejoined()
        self.metadata.subscribe(self.membership.follow)
        await self.controller.start()
        return registered

    async def registered_session(self) -> str | None:
        node = await self.ensemble.connect().get(broker_path(self.id))
        return str(decode_json(node)["session"]) if node is not None else None

    async def back(self) -> None:
        """Until it is registered with its newest session and knows it."""
        await eventually(
            lambda: (
                self.membership.problem is None
                and not self.stores[-1].session.lost
                and self.id in self.metadata.image.brokers
            )
        )
        assert await self.registered_session() == self.stores[-1].session.id

    async def kill(self) -> None:
        """As a process that dies: nothing is closed."""
        for task in self._tasks:
            task.cancel()
            await asyncio.wait([task])
        await self.controller.close()
        await self.metadata.close()

    async def close(self) -> None:
        await self.kill()
        await self.membership.close()


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


@pytest.fixture
def ensemble() -> MemoryCluster:
    return MemoryCluster(ENV)


@pytest.fixture
async def member(ensemble: MemoryCluster, tmp_path: Path) -> AsyncIterator[Member]:
    member = Member(ensemble, tmp_path / "session")
    await member.start()
    yield member
    await member.close()


async def test_a_broker_that_lost_its_session_registers_anew_and_is_controller_again(
    member: Member, ensemble: MemoryCluster
) -> None:
    (first,) = member.stores
    assert member.membership.problem is None
    await eventually(member.membership.lease.valid)
    ensemble.expire(first.session.id)
    assert not member.membership.lease.valid()
    assert not member.controller.active
    await asyncio.sleep(0)
    assert "lost its session" in (member.membership.problem or "")
    await member.back()
    await eventually(member.membership.lease.valid)
    await eventually(lambda: member.controller.active)
    assert member.metadata.image.brokers[1].epoch == 2
    await eventually(lambda: member.metadata.image.controller_epoch == 2)
    (topic,) = await member.controller.create_topics([TopicCreation("t")])
    assert isinstance(topic, TopicImage)
    assert not member.failures


@pytest.mark.parametrize("step", ["before", "registering"])
async def test_a_session_that_ends_while_a_broker_starts_is_replaced(
    ensemble: MemoryCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    member = Member(ensemble, tmp_path / "session")
    expired: list[str] = []

    async def expire_once(store: Store, sessions: set[str]) -> None:
        if not expired:
            expired.append(store.session.id)
            ensemble.expire(store.session.id)

    if step == "registering":
        monkeypatch.setattr("headrace.metadata.membership.remove_remains", expire_once)
    else:
        join = member.membership.join

        async def late_join(*arguments: Any) -> BrokerImage:
            await expire_once(member.stores[-1], set())
            return await join(*arguments)

        monkeypatch.setattr(member.membership, "join", late_join)
    await member.start()
    assert expired == [member.stores[0].session.id]
    await member.back()
    await eventually(lambda: member.controller.active)
    assert not member.failures
    await member.close()


async def test_what_changed_meanwhile_is_in_the_image_afterwards(
    member: Member, ensemble: MemoryCluster, tmp_path: Path
) -> None:
    other = Member(ensemble, tmp_path / "other", broker_id=2)
    await other.start()
    ensemble.unreachable.add(member.name)
    ensemble.expire(member.stores[0].session.id)
    await eventually(lambda: other.controller.active)
    (topic,) = await other.controller.create_topics([TopicCreation("t", 1, 1)])
    assert isinstance(topic, TopicImage)
    assert "t" not in member.metadata.image.topics
    ensemble.unreachable.clear()
    await member.back()
    await eventually(lambda: member.metadata.image == other.metadata.image)
    assert member.metadata.image.controller_id == 2
    await other.close()


async def test_a_new_session_is_no_lease_before_the_image_is_fresh(
    member: Member, ensemble: MemoryCluster
) -> None:
    told = asyncio.Event()

    async def rejoined() -> None:
        await told.wait()

    await eventually(member.membership.lease.valid)
    member.membership._rejoined = rejoined
    ensemble.expire(member.stores[0].session.id)
    await eventually(lambda: len(member.stores) == 2)
    await eventually(lambda: member.membership.lease._granted > ENV.clock.boottime())
    assert not member.membership.lease.valid()
    told.set()
    await eventually(member.membership.lease.valid)


async def test_the_node_of_the_lost_session_is_replaced_if_it_is_still_there(
    member: Member, ensemble: MemoryCluster
) -> None:
    """The ensemble may learn later than the broker that the session is over."""
    (first,) = member.stores
    first.end()
    assert await member.registered_session() == first.session.id
    await member.back()
    await eventually(lambda: member.controller.active)
    await eventually(lambda: member.metadata.image.controller_epoch == 2)
    controller = await ensemble.connect().get(CONTROLLER)
    assert controller is not None
    assert decode_json(controller)["session"] == member.stores[-1].session.id


@pytest.mark.parametrize("happens", [True, False])
async def test_a_registration_anew_with_an_unknown_result_is_made_once(
    member: Member, ensemble: MemoryCluster, happens: bool
) -> None:
    connect = ensemble.connect

    def connect_and_lose(*arguments: object) -> MemoryStore:
        store = connect(*arguments)  # type: ignore[arg-type]
        store.lose_next_result(happens=happens)
        return store

    ensemble.connect = connect_and_lose  # type: ignore[method-assign, assignment]
    ensemble.expire(member.stores[0].session.id)
    await eventually(lambda: len(member.stores) == 2)
    ensemble.connect = connect  # type: ignore[method-assign]
    await member.back()
    assert member.metadata.image.brokers[1].epoch == 2
    assert not member.failures


async def test_a_store_out_of_reach_ends_the_lease_and_not_the_session(
    ensemble: MemoryCluster, tmp_path: Path
) -> None:
    member = Member(ensemble, tmp_path / "session", timeout=LONG)
    await member.start()
    clock = _LateClock()
    member.membership.lease._now = clock.boottime
    await eventually(lambda: member.membership.lease.deadline > 0)
    ensemble.unreachable.add(member.name)
    clock.late = LONG
    assert not member.membership.lease.valid()
    assert "renew its lease in the coordination store" in (member.membership.problem or "")
    with pytest.raises(Unknown):
        await member.membership.store.renew()
    ensemble.unreachable.clear()
    clock.late = 0
    await member.membership.store.renew()
    assert member.membership.lease.valid()
    assert member.membership.problem is None
    assert len(member.stores) == 1
    await member.close()


class _LateClock(RealClock):
    late = 0.0

    def boottime(self) -> float:
        return RealClock.boottime() + self.late


async def test_a_restarted_broker_takes_the_place_of_its_killed_predecessor_at_once(
    member: Member, ensemble: MemoryCluster, tmp_path: Path
) -> None:
    """Its session lives on in the ensemble; the note in the data directory says that it was ours."""
    await member.kill()
    again = Member(ensemble, tmp_path / "session")
    async with asyncio.timeout(LONG / 2):
        registered = await again.start()
    assert registered.epoch == 2
    assert await again.registered_session() == again.stores[0].session.id
    await eventually(lambda: again.controller.active)
    await again.close()


async def test_without_the_note_it_waits_for_the_session_to_run_out(
    ensemble: MemoryCluster, tmp_path: Path
) -> None:
    killed = Member(ensemble, tmp_path / "one", timeout=1.5)
    await killed.start()
    await killed.kill()
    again = Member(ensemble, tmp_path / "two", timeout=LONG)
    assert (await again.start()).epoch == 2
    await again.close()


async def test_a_copy_of_the_data_directory_on_another_machine_is_refused(
    member: Member, ensemble: MemoryCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds the note of the broker that runs: the copy took its place, and the broker stopped."""
    session = member.stores[0].session.id
    shutil.copy(tmp_path / "session", tmp_path / "copy")
    monkeypatch.setattr(type(ENV.disk), "boot_id", lambda self: "of another machine")
    copy = Member(ensemble, tmp_path / "copy", timeout=1.5)
    with pytest.raises(KafkaError) as caught:
        await copy.start()
    assert caught.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert await member.registered_session() == session
    await copy.close()


async def test_a_broker_whose_id_is_in_use_is_refused(ensemble: MemoryCluster, tmp_path: Path) -> None:
    alive = Member(ensemble, tmp_path / "one", timeout=LONG)
    await alive.start()
    other = Member(ensemble, tmp_path / "two", timeout=1.5)
    with pytest.raises(KafkaError) as caught:
        await other.start()
    assert caught.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert await alive.registered_session() == alive.stores[0].session.id
    await other.close()
    await alive.close()


async def test_a_broker_whose_id_was_taken_meanwhile_stops(ensemble: MemoryCluster, tmp_path: Path) -> None:
    """It never runs beside another of its name."""
    member = Member(ensemble, tmp_path / "one", timeout=1.5)
    await member.start()
    ensemble.unreachable.add(member.name)
    ensemble.expire(member.stores[0].session.id)
    usurper = Member(ensemble, tmp_path / "two", timeout=LONG)
    usurper.name = "usurper"
    await usurper.start()
    ensemble.unreachable.clear()
    await eventually(lambda: bool(member.failures))
    assert "already running" in member.failures[0]
    assert await usurper.registered_session() == usurper.stores[0].session.id
    await member.close()
    await usurper.close()


async def test_a_broker_that_is_taken_for_dead_registers_anew(
    member: Member, ensemble: MemoryCluster, tmp_path: Path
) -> None:
    """Whoever removed it only cost it a registration, and the controller role."""
    other = Member(ensemble, tmp_path / "other", broker_id=2)
    await other.start()
    seen = other.metadata.image.brokers[1]
    other.membership.remove_dead(seen)
    await eventually(lambda: other.metadata.image.brokers.get(1, seen).epoch > seen.epoch)
    await member.back()
    assert len(member.stores) == 1
    await eventually(lambda: other.metadata.image.controller_epoch == 2)
    other.membership.remove_dead(seen)  # What it saw then is over.
    await asyncio.sleep(0.1)
    assert await evict(other.membership.store, seen) is False
    await eventually(lambda: list(other.metadata.image.brokers) == [1, 2])
    await eventually(lambda: member.controller.active != other.controller.active)
    await other.close()


@pytest.mark.parametrize("seed", [1])
async def test_after_any_faults_every_broker_is_a_member_and_one_is_the_controller(
    ensemble: MemoryCluster, tmp_path: Path, seed: int
) -> None:
    """Sessions that expire under their owners, lost requests and answers, brokers cut off: all at once."""
    chance = random.Random(seed)
    ensemble._env = replace(ENV, rng=_SeededRng(seed))
    ensemble.latency, ensemble.jitter, ensemble.watch_delay = 0.001, 0.004, 0.01
    members = [Member(ensemble, tmp_path / str(number), number, timeout=2.0) for number in (1, 2, 3)]
    for member in members:
        await member.start()
    for _ in range(15):
        member = chance.choice(members)
        ensemble.unknown_rate = chance.choice([0.0, 0.1, 0.3])
        match chance.randrange(4):
            case 0:
                if ensemble.knows(session := member.stores[-1].session.id):
                    ensemble.expire(session)
            case 1:
                ensemble.unreachable ^= {member.name}
            case 2:
                ensemble.unheard ^= {member.name}
            case _:
                member.stores[-1].lose_next_result(happens=chance.random() < 0.5)
        await asyncio.sleep(chance.choice([0.02, 0.1, 0.3]))
    ensemble.unknown_rate = 0.0
    ensemble.unreachable.clear()
    ensemble.unheard.clear()
    for member in members:
        member.stores[-1]._lose_result = None

    def agreed() -> bool:
        images = [member.metadata.image for member in members]
        active = [member.id for member in members if member.controller.active]
        return (
            all(
                member.membership.problem is None and list(image.brokers) == [1, 2, 3]
                for member, image in zip(members, images, strict=True)
            )
            and all(image == images[0] for image in images)
            and active == [images[0].controller_id]
        )

    await eventually(agreed)
    (active,) = (member for member in members if member.controller.active)
    (topic,) = await active.controller.create_topics([TopicCreation("t", 1, 1)])
    assert isinstance(topic, TopicImage)
    await eventually(lambda: all("t" in member.metadata.image.topics for member in members))
    for member in members:
        assert await member.registered_session() == member.stores[-1].session.id
        assert not member.failures
        await member.close()


class _SeededRng(RealRng):
    def __init__(self, seed: int) -> None:
        self._seeded = random.Random(seed)

    def random(self) -> float:
        return self._seeded.random()


async def test_a_broker_that_is_cut_off_leaves_until_it_is_not(ensemble: MemoryCluster, tmp_path: Path) -> None:
    """Others control the cluster meanwhile; its session goes on."""
    one, two = Member(ensemble, tmp_path / "one"), Member(ensemble, tmp_path / "two", 2)
    await one.start()
    await two.start()
    assert one.controller.active
    is_cut_off = True
    one.membership.is_cut_off = lambda: is_cut_off
    one.controller.may_stand = lambda: not is_cut_off
    await eventually(one.membership.lease.valid)
    leaving = asyncio.ensure_future(one.membership.withdraw(one.metadata.image.brokers[1]))
    await eventually(lambda: 1 not in two.metadata.image.brokers and two.controller.active)
    await eventually(lambda: not one.controller.active)
    assert not one.membership.lease.valid()
    assert not leaving.done()
    is_cut_off = False
    await leaving
    await one.back()
    await eventually(one.membership.lease.valid)
    assert len(one.stores) == 1
    assert two.controller.active
    await one.close()
    await two.close()
