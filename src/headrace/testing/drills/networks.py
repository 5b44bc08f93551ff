"""Networks that lie: links that lose everything one way, are slow, or end silently. A broker is a host."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.testing.drills.scene import HEAL_SECONDS, Scene, repeat
from headrace.testing.drills.workload import TOPIC
from headrace.testing.drills.zombies import leader_epoch, probes
from headrace.testing.hosts import Host, Hosts
from headrace.testing.process_cluster import ClusterBroker, wait_until

BROKERS = 3
ZOOKEEPER_HOST = 3
CLIENT_HOST = 4
HOSTS = 5
"""Three brokers, ZooKeeper, and a client that vanishes."""
SETTINGS = {
    "headrace.allow.insecure": "true",
    "replica.lag.time.max.ms": "4000",
    "connections.max.idle.ms": "8000",
}
CUT_SECONDS = 8.0
"""Longer than a lease, and than a follower may be silent."""
SLOW_SECONDS = 8.0
SETTLE_SECONDS = 1.0
WRITERS = 20
"""Connections of the client that vanishes, to each broker."""

CONNECTIONS = """
import socket, sys, time
count, *addresses = sys.argv[1:]
opened = []
for address in addresses:
    host, port = address.rsplit(":", 1)
    for number in range(int(count)):
        connection = socket.create_connection((host, int(port)))
        connection.sendall(bytes.fromhex("0000000a 0012 0000 00000001 0000"))
        connection.recv(4096)
        opened.append(connection)
print("ready", flush=True)
time.sleep(3600)
"""
"""A program that opens connections, asks for versions on each, and never closes one."""


def hosts_of(scene: Scene) -> Hosts:
    assert scene.hosts is not None
    return scene.hosts


def zookeeper_host(scene: Scene) -> Host:
    return hosts_of(scene).all[ZOOKEEPER_HOST]


def led_by(scene: Scene, broker_id: int) -> list[int]:
    return [part for part, state in scene.states().items() if state.leader == broker_id]


def until_replaced(scene: Scene, broker_id: int, led: list[int]) -> None:
    """Others lead, as they see it themselves."""
    began, others = time.monotonic(), scene.others(broker_id)
    wait_until(
        lambda: all(scene.states_by(others)[part].leader not in (-1, broker_id) for part in led),
        f"others lead what broker {broker_id} led",
        HEAL_SECONDS,
    )
    scene.notes.append(f"replaced after {time.monotonic() - began:.1f} s")


def heal(scene: Scene) -> None:
    hosts_of(scene).heal()
    scene.note_event("healed")
    scene.until_whole()
    scene.until_acked()
    time.sleep(SETTLE_SECONDS)


def isolated_leader(scene: Scene, seconds: float) -> None:
    """Cut off from its peers and from ZooKeeper, reachable by clients: it must answer nothing stale."""

    def act() -> None:
        cut = scene.leader()
        broker, led = scene.brokers[cut], led_by(scene, cut)
        epochs = {part: leader_epoch(broker.bootstrap, part) for part in led}
        others = [scene.host(id) for id in scene.brokers if id != cut]
        scene.note_fault(f"leader {cut} cut off from its peers and ZooKeeper")
        hosts_of(scene).part(scene.host(cut), [*others, zookeeper_host(scene)])
        until_replaced(scene, cut, led)
        check_refused(scene, broker, epochs)
        time.sleep(SETTLE_SECONDS)
        check_refused(scene, broker, epochs)
        heal(scene)

    repeat(scene, seconds, act)


def check_refused(scene: Scene, broker: ClusterBroker, epochs: dict[int, int]) -> None:
    """Requests to the deposed leader of these epochs, over connections that work."""
    waiting = [(part, probe) for part, epoch in epochs.items() for probe in probes(broker.bootstrap, part, epoch)]
    for _, probe in waiting:
        probe.send()
    for part, probe in waiting:
        scene.check(
            probe.error() != 0,
            f"{TOPIC}-{part}: the leader that was cut off answered a request as if it led ({probe.what})",
        )


def leader_without_peers(scene: Scene, seconds: float) -> None:
    """Cut off from its peers alone: ZooKeeper and clients reach it. It gives way, and others take its records."""

    def act() -> None:
        cut = scene.leader()
        led = led_by(scene, cut)
        scene.note_fault(f"leader {cut} cut off from its peers, not from ZooKeeper")
        hosts_of(scene).part(scene.host(cut), [scene.host(id) for id in scene.brokers if id != cut])
        until_replaced(scene, cut, led)
        taken = scene.workload.acked_by_partition()
        wait_until(
            lambda: all(scene.workload.acked_by_partition()[part] > taken[part] for part in led),
            "records acknowledged by the others",
            HEAL_SECONDS,
        )
        heal(scene)

    repeat(scene, seconds, act)


def one_way(scene: Scene, seconds: float) -> None:
    """What one broker sends to another is lost, not the other way: each direction, leader and follower."""

    def act() -> None:
        leader = scene.leader()
        follower = scene.chance.choice([id for id in scene.brokers if id != leader])
        for sender, receiver in ((leader, follower), (follower, leader)):
            scene.note_fault(f"{sender} → {receiver} lost")
            hosts_of(scene).cut(scene.host(sender), scene.host(receiver))
            time.sleep(CUT_SECONDS)
            heal(scene)

    repeat(scene, seconds, act)


def store_one_way(scene: Scene, seconds: float) -> None:
    """What ZooKeeper sends to a leader is lost: it goes on writing to the store, and hears nothing."""

    def act() -> None:
        cut = scene.leader()
        led = led_by(scene, cut)
        scene.note_fault(f"ZooKeeper → leader {cut} lost")
        hosts_of(scene).cut(zookeeper_host(scene), scene.host(cut))
        until_replaced(scene, cut, led)
        heal(scene)

    repeat(scene, seconds, act)


def slow_link(scene: Scene, seconds: float) -> None:
    """A leader's link is slow both ways; records go on being acknowledged."""

    def act() -> None:
        slow = scene.leader()
        speed = scene.host(slow).slow()
        scene.note_fault(f"leader {slow}: {speed}")
        time.sleep(SLOW_SECONDS)
        scene.until_acked()
        heal(scene)

    repeat(scene, seconds, act)


