"""Fixtures that give tests a real broker, and the choice which one it is.

    pytest tests/compat                               starts a Headrace broker for the session
    pytest tests/compat --broker=kafka                starts Apache Kafka instead (the oracle)
    pytest tests/compat --bootstrap=HOST:PORT         uses one that runs already
    pytest tests/compat --with-java                   also runs Apache Kafka's own tools

`HEADRACE_TEST_BOOTSTRAP` is the same as `--bootstrap`. With `--broker=kafka` a test that asks for a broker of its
own (`own_broker`) gets an Apache Kafka too. What a broker wrote to its log is shown when a test fails.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from headrace.testing.apache_kafka import ApacheKafka
from headrace.testing.process import BrokerProcess, ServerProcess, free_port
from headrace.testing.spreading import spread_subdirectories

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

# Every Java that the tests start lives for seconds: to compile thoroughly would take half of its time.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")

# A shell starts what it puts into the background deaf to Ctrl-C, and whatever that starts is deaf too: tests that
# interrupt a command would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes says something about the machine, not about the code.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

KINDS: Mapping[str, type[ServerProcess]] = {"headrace": BrokerProcess, "kafka": ApacheKafka}
MARKERS = (
    "headrace_only: about our own process or promise; not run against Apache Kafka",
    "slow: takes more than ten seconds",
    "java: with the tools of Apache Kafka; only with --with-java",
    "spark: with a Spark session, which needs Java 17",
    "long: the long form of a test, minutes of drills or simulation; only with --long",
)
LOG_TAIL_LINES = 60
NO_RETENTION = {"log.retention.check.interval.ms": "3600000", "log.initial.task.delay.ms": "3600000"}
"""For a broker that lives as long as the session: tests write records of years ago."""

if TYPE_CHECKING:
    from tests.scheduling import UnitScheduling

StartBroker = Callable[..., ServerProcess]
_running: list[ServerProcess] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("headrace")
    group.addoption("--broker", choices=sorted(KINDS), default="headrace", help="what brokers are started")
    group.addoption(
        "--bootstrap", default=os.environ.get("HEADRACE_TEST_BOOTSTRAP"), help="use the broker at this address"
    )
    group.addoption("--long", action="store_true", help="also the long forms of tests")
    group.addoption("--with-java", action="store_true", help="also the tests with the tools of Apache Kafka")
    group.addoption("--second-try", action="store_true", help="failed tests once more: tests/second_try.py")


def pytest_configure(config: pytest.Config) -> None:
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)
    if config.getoption("--second-try") and not hasattr(config, "workerinput"):
        from tests.second_try import SecondTry

        config.pluginmanager.register(SecondTry())


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Modules and tests stay until the end: the collector need not look for garbage among them, now or later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    unfit = set()
    if config.getoption("--broker") != "headrace":
        unfit.add("headrace_only")
    if not config.getoption("--with-java"):
        unfit.add("java")
    if not config.getoption("--long"):
        unfit.add("long")
    dropped = [item for item in items if any(item.get_closest_marker(name) for name in unfit)]
    config.hook.pytest_deselected(items=dropped)
    items[:] = [item for item in items if item not in dropped]
    if hasattr(config, "workerinput"):
        from tests.scheduling import longest_first

        longest_first(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> UnitScheduling:
    from tests.scheduling import UnitScheduling

    return UnitScheduling(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        for server in _running:
            tail = "\n".join(server.log_text().splitlines()[-LOG_TAIL_LINES:])
            report.sections.append((f"log of {server.name} on {server.bootstrap}", tail))
    return report


@pytest.fixture(scope="session", autouse=True)
def spread_files(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Thousands of tests create and delete files: near each other that becomes slow on some disks."""
    spread_subdirectories(tmp_path_factory.getbasetemp())


@pytest.fixture
def unused_tcp_port() -> int:
    """In place of pytest-asyncio's, whose ports the system may give to somebody else before they are used."""
    return free_port()


@pytest.fixture(scope="session")
def broker_kind(request: pytest.FixtureRequest) -> str:
    return str(request.config.getoption("--broker"))


@pytest.fixture(scope="session")
def bootstrap(request: pytest.FixtureRequest, broker_kind: str) -> Iterator[str]:
    """The address of the broker that the session's tests share."""
    given = request.config.getoption("--bootstrap")
    if given:
        yield str(given)
        return
    with KINDS[broker_kind](NO_RETENTION) as server:
        _running.append(server)
        yield server.bootstrap
        _running.remove(server)


@pytest.fixture
def own_broker(broker_kind: str) -> Iterator[StartBroker]:
    """Starts a broker for one test alone: `own_broker({"auto.create.topics.enable": "true"})`."""
    started: list[ServerProcess] = []

    def start(overrides: Mapping[str, str] | None = None) -> ServerProcess:
        server = KINDS[broker_kind](overrides)
        started.append(server)
        _running.append(server)
        server.start()
        return server

    yield start
    for server in started:
        _running.remove(server)
        server.close()
