"""The metrics of a running broker: gathered when they are requested, so the hot path only counts plain ints."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from headrace.env import Env
from headrace.metadata.cluster import ClusterMetadata
from headrace.metrics.exposition import Family, counter, gauge
from headrace.metrics.loop_lag import LoopLag
from headrace.replication.partition import Partition
from headrace.replication.replica_set import ReplicaSet

PROBE_SECONDS = 0.5


class Observation:
    def __init__(
        self,
        env: Env,
        metadata: ClusterMetadata,
        replicas: ReplicaSet,
        others: Sequence[Callable[[], Iterable[Family]]] = (),
    ) -> None:
        """`others` add metrics of their own."""
        self._others = others
        self._env = env
        self._metadata = metadata
        self._replicas = replicas
        self._started = env.clock.monotonic()
        self.loop_lag = LoopLag()

    async def probe_loop(self) -> None:
        """Measure until cancelled how late the loop wakes us."""
        while True:
            due = self._env.clock.monotonic() + PROBE_SECONDS
            await self._env.clock.sleep(PROBE_SECONDS)
            self.loop_lag.note(max(self._env.clock.monotonic() - due, 0.0))

    def families(self, connections: Mapping[str, int]) -> Iterator[Family]:
        yield from self._cluster_families()
        yield from self._partition_families()
        yield from self._process_families()
        for families in self._others:
            yield from families()
        yield Family(
            "headrace_connections",
            "gauge",
            "Open client connections, by listener.",
            [((("listener", listener),), count) for listener, count in connections.items()],
        )

    def _cluster_families(self) -> Iterator[Family]:
        image = self._metadata.image
        yield gauge("kafka_brokers", "Brokers in the cluster.", len(image.brokers))
        yield Family(
            "kafka_topic_partitions",
            "gauge",
            "Partitions of a topic.",
            [((("topic", topic.name),), len(topic.partitions)) for topic in image.topics.values()],
        )
        yield gauge("headrace_controller_epoch", "The controller's epoch.", image.controller_epoch)

    def _partition_families(self) -> Iterator[Family]:
        partitions = list(self._replicas.all())
        labels = [
            (("topic", partition.topic_partition.topic), ("partition", partition.topic_partition.partition))
            for partition in partitions
        ]
        measures: tuple[tuple[str, str, Callable[[Partition], int]], ...] = (
            ("kafka_topic_partition_current_offset", "The high watermark.", lambda held: held.high_watermark),
            ("kafka_topic_partition_oldest_offset", "The log's start.", lambda held: held.log.start_offset),
            ("headrace_log_bytes", "Bytes of a partition's log.", lambda held: held.log.size),
        )
        for name, help_text, measure in measures:
            yield Family(name, "gauge", help_text, list(zip(labels, map(measure, partitions), strict=True)))
        yield from _transaction_families(partitions)
        led = sum(partition.is_leader for partition in partitions)
        yield gauge("headrace_partitions_led", "Partitions that this broker leads.", led)
        yield gauge("headrace_partitions", "Partitions that this broker holds.", len(partitions))

    def _process_families(self) -> Iterator[Family]:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        yield counter("process_cpu_seconds_total", "CPU time used.", usage.ru_utime + usage.ru_stime)
        yield gauge("headrace_max_resident_bytes", "Peak resident memory.", usage.ru_maxrss * 1024)
        yield gauge("headrace_uptime_seconds", "Since the start.", self._env.clock.monotonic() - self._started)
        yield gauge("headrace_loop_lag_seconds", "How late the event loop was last.", self.loop_lag.latest_seconds)
        yield gauge(
            "headrace_loop_lag_max_seconds", "The longest lag since the start.", self.loop_lag.longest_seconds
        )


def _transaction_families(partitions: list[Partition]) -> Iterator[Family]:
    """Metrics of transactions in partitions that this broker leads; the lag only where it is not 0, which is
    rare."""
    led = [partition for partition in partitions if partition.is_leader]
    lags = [
        (partition.topic_partition, partition.high_watermark - partition.last_stable_offset) for partition in led
    ]
    yield Family(
        "kafka_cluster_partition_laststableoffsetlag",
        "gauge",
        "Records that read_committed consumers cannot read yet.",
        [((("topic", at.topic), ("partition", at.partition)), lag) for at, lag in lags if lag],
    )
    open_transactions = sum(partition.open_transactions for partition in led)
    yield gauge("headrace_open_transactions", "Open transactions, once for each partition.", open_transactions)
