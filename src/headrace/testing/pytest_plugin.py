"""Fixtures for pytest, there as soon as headrace is installed.

    def test_orders(headrace_broker, headrace_topic):
        topic = headrace_topic(partitions=3)
        producer = Producer({"bootstrap.servers": headrace_broker.bootstrap_servers})

    headrace_broker          one broker for the session (for each worker of pytest-xdist)
    headrace_settings        its settings; override it in conftest.py
    headrace_topic           makes topics with names of their own, and deletes them after the test
    headrace_async_broker    the same broker for asyncio tests: await headrace_async_broker.create_topic("orders")
    headrace_cluster         three brokers for the session
    headrace_broker_factory  starts further brokers for one test: headrace_broker_factory({"node.id": "7"})

When a test that uses one of them fails, the report shows what its broker logged. Every pytest run in an
environment with headrace loads this, so it imports nothing until a fixture is asked for.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from headrace.testing import AsyncBroker, Broker, BrokerCluster

BROKERS = ("headrace_broker", "headrace_broker_factory", "headrace_cluster")
LOG_TAIL_LINES = 40
_running: list[Broker] = []
_numbers = itertools.count(1)

StartBroker = Callable[..., "Broker"]
MakeTopic = Callable[..., str]


@pytest.fixture(scope="session")
def headrace_settings() -> Mapping[str, str]:
    """The settings of `headrace_broker`, with Kafka's names. Override it in conftest.py."""
    return {}


@pytest.fixture(scope="session")
def headrace_broker(headrace_settings: Mapping[str, str]) -> Iterator[Broker]:
    """A real broker that the tests of a session share: `headrace_broker.bootstrap_servers`."""
    yield from _run(headrace_settings)


@pytest.fixture
def headrace_async_broker(headrace_broker: Broker) -> AsyncBroker:
    """`headrace_broker` for asyncio tests; works with every plugin that runs them."""
    from headrace.testing import AsyncBroker

    return AsyncBroker(broker=headrace_broker)


@pytest.fixture(scope="session")
def headrace_cluster(headrace_settings: Mapping[str, str]) -> Iterator[BrokerCluster]:
    """Three real brokers that the tests of a session share; a test that kills one waits until it is back."""
    from headrace.testing import BrokerCluster

    with BrokerCluster(headrace_settings) as cluster:
        _running.append(cluster)
        yield cluster
        _running.remove(cluster)


@pytest.fixture
def headrace_broker_factory() -> Iterator[StartBroker]:
    """Starts a broker for this test alone: `headrace_broker_factory({"num.partitions": "3"})`."""
    started: list[Iterator[Broker]] = []

    def start(settings: Mapping[str, str] | None = None, **more: Any) -> Broker:
        running = _run(settings or {}, **more)
        broker = next(running)
        started.append(running)
        return broker

    yield start
    for running in started:
        next(running, None)


@pytest.fixture
def headrace_topic(headrace_broker: Broker) -> Iterator[MakeTopic]:
    """Makes a topic on `headrace_broker`: `headrace_topic(partitions=3, configs={"retention.ms": "1000"})`."""
    made: list[str] = []

    def make(name: str = "test", partitions: int = 1, configs: Mapping[str, str] | None = None) -> str:
        made.append(headrace_broker.create_topic(f"{name}-{next(_numbers)}", partitions, configs))
        return made[-1]

    yield make
    for name in made:
        if headrace_broker.exit_code() is None:
            headrace_broker.delete_topic(name)


def _run(settings: Mapping[str, str], **more: Any) -> Iterator[Broker]:
    from headrace.testing import Broker

    with Broker(settings, **more) as broker:
        _running.append(broker)
        yield broker
        _running.remove(broker)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and set(BROKERS) & set(getattr(item, "fixturenames", ())):
        for broker in _running:
            tail = "\n".join(broker.log_text().splitlines()[-LOG_TAIL_LINES:])
            report.sections.append((f"log of the broker at {broker.bootstrap_servers}", tail))
    return report
