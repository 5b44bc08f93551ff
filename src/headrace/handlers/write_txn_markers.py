"""WriteTxnMarkers (27), v1-2. The coordinator of a transaction ends it in the partitions that this broker leads.

v2 names the version of transactions, from which the rule for the marker's epoch follows (KIP-1228). Brokers send
it, and `kafka-transactions --abort` for a transaction that hangs. Answered once all in-sync replicas have the
markers.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.handlers.context import Context, cluster_action
from headrace.handlers.registry import api
from headrace.model.errors import ErrorCode
from headrace.model.topics import TopicPartition
from headrace.records.markers import EndMarker
from headrace.services.markers import TransactionMarkers
from headrace.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


@api(WriteTxnMarkersRequest, WriteTxnMarkersResponse, versions=range(1, 3), authorize=cluster_action)
async def write_txn_markers(ctx: Context, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    """Ends transactions in partitions."""
    broker = ctx.broker
    wanted = [
        (_marker(asked), TopicPartition(topic.name, index))
        for asked in request.markers
        for topic in asked.topics
        for index in topic.partition_indexes
    ]
    codes = iter(await TransactionMarkers(broker.env, broker.replicas, broker.groups).write(wanted))
    return WriteTxnMarkersResponse(markers=[_result(asked, codes) for asked in request.markers])


def _marker(asked: WritableTxnMarker) -> EndMarker:
    return EndMarker(
        asked.producer_id,
        asked.producer_epoch,
        asked.transaction_result,
        asked.coordinator_epoch,
        asked.transaction_version,
    )


def _result(asked: WritableTxnMarker, codes: Iterator[ErrorCode]) -> WritableTxnMarkerResult:
    return WritableTxnMarkerResult(
        producer_id=asked.producer_id,
        topics=[
            WritableTxnMarkerTopicResult(
                name=topic.name,
                partitions=[
                    WritableTxnMarkerPartitionResult(partition_index=index, error_code=next(codes))
                    for index in topic.partition_indexes
                ],
            )
            for topic in asked.topics
        ],
    )
