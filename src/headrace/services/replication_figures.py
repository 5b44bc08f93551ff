"""How replication stands, for `/metrics`, under the names of Kafka's JMX exporter and the Kafka exporter.

Each partition is reported by its leader, those without a leader by the controller (`cluster_figures`), so that
sums over the brokers are right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from headrace.coordination.lease import LeaseState
from headrace.env import Env
from headrace.metadata.image import PartitionImage
from headrace.metrics.exposition import Family, counter, gauge
from headrace.replication.partition import Partition
from headrace.replication.replica_set import ReplicaSet

MANAGER = "kafka_server_replicamanager"
LATE_MS = 5 * 60_000
"""After the longest timeout a transaction may have, its coordinator must have ended it (KIP-664)."""


class ReplicationFigures:
    def __init__(
        self,
        env: Env,
        replicas: ReplicaSet,
        lease: LeaseState,
        problem: Callable[[], str | None],
        longest_transaction_ms: int,
    ) -> None:
        """`problem` says why this broker is not part of the cluster."""
        self._late_after_ms = longest_transaction_ms + LATE_MS
        self._env = env
        self._replicas = replicas
        self._lease = lease
        self._problem = problem

    def families(self) -> Iterator[Family]:
        led = [partition for partition in self._replicas.all() if partition.is_leader]
        yield gauge(f"{MANAGER}_leadercount", "Partitions that this broker leads.", len(led))
        yield gauge(
            f"{MANAGER}_underreplicatedpartitions",
            "Led partitions with fewer replicas in sync than there are, without those that a move adds.",
            sum(map(_is_under_replicated, led)),
        )
        yield gauge(
            f"{MANAGER}_underminisrpartitioncount",
            "Led partitions with fewer replicas in sync than min.insync.replicas: acks=all is refused.",
            sum(len(_image(one).isr) < one.min_in_sync for one in led),
        )
        yield gauge(
            f"{MANAGER}_atminisrpartitioncount",
            "Led partitions with as many replicas in sync as min.insync.replicas: the loss of one stops acks=all.",
            sum(len(_image(one).isr) == one.min_in_sync for one in led),
        )
        yield gauge(
            f"{MANAGER}_offlinereplicacount",
            "Replicas of this broker that it cannot serve: a data directory failed.",
            len(self._replicas.offline),
        )
        oldest_ms = self._env.clock.wall_ms() - self._late_after_ms
        yield gauge(
            f"{MANAGER}_partitionswithlatetransactionscount",
            "Led partitions with a transaction open for more than transaction.max.timeout.ms and five minutes.",
            sum(partition.log.has_late_transaction(oldest_ms) for partition in led),
        )
        changes = self._replicas.in_sync_changes
        yield counter(f"{MANAGER}_isrshrinks_total", "Replicas that left an in-sync set led here.", changes.left)
        yield counter(
            f"{MANAGER}_isrexpands_total", "Replicas that joined an in-sync set led here.", changes.joined
        )
        yield from _partition_families(led)
        yield from self._session_families()

    def _session_families(self) -> Iterator[Family]:
        left = self._lease.deadline - self._env.clock.boottime()
        yield gauge(
            "headrace_lease_remaining_seconds",
            "How long this broker's lease still holds if it is not renewed; 0 once it is over.",
            max(left, 0.0),
        )
        registered = self._problem() is None
        yield gauge("headrace_registered", "Whether this broker is part of the cluster (0 or 1).", int(registered))


def _partition_families(led: list[Partition]) -> Iterator[Family]:
    labels = [
        (("topic", partition.topic_partition.topic), ("partition", partition.topic_partition.partition))
        for partition in led
    ]
    measures: tuple[tuple[str, str, Callable[[Partition], int]], ...] = (
        ("kafka_topic_partition_leader", "The broker that leads.", lambda held: _image(held).leader),
        ("kafka_topic_partition_replicas", "Replicas.", lambda held: len(_image(held).replicas)),
        ("kafka_topic_partition_in_sync_replica", "Replicas in sync.", lambda held: len(_image(held).isr)),
        (
            "kafka_topic_partition_under_replicated_partition",
            "1 if fewer replicas are in sync than there are, without those that a move adds.",
            lambda held: int(_is_under_replicated(held)),
        ),
        (
            "kafka_topic_partition_leader_is_preferred",
            "1 if the first replica leads.",
            lambda held: int(_image(held).leader == _image(held).replicas[0]),
        ),
    )
    for name, help_text, measure in measures:
        yield Family(name, "gauge", help_text, list(zip(labels, map(measure, led), strict=True)))


def _image(partition: Partition) -> PartitionImage:
    assert partition.image is not None
    return partition.image


def _is_under_replicated(partition: Partition) -> bool:
    image = _image(partition)
    return len(image.isr) < len(image.replicas) - len(image.adding)
