"""Produce (0), v3-13. Appends one record batch per partition. Advertised from v0: see ApiVersions.

v5 log start offset; v8 error messages (KIP-467); v9 flexible; v10 leader hints (KIP-951); v13 topic ids
(KIP-516). Hot path: a plain function over the frame. The batches are checked by header and CRC, never record by
record.
"""

from __future__ import annotations

from headrace.handlers.context import Channel, topic_write
from headrace.handlers.registry import hot_api
from headrace.model.errors import ErrorCode, KafkaError
from headrace.replication.partition import ACKS_ALL, Partition
from headrace.replication.replica_set import ReplicaSet
from headrace.services.delayed_produce import DelayedProduce, Results, Unacknowledged, encode_results
from headrace.services.leader_hints import leader_elsewhere
from headrace.services.reply import CloseConnection, Reply
from headrace.wire.leader_hints import LeaderHint
from headrace.wire.produce import (
    FLEXIBLE,
    LEADER_HINTS,
    TOPIC_IDS,
    OneBatch,
    TopicData,
    encode_failure,
    encode_one_result,
    encode_produce_response,
    encode_result,
    parse_one_batch,
    parse_produce,
)

CLIENT_ID_POSITION = 10
"""Where the client id begins in a frame; its length is before it."""
ADMIN_CLIENT_ID = b"__admin_client"
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


@hot_api(
    key=0, name="Produce", versions=range(3, 14), flexible_since=FLEXIBLE, advertised_from=0, authorize=topic_write
)
def produce(channel: Channel, version: int, frame: memoryview, position: int) -> Reply:
    """Appends record batches to partitions and answers with their offsets."""
    if version >= FLEXIBLE:
        one = parse_one_batch(frame, position, version >= TOPIC_IDS)
        reply = _append_one(channel, one, version) if one is not None else None
        if reply is not None:
            return reply
    _, acks, timeout_ms, topics = parse_produce(frame, position, version)
    if acks < -1:
        return _refuse_all(
            version, topics, ErrorCode.INVALID_REQUIRED_ACKS, f"acks={acks} is not -1, 0 or a number of replicas"
        )
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
                base_offset, append_time, log_start = partition.append(batch, acks)
            except KafkaError as error:
                failed = True
                hint = _hint(channel, version, key, index) if error.code == NOT_LEADER else None
                if hint is not None:
                    hints.append(hint)
                answers.append(
                    encode_failure(version, index, error.code, error.message, error.record_errors, hint)
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
    if undecided:
        return DelayedProduce(channel, version, timeout_ms, results, undecided, hints)
    return encode_results(version, results, hints)


def _append_one(channel: Channel, one: OneBatch, version: int) -> Reply:
    """The short way for one batch, as small requests are; None, with nothing done, if it takes the long one."""
    acks, timeout_ms, echo, key, index, batch = one
    replicas = channel.broker.replicas
    local = (replicas.by_id if version >= TOPIC_IDS else replicas.by_name).get(key)
    partition = local.get(index) if local is not None else None
    if partition is None or not partition.is_leader or partition.internal or (acks != 1 and acks != ACKS_ALL):
        return None
    try:
        base_offset, append_time, log_start = partition.append(batch, acks)
    except KafkaError as error:
        failure = encode_failure(version, index, error.code, error.message, error.record_errors)
        return encode_one_result(echo, failure)
    result = encode_result(version, index, base_offset, append_time, log_start)
    if partition.settled:
        return encode_one_result(echo, result)
    answers = [result]
    waiting = Unacknowledged(partition, acks, index, answers)
    if waiting.is_decided(channel, version):
        return encode_one_result(echo, answers[0])
    return DelayedProduce(channel, version, timeout_ms, [(echo, answers)], [waiting], [])


def _check_may_write(partition: Partition, frame: memoryview) -> None:
    """Internal topics are the broker's own; of clients only those that repair one by hand may write there."""
    size = int.from_bytes(frame[CLIENT_ID_POSITION - 2 : CLIENT_ID_POSITION], "big", signed=True)
    if size < 0 or frame[CLIENT_ID_POSITION : CLIENT_ID_POSITION + size] != ADMIN_CLIENT_ID:
        name = partition.topic_partition.topic
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is written by brokers only")


def _refuse_all(version: int, topics: list[TopicData], code: ErrorCode, message: str) -> bytes:
    return encode_produce_response(
        version,
        [
            (echo, [encode_failure(version, index, code, message) for index, _ in partitions])
            for echo, _, partitions in topics
        ],
    )


def _hint(channel: Channel, version: int, key: bytes, index: int) -> LeaderHint | None:
    if version < LEADER_HINTS:
        return None
    return leader_elsewhere(channel.broker, channel.listener, key, index, by_id=version >= TOPIC_IDS)


def _refusal(replicas: ReplicaSet, key: bytes, version: int, index: int, batch: memoryview | None) -> KafkaError:
    if batch is None:
        return KafkaError(ErrorCode.INVALID_RECORD, "Exactly one record batch per partition is accepted, not none")
    return replicas.why_not_leader(key, index, by_id=version >= TOPIC_IDS)
