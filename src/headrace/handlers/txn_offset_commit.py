"""TxnOffsetCommit (28), v0-5. Stores a group's positions in a transaction: they count when it is committed.

v2 leader epoch; v3 the member, so that one whose partitions went to another is refused (KIP-447); v4
TRANSACTION_ABORTABLE; v5 the client leaves it to us to add the partition of `__consumer_offsets` to the
transaction (transactions version 2). Before, it was added by AddOffsetsToTxn, and we make sure of that (KIP-890).
"""

from __future__ import annotations

from headrace.groups.messages import CommitOffsets, OffsetToCommit
from headrace.handlers.context import Context, group_read
from headrace.handlers.registry import api
from headrace.model.errors import ErrorCode, KafkaError
from headrace.records.batch import NO_SEQUENCE
from headrace.records.builder import ProducerStamp
from headrace.replication.partition import Partition
from headrace.services.groups.shard import TransactionalCommit
from headrace.services.transactions.verification import UNKNOWN_PRODUCER, Verification
from headrace.storage.producer_state import VerificationGuard
from headrace.transactions.transaction import ProducerIdentity
from headrace.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

LOADING_SINCE = 2
"""Older clients do not know COORDINATOR_LOAD_IN_PROGRESS here."""
ABORTABLE_SINCE = 4
ADDS_SINCE = 5

_TRY_AGAIN = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
"""Errors of the transaction's coordinator that become COORDINATOR_NOT_AVAILABLE: it is not the coordinator that
the client would look for."""


@api(TxnOffsetCommitRequest, TxnOffsetCommitResponse, versions=range(6), authorize=group_read)
async def txn_offset_commit(ctx: Context, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    """Stores a group's offsets in a transaction."""
    offsets: list[OffsetToCommit] = []
    accepted: list[TxnOffsetCommitResponsePartition] = []
    response = TxnOffsetCommitResponse()
    for topic in request.topics:
        answers = _check_topic(ctx, topic, offsets, accepted)
        response.topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=answers))
    if offsets:
        for answer, error in zip(accepted, await _commit(ctx, request, offsets), strict=True):
            answer.error_code = _for_client(error, ctx.version)
    return response


def _check_topic(
    ctx: Context,
    asked: TxnOffsetCommitRequestTopic,
    offsets: list[OffsetToCommit],
    accepted: list[TxnOffsetCommitResponsePartition],
) -> list[TxnOffsetCommitResponsePartition]:
    """A result per partition; offsets that may be stored are also put into `offsets` and `accepted`."""
    topic = ctx.broker.metadata.image.topics.get(asked.name)
    answers = []
    for one in asked.partitions:
        answer = TxnOffsetCommitResponsePartition(partition_index=one.partition_index)
        answers.append(answer)
        if topic is None or not 0 <= one.partition_index < len(topic.partitions):
            answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            continue
        accepted.append(answer)
        offsets.append(
            OffsetToCommit(
                topic.name,
                one.partition_index,
                one.committed_offset,
                one.committed_leader_epoch,
                one.committed_metadata,
            )
        )
    return answers


async def _commit(
    ctx: Context, request: TxnOffsetCommitRequest, offsets: list[OffsetToCommit]
) -> tuple[ErrorCode, ...]:
    groups = ctx.broker.groups
    try:
        if not request.group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        guard = await _verified(ctx, request, groups.transaction_partition(request.group_id))
    except KafkaError as error:
        return (error.code,) * len(offsets)
    commit = CommitOffsets(
        request.group_id,
        tuple(offsets),
        request.generation_id,
        request.member_id,
        request.group_instance_id,
        producer_id=request.producer_id,
    )
    stamp = ProducerStamp(request.producer_id, request.producer_epoch, NO_SEQUENCE)
    reply = await groups.commit_in_transaction(TransactionalCommit(commit, stamp, guard))
    return reply.errors


async def _verified(
    ctx: Context, request: TxnOffsetCommitRequest, partition: Partition
) -> VerificationGuard | None:
    """Ask the transaction's coordinator, if the transaction is not in the partition yet."""
    adds = ctx.version >= ADDS_SINCE
    guard = partition.start_verification(request.producer_id, request.producer_epoch, NO_SEQUENCE, adds)
    if guard is None:
        return None
    producer = ProducerIdentity(request.producer_id, request.producer_epoch)
    asked = Verification(request.transactional_id, producer, frozenset({partition.topic_partition}), adds)
    error = (await ctx.broker.verifier.verify(asked))[partition.topic_partition]
    guard.refused = error in UNKNOWN_PRODUCER
    if error is not ErrorCode.NONE:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE if error in _TRY_AGAIN else error)
    return guard


def _for_client(error: ErrorCode, version: int) -> ErrorCode:
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_SINCE:
        return ErrorCode.INVALID_TXN_STATE
    if error is ErrorCode.CONCURRENT_TRANSACTIONS and version < ADDS_SINCE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < LOADING_SINCE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return error
