"""The arithmetic of `headrace plan` (R-TOP-7)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.cli.planning.sizing import DISK_HEADROOM, ClusterPlan, ExpectedLoad, Machine, decide

MB, TB = 1_000_000, 1_000_000_000_000
LOAD = ExpectedLoad(
    throughput=50 * MB,
    average_share=0.5,
    growth=2.0,
    groups=2,
    consumer_speed=10 * MB,
    retention_s=86_400.0,
    replication=3,
)
MACHINE = Machine(
    disk=20 * TB,
    network=1250 * MB,
    broker_speed=1000 * MB,
    partition_speed=20 * MB,
    partitions_per_broker=2000,
)


def needs(plan: ClusterPlan) -> dict[str, int]:
    return {reason.what: reason.need for reason in (*plan.partition_reasons, *plan.broker_reasons)}


def test_every_reason_by_hand() -> None:
    plan = decide(LOAD, MACHINE)
    assert needs(plan) == {
        "to write": 5,  # 100 / 20
        "to read": 10,  # 100 / 10
        "to survive": 3,
        "to store": 1,  # 100 * 0.5 * 86400 * 3 = 12.96 TB in 14 TB
        "network in": 1,
        "network out": 1,
        "to append": 1,
        "to hold": 1,
    }
    assert (plan.partitions, plan.brokers) == (12, 3)
    assert plan.disk_per_broker == pytest.approx(12.96 * TB / 3 / DISK_HEADROOM)
    assert plan.network_in_per_broker == 100 * MB
    assert plan.network_out_per_broker == pytest.approx(100 * MB * 4 / 3, rel=1e-6)


@pytest.mark.parametrize(
    ("machine", "decisive", "brokers"),
    [
        (replace(MACHINE, disk=TB), "to store", 19),
        (replace(MACHINE, network=100 * MB), "network out", 6),
        (replace(MACHINE, broker_speed=60 * MB), "to append", 5),
        (replace(MACHINE, partitions_per_broker=6), "to hold", 5),
    ],
)
def test_each_limit_can_decide(machine: Machine, decisive: str, brokers: int) -> None:
    plan = decide(LOAD, machine)
    assert needs(plan)[decisive] == plan.brokers == brokers
    assert plan.partitions % brokers == 0, "leaders are spread evenly"


def test_more_never_needs_less() -> None:
    base = decide(LOAD, MACHINE)
    for change in (
        {"throughput": 90 * MB},
        {"growth": 9.0},
        {"groups": 50},
        {"retention_s": 1e6},
        {"replication": 5},
    ):
        more = decide(replace(LOAD, **change), MACHINE)
        assert more.brokers >= base.brokers
        assert all(
            more_need >= need for more_need, need in zip(needs(more).values(), needs(base).values(), strict=True)
        )


def test_one_replica_is_warned_of() -> None:
    plan = decide(replace(LOAD, replication=1), MACHINE)
    assert plan.brokers == 1
    assert any("loses" in note for note in plan.notes)
