"""A rolling restart as an operator does it, under ordinary clients: none of them has anything to report."""

from __future__ import annotations

from headrace.testing.apache_kafka import OracleUnavailable, fetch_libraries
from headrace.testing.drills.everyday_clients import FAMILIES, PARTITIONS, TOPIC, EverydayClients
from headrace.testing.drills.scene import HEAL_SECONDS, Scene
from headrace.testing.drills.workload import QUIET, create
from headrace.testing.process_cluster import wait_until

ROUNDS = 5
SETTLE_SECONDS = 180.0


def rolling_restart_with_clients(scene: Scene, seconds: float) -> None:
    """One round for the short form, five for the full one."""
    create(scene.cluster.bootstrap, TOPIC, PARTITIONS, {})
    families = dict(FAMILIES)
    try:
        fetch_libraries()
    except OracleUnavailable as error:
        del families["java"]
        scene.notes.append(f"not with the Java client: {error}")
    with EverydayClients(scene.cluster.bootstrap, families) as clients:
        try:
            wait_until(clients.is_settled, "every client at work", SETTLE_SECONDS)
        except AssertionError as error:
            raise AssertionError(f"{error}: {clients.state()}") from None
        for _ in range(1 if seconds <= 1 else ROUNDS):
            for broker in scene.brokers.values():
                clients.begin()
                scene.note_fault(f"restart {broker.broker_id}")
                broker.restart()
                wait_until(lambda: _all_whole(scene), "every replica in sync", HEAL_SECONDS)
                _until_all_go_on(clients)
        scene.problems.extend(clients.problems())
    scene.notes.append(clients.state())


def _until_all_go_on(clients: EverydayClients) -> None:
    try:
        wait_until(clients.went_on, "every client goes on", HEAL_SECONDS)
    except AssertionError as error:
        raise AssertionError(f"{error}: {clients.problems()} {clients.state()}") from None


def _all_whole(scene: Scene) -> bool:
    """Whether all topics are in sync, those of groups included, as `headrace cluster health` checks."""
    from confluent_kafka.admin import AdminClient

    metadata = AdminClient({"bootstrap.servers": scene.bootstrap, **QUIET}).list_topics(timeout=30)
    partitions = [one for topic in metadata.topics.values() for one in topic.partitions.values()]
    return len(metadata.brokers) == len(scene.brokers) and all(
        one.leader >= 0 and len(one.isrs) == len(one.replicas) for one in partitions
    )