def vanished_host(scene: Scene, seconds: float) -> None:
    """A leader's host disappears silently, and comes back later, restarted."""

    def act() -> None:
        gone = scene.leader()
        broker, led = scene.brokers[gone], led_by(scene, gone)
        scene.note_fault(f"the host of leader {gone} vanishes")
        scene.host(gone).unplug()
        broker.kill()  # nobody hears of it
        until_replaced(scene, gone, led)
        scene.until_acked()
        time.sleep(SETTLE_SECONDS)
        hosts_of(scene).heal()
        broker.start()
        heal(scene)

    repeat(scene, seconds, act)


def half_open(scene: Scene, seconds: float) -> None:
    """A broker and a client vanish behind their connections; the broker is back before anybody noticed."""

    def act() -> None:
        with vanishing_client(scene) as vanish:
            chosen = scene.brokers[scene.leader()]
            host = scene.host(chosen.broker_id)
            scene.note_fault(f"leader {chosen.broker_id} restarts behind a dead link, a client vanishes")
            vanish()
            host.unplug()
            chosen.kill()
            chosen.launch()
            time.sleep(SETTLE_SECONDS)
            hosts_of(scene).heal()
            hosts_of(scene).all[CLIENT_HOST].unplug()
            wait_until(lambda: chosen.is_ready(time.monotonic() + HEAL_SECONDS), "it serves again", HEAL_SECONDS)
            scene.until_whole()
            scene.until_acked()
            wait_until(lambda: not left_over(scene), "connections of a client that vanished are closed")
        heal(scene)

    repeat(scene, seconds, act)


@contextmanager
def vanishing_client(scene: Scene) -> Iterator[Callable[[], None]]:
    """Returns the function that makes it disappear: its link goes down, and it ends silently."""
    host = hosts_of(scene).all[CLIENT_HOST]
    addresses = [broker.bootstrap for broker in scene.brokers.values()]
    command = [*host.prefix, sys.executable, "-c", CONNECTIONS, str(WRITERS), *addresses]
    client = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        assert client.stdout is not None
        assert client.stdout.readline() == b"ready\n", "the client that vanishes could not connect"
        assert left_over(scene) == WRITERS * len(addresses)

        def vanish() -> None:
            host.unplug()
            client.kill()

        yield vanish
    finally:
        client.kill()
        client.wait()
        if client.stdout is not None:
            client.stdout.close()


def left_over(scene: Scene) -> int:
    """Connections to the host of the client that the brokers hold."""
    wanted = hosts_of(scene).all[CLIENT_HOST].address
    reversed_hex = "".join(f"{int(part):02X}" for part in reversed(wanted.split(".")))
    count = 0
    for broker in scene.brokers.values():
        table = Path(f"/proc/{broker.pid}/net/tcp").read_text().splitlines()[1:]
        count += sum(line.split()[2].startswith(reversed_hex) and line.split()[3] == "01" for line in table)
    return count
