"""What a broker tells of open transactions."""

from __future__ import annotations

from typing import Any

from headrace.coordination.lease import LeaseState
from headrace.services.observation import Observation
from headrace.services.replication_figures import LATE_MS, ReplicationFigures
from tests.unit.handlers.test_read_committed import Writer


async def test_open_transactions_are_seen(bench: Any) -> None:
    await bench.create_topic("t")
    writer = Writer(bench)
    broker = bench.broker
    observation = Observation(broker.env, broker.metadata, broker.replicas)

    def figures() -> dict[str, list[float]]:
        return {family.name: [value for _, value in family.samples] for family in observation.families({})}

    assert figures()["kafka_cluster_partition_laststableoffsetlag"] == []
    writer.write(1, "a")
    writer.plain("b")
    assert figures()["kafka_cluster_partition_laststableoffsetlag"] == [2]
    assert figures()["headrace_open_transactions"] == [1]
    assert late_partitions(bench, 0) == 0
    assert late_partitions(bench, -LATE_MS - 60_000) == 1, "as if a minute later than it may be"
    writer.end(1, commit=True)
    assert figures()["kafka_cluster_partition_laststableoffsetlag"] == []
    assert figures()["headrace_open_transactions"] == [0]
    assert late_partitions(bench, -LATE_MS - 60_000) == 0


def late_partitions(bench: Any, longest_transaction_ms: int) -> float:
    broker = bench.broker
    figures = ReplicationFigures(
        broker.env, broker.replicas, LeaseState(broker.env.clock), lambda: None, longest_transaction_ms
    )
    found = {family.name: family.samples for family in figures.families()}
    ((_, count),) = found["kafka_server_replicamanager_partitionswithlatetransactionscount"]
    return float(count)
