"""One drill from start to verdict."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from headrace.testing.drills.catalogue import DRILLS, Drill
from headrace.testing.drills.networks import HOSTS, ZOOKEEPER_HOST
from headrace.testing.drills.networks import SETTINGS as NETWORK_SETTINGS
from headrace.testing.drills.noise import noise
from headrace.testing.drills.scene import Scene
from headrace.testing.drills.timeline import Timeline, timeline_of
from headrace.testing.drills.workload import PARTITIONS, Workload, create_topic, read_everything
from headrace.testing.history import Verdict
from headrace.testing.hosts import Hosts
from headrace.testing.process_cluster import PRODUCT, ProcessCluster, wait_until
from headrace.testing.replica_files import differ
from headrace.testing.zookeeper import ZooKeeperEnsemble

LAUNCHER = "headrace.testing.drills.launcher"
BROKERS = 3
WARM_UP_SECONDS = 1.0
GAP_WINDOW_SECONDS = 5.0
PROBLEMS_SHOWN = 20
SETTINGS = {"offsets.topic.num.partitions": "4", "group.initial.rebalance.delay.ms": "0"}


@dataclass(frozen=True, slots=True)
class DrillResult:
    verdict: Verdict
    faults: int
    failures: list[str]
    """Errors that reached a producer."""
    gaps: list[float]
    """The longest time without an ack, for each fault and partition."""
    healed_s: float
    """The time until all in-sync sets were full after the last fault."""
    problems: list[str]
    notes: list[str]
    timeline: Timeline

    @property
    def passed(self) -> bool:
        return self.verdict.is_clean and not self.failures and not self.problems and self.verdict.acked > 0

    @property
    def median_gap(self) -> float:
        return median(self.gaps) if self.gaps else 0.0

    @property
    def worst_gap(self) -> float:
        return max(self.gaps, default=0.0)


def run_drill(
    name: str,
    *,
    seconds: float | None = None,
    zookeeper: bool = False,
    seed: int = 1,
    mutant: str | None = None,
    logs: Path | None = None,
) -> DrillResult:
    """Run a drill. Without `seconds` it is the short form. `logs` is a directory for the brokers' logs."""
    drill = DRILLS[name]
    defect = mutant or drill.defect
    launcher = (LAUNCHER, defect) if defect is not None else PRODUCT
    directories = 2 if drill.defect == "failing-disk" else 1
    with _hosts(drill) as hosts, _ensemble(drill, zookeeper, hosts) as ensemble:
        connect = None if ensemble is None else f"{ensemble.connect}/drill"
        settings = {**SETTINGS, **NETWORK_SETTINGS} if drill.hosts else SETTINGS
        cluster = ProcessCluster(BROKERS, settings, connect, None, launcher, directories)
        if hosts is not None:
            cluster.settle([(host.address, host.prefix) for host in hosts.all[:BROKERS]])
        with cluster:
            create_topic(cluster.bootstrap, BROKERS, drill.topic_configs)
            workload = Workload(cluster.bootstrap)
            scene = Scene(cluster, workload, random.Random(seed), ensemble, hosts)
            try:
                healed_s = _act(drill, scene, drill.short_s if seconds is None else seconds)
                _look(scene)
            finally:
                _keep_logs(scene, logs)
            gaps = [gap for when in scene.times for gap in workload.gaps(when, when + GAP_WINDOW_SECONDS).values()]
            verdict = workload.history.judge(scene.lost_from)
            if not verdict.is_clean:
                scene.notes.extend(workload.history.problems()[:PROBLEMS_SHOWN])
            timeline = timeline_of(workload, scene.events)
            return DrillResult(
                verdict, len(scene.times), workload.failures, gaps, healed_s, scene.problems, scene.notes, timeline
            )


@contextmanager
def _hosts(drill: Drill) -> Iterator[Hosts | None]:
    if not drill.hosts:
        yield None
        return
    with Hosts(HOSTS) as hosts:
        yield hosts


@contextmanager
def _ensemble(drill: Drill, wanted: bool, hosts: Hosts | None) -> Iterator[ZooKeeperEnsemble | None]:
    if not wanted and drill.zookeepers is None:
        yield None
        return
    ensemble = ZooKeeperEnsemble(drill.zookeepers or 1)
    if hosts is not None:
        server, host = ensemble.servers[0], hosts.all[ZOOKEEPER_HOST]
        server.host, server.prefix = host.address, host.prefix
    with ensemble:
        yield ensemble


def _act(drill: Drill, scene: Scene, seconds: float) -> float:
    """Run the load and the fault; returns the time until everything was in sync again."""
    workload = scene.workload
    with workload:
        wait_until(lambda: workload.acked > 100, "the first records acknowledged")
        time.sleep(WARM_UP_SECONDS)
        drill.fault(scene, seconds)
        scene.until_whole()
        last = scene.times[-1] if scene.times else time.monotonic()
        healed_s = time.monotonic() - last
        time.sleep(WARM_UP_SECONDS)
    return healed_s


def _keep_logs(scene: Scene, directory: Path | None) -> None:
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
        for broker in scene.brokers.values():
            shutil.copy(broker.log_path, directory / f"broker-{broker.broker_id}.log")


def _look(scene: Scene) -> None:
    """Read everything, and compare the replicas: while the brokers run, and after they have stopped."""
    ends = read_everything(scene.cluster.bootstrap, scene.workload.history)
    scene.until_whole()
    running = [part for part, end in ends.items() if differ(scene.replica_dirs(part), end)]
    scene.check(not running, f"replicas of {running} differ below the high watermark")
    kept = scene.workload.history.kept_after_all(scene.lost_from)
    scene.check(not kept, f"{kept} records are there that were reported as dropped")
    scene.cluster.stop()
    stopped = [part for part in range(PARTITIONS) if differ(scene.replica_dirs(part))]
    scene.check(not stopped, f"replicas of {stopped} differ after a clean stop")
    scene.check_controllers()
    for broker in scene.brokers.values():
        scene.problems.extend(f"broker {broker.broker_id}: {line}" for line in noise(broker.log_text()))
