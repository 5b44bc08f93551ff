"""Reads a range of offsets of one partition as chunks of whole record batches, one Fetch ahead of the caller.

The records of a response are a view of the buffer that the socket filled: nothing is copied. While
one chunk is being decoded, the next is under way.

A range ends when its end offset is passed. Where nothing is left before it (the last records were compacted away),
it ends too; where the log itself ends before it, that is `RangeUnavailable`, after `wait_ms` without an answer
that has more.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from headrace.client.errors import ClientError, kafka_error
from headrace.client.fetch_in_place import LAST_VERSION_BY_NAME, FetchInPlace, PartitionInPlace
from headrace.client.protocol import Ticket
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicPartition
from headrace.records.batch import BASE_OFFSET_AND_LENGTH, HEADER_SIZE, LENGTH_OVERHEAD, parse_header
from headrace.spark.client.cluster import READ_COMMITTED, BlockingCluster, Patience
from headrace.spark.client.connection import BlockingConnection
from headrace.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic

DEFAULT_CHUNK_BYTES = 8 * 1024 * 1024
MAX_CHUNK_BYTES = 256 * 1024 * 1024
DEFAULT_WAIT_MS = 5_000
POLL_MS = 500
EMPTY_ANSWERS_AT_THE_END = 2


class Chunk(NamedTuple):
    data: memoryview
    """Whole record batches back to back. The first may begin before `start`."""
    aborted: Sequence[tuple[int, int]]
    """(producer id, first offset) of transactions that were aborted and reach into this chunk."""
    start: int
    """The offset asked for."""
    log_start: int
    high_watermark: int
    last_stable: int


class RangeUnavailable(Exception):
    """The log ends before the end of the range that was to be read."""

    def __init__(self, partition: TopicPartition, offset: int, end: int, high_watermark: int) -> None:
        self.partition = partition
        self.offset = offset
        self.end = end
        self.high_watermark = high_watermark
        super().__init__(
            f"partition {partition} was to be read up to offset {end}, but it ends at offset {high_watermark} now "
            f"(read so far: up to {offset})"
        )


def read_chunks(
    cluster: BlockingCluster,
    partition: TopicPartition,
    start: int,
    end: int,
    *,
    isolation: int,
    max_bytes: int = DEFAULT_CHUNK_BYTES,
    wait_ms: int = DEFAULT_WAIT_MS,
) -> Iterator[Chunk]:
    """The record batches from offset `start` up to `end`, which is not included.

    Transient errors are retried; others are raised as `KafkaError`, such as OFFSET_OUT_OF_RANGE.
    """
    reading = _Reading(cluster, partition, start, end, isolation)
    reading.max_bytes = max_bytes
    reading.wait_s = wait_ms / 1000
    try:
        while reading.position < end:
            chunk = reading.next_chunk()
            if chunk is None:
                return
            yield chunk
    finally:
        reading.close()


class _Reading:
    """The state of one range being read: the position, and the request in flight."""

    def __init__(
        self, cluster: BlockingCluster, partition: TopicPartition, start: int, end: int, isolation: int
    ) -> None:
        self.position = start
        self.max_bytes = DEFAULT_CHUNK_BYTES
        self.wait_s = DEFAULT_WAIT_MS / 1000
        self._cluster = cluster
        self._partition = partition
        self._end = end
        self._isolation = isolation
        self._connection: BlockingConnection | None = None
        self._under_way: Ticket | None = None

    def close(self) -> None:
        """Return the connection; one with an outstanding response cannot be reused and is closed."""
        if self._connection is not None:
            self._cluster.give_back(self._connection)
            self._connection = None

    def next_chunk(self) -> Chunk | None:
        """The next that has a whole batch, with the request for the one after it sent; None: nothing is left."""
        waiting_since = time.monotonic()
        empty_answers = 0
        patience = self._cluster.patience([self._partition])
        while True:
            answer = self._attempt(patience)
            if answer is None:
                continue
            if answer.records:
                chunk = self._chunk(answer)
                if chunk is not None:
                    return chunk
                continue
            limit = answer.last_stable_offset if self._isolation == READ_COMMITTED else answer.high_watermark
            empty_answers += 1
            if limit >= self._end and empty_answers >= EMPTY_ANSWERS_AT_THE_END:
                return None
            if limit < self._end and time.monotonic() - waiting_since >= self.wait_s:
                raise RangeUnavailable(self._partition, self.position, self._end, limit)

    def _attempt(self, patience: Patience) -> PartitionInPlace | None:
        """One response; None after a transient error."""
        try:
            return self._receive()
        except (KafkaError, ClientError) as error:
            self._drop_connection()
            patience.pause_after(error)
            self._cluster.forget_leaders([self._partition])
            return None

    def _receive(self) -> PartitionInPlace:
        if self._under_way is None:
            self._send()
        assert self._connection is not None
        assert self._under_way is not None
        ticket, self._under_way = self._under_way, None
        response = self._connection.receive(ticket, FetchInPlace)
        if response.error_code:
            raise kafka_error(response.error_code, f"partition {self._partition}")
        (topic,) = response.responses
        (answer,) = topic.partitions
        if answer.error_code:
            raise kafka_error(answer.error_code, f"partition {self._partition} at offset {self.position}")
        return answer

    def _send(self) -> None:
        if self._connection is None:
            self._connection = self._cluster.take(self._cluster.leader(self._partition))
        wanted = FetchPartition(
            partition=self._partition.partition, fetch_offset=self.position, partition_max_bytes=self.max_bytes
        )
        request = FetchRequest(
            max_wait_ms=min(POLL_MS, int(self.wait_s * 1000)),
            min_bytes=1,
            max_bytes=self.max_bytes,
            isolation_level=self._isolation,
            topics=[FetchTopic(topic=self._partition.topic, partitions=[wanted])],
        )
        self._under_way = self._connection.send(request, highest=LAST_VERSION_BY_NAME)

    def _chunk(self, answer: PartitionInPlace) -> Chunk | None:
        """The content of a response, with the next request already sent; None without one complete batch."""
        assert answer.records is not None
        size, next_offset = _whole_batches(answer.records, self._partition)
        if size == 0:
            # The batch is larger than requested, and the broker cut it: request more.
            if self.max_bytes >= MAX_CHUNK_BYTES:
                raise KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE, self._where("a batch too large to read"))
            self.max_bytes = min(2 * self.max_bytes, MAX_CHUNK_BYTES)
            return None
        if next_offset <= self.position:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, self._where("an answer with older batches only"))
        aborted = [(one.producer_id, one.first_offset) for one in answer.aborted_transactions or ()]
        chunk = Chunk(
            answer.records[:size],
            aborted,
            self.position,
            answer.log_start_offset,
            answer.high_watermark,
            answer.last_stable_offset,
        )
        self.position = next_offset
        if next_offset < self._end:
            self._send_ahead()
        return chunk

    def _send_ahead(self) -> None:
        try:
            self._send()
        except ClientError:
            self._drop_connection()  # the next attempt opens another connection

    def _drop_connection(self) -> None:
        self._under_way = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _where(self, what: str) -> str:
        return f"{what} in partition {self._partition} at offset {self.position}"


def _whole_batches(data: memoryview, partition: TopicPartition) -> tuple[int, int]:
    """The bytes of the complete batches, and the offset after them."""
    position, last, length = 0, -1, len(data)
    unpack = BASE_OFFSET_AND_LENGTH.unpack_from  # only what finding the next one needs: there are thousands
    while length - position >= HEADER_SIZE:
        size = unpack(data, position)[1] + LENGTH_OVERHEAD
        if size < HEADER_SIZE:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE,
                f"a record batch of partition {partition} states {size - LENGTH_OVERHEAD} bytes",
            )
        if position + size > length:
            break
        last = position
        position += size
    return position, parse_header(data, last).next_offset if position else -1
