"""What a replica costs: `python -m bench.replica_costs [--partitions 1000,3000] [--replicas 3] [--store sqlite]`.

Three brokers hold every partition. For each number of partitions, and as the slope between them: memory of the
brokers, their CPU when idle, open files, the size of the metadata in ZooKeeper, the CPU that a restarted broker
needs until it serves, and the CPU of the two that are left until they lead what a third one led. CPU is what
counts: it survives a busy machine. Every broker knows all partitions and holds some of them: a run with
`--replicas 1` beside the usual one tells the two apart. `docs/planning.md` is made of these figures.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import ElectionType

from bench import probes
from bench.admin import admin_client
from bench.clusters import PATIENCE_S, REPLICAS, BenchCluster, running_cluster
from bench.workloads.w19_many_replicas import PER_TOPIC, create, led_again
from headrace.testing.process_cluster import wait_until
from headrace.testing.zookeeper import ZooKeeperServer

IDLE_S = 10.0
SETTLE_S = 5.0
Figures = dict[str, float]


@contextmanager
def store(kind: str) -> Iterator[ZooKeeperServer | None]:
    if kind == "sqlite":
        yield None
        return
    with ZooKeeperServer() as server:
        yield server


def monitored(server: ZooKeeperServer) -> dict[str, float]:
    """What ZooKeeper says of itself."""
    with socket.create_connection((server.host, server.port), timeout=10) as connection:
        connection.sendall(b"mntr")
        said = b""
        while chunk := connection.recv(65536):
            said += chunk
    pairs = (line.split("\t") for line in said.decode().splitlines() if "\t" in line)
    return {name: float(value) for name, value in pairs if value.replace(".", "", 1).isdigit()}


def measure(cluster: BenchCluster, server: ZooKeeperServer | None) -> Figures:
    time.sleep(SETTLE_S)
    before, began = cluster.cpu_seconds(), time.monotonic()
    time.sleep(IDLE_S)
    idle = (cluster.cpu_seconds() - before) / (time.monotonic() - began)
    figures = {
        "rss_kb": probes.rss_mb(cluster.pids) * 1024,
        "idle_cpu_us_per_s": idle * 1e6,
        "open_files": float(sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in cluster.pids)),
    }
    if server is not None:
        found = monitored(server)
        figures["znodes"] = found["zk_znode_count"]
        figures["zookeeper_bytes"] = found["zk_approximate_data_size"]
        figures["zookeeper_rss_kb"] = probes.rss_mb([server.pid]) * 1024
    return figures


def restarted(cluster: BenchCluster, broker_id: int) -> Figures:
    """A clean stop and a start: CPU seconds of the process until it serves."""
    cluster.terminate(broker_id)
    began = time.monotonic()
    cluster.restart(broker_id)
    pid = cluster.servers.brokers[broker_id].pid
    return {"start_cpu_s": probes.cpu_seconds([pid]), "start_s": time.monotonic() - began}


def failed_over(cluster: BenchCluster, leader: int, topics: int) -> Figures:
    """Kill -9 of a broker that leads everything: CPU of the others until they say who leads."""
    client = admin_client(cluster.bootstrap)
    client.elect_leaders(ElectionType.PREFERRED, None).result()
    for number in range(topics):
        name = f"wide-{number}"
        wait_until(lambda name=name: set(cluster.leaders(name).values()) == {leader}, f"{name} led", PATIENCE_S)  # type: ignore[misc]
    others = [one.pid for id, one in cluster.servers.brokers.items() if id != leader]
    before = probes.cpu_seconds(others)
    seconds = led_again(cluster, leader, topics)
    return {"failover_cpu_s": probes.cpu_seconds(others) - before, "failover_s": seconds}


def until_whole(cluster: BenchCluster, topics: int) -> None:
    for number in range(topics):
        name = f"wide-{number}"
        wait_until(lambda name=name: cluster.is_whole(name, PER_TOPIC), f"{name} in sync", PATIENCE_S)  # type: ignore[misc]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.replica_costs", description=__doc__)
    parser.add_argument("--partitions", default="1000,3000", help="thousands, rising (1000,3000)")
    parser.add_argument("--replicas", type=int, choices=(1, 3), default=3)
    parser.add_argument("--store", choices=("zookeeper", "sqlite"), default="zookeeper")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    rows: dict[int, Figures] = {}
    with (
        store(options.store) as server,
        running_cluster("headrace", server.connect if server else None) as cluster,
    ):
        cluster.create_topic("first", 3)
        leader = next(id for id in sorted(cluster.servers.brokers) if id != cluster.controller())
        rows[0] = measure(cluster, server)
        made = 0
        for count in map(int, options.partitions.split(",")):
            before = cluster.cpu_seconds()
            for number in range(made, count // PER_TOPIC):
                create(cluster, f"wide-{number}", leader, options.replicas)
            created = {"create_cpu_s": (cluster.cpu_seconds() - before) / (count // PER_TOPIC - made)}
            made = count // PER_TOPIC
            rows[count] = {**created, **measure(cluster, server)}
            if options.replicas == REPLICAS:
                rows[count] |= restarted(cluster, leader)
                until_whole(cluster, made)
                rows[count] |= failed_over(cluster, leader, made)
                cluster.restart(leader)
                until_whole(cluster, made)
    if options.output:
        options.output.write_text(json.dumps(rows, indent=1))
    for count, figures in rows.items():
        print(f"{count:>6} partitions  " + "  ".join(f"{name} {value:,.4g}" for name, value in figures.items()))
    first, *_, last = rows
    print(f"slope, per partition with replication factor {options.replicas}, all brokers together:")
    for name, value in rows[last].items():
        if name in rows[first]:
            print(f"  {name:20} {(value - rows[first][name]) / (last - first):.4g}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
