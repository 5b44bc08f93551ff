"""`headrace plan -b`: what it takes from a cluster, and how it compares."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.cli.planning.comparing import compare
from headrace.cli.planning.measure import BrokerDisk, MeasuredCluster
from headrace.cli.planning.sizing import decide
from tests.unit.cli.planning.test_sizing import LOAD, MACHINE, MB, TB

DISK = BrokerDisk(2 * TB, 1 * TB, TB // 2)
FOUND = MeasuredCluster(
    disks={1: DISK, 2: DISK, 3: DISK},
    topics=2,
    partitions=12,
    replicas=36,
    replication=3,
    groups=1,
    write_rate=10 * MB,
    fastest_partition=2 * MB,
    retention_s=7 * 86_400.0,
)


def test_a_cluster_that_is_large_enough() -> None:
    plan = decide(LOAD, MACHINE)
    assert compare(plan, FOUND) == [
        "3 brokers: enough for 3.",
        "12 partitions in 2 topics: enough for 12, if the load is spread over them.",
        "The disk of broker 1 is 70% full in 11h 6m at the current rate.",  # (1 - 0.6) TB / 10 MB/s
    ]


def test_one_that_is_not() -> None:
    plan = decide(replace(LOAD, throughput=200 * MB), replace(MACHINE, broker_speed=200 * MB))
    one = FOUND._replace(disks={1: DISK._replace(free_bytes=TB // 10)}, partitions=3)
    first, second, third = compare(plan, one)
    assert first.startswith("1 broker: add 5 (to append")
    assert (
        second
        == "3 partitions in 2 topics: the load needs 42. Adding partitions to a topic changes where its keys go."
    )
    assert third == "The disk of broker 1 is more than 70% full now: 93.1 GiB are free."


def test_retention_comes_first() -> None:
    plan = decide(LOAD, MACHINE)
    texts = compare(plan, FOUND._replace(retention_s=3600.0))
    assert texts[-1] == "Disks: retention (1h) deletes before they are 70% full."


@pytest.mark.parametrize("unknown", [DISK._replace(total_bytes=None, free_bytes=None)])
def test_a_broker_that_does_not_tell_its_disk(unknown: BrokerDisk) -> None:
    assert len(compare(decide(LOAD, MACHINE), FOUND._replace(disks={1: unknown}))) == 2
