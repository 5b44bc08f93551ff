"""One drill from start to verdict."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from dataclasses import dataclass

from headrace.testing.drills.faults import Fault, Scene, is_whole
from headrace.testing.drills.workload import PARTITIONS, TOPIC, Workload, create_topic, read_everything
from headrace.testing.history import Verdict
from headrace.testing.process_cluster import ProcessCluster, wait_until

WARM_UP_SECONDS = 1.0
GAP_WINDOW_SECONDS = 5.0
HEAL_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class DrillResult:
    verdict: Verdict
    faults: int
    failures: list[str]
    """Errors that reached a producer."""
    gaps: list[float]
    """Without an ack on some partition, after each fault."""
    healed_s: float
    differing: list[int]
    """Partitions whose replicas are not the same, byte for byte."""

    @property
    def passed(self) -> bool:
        return self.verdict.is_clean and not self.failures and not self.differing and self.verdict.acked > 0


def run_drill(
    fault: Fault,
    seconds: float,
    *,
    settings: Mapping[str, str] | None = None,
    zookeeper: str | None = None,
    seed: int = 1,
) -> DrillResult:
    with ProcessCluster(3, settings, zookeeper) as cluster:
        create_topic(cluster.bootstrap, 3)
        scene = Scene(cluster, random.Random(seed))
        with Workload(cluster.bootstrap) as workload:
            wait_until(lambda: workload.acked > 100, "the first records acknowledged")
            time.sleep(WARM_UP_SECONDS)
            fault(scene, seconds)
            began = time.monotonic()
            wait_until(lambda: is_whole(cluster), "in-sync sets full after the faults", HEAL_SECONDS)
            healed_s = time.monotonic() - began
            time.sleep(WARM_UP_SECONDS)
        read_everything(cluster.bootstrap, workload.history)
        wait_until(lambda: is_whole(cluster), "in-sync sets full at the end", HEAL_SECONDS)
        cluster.stop()
        differing = [
            partition
            for partition in range(PARTITIONS)
            if len({cluster.replica_bytes(broker_id, TOPIC, partition) for broker_id in cluster.brokers}) > 1
        ]
        gaps = [workload.longest_gap(when, when + GAP_WINDOW_SECONDS) for when in scene.times]
        return DrillResult(
            workload.history.judge(), len(scene.times), workload.failures, gaps, healed_s, differing
        )
