"""What is done to the cluster while the load runs: one function for each drill of `reliability`."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from headrace.testing.drills.workload import states
from headrace.testing.process_cluster import ProcessCluster, wait_until

SETTLE_SECONDS = 2.0
DOWN_SECONDS = 2.0


@dataclass(slots=True)
class Scene:
    cluster: ProcessCluster
    chance: random.Random
    times: list[float] = field(default_factory=list)
    """When something was done."""

    def leader(self) -> int:
        """The leader of some partition that lives."""
        led = states(self.cluster.bootstrap)
        choices = sorted({state.leader for state in led.values() if self.cluster.brokers[state.leader].running})
        return self.chance.choice(choices)

    def note(self) -> None:
        self.times.append(time.monotonic())


Fault = Callable[[Scene, float], None]
"""Goes on for about so many seconds."""


def none(scene: Scene, seconds: float) -> None:
    time.sleep(seconds)


def kill_leader_every(pause_s: float) -> Fault:
    def fault(scene: Scene, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            broker = scene.cluster.brokers[scene.leader()]
            scene.note()
            broker.kill()
            time.sleep(min(DOWN_SECONDS, pause_s / 2))
            broker.start()
            time.sleep(max(pause_s - DOWN_SECONDS, pause_s / 2))

    return fault


def kill_all(scene: Scene, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        scene.note()
        for broker in scene.cluster.brokers.values():
            broker.kill()
        scene.cluster.start()
        time.sleep(SETTLE_SECONDS + 2)


def kill_two(scene: Scene, seconds: float) -> None:
    """Any two of three: nothing is acknowledged, nothing is lost."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        chosen = scene.chance.sample(sorted(scene.cluster.brokers), 2)
        scene.note()
        for broker_id in chosen:
            scene.cluster.brokers[broker_id].kill()
        time.sleep(DOWN_SECONDS)
        for broker_id in chosen:
            scene.cluster.brokers[broker_id].start()
        wait_until(lambda: is_whole(scene.cluster), "in-sync sets full again")


def pause_leader(pause_s: float) -> Fault:
    """SIGSTOP for longer than its lease: it must answer nothing stale when it goes on."""

    def fault(scene: Scene, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            broker = scene.cluster.brokers[scene.leader()]
            scene.note()
            broker.pause()
            time.sleep(pause_s)
            broker.resume()
            time.sleep(SETTLE_SECONDS)

    return fault


def rolling_restart(scene: Scene, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for broker in scene.cluster.brokers.values():
            scene.note()
            broker.restart()
            wait_until(lambda: is_whole(scene.cluster), "in-sync sets full again")


def is_whole(cluster: ProcessCluster) -> bool:
    """Every partition is led and has all its replicas in sync."""
    everybody = tuple(sorted(cluster.brokers))
    return all(state.leader >= 0 and state.in_sync == everybody for state in states(cluster.bootstrap).values())
