"""What a broker tells of open transactions."""

from __future__ import annotations

from typing import Any

from headrace.services.observation import Observation
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
    writer.end(1, commit=True)
    assert figures()["kafka_cluster_partition_laststableoffsetlag"] == []
    assert figures()["headrace_open_transactions"] == [0]
