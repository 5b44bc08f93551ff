"""A broker reports its offline partitions to the cluster, and that they are back. R-LOG-8."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from headrace.coordination.memory import MemoryCluster, MemoryStore
from headrace.env.real import real_env
from headrace.metadata.layout import OFFLINE, offline_path
from headrace.model.topics import TopicId, TopicPartition
from headrace.replication.replica_set import ReplicaSet
from headrace.services import offline_report
from headrace.services.full_directories import FullDirectories
from headrace.services.offline_report import OfflineReport

BROKER = 1
WITHOUT_ROOM = {TopicPartition("t", 0): TopicId(bytes(15) + b"7")}


class Reporter:
    """A report, and what the store holds of it."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.replicas = SimpleNamespace(broker_id=BROKER, offline={})
        self.full = SimpleNamespace(given_up=frozenset())
        replicas, full = cast(ReplicaSet, self.replicas), cast(FullDirectories, self.full)
        self.report = OfflineReport(real_env(), store, replicas, full)

    async def told(self) -> None:
        self.report.look()
        if self.report._telling is not None:
            await self.report._telling

    async def is_offline(self) -> bool:
        return await self.store.get(offline_path(BROKER)) is not None


@pytest.fixture
async def reporter(monkeypatch: pytest.MonkeyPatch) -> Reporter:
    monkeypatch.setattr(offline_report, "RETRY_SECONDS", 0.0)
    store = MemoryCluster(real_env()).connect()
    await store.ensure(OFFLINE)
    return Reporter(store)


async def test_partitions_go_offline_and_come_back(reporter: Reporter) -> None:
    reporter.replicas.offline = WITHOUT_ROOM
    await reporter.told()
    assert await reporter.is_offline()
    reporter.replicas.offline = {}
    await reporter.told()
    assert not await reporter.is_offline()


async def test_a_report_whose_answer_was_lost_is_taken_back_too(
    reporter: Reporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is in the store, and the partitions are back before it is repeated."""

    def come_back(*_: object) -> None:
        reporter.replicas.offline = {}

    monkeypatch.setattr(offline_report.logger, "warning", come_back)
    reporter.replicas.offline = WITHOUT_ROOM
    reporter.store.lose_next_result(happens=True)
    await reporter.told()
    assert not reporter.replicas.offline, "the answer was lost"
    await reporter.told()
    assert not await reporter.is_offline()


async def test_a_report_at_the_beginning_of_a_session_is_taken_back(reporter: Reporter) -> None:
    """It reached the store in the new session, before that was known here."""
    reporter.replicas.offline = WITHOUT_ROOM
    await reporter.told()
    reporter.replicas.offline = {}
    reporter.report.tell_again()
    await reporter.told()
    assert not await reporter.is_offline()
