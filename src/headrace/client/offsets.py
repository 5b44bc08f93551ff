"""ListOffsets for people: where partitions begin and end, and which offset belongs to a time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from headrace.client.cluster import Cluster
from headrace.client.requests import (
    EARLIEST,
    LATEST,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    FoundOffset,
    offsets_found,
    offsets_request,
)
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicPartition
from headrace.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse

__all__ = [
    "EARLIEST",
    "LATEST",
    "MAX_TIMESTAMP",
    "READ_COMMITTED",
    "READ_UNCOMMITTED",
    "FoundOffset",
    "list_offsets",
    "offset_ranges",
]

MAX_TIMESTAMP = -3


async def list_offsets(
    cluster: Cluster, times: Mapping[TopicPartition, int], isolation: int = READ_UNCOMMITTED
) -> dict[TopicPartition, FoundOffset]:
    """For each partition the first offset at or after a time in milliseconds, or a landmark such as LATEST."""

    async def attempt() -> dict[TopicPartition, FoundOffset]:
        groups = await cluster.by_leader(times)
        answers = await asyncio.gather(
            *(
                _ask(cluster, leader, {one: times[one] for one in partitions}, isolation)
                for leader, partitions in groups.items()
            )
        )
        return {partition: found for answer in answers for partition, found in answer.items()}

    found = await cluster.retrying(attempt)
    return {partition: found[partition] for partition in times}


async def _ask(
    cluster: Cluster, leader: int, times: Mapping[TopicPartition, int], isolation: int
) -> dict[TopicPartition, FoundOffset]:
    connection = await cluster.broker(leader)
    if MAX_TIMESTAMP in times.values() and connection.version_for(ListOffsetsRequest) < 7:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION, f"{connection.address} cannot look up the latest timestamp"
        )
    response = await connection.request(offsets_request(times, isolation), ListOffsetsResponse)
    return offsets_found(response)


async def offset_ranges(
    cluster: Cluster, partitions: Iterable[TopicPartition], isolation: int = READ_UNCOMMITTED
) -> dict[TopicPartition, tuple[int, int]]:
    """(first offset, end offset) of each partition."""
    wanted = list(partitions)
    starts, ends = await asyncio.gather(
        list_offsets(cluster, dict.fromkeys(wanted, EARLIEST), isolation),
        list_offsets(cluster, dict.fromkeys(wanted, LATEST), isolation),
    )
    return {one: (starts[one].offset, ends[one].offset) for one in wanted}
