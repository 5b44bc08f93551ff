"""Short forms of drills (R-REP-8), and proof that they find what they are for. All of them: `make drills`."""

from __future__ import annotations

import pytest

from headrace.testing.drills.running import DrillResult, run_drill


def said(result: DrillResult) -> list[str]:
    return [str(result.verdict), *result.problems, *result.failures]


@pytest.mark.parametrize(
    ("name", "zookeeper"),
    [("kill-all", False), ("double-failover", False), ("kill-two", True), ("move-under-load", False)],
)
def test_nothing_acknowledged_is_lost(name: str, zookeeper: bool) -> None:
    result = run_drill(name, seconds=1, zookeeper=zookeeper)
    assert result.passed, said(result)
    assert result.faults >= 1
    assert result.verdict.acked > 100


def test_a_drill_finds_records_acknowledged_before_they_are_replicated() -> None:
    result = run_drill("slow-follower", seconds=0, mutant="high-watermark-of-one")
    assert result.verdict.acked_missing > 0, said(result)


def test_a_drill_finds_a_leader_that_lost_its_disk() -> None:
    result = run_drill("wiped-disk", seconds=0, mutant="trust-every-disk")
    assert result.verdict.acked_missing > 0, said(result)
