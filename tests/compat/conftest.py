"""Topics for the tests with real clients: each test has its own, so that all of them can share one broker."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator, Mapping
from typing import Protocol

import pytest

from tests.compat.clients import CLIENTS, TIMEOUT_S, Client
from tests.compat.confluent_admin import AdminClient, NewTopic

_numbers = itertools.count()


class MakeTopic(Protocol):
    def __call__(self, partitions: int = 1, configs: Mapping[str, str] | None = None) -> str: ...


def unique_name(prefix: str = "t") -> str:
    """A name that no other test or earlier run against the same broker has used."""
    return f"{prefix}-{os.getpid()}-{time.time_ns() // 1_000_000}-{next(_numbers)}"


@pytest.fixture(scope="session")
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


def wait_until_known(admin: AdminClient, name: str, partitions: int) -> None:
    """Kafka answers CreateTopics before every broker knows the topic."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        topic = admin.list_topics(name, timeout=TIMEOUT_S).topics[name]
        ready = sum(1 for one in topic.partitions.values() if one.error is None and one.leader >= 0)
        if topic.error is None and ready == partitions:
            return
        time.sleep(0.02)
    raise AssertionError(f"topic {name} did not become ready")


@pytest.fixture
def make_topic(admin: AdminClient) -> Iterator[MakeTopic]:
    made: list[str] = []

    def make(partitions: int = 1, configs: Mapping[str, str] | None = None) -> str:
        name = unique_name()
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(configs or {}))
        admin.create_topics([topic])[name].result(TIMEOUT_S)
        made.append(name)
        wait_until_known(admin, name, partitions)
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
