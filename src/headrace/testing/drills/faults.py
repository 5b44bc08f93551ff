"""Brokers killed, paused and restarted while the load runs."""

from __future__ import annotations

import time

from headrace.testing.drills.scene import Fault, Scene, repeat

SETTLE_SECONDS = 2.0
DOWN_SECONDS = 2.0


def none(scene: Scene, seconds: float) -> None:
    time.sleep(seconds)


def kill_leader_every(pause_s: float) -> Fault:
    def fault(scene: Scene, seconds: float) -> None:
        def kill() -> None:
            broker = scene.brokers[scene.leader()]
            scene.note_fault(f"kill -9 leader {broker.broker_id}")
            broker.kill()
            time.sleep(min(DOWN_SECONDS, pause_s / 2))
            broker.start()
            scene.note_event("back")
            time.sleep(max(pause_s - DOWN_SECONDS, pause_s / 2))

        repeat(scene, seconds, kill)

    return fault


def kill_all(scene: Scene, seconds: float) -> None:
    def kill() -> None:
        scene.note_fault("kill -9 all")
        scene.cluster.kill()
        scene.check_noted()
        scene.cluster.start()
        scene.note_event("back")
        scene.until_acked()
        time.sleep(SETTLE_SECONDS)

    repeat(scene, seconds, kill)


def kill_two(scene: Scene, seconds: float) -> None:
    """Any two of three: nothing is acknowledged, nothing is lost."""

    def kill() -> None:
        chosen = [scene.brokers[id] for id in scene.chance.sample(sorted(scene.brokers), 2)]
        scene.note_fault("kill -9 " + " and ".join(str(broker.broker_id) for broker in chosen))
        for broker in chosen:
            broker.kill()
        time.sleep(DOWN_SECONDS)
        for broker in chosen:
            broker.start()
        scene.note_event("back")
        scene.until_whole()

    repeat(scene, seconds, kill)


def rolling_restart(scene: Scene, seconds: float) -> None:
    def restart() -> None:
        for broker in scene.brokers.values():
            scene.note_fault(f"restart {broker.broker_id}")
            broker.restart()
            scene.until_whole()

    repeat(scene, seconds, restart)
