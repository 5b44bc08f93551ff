"""Rules of the APIs about transactions: on the transactional id, and on what the transaction writes to."""

from __future__ import annotations

from headrace.model.errors import ErrorCode
from headrace.security.acl import Operation, Resource
from headrace.server.authorization.asking import (
    NOT_ON_CLUSTER,
    NOT_THIS_GROUP,
    NOT_THIS_TOPIC,
    NOT_THIS_TRANSACTION,
    Asking,
    Rule,
    Ruling,
    completed,
    refusal,
    split,
)
from headrace.wire.messages import add_partitions_to_txn as adding
from headrace.wire.messages import describe_transactions as describing
from headrace.wire.messages import list_transactions as listing
from headrace.wire.messages import txn_offset_commit as committing
from headrace.wire.messages import write_txn_markers as marking
from headrace.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from headrace.wire.messages.end_txn import EndTxnRequest
from headrace.wire.messages.init_producer_id import InitProducerIdRequest

READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE
BETWEEN_BROKERS_SINCE = 4
"""The version of AddPartitionsToTxn from which on brokers use it, for many transactions at once."""


def init_producer_id(asking: Asking, request: InitProducerIdRequest) -> Ruling:
    """Without a transaction, a principal that may write to any topic may do so idempotently (KIP-679).

    Two-phase commit needs a right of its own, since what is prepared has no timeout (KIP-939).
    """
    if request.transactional_id is not None:
        if not asking.transaction(WRITE, request.transactional_id):
            raise refusal(NOT_THIS_TRANSACTION)
        if request.enable2_pc and not asking.transaction(Operation.TWO_PHASE_COMMIT, request.transactional_id):
            raise refusal(NOT_THIS_TRANSACTION)
    elif not asking.rights.may_somewhere(WRITE, Resource.TOPIC):
        asking.require_cluster(Operation.IDEMPOTENT_WRITE)
    return None


def add_partitions_to_txn(asking: Asking, request: adding.AddPartitionsToTxnRequest) -> Ruling:
    """All or nothing: if one topic is not allowed, the others are not attempted."""
    if asking.version >= BETWEEN_BROKERS_SINCE:
        asking.require_cluster(Operation.CLUSTER_ACTION)
        return None
    topics = request.v3_and_below_topics
    if not asking.transaction(WRITE, request.v3_and_below_transactional_id):
        return _not_added(topics, {topic.name: NOT_THIS_TRANSACTION for topic in topics})
    _, denied = split(topics, lambda topic: asking.topic(WRITE, topic.name))
    if not denied:
        return None
    refused = {topic.name for topic in denied}
    codes = {
        topic.name: NOT_THIS_TOPIC if topic.name in refused else ErrorCode.OPERATION_NOT_ATTEMPTED
        for topic in topics
    }
    return _not_added(topics, codes)


def _not_added(
    topics: list[adding.AddPartitionsToTxnTopic], codes: dict[str, ErrorCode]
) -> adding.AddPartitionsToTxnResponse:
    return adding.AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            adding.AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    adding.AddPartitionsToTxnPartitionResult(
                        partition_index=index, partition_error_code=codes[topic.name]
                    )
                    for index in topic.partitions
                ],
            )
            for topic in topics
        ]
    )


def add_offsets_to_txn(asking: Asking, request: AddOffsetsToTxnRequest) -> Ruling:
    if not asking.transaction(WRITE, request.transactional_id):
        raise refusal(NOT_THIS_TRANSACTION)
    if not asking.group(READ, request.group_id):
        raise refusal(NOT_THIS_GROUP)
    return None


def end_txn(asking: Asking, request: EndTxnRequest) -> Ruling:
    if not asking.transaction(WRITE, request.transactional_id):
        raise refusal(NOT_THIS_TRANSACTION)
    return None


def txn_offset_commit(asking: Asking, request: committing.TxnOffsetCommitRequest) -> Ruling:
    code = NOT_THIS_TOPIC
    if not asking.transaction(WRITE, request.transactional_id):
        refused, code, request.topics = request.topics, NOT_THIS_TRANSACTION, []
    elif not asking.group(READ, request.group_id):
        refused, code, request.topics = request.topics, NOT_THIS_GROUP, []
    else:
        request.topics, refused = split(request.topics, lambda topic: asking.topic(READ, topic.name))

    def complete(response: committing.TxnOffsetCommitResponse) -> None:
        response.topics += [
            committing.TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    committing.TxnOffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=code
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in refused
        ]

    return completed(request.topics, complete, committing.TxnOffsetCommitResponse) if refused else None


def write_txn_markers(asking: Asking, request: marking.WriteTxnMarkersRequest) -> Ruling:
    """For coordinators. The right to alter the cluster suffices to end a hanging transaction (KIP-664)."""
    if asking.rights.on_cluster(Operation.ALTER) or asking.cluster(Operation.CLUSTER_ACTION):
        return None
    return marking.WriteTxnMarkersResponse(
        markers=[
            marking.WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    marking.WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            marking.WritableTxnMarkerPartitionResult(
                                partition_index=index, error_code=NOT_ON_CLUSTER
                            )
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


def describe_transactions(asking: Asking, request: describing.DescribeTransactionsRequest) -> Ruling:
    request.transactional_ids, denied = split(
        request.transactional_ids, lambda name: asking.transaction(DESCRIBE, name)
    )

    def complete(response: describing.DescribeTransactionsResponse) -> None:
        for state in response.transaction_states:
            state.topics = [topic for topic in state.topics if asking.sees(topic.topic)]
        response.transaction_states += [
            describing.TransactionState(transactional_id=name, error_code=NOT_THIS_TRANSACTION) for name in denied
        ]

    return completed(request.transactional_ids, complete, describing.DescribeTransactionsResponse)


def list_transactions(asking: Asking, request: listing.ListTransactionsRequest) -> Ruling:
    def complete(response: listing.ListTransactionsResponse) -> None:
        response.transaction_states = [
            state
            for state in response.transaction_states
            if asking.rights.may(DESCRIBE, Resource.TRANSACTIONAL_ID, state.transactional_id)
        ]

    return complete


TRANSACTION_RULES: dict[int, Rule] = {
    InitProducerIdRequest.api_key: init_producer_id,
    adding.AddPartitionsToTxnRequest.api_key: add_partitions_to_txn,
    AddOffsetsToTxnRequest.api_key: add_offsets_to_txn,
    EndTxnRequest.api_key: end_txn,
    committing.TxnOffsetCommitRequest.api_key: txn_offset_commit,
    marking.WriteTxnMarkersRequest.api_key: write_txn_markers,
    describing.DescribeTransactionsRequest.api_key: describe_transactions,
    listing.ListTransactionsRequest.api_key: list_transactions,
}
