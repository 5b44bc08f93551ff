"""A Spark session and a broker that all tests here share: each session takes ten seconds to start.

    pytest tests/spark                     with a Headrace broker
    pytest tests/spark --broker=kafka      with Apache Kafka; tests of our own process are left out

Every test has topics of its own (`make_topic`) and a directory of its own for checkpoints (`tmp_path`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conftest import KINDS
from tests.spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK_TIMEOUT_S = 1500
BROKER = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "log.cleaner.backoff.ms": "100",
    "log.retention.ms": "-1",  # records of years ago outlive the check that comes after five minutes
}
SESSION = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.host": "localhost",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    # A state store and a checkpoint per micro-batch take longer than the batch itself; keep few files.
    "spark.sql.streaming.minBatchesToRetain": "2",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker("spark")
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(SPARK_TIMEOUT_S))


@pytest.fixture(scope="session")
def java(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The Java that Spark runs on, or a failure that says what to install. The Python beside it is chosen too."""
    from headrace.spark.pipelines.running.session import NoJava
    from tests.spark.surroundings import surroundings

    try:
        os.environ |= surroundings(tmp_path_factory.mktemp("python"))
    except NoJava as error:
        pytest.fail(f"{error}: {error.advice}", pytrace=False)
    return os.environ["JAVA_HOME"]


@pytest.fixture(scope="session")
def spark(java: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    folder = tmp_path_factory.mktemp("spark")
    builder = SparkSession.Builder().master("local[2]").appName("headrace-tests")
    for name, value in {**SESSION, "spark.sql.warehouse.dir": str(folder / "warehouse")}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def bootstrap(request: pytest.FixtureRequest, broker_kind: str) -> Iterator[str]:
    """The address of the broker that these tests share."""
    given = request.config.getoption("--bootstrap")
    if given:
        yield str(given)
        return
    with KINDS[broker_kind](BROKER) as server:
        yield server.bootstrap


@pytest.fixture(scope="session")
def topics(bootstrap: str) -> Topics:
    """Makes, fills and reads topics with another client than ours."""
    return Topics(bootstrap)


MakeTopic = Callable[..., str]


@pytest.fixture
def make_topic(topics: Topics) -> Iterator[MakeTopic]:
    """A topic for one test: `make_topic(partitions=3, configs={"cleanup.policy": "compact"})`."""
    made: list[str] = []

    def make(name: str | None = None, partitions: int = 1, configs: Mapping[str, str] | None = None) -> str:
        made.append(topics.create(name, partitions, configs))
        return made[-1]

    yield make
    topics.delete(made, must_exist=False)
