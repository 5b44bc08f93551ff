"""W19: three brokers and thousands of partitions: made, idle, and led by others when their broker dies."""

from __future__ import annotations

import time
from collections.abc import Iterator

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench import probes
from bench.admin import TIMEOUT_S, admin_client
from bench.clusters import PATIENCE_S, REPLICAS, BenchCluster, running_cluster
from bench.measure import Measurement
from bench.registry import workload
from bench.run import Run
from headrace.testing.process_cluster import wait_until
from headrace.testing.zookeeper import ZooKeeperServer

PER_TOPIC = 1_000
TOPICS, QUICK_TOPICS = 3, 1
IDLE_S, QUICK_IDLE_S = 10.0, 4.0
SETTLE_S = 3.0
LOOK_S = 0.05
ASK_S = 1.0


@workload("W19", "Three brokers with thousands of partitions", own_system=True, max_rounds=2)
def many_replicas(run: Run) -> Iterator[Measurement]:
    """Three brokers with default settings. The CPU of all three together with no traffic, in percent of a core,
    empty and with 3,000 partitions of three replicas; the time until a topic of 1,000 partitions is in sync
    everywhere; the time after kill -9 of the controller until a topic can be created; and the time after kill -9
    of a broker that leads all 3,000 partitions until others lead them, as the others tell clients."""
    with running_cluster(run.system.name) as cluster:
        yield from cases(run, cluster)


@workload("W19Z", "The same with ZooKeeper", own_system=True, max_rounds=2, only=("headrace",), in_quick=False)
def many_replicas_with_zookeeper(run: Run) -> Iterator[Measurement]:
    """As W19, with brokers that share nothing but one ZooKeeper server."""
    with ZooKeeperServer() as server, running_cluster(run.system.name, server.connect) as cluster:
        yield from cases(run, cluster)


def cases(run: Run, cluster: BenchCluster) -> Iterator[Measurement]:
    idle_s, topics = run.choose(IDLE_S, QUICK_IDLE_S), run.choose(TOPICS, QUICK_TOPICS)
    cluster.create_topic("first", 3)
    yield new_controller(cluster)
    empty = idle_percent(cluster, idle_s)
    yield Measurement("idle, 3 partitions", {"idle_cpu_percent": empty, "rss_mb": probes.rss_mb(cluster.pids)})
    leader = next(id for id in sorted(cluster.servers.brokers) if id != cluster.controller())
    seconds = [create(cluster, f"wide-{number}", leader) for number in range(topics)]
    count = topics * PER_TOPIC
    yield Measurement("1,000 partitions created", {"seconds": min(seconds)}, notes={"each_s": seconds})
    full = idle_percent(cluster, idle_s)
    figures = {
        "idle_cpu_percent": full,
        "idle_cpu_us_per_partition": max(0.0, full - empty) * 1e4 / count,
        "rss_mb": probes.rss_mb(cluster.pids),
    }
    yield Measurement(f"idle, {count:,} partitions", figures)
    yield Measurement(f"kill -9, leader of {count:,}", {"led_again_s": led_again(cluster, leader, topics)})


def idle_percent(cluster: BenchCluster, seconds: float) -> float:
    """The CPU that all brokers together use without traffic, in percent of one core."""
    time.sleep(SETTLE_S)
    before, began = cluster.cpu_seconds(), time.monotonic()
    time.sleep(seconds)
    return (cluster.cpu_seconds() - before) / (time.monotonic() - began) * 100


def new_controller(cluster: BenchCluster) -> Measurement:
    victim = cluster.controller()
    others = ",".join(one.bootstrap for id, one in cluster.servers.brokers.items() if id != victim)
    began = time.monotonic()
    cluster.kill(victim)
    until_created(others)
    seconds = time.monotonic() - began
    cluster.restart(victim)
    wait_until(lambda: cluster.is_whole("first", 3), "all replicas in sync", PATIENCE_S)
    return Measurement("kill -9, controller", {"controller_s": seconds})


def until_created(bootstrap: str) -> None:
    """Waits until a topic can be created. Each attempt uses a new name, since one that timed out may have created
    its topic, and a new client: one that knows the old controller keeps waiting for it."""
    deadline, number = time.monotonic() + PATIENCE_S, 0
    while True:
        name, client = f"after-{number}", admin_client(bootstrap)
        number += 1
        try:
            client.create_topics([NewTopic(name, 1, 1)], request_timeout=ASK_S)[name].result()
            return
        except KafkaException:
            if time.monotonic() > deadline:
                raise


def create(cluster: BenchCluster, name: str, leader: int, replicas: int = REPLICAS) -> float:
    """Creates a topic whose partitions are all led by one broker, or have their only replica on each in turn;
    returns the seconds until all replicas are in sync."""
    ids = sorted(cluster.servers.brokers)
    others = [id for id in ids if id != leader]
    turns = [[leader, *(others if number % 2 else others[::-1])] for number in range(PER_TOPIC)]
    if replicas == 1:
        turns = [[ids[number % len(ids)]] for number in range(PER_TOPIC)]
    began = time.monotonic()
    topic = NewTopic(
        name, PER_TOPIC, replica_assignment=turns, config={"min.insync.replicas": str(min(2, replicas))}
    )
    client = admin_client(cluster.bootstrap)
    for future in client.create_topics([topic], request_timeout=TIMEOUT_S).values():
        future.result()
    wait_until(lambda: cluster.is_whole(name, PER_TOPIC, replicas), f"{name} in sync", PATIENCE_S)
    return round(time.monotonic() - began, 3)


def led_again(cluster: BenchCluster, victim: int, topics: int) -> float:
    clients = {id: admin_client(one.bootstrap) for id, one in cluster.servers.brokers.items() if id != victim}
    for client in clients.values():
        client.list_topics("first", timeout=TIMEOUT_S)  # connected before the clock starts
    began = time.monotonic()
    cluster.kill(victim)
    for client in clients.values():
        for number in range(topics):
            until_led(client, f"wide-{number}", victim)
    return time.monotonic() - began


def until_led(client: AdminClient, topic: str, victim: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        found = client.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions.values()
        if len(found) == PER_TOPIC and all(one.leader not in (-1, victim) for one in found):
            return
        time.sleep(LOOK_S)
    raise TimeoutError(f"{topic} has partitions without a leader after {PATIENCE_S:g} s")
