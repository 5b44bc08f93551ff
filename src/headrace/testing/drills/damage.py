"""Disks that are wiped, machines that lose power, data directories that fail."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time

from headrace.testing.drills.scene import Scene, repeat
from headrace.testing.drills.workload import PARTITIONS, TOPIC
from headrace.testing.process_cluster import ClusterBroker, wait_until

RUNNING_MARKER = ".headrace_running"
LOST_BYTES = 2_000
"""The end of each log that had not reached the device."""
ALONE_SECONDS = 1.0


def wiped_disk(scene: Scene, seconds: float) -> None:
    """All die, one comes back first and with an empty disk: it must not lead."""

    def act() -> None:
        wiped = scene.brokers[scene.leader()]
        scene.note_fault(f"kill -9 all, wipe {wiped.broker_id}")
        scene.cluster.kill()
        shutil.rmtree(wiped.own_dir)
        _first(scene, wiped)

    repeat(scene, seconds, act)


def reboot(scene: Scene, seconds: float) -> None:
    """All die, and one's machine loses power: the tails of its logs are gone, and its boot id is another."""

    def act() -> None:
        lost = scene.brokers[scene.leader()]
        scene.note_fault(f"kill -9 all, power lost on {lost.broker_id}")
        scene.cluster.kill()
        _lose_power(lost)
        _first(scene, lost)

    repeat(scene, seconds, act)


def _first(scene: Scene, broker: ClusterBroker) -> None:
    """It starts before the others, who have what it lost."""
    broker.start()
    time.sleep(ALONE_SECONDS)
    scene.cluster.start()
    scene.until_whole()
    scene.until_acked()


def _lose_power(broker: ClusterBroker) -> None:
    marker = broker.own_dir / RUNNING_MARKER
    marker.write_text(json.dumps({**json.loads(marker.read_text()), "bootId": "the boot before"}))
    for partition in range(PARTITIONS):
        last = max((broker.own_dir / f"{TOPIC}-{partition}").glob("*.log"))
        os.truncate(last, max(0, last.stat().st_size - LOST_BYTES))


def failed_directory(scene: Scene, _: float) -> None:
    """One of a broker's two data directories fails: its partitions are led elsewhere, the others stay."""
    broker = scene.brokers[scene.leader()]
    scene.note_fault(f"directory of {broker.broker_id} fails")
    os.kill(broker.pid, signal.SIGUSR1)
    wait_until(
        lambda: any(broker.broker_id not in state.in_sync for state in scene.states().values()),
        "the broker leaves in-sync sets",
    )
    time.sleep(ALONE_SECONDS)
    states = scene.states().values()
    scene.check(
        any(broker.broker_id in state.in_sync for state in states),
        "the whole broker left, not only the partitions of the failed directory",
    )
    scene.check(all(state.leader >= 0 for state in states), "partitions have no leader")
    scene.until_acked()
    scene.check(broker.running, "the broker ended")
    broker.kill()
    broker.start()
