"""Reads records: one Fetch to each leader, without sessions, from the offsets the caller keeps.

`read_committed` leaves out what belongs to aborted transactions. Batches may begin before the offset asked for;
records before it are left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headrace.client.cluster import Cluster
from headrace.client.connection import ClientConnection
from headrace.client.errors import ClientError, kafka_error
from headrace.client.fetch_in_place import LAST_VERSION_BY_NAME, FetchInPlace, PartitionInPlace
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicPartition
from headrace.records.batch import CONTROL, HEADER_SIZE, TRANSACTIONAL, BatchHeader, checked_header, parse_header
from headrace.records.markers import ABORT, read_marker
from headrace.records.reader import Record, read_records
from headrace.wire.messages.fetch import (
    AbortedTransaction,
    FetchPartition,
    FetchRequest,
    FetchTopic,
)


@dataclass(frozen=True, slots=True)
class FetchLimits:
    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 50 * 1024 * 1024
    partition_max_bytes: int = 1024 * 1024
    isolation: int = 0


class Fetched(NamedTuple):
    """The records of one partition."""

    partition: TopicPartition
    offset: int
    """The offset that was asked for."""
    high_watermark: int
    batches: tuple[tuple[BatchHeader, memoryview], ...]
    aborted: Sequence[AbortedTransaction]

    @property
    def next_offset(self) -> int:
        return self.batches[-1][0].next_offset if self.batches else self.offset

    def records(self) -> Iterator[Record]:
        for _, batch in self.visible_batches():
            checked_header(batch)
            for record in read_records(batch):
                if record.offset >= self.offset:
                    yield record

    def visible_batches(self) -> Iterator[tuple[BatchHeader, memoryview]]:
        """The batches with records for the reader, without markers and aborted transactions."""
        coming = sorted(self.aborted, key=lambda one: one.first_offset)
        open_aborted: set[int] = set()
        for header, batch in self.batches:
            while coming and coming[0].first_offset <= header.last_offset:
                open_aborted.add(coming.pop(0).producer_id)
            if header.attributes & CONTROL:
                if read_marker(batch)[0] == ABORT:
                    open_aborted.discard(header.producer_id)
            elif not (header.attributes & TRANSACTIONAL and header.producer_id in open_aborted):
                yield header, batch


def split_batches(data: bytes | memoryview) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The whole batches of a Fetch answer; the last may have been cut off."""
    view, position = memoryview(data), 0
    while len(view) - position >= HEADER_SIZE:
        header = parse_header(view, position)
        if header.size < HEADER_SIZE:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"a record batch states {header.size} bytes")
        if position + header.size > len(view):
            return
        yield header, view[position : position + header.size]
        position += header.size


class RecordReader:
    """Reads partitions continuously from the given offsets; looks up leaders only when they may have moved."""

    def __init__(
        self, cluster: Cluster, positions: Mapping[TopicPartition, int], limits: FetchLimits | None = None
    ) -> None:
        self.cluster = cluster
        self._limits = limits or FetchLimits()
        self._leaders: dict[int, list[TopicPartition]] = {}
        self.positions = dict(positions)

    def drop(self, partition: TopicPartition) -> None:
        """Stop reading a partition."""
        del self.positions[partition]
        self._leaders = {}

    async def poll(self) -> list[Fetched]:
        """The next records; waits a moment if there are none. Retriable errors are retried."""
        fetched = await self.cluster.retrying(self._attempt)
        for one in fetched:
            self.positions[one.partition] = one.next_offset
        return fetched

    async def _attempt(self) -> list[Fetched]:
        if not self._leaders:
            self._leaders = await self.cluster.by_leader(self.positions)
        try:
            answers = await asyncio.gather(
                *[self._fetch(leader, partitions) for leader, partitions in self._leaders.items()]
            )
        except (KafkaError, ClientError):
            self._leaders = {}
            raise
        return [fetched for answer in answers for fetched in answer]

    async def _fetch(self, leader: int, partitions: list[TopicPartition]) -> list[Fetched]:
        wanted = {partition: self.positions[partition] for partition in partitions}
        return await fetch_from(await self.cluster.broker(leader), wanted, self._limits)


async def fetch_from(
    connection: ClientConnection, positions: Mapping[TopicPartition, int], limits: FetchLimits
) -> list[Fetched]:
    """One Fetch to one broker, which must lead the partitions."""
    topics: dict[str, list[FetchPartition]] = {}
    for partition, offset in positions.items():
        wanted = FetchPartition(
            partition=partition.partition, fetch_offset=offset, partition_max_bytes=limits.partition_max_bytes
        )
        topics.setdefault(partition.topic, []).append(wanted)
    request = FetchRequest(
        max_wait_ms=limits.max_wait_ms,
        min_bytes=limits.min_bytes,
        max_bytes=limits.max_bytes,
        isolation_level=limits.isolation,
        topics=[FetchTopic(topic=name, partitions=wanted) for name, wanted in topics.items()],
    )
    response = await connection.request(request, FetchInPlace, highest=LAST_VERSION_BY_NAME)
    if response.error_code:
        raise kafka_error(response.error_code)
    return [
        _fetched(TopicPartition(topic.topic, answer.partition_index), answer, positions)
        for topic in response.responses
        for answer in topic.partitions
    ]


def _fetched(
    partition: TopicPartition, answer: PartitionInPlace, positions: Mapping[TopicPartition, int]
) -> Fetched:
    if answer.error_code:
        raise kafka_error(answer.error_code, f"partition {partition} at offset {positions[partition]}")
    batches = tuple(split_batches(answer.records or b""))
    return Fetched(
        partition, positions[partition], answer.high_watermark, batches, answer.aborted_transactions or ()
    )
