"""W12: how long writes are not acknowledged after a broker has died."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

from bench.acks import SteadyProducer
from bench.clusters import BenchCluster, running_cluster
from bench.measure import Measurement
from bench.registry import workload
from bench.run import Run
from headrace.testing.process_cluster import wait_until
from headrace.testing.zookeeper import ZooKeeperServer

PARTITIONS = 6
STEADY_S = 2.0
"""How long all partitions are acknowledged before and after a broker ends."""
RECOVERY_S = 120.0

End = Callable[[BenchCluster, int], None]
CASES: dict[str, tuple[bool, End, dict[str, int]]] = {
    "kill -9, leader": (False, BenchCluster.kill, {}),
    "kill -9, leader and controller": (True, BenchCluster.kill, {}),
    "SIGTERM, leader": (False, BenchCluster.terminate, {}),
    "SIGTERM, leader; retry.backoff.ms=1": (False, BenchCluster.terminate, {"retry.backoff.ms": 1}),
}
"""For each case: whether the broker is the controller too, how it ends, and the producer settings that are not
defaults. librdkafka waits for 80 to 120 ms before it retries what a broker refused: the last case leaves only the
brokers' part."""


@workload("W12", "Gap in acknowledged writes after the end of a leader", own_system=True, max_rounds=3)
def failover(run: Run) -> Iterator[Measurement]:
    """Three brokers with default settings, 6 partitions with three replicas. A librdkafka producer, idempotent
    and otherwise with its defaults but for what the case names, writes 600 small records a second in turn to all
    partitions. One broker ends; the gap is the longest time without an acknowledgement on any partition that it
    led. Errors: records that failed."""
    with running_cluster(run.system.name) as cluster:
        for case in CASES:
            yield one_failover(cluster, case)


@workload("W12Z", "The same with ZooKeeper", own_system=True, max_rounds=3, only=("headrace",))
def failover_with_zookeeper(run: Run) -> Iterator[Measurement]:
    """As W12, with brokers that share nothing but one ZooKeeper server."""
    with ExitStack() as stack:
        server = stack.enter_context(ZooKeeperServer())
        cluster = stack.enter_context(running_cluster(run.system.name, server.connect))
        for case in CASES:
            yield one_failover(cluster, case)


def one_failover(cluster: BenchCluster, case: str) -> Measurement:
    """Measures one case on its own topic, so that every broker leads partitions of it; restarts the broker."""
    is_controller, end, settings = CASES[case]
    topic = "".join(letter for letter in case if letter.isalnum())
    cluster.create_topic(topic, PARTITIONS)
    controller, leaders = cluster.controller(), cluster.leaders(topic)
    victim = controller if is_controller else next(id for id in leaders.values() if id != controller)
    led = [partition for partition, leader in leaders.items() if leader == victim]
    with SteadyProducer(cluster.bootstrap, topic, PARTITIONS, **settings) as producer:
        producer.wait_for_all(RECOVERY_S)
        time.sleep(STEADY_S)
        ended = time.monotonic()
        end(cluster, victim)
        producer.wait_for_all(RECOVERY_S)
        time.sleep(STEADY_S)
    gaps = {partition: producer.longest_gap(partition, ended) for partition in led}
    cluster.restart(victim)
    wait_until(lambda: cluster.is_whole(topic, PARTITIONS), f"all replicas of {topic} in sync", RECOVERY_S)
    notes = {"gaps_s": {str(partition): round(gap, 3) for partition, gap in gaps.items()}, "acked": producer.acked}
    return Measurement(case, {"gap_s": max(gaps.values())}, len(producer.failures), notes)
