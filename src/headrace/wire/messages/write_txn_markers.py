"""WriteTxnMarkers (27): a coordinator has commit or abort markers written by the partitions' leaders.

v1 flexible; v2 the transaction version, by which a partition knows how strictly to fence (KIP-1228).
"""

from __future__ import annotations

from headrace.wire.primitives import BOOL, INT8, INT16, INT32, INT64, STRING
from headrace.wire.schema import Request, Response, Struct, array, field


class WritableTxnMarkerTopic(Struct):
    name: str = field(STRING)
    partition_indexes: list[int] = field(array(INT32))


class WritableTxnMarker(Struct):
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    transaction_result: bool = field(BOOL)
    topics: list[WritableTxnMarkerTopic] = field(array(WritableTxnMarkerTopic))
    coordinator_epoch: int = field(INT32)
    transaction_version: int = field(INT8, since=2)


class WriteTxnMarkersRequest(Request, key=27, versions=range(1, 3), flexible=1):
    markers: list[WritableTxnMarker] = field(array(WritableTxnMarker))


class WritableTxnMarkerPartitionResult(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)


class WritableTxnMarkerTopicResult(Struct):
    name: str = field(STRING)
    partitions: list[WritableTxnMarkerPartitionResult] = field(array(WritableTxnMarkerPartitionResult))


class WritableTxnMarkerResult(Struct):
    producer_id: int = field(INT64)
    topics: list[WritableTxnMarkerTopicResult] = field(array(WritableTxnMarkerTopicResult))


class WriteTxnMarkersResponse(Response, key=27, versions=range(1, 3), flexible=1):
    markers: list[WritableTxnMarkerResult] = field(array(WritableTxnMarkerResult))
