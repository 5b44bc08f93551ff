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
        (marker, TopicPartition(topic.name, index))
        async for asked, marker in ctx.each((asked, _marker(asked)) for asked in request.markers)
        for topic in asked.topics
        async for index in ctx.each(topic.partition_indexes)
    ]
    markers = TransactionMarkers(broker.env, broker.replicas, broker.groups)
    codes = iter(await markers.write(wanted, ctx.each))
    return WriteTxnMarkersResponse(markers=[await _result(ctx, asked, codes) for asked in request.markers])


def _marker(asked: WritableTxnMarker) -> EndMarker:
    return EndMarker(
        asked.producer_id,
        asked.producer_epoch,
        asked.transaction_result,
        asked.coordinator_epoch,
        asked.transaction_version,
    )


async def _result(ctx: Context, asked: WritableTxnMarker, codes: Iterator[ErrorCode]) -> WritableTxnMarkerResult:
    return WritableTxnMarkerResult(
        producer_id=asked.producer_id,
        topics=[
            WritableTxnMarkerTopicResult(
                name=topic.name,
                partitions=[
                    WritableTxnMarkerPartitionResult(partition_index=index, error_code=next(codes))
                    async for index in ctx.each(topic.partition_indexes)
                ],
            )
            async for topic in ctx.each(asked.topics)
        ],
    )
