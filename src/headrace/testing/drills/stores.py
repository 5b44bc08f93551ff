"""ZooKeeper away, and one of three servers killed."""

from __future__ import annotations

import time

from headrace.testing.drills.scene import Fault, Scene, repeat

EXTRA_SECONDS = 3.0
"""After the store's sessions would have ended."""
SETTLE_SECONDS = 5.0


def zookeeper_down(scene: Scene, seconds: float) -> None:
    """All servers are away for so long: records are acknowledged to the end of it."""
    assert scene.zookeeper is not None
    before = scene.states()
    scene.note_fault("ZooKeeper down")
    for server in scene.zookeeper.servers:
        server.kill()
    began = time.monotonic()
    time.sleep(max(seconds - EXTRA_SECONDS, 1.0))
    late = scene.workload.acked_by_partition()
    time.sleep(EXTRA_SECONDS)
    now = scene.workload.acked_by_partition()
    stuck = sorted(part for part in before if now.get(part, 0) == late.get(part, 0))
    scene.check(not stuck, f"partitions {stuck} took no records while ZooKeeper was down")
    worst = scene.workload.longest_gap(began, time.monotonic())
    scene.notes.append(f"longest gap while ZooKeeper was down {worst:.2f} s")
    scene.zookeeper.start()
    scene.note_event("ZooKeeper up")
    scene.until_whole()
    scene.until_acked()
    scene.check_controllers()


def zookeeper_one_killed(every_s: float) -> Fault:
    """The leader of the ensemble."""

    def fault(scene: Scene, seconds: float) -> None:
        ensemble = scene.zookeeper
        assert ensemble is not None

        def kill() -> None:
            server = ensemble.leader()
            scene.note_fault(f"kill -9 ZooKeeper {server.id}")
            server.kill()
            time.sleep(every_s)
            server.start()
            time.sleep(SETTLE_SECONDS)

        repeat(scene, seconds, kill)
        scene.check_controllers()

    return fault
