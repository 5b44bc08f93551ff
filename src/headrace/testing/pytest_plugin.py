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

When a test that uses one of them fails, the report shows what its brokers logged during the test. Every pytest run
in an environment with headrace loads this, so it imports nothing until a fixture is asked for.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from headrace.testing import AsyncBroker, Broker, BrokerCluster

SHARED, FACTORY, CLUSTER = "headrace_broker", "headrace_broker_factory", "headrace_cluster"
LOG_TAIL_LINES = 40
_running: list[tuple[str, Broker]] = []
"""With the fixture that started each."""
_logged_before: dict[Broker, int] = {}
"""How much each had logged when the current test began."""
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
    yield from _run(SHARED, headrace_settings)


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
        _running.append((CLUSTER, cluster))
        yield cluster
        _running.remove((CLUSTER, cluster))


@pytest.fixture
def headrace_broker_factory() -> Iterator[StartBroker]:
    """Starts a broker for this test alone: `headrace_broker_factory({"num.partitions": "3"})`."""
    started: list[Iterator[Broker]] = []

    def start(settings: Mapping[str, str] | None = None, **more: Any) -> Broker:
        __tracebackhide__ = True
        running = _run(FACTORY, settings or {}, **more)
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


def _run(fixture: str, settings: Mapping[str, str], **more: Any) -> Iterator[Broker]:
    from headrace.testing import Broker

    __tracebackhide__ = True
    with Broker(settings, **more) as broker:
        _running.append((fixture, broker))
        yield broker
        _running.remove((fixture, broker))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    _logged_before.clear()
    _logged_before.update((broker, len(broker.log_text())) for broker in _used_by(item))


def _used_by(item: pytest.Item) -> list[Broker]:
    names = getattr(item, "fixturenames", ())
    return [broker for fixture, broker in _running if fixture in names]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        for broker in _used_by(item):
            lines = broker.log_text()[_logged_before.get(broker, 0) :].splitlines()[-LOG_TAIL_LINES:]
            text = "\n".join(lines) or "Nothing was logged during this test."
            report.sections.append((f"log of the broker at {broker.bootstrap_servers}", text))
    return report
