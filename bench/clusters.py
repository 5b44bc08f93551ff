"""Three brokers of either system on one machine, started, measured and killed in the same way."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka.cimpl import NewTopic

from bench import probes
from bench.admin import TIMEOUT_S, admin_client
from bench.systems import COMMON_SETTINGS, JVM_FLAGS
from headrace.testing.apache_kafka_cluster import ApacheKafkaCluster, KafkaNode
from headrace.testing.process_cluster import ProcessCluster, wait_until

REPLICAS = 3
PATIENCE_S = 120.0


class ProductionNode(KafkaNode):
    jvm_flags = JVM_FLAGS


class BenchCluster:
    """A running cluster, with the operations that the workloads need."""

    def __init__(self, servers: ProcessCluster | ApacheKafkaCluster) -> None:
        self.servers = servers

    @property
    def bootstrap(self) -> str:
        return self.servers.bootstrap

    @property
    def pids(self) -> list[int]:
        """The process ids of the running brokers and of everything they started."""
        running = [one for one in self.servers.brokers.values() if one.exit_code() is None]
        return [pid for one in running for pid in probes.process_tree(one.pid)]

    def cpu_seconds(self) -> float:
        return probes.cpu_seconds(self.pids)

    def controller(self) -> int:
        if isinstance(self.servers, ApacheKafkaCluster):
            return self.servers.controller()
        return int(admin_client(self.bootstrap).list_topics(timeout=TIMEOUT_S).controller_id)

    def create_topic(self, name: str, partitions: int) -> None:
        """Creates a topic with three replicas (minimum in sync: 2) and leaders in turn; waits until all are in
        sync."""
        client = admin_client(self.bootstrap)
        wait_until(
            lambda: len(client.list_topics(timeout=TIMEOUT_S).brokers) == REPLICAS, "all brokers", PATIENCE_S
        )
        ids = sorted(self.servers.brokers)
        turns = [[ids[(number + place) % REPLICAS] for place in range(REPLICAS)] for number in range(partitions)]
        topic = NewTopic(name, partitions, replica_assignment=turns, config={"min.insync.replicas": "2"})
        for future in client.create_topics([topic], request_timeout=TIMEOUT_S).values():
            future.result()
        wait_until(lambda: self.is_whole(name, partitions), f"all replicas of {name} in sync", PATIENCE_S)

    def is_whole(self, topic: str, partitions: int, replicas: int = REPLICAS) -> bool:
        """Whether every broker reports all replicas as in sync: they learn of a change one by one."""
        for server in self.servers.brokers.values():
            found = admin_client(server.bootstrap).list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions
            if len(found) < partitions or any(
                one.leader < 0 or len(one.isrs) < replicas for one in found.values()
            ):
                return False
        return True

    def leaders(self, topic: str) -> dict[int, int]:
        """The leader of each partition."""
        found = admin_client(self.bootstrap).list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions
        return {number: one.leader for number, one in found.items()}

    def kill(self, broker_id: int) -> None:
        """Kills a broker with kill -9."""
        self.servers.brokers[broker_id].kill()

    def terminate(self, broker_id: int) -> None:
        self.servers.brokers[broker_id].terminate(PATIENCE_S)

    def restart(self, broker_id: int) -> None:
        self.servers.brokers[broker_id].start(PATIENCE_S)


@contextmanager
def running_cluster(system: str, zookeeper: str | None = None) -> Iterator[BenchCluster]:
    """Kafka's nodes share nothing; ours share a directory, or with `zookeeper` nothing either."""
    root = Path(tempfile.mkdtemp(prefix=f"bench-{system}-cluster-", dir=os.environ.get("HEADRACE_BENCH_DIR")))
    makers: dict[str, Callable[[], ProcessCluster | ApacheKafkaCluster]] = {
        "kafka": lambda: ApacheKafkaCluster(COMMON_SETTINGS, root, ProductionNode),
        "headrace": lambda: ProcessCluster(REPLICAS, COMMON_SETTINGS, zookeeper, root),
    }
    servers = makers[system]()
    try:
        servers.start()
        yield BenchCluster(servers)
    finally:
        servers.close()
