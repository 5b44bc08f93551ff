"""Which partitions a broker with a full disk leaves to others, and when it takes part again. R-LOG-8."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.env.real import RealDisk, real_env
from headrace.metadata.image import PartitionImage
from headrace.model.topics import TopicId, TopicPartition
from headrace.replication.replica_set import ReplicaSet
from headrace.services import full_directories
from headrace.services.full_directories import FullDirectories
from headrace.storage.log_directories import LogDirectories

BROKER = 1
TOPIC = TopicId(bytes(15) + b"7")
ONLY_HERE, ALSO_ELSEWHERE = (TOPIC, 0), (TOPIC, 1)
GIGABYTE = 1 << 30


class Disk(RealDisk):
    total, free = 100 * GIGABYTE, 0

    def total_bytes(self, path: str) -> int:
        return self.total

    def free_bytes(self, path: str) -> int:
        return self.free


class Directory:
    path = "data"
    is_full = True
    logs = frozenset(TopicPartition("t", index) for index in range(2))

    def has_room_again(self) -> None:
        self.is_full = False


class Broker:
    """Broker 1 of two, with a partition of its own and one that broker 2 has too."""

    def __init__(self) -> None:
        self.directory, self.disk = Directory(), Disk()
        self.others_offline: frozenset[tuple[TopicId, int]] = frozenset()
        in_sync: dict[int, tuple[int, ...]] = {0: (1,), 1: (1, 2)}
        partitions = [
            SimpleNamespace(
                topic_id=TOPIC,
                topic_partition=TopicPartition("t", index),
                image=PartitionImage((1, 2), 1, 0, isr),
            )
            for index, isr in in_sync.items()
        ]
        replicas = SimpleNamespace(broker_id=BROKER, all=lambda: partitions)
        self.full = FullDirectories(
            replace(real_env(), disk=self.disk),
            cast(LogDirectories, SimpleNamespace(online=[self.directory])),
            cast(ReplicaSet, replicas),
            cast(Any, self.image),
        )

    def image(self) -> Any:
        other = SimpleNamespace(offline=self.others_offline)
        return SimpleNamespace(brokers={1: SimpleNamespace(offline=frozenset()), 2: other})

    async def given_up(self) -> frozenset[tuple[TopicId, int]]:
        await self.full.look()
        return self.full.given_up


async def test_what_nobody_else_has_stays() -> None:
    assert await Broker().given_up() == {ALSO_ELSEWHERE}


@pytest.mark.parametrize(("total", "enough"), [(100 * GIGABYTE, 65 << 20), (100 << 20, 6 << 20)])
async def test_a_little_space_is_not_enough(total: int, enough: int) -> None:
    broker = Broker()
    broker.disk.total, broker.disk.free = total, enough - (2 << 20)
    assert await broker.given_up()
    broker.disk.free = enough
    assert not await broker.given_up()
    assert not broker.directory.is_full


async def test_two_brokers_do_not_step_aside_for_each_other_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = Broker()
    assert await broker.given_up() == {ALSO_ELSEWHERE}
    broker.others_offline = frozenset({ALSO_ELSEWHERE})
    monkeypatch.setattr(full_directories, "HOLD_SECONDS", 1e9)
    assert not await broker.given_up()
    broker.others_offline = frozenset()
    assert not await broker.given_up(), "the other one is sure to have taken over before this one does it again"
