"""Topics for the tests with real clients: each test has its own, so that all of them can share one broker."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator, Mapping
from typing import Protocol

import pytest

from headrace.testing.raw_client import FetchLimits, RawClient
from tests.compat.clients import CLIENTS, TIMEOUT_S, Client
from tests.compat.confluent_admin import AdminClient, NewTopic
from tests.conftest import KINDS

NO_WAIT = FetchLimits(max_wait_ms=0, min_bytes=0)
_numbers = itertools.count()


class MakeTopic(Protocol):
    def __call__(self, partitions: int = 1, configs: Mapping[str, str] | None = None) -> str: ...


def unique_name(prefix: str = "t") -> str:
    """A name that no other test or earlier run against the same broker has used."""
    return f"{prefix}-{os.getpid()}-{time.time_ns() // 1_000_000}-{next(_numbers)}"


GROUP_SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "4000",
    "group.consumer.min.heartbeat.interval.ms": "50",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.assignment.interval.ms": "0",
    "offsets.topic.num.partitions": "4",
    "log.retention.check.interval.ms": "1000",
}
"""A broker on which groups settle fast and miss their members soon."""


@pytest.fixture(scope="session")
def group_bootstrap(request: pytest.FixtureRequest, broker_kind: str) -> Iterator[str]:
    """The address of the broker that the tests of groups share."""
    given = request.config.getoption("--bootstrap")
    if given:
        yield str(given)
        return
    with KINDS[broker_kind](GROUP_SETTINGS) as server:
        yield server.bootstrap


@pytest.fixture(scope="session")
def group_admin(group_bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": group_bootstrap})


@pytest.fixture
def group_topic(group_bootstrap: str, group_admin: AdminClient) -> Iterator[MakeTopic]:
    """Makes topics on the broker of the tests of groups."""
    yield from make_topics(group_bootstrap, group_admin)


@pytest.fixture(scope="session")
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


def wait_until_served(bootstrap: str, name: str, partitions: int) -> None:
    """Kafka answers CreateTopics before the leaders have taken their partitions over."""
    deadline = time.monotonic() + TIMEOUT_S
    with RawClient(bootstrap) as raw:
        for partition in range(partitions):
            while (error := raw.fetch(name, partition, 0, NO_WAIT).error) != 0:
                assert time.monotonic() < deadline, f"{name}-{partition} was not ready: error {error}"
                time.sleep(0.01)


@pytest.fixture
def make_topic(bootstrap: str, admin: AdminClient) -> Iterator[MakeTopic]:
    yield from make_topics(bootstrap, admin)


def make_topics(bootstrap: str, admin: AdminClient) -> Iterator[MakeTopic]:
    made: list[str] = []

    def make(partitions: int = 1, configs: Mapping[str, str] | None = None) -> str:
        name = unique_name()
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(configs or {}))
        admin.create_topics([topic])[name].result(TIMEOUT_S)
        made.append(name)
        wait_until_served(bootstrap, name, partitions)
        return name

    yield make
    if made:
        for future in admin.delete_topics(made).values():
            future.exception(TIMEOUT_S)


@pytest.fixture
def topic(make_topic: MakeTopic) -> str:
    return make_topic()


@pytest.fixture(params=CLIENTS, ids=[client.name for client in CLIENTS])
def client(request: pytest.FixtureRequest) -> Client:
    chosen: Client = request.param
    return chosen
