"""Batches of a Produce into the logs of their partitions, and the answer: the way that any request can take."""

from __future__ import annotations

from typing import Protocol

from headrace.handlers.context import Channel
from headrace.model.errors import ErrorCode, KafkaError
from headrace.records.batch import is_transactional
from headrace.replication.partition import Partition
from headrace.replication.replica_set import ReplicaSet
from headrace.services.delayed_produce import DelayedProduce, Results, Unacknowledged, encode_results
from headrace.services.leader_hints import leader_elsewhere
from headrace.services.reply import CloseConnection, Reply
from headrace.storage.producer_state import VerificationGuard
from headrace.wire.leader_hints import LeaderHint
from headrace.wire.produce import LEADER_HINTS, TOPIC_IDS, TopicData, encode_failure, encode_result

CLIENT_ID_POSITION = 10
"""Where the client id begins in a frame; its length is before it."""
ADMIN_CLIENT_ID = b"__admin_client"
UNNAMED = "The batch is part of a transaction, and the request does not name its transactional id"
"""Who may write within a transaction is asked by its id, also while the transaction is open here."""
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER

Batches = tuple[int, int, list[TopicData]]
"""acks, timeout in ms, topics."""


class GuardsOfTransactions(Protocol):
    def of(self, partition: Partition) -> VerificationGuard | None:
        """What the coordinator's agreement is worth in the partition; KafkaError if it did not agree."""


def outside_code(error: KafkaError) -> ErrorCode:
    """The error for a transactional batch in a request that names no transactional id."""
    if error.code is ErrorCode.INVALID_TXN_STATE:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return error.code


def append_all(
    channel: Channel,
    version: int,
    frame: memoryview,
    batches: Batches,
    guards: GuardsOfTransactions | None = None,
) -> Reply:
    """`guards` for what belongs to a transaction."""
    acks, timeout_ms, topics = batches
    replicas = channel.broker.replicas
    index_of_topics = replicas.by_id if version >= TOPIC_IDS else replicas.by_name
    results: Results = []
    failed = False
    waiting: list[Unacknowledged] = []
    hints: list[LeaderHint] = []
    for echo, key, partitions in topics:
        local = index_of_topics.get(key)
        answers = []
        for index, batch in partitions:
            partition = local.get(index) if local is not None else None
            try:
                if partition is None or not partition.is_leader or batch is None:
                    raise _refusal(replicas, key, version, index, batch)
                if partition.internal:
                    _check_may_write(partition, frame)
                if guards is None and is_transactional(batch):
                    raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, UNNAMED)
                guard = None if guards is None else guards.of(partition)
                base_offset, append_time, log_start = partition.append(batch, acks, guard)
            except KafkaError as error:
                failed = True
                hint = _hint(channel, version, key, index) if error.code == NOT_LEADER else None
                if hint is not None:
                    hints.append(hint)
                answers.append(
                    encode_failure(
                        version,
                        index,
                        outside_code(error) if guards is None else error.code,
                        error.message,
                        error.record_errors,
                        hint,
                    )
                )
            else:
                answers.append(encode_result(version, index, base_offset, append_time, log_start))
                if not partition.settled:
                    waiting.append(Unacknowledged(partition, acks, index, answers))
        results.append((echo, answers))
    if acks == 0:
        if failed:
            raise CloseConnection("a Produce with acks=0 failed")
        return None
    undecided = [batch for batch in waiting if not batch.is_decided(channel, version)]
    hints += [batch.hint for batch in waiting if batch.hint is not None]
    if undecided:
        return DelayedProduce(channel, version, timeout_ms, results, undecided, hints)
    return encode_results(version, results, hints)


def _check_may_write(partition: Partition, frame: memoryview) -> None:
    """Only the broker writes to internal topics, and clients that repair one by hand."""
    size = int.from_bytes(frame[CLIENT_ID_POSITION - 2 : CLIENT_ID_POSITION], "big", signed=True)
    if size < 0 or frame[CLIENT_ID_POSITION : CLIENT_ID_POSITION + size] != ADMIN_CLIENT_ID:
        name = partition.topic_partition.topic
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is written by brokers only")


def _hint(channel: Channel, version: int, key: bytes, index: int) -> LeaderHint | None:
    if version < LEADER_HINTS:
        return None
    return leader_elsewhere(channel.broker, channel.listener, key, index, by_id=version >= TOPIC_IDS)


def _refusal(replicas: ReplicaSet, key: bytes, version: int, index: int, batch: memoryview | None) -> KafkaError:
    if batch is None:
        return KafkaError(ErrorCode.INVALID_RECORD, "Exactly one record batch per partition is accepted, not none")
    return replicas.why_not_leader(key, index, by_id=version >= TOPIC_IDS)
