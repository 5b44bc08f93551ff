"""All partitions move again and again while they are written, and the controller and who copies are killed.

There are three brokers, so each partition moves to two of them, from there to others, and in the end to all three.
Each time some logs are set aside and others are copied from the beginning.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.client.connection import ClientSettings
from headrace.client.errors import ClientError
from headrace.client.reassigning import alter_reassignments, list_reassignments
from headrace.client.view import ClusterView
from headrace.env.real import real_env
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicPartition
from headrace.testing.drills.churn import controller
from headrace.testing.drills.scene import HEAL_SECONDS, Scene, repeat
from headrace.testing.drills.workload import PARTITIONS, TOPIC
from headrace.testing.process_cluster import wait_until

DOWN_SECONDS = 0.5
ASK_SECONDS = 10.0
AGAIN = (ErrorCode.INVALID_REPLICA_ASSIGNMENT, ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT)
"""A broker that was just killed is not registered yet, or who asked met nobody."""
T = TypeVar("T")
Targets = Mapping[int, tuple[int, ...]]


def move_under_load(scene: Scene, seconds: float) -> None:
    everybody = tuple(sorted(scene.brokers))
    at = {part: tuple(scene.chance.sample(everybody, 2)) for part in range(PARTITIONS)}
    move(scene, at)
    until_moved(scene, at)
    rounds = 0

    def one_round() -> None:
        nonlocal at, rounds
        at, rounds = {part: _next(scene, now) for part, now in at.items()}, rounds + 1
        move(scene, at)
        scene.note_event("all partitions move")
        _restart(scene, controller(scene.bootstrap), "controller")
        _restart(scene, at[scene.chance.randrange(PARTITIONS)][0], "a broker that copies,")
        until_moved(scene, at)

    repeat(scene, seconds, one_round)
    home = dict.fromkeys(at, everybody)
    move(scene, home)
    scene.note_event("all partitions move to all brokers")
    until_moved(scene, home)
    scene.notes.append(f"{(rounds + 2) * PARTITIONS} moves")


def _next(scene: Scene, now: tuple[int, ...]) -> tuple[int, ...]:
    """The broker that has no copy is to lead, and one of the others goes."""
    absent = next(broker for broker in sorted(scene.brokers) if broker not in now)
    return absent, scene.chance.choice(now)


def _restart(scene: Scene, broker_id: int, what: str) -> None:
    broker = scene.brokers.get(broker_id)
    if broker is None:
        return  # There is no controller at the moment.
    scene.note_fault(f"kill -9 {what} {broker_id}")
    broker.kill()
    time.sleep(DOWN_SECONDS)
    broker.start()


def move(scene: Scene, targets: Targets) -> None:
    """Ask until every move was accepted."""
    left = dict(targets)

    def accepted() -> bool:
        wanted = {TopicPartition(TOPIC, part): to for part, to in left.items()}
        outcomes = _ask(scene, lambda cluster: alter_reassignments(cluster, wanted))
        for name, error in (outcomes or {}).items():
            if error is None:
                left.pop(name.partition, None)
            else:
                scene.check(error.code in AGAIN, f"the move of {name} was refused: {error}")
        return not left

    wait_until(accepted, "moves accepted", HEAL_SECONDS)


def until_moved(scene: Scene, targets: Targets) -> None:
    def moved() -> bool:
        view = _ask(scene, lambda cluster: cluster.metadata([TOPIC]))
        moving = _ask(scene, list_reassignments)
        return view is not None and moving == {} and _is_at(view, targets)

    wait_until(moved, "partitions moved", HEAL_SECONDS)


def _is_at(view: ClusterView, targets: Targets) -> bool:
    partitions = view.topics[TOPIC].partitions if TOPIC in view.topics else ()
    return bool(partitions) and all(one.replicas == targets[one.number] for one in partitions)


def _ask(scene: Scene, question: Callable[[Cluster], Awaitable[T]]) -> T | None:
    """None if no broker answered in time."""

    async def ask() -> T:
        settings = ClientSettings(client_id="drill", connect_timeout_s=2.0, request_timeout_s=ASK_SECONDS)
        async with Cluster(real_env(), parse_bootstrap(scene.bootstrap), settings) as cluster:
            return await question(cluster)

    try:
        return asyncio.run(ask())
    except (ClientError, KafkaError):
        return None
