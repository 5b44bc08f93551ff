"""The answer to a Fetch with its records left in place: views of the frame that came, no byte is copied.

`FetchInPlace` is `wire`'s FetchResponse in every other respect; a test holds them together. The frame lives for as
long as a view of it does.
"""

from __future__ import annotations

from typing import Any

from headrace.model.errors import ProtocolError
from headrace.model.topics import TopicId
from headrace.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    SnapshotId,
)
from headrace.wire.primitives import INT16, INT32, INT64, RECORDS, STRING, UUID, Cursor, Primitive
from headrace.wire.schema import Response, Struct, array, field

LAST_VERSION_BY_NAME = 12
"""From v13 on Fetch names topics by id."""


def _read_view(cursor: Cursor, size: int) -> memoryview | None:
    if size < 0:
        return None
    start = cursor.position
    if size > cursor.end - start:
        raise ProtocolError(f"records of {size} bytes in an answer with {cursor.left} left")
    cursor.position = start + size
    return memoryview(cursor.buffer)[start : start + size]


def _read_plain(cursor: Cursor) -> Any:
    return _read_view(cursor, INT32.read(cursor))


def _read_compact(cursor: Cursor) -> Any:
    return _read_view(cursor, cursor.uvarint() - 1)


RECORDS_IN_PLACE = Primitive(
    "records", None, _read_plain, RECORDS.write, _read_compact, RECORDS.write_compact, nullable=True
)
"""As RECORDS, but a view of the frame instead of a copy out of it."""


class PartitionInPlace(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    high_watermark: int = field(INT64)
    last_stable_offset: int = field(INT64, default=-1)
    log_start_offset: int = field(INT64, since=5, default=-1)
    diverging_epoch: EpochEndOffset = field(EpochEndOffset, since=12, tag=0)
    current_leader: LeaderIdAndEpoch = field(LeaderIdAndEpoch, since=12, tag=1)
    snapshot_id: SnapshotId = field(SnapshotId, since=12, tag=2)
    aborted_transactions: list[AbortedTransaction] | None = field(array(AbortedTransaction), nullable=0)
    preferred_read_replica: int = field(INT32, since=11, default=-1)
    records: memoryview | None = field(RECORDS_IN_PLACE, nullable=0)


class TopicInPlace(Struct):
    topic: str = field(STRING, until=12)
    topic_id: TopicId = field(UUID, since=13)
    partitions: list[PartitionInPlace] = field(array(PartitionInPlace))


class FetchInPlace(Response, key=1, versions=FetchResponse.versions, flexible=12):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16, since=7)
    session_id: int = field(INT32, since=7)
    responses: list[TopicInPlace] = field(array(TopicInPlace))
    node_endpoints: list[NodeEndpoint] = field(array(NodeEndpoint), since=16, tag=0)
