"""The timestamps of the records at given offsets, to find how old the unread records of a group are."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.client.cluster import Cluster
from headrace.client.fetching import Fetched, FetchLimits, fetch_from
from headrace.client.offsets import READ_UNCOMMITTED
from headrace.model.topics import TopicPartition

LIMITS = FetchLimits(
    max_wait_ms=0, min_bytes=0, max_bytes=8 << 20, partition_max_bytes=64 << 10, isolation=READ_UNCOMMITTED
)
MAX_ROUNDS = 50
"""The limit of Fetch rounds: each returns a whole batch, but not one per partition if they are large."""


async def record_timestamps(
    cluster: Cluster, positions: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The timestamp of the first record at or after each offset; a partition without one is omitted.

    The offsets must lie within their logs.
    """

    async def attempt() -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for leader, partitions in (await cluster.by_leader(positions)).items():
            connection = await cluster.broker(leader)
            waiting = {partition: positions[partition] for partition in partitions}
            for _ in range(MAX_ROUNDS):
                news = {
                    one.partition: timestamp
                    for one in await fetch_from(connection, waiting, LIMITS)
                    if (timestamp := _first_timestamp(one)) is not None
                }
                found |= news
                waiting = {partition: offset for partition, offset in waiting.items() if partition not in news}
                if not news or not waiting:
                    break
        return found

    return await cluster.retrying(attempt) if positions else {}


def _first_timestamp(fetched: Fetched) -> int | None:
    for record in fetched.records():
        return record.timestamp
    # Markers of transactions only: they are as old as the batch says.
    return fetched.batches[0][0].max_timestamp if fetched.batches else None
