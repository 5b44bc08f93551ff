"""ListOffsets for people: where partitions begin and end, and which offset belongs to a moment."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headrace.client.cluster import Cluster
from headrace.client.errors import kafka_error
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicPartition
from headrace.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
CONSUMER = -1
READ_UNCOMMITTED = 0
READ_COMMITTED = 1


class FoundOffset(NamedTuple):
    offset: int
    """-1 when no record is as late as the time asked for."""
    timestamp: int


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
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for partition, time in times.items():
        asked = ListOffsetsPartition(partition_index=partition.partition, timestamp=time)
        topics.setdefault(partition.topic, []).append(asked)
    request = ListOffsetsRequest(
        replica_id=CONSUMER,
        isolation_level=isolation,
        topics=[ListOffsetsTopic(name=name, partitions=asked) for name, asked in topics.items()],
    )
    connection = await cluster.broker(leader)
    if MAX_TIMESTAMP in times.values() and connection.version_for(ListOffsetsRequest) < 7:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{connection.address} cannot look for the latest time")
    response = await connection.request(request, ListOffsetsResponse)
    found: dict[TopicPartition, FoundOffset] = {}
    for topic in response.topics:
        for answer in topic.partitions:
            partition = TopicPartition(topic.name, answer.partition_index)
            if answer.error_code:
                raise kafka_error(answer.error_code, f"partition {partition}")
            found[partition] = FoundOffset(answer.offset, answer.timestamp)
    return found


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
