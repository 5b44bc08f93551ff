"""Which worker runs which tests, and in what order, when `make test` uses several (pytest-xdist).

Rules:

- The tests of a file stay together, in their order: they may share a broker that takes a while to start.
- The files that share the Spark session of `tests/spark/conftest.py` are one unit: one session lives at a time.
  Files whose Spark runs in processes of its own stand in `OWN_SPARK` and go to any worker.
- Long units go first, so that no worker is left alone with one at the end. `SECONDS` says about how long they take
  on a free machine, by file or, for each of its files, by folder. A wrong number costs time and nothing else, and
  a new file needs no entry.
"""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

SPARK = "tests/spark/"
SPARK_SESSION = "the tests that share a Spark session"
OWN_SPARK = frozenset(
    SPARK + name
    for name in (
        "test_cluster.py",
        "test_exactly_once_sink.py",
        "test_pipeline_command.py",
        "test_pipeline_connectors.py",
        "test_restart.py",
        "test_spark_kafka_connector.py",
    )
)

SECONDS = {
    SPARK_SESSION: 420,
    "tests/spark/test_pipeline_command.py": 160,
    "tests/spark/test_exactly_once_sink.py": 140,
    "tests/e2e/test_docs.py": 140,
    "tests/spark/test_restart.py": 70,
    "tests/spark/test_cluster.py": 70,
    "tests/e2e/test_demo.py": 55,
    "tests/cluster/test_crash.py": 50,
    "tests/cluster/test_exactly_once.py": 35,
    "tests/compat/test_tls.py": 30,
    "tests/compat/test_groups_clients.py": 30,
    "tests/spark": 30,
    "tests/compat/test_cli_groups.py": 25,
    "tests/compat/test_delivery.py": 25,
    "tests/cluster/test_drills.py": 70,
    "tests/e2e": 20,
    "tests/cluster": 15,
    "tests/sim": 60,
    "tests/contract": 15,
    "tests/connectors": 12,
    "tests/processes": 10,
    "tests/compat": 10,
    "tests/test_tidy.py": 10,
    "tests": 1,
}
WITHOUT_JAVA_FIRST = ("tests/cluster/test_drills.py", "tests/sim/test_seeds.py")
"""These begin beside the Spark session: it makes an image of Spark's classes, for which other tests would wait."""


def unit_of(node_id: str) -> str:
    """What a test is kept together with: its file, or all that share the Spark session."""
    file = node_id.split("::", 1)[0]
    return SPARK_SESSION if file.startswith(SPARK) and file not in OWN_SPARK else file


def seconds_of(unit: str) -> int:
    """About how long a unit takes: the number of the unit itself, or of the nearest folder that has one."""
    while unit not in SECONDS:
        unit, separator, _ = unit.rpartition("/")
        if not separator:
            return 0
    return SECONDS[unit]


def place_of(unit: str) -> tuple[int, int]:
    """Before which others a unit begins: what is smaller goes first."""
    return -(unit == SPARK_SESSION) - (unit in {SPARK_SESSION, *WITHOUT_JAVA_FIRST}), -seconds_of(unit)


def longest_first(items: list[pytest.Item]) -> None:
    """Puts the tests of the longest unit first; within a unit, and among equals, the order stays."""
    items.sort(key=lambda item: place_of(unit_of(item.nodeid)))


class UnitScheduling(LoadScopeScheduling):
    """A unit goes to the next free worker, in the order in which the tests were collected."""

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        config.option.loadscopereorder = False  # by the number of tests, a file of 2,000 quick ones would go first
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)
