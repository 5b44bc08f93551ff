"""Produce (0), v3-13. Appends one record batch per partition. Advertised from v0: see ApiVersions.

v5 log start offset; v8 error messages (KIP-467); v9 flexible; v10 leader hints (KIP-951); v13 topic ids
(KIP-516). Hot path: a plain function over the frame. The batches are checked by header and CRC, never record by
record.
"""

from __future__ import annotations

from headrace.handlers.appending import Batches, append_all, outside_code
from headrace.handlers.context import Channel, topic_write
from headrace.handlers.early_produce import until_led
from headrace.handlers.registry import hot_api
from headrace.handlers.transactional_produce import append_in_transaction
from headrace.model.errors import ErrorCode, KafkaError
from headrace.records.batch import FLAGS_AT, HEADER_SIZE, TRANSACTIONAL
from headrace.replication.partition import ACKS_ALL
from headrace.services.delayed_produce import DelayedProduce, Unacknowledged, encode_results
from headrace.services.reply import Reply
from headrace.wire.produce import (
    FLEXIBLE,
    TOPIC_IDS,
    OneBatch,
    TopicData,
    encode_failure,
    encode_one_result,
    encode_produce_response,
    encode_result,
    parse_one_batch,
    parse_one_in_transaction,
    parse_produce,
    transactional_id_of,
)


@hot_api(
    key=0, name="Produce", versions=range(3, 14), flexible_since=FLEXIBLE, advertised_from=0, authorize=topic_write
)
def produce(channel: Channel, version: int, frame: memoryview, position: int) -> Reply:
    """Appends record batches to partitions and answers with their offsets."""
    by_id = version >= TOPIC_IDS
    if version >= FLEXIBLE and (one := parse_one_batch(frame, position, by_id)) is not None:
        reply = _append_one(channel, one, version)
        if reply is not None:
            return reply
    if channel.broker.departing.expects_any:
        early = until_led(channel, version, frame, position, _append)
        if early is not None:
            return early
    return _append(channel, version, frame, position)


def _append(channel: Channel, version: int, frame: memoryview, position: int) -> Reply:
    """The way for every request that the fast path did not take."""
    if (
        version >= FLEXIBLE
        and (named := parse_one_in_transaction(frame, position, version >= TOPIC_IDS)) is not None
    ):
        transactional_id, (acks, timeout_ms, echo, key, index, batch) = named
        if acks >= -1:
            batches: Batches = acks, timeout_ms, [(echo, key, [(index, batch)])]
            return append_in_transaction(channel, version, frame, position, transactional_id, batches)
    transactional, acks, timeout_ms, topics = parse_produce(frame, position, version)
    if acks < -1:
        return _refuse_all(
            version, topics, ErrorCode.INVALID_REQUIRED_ACKS, f"acks={acks} is not -1, 0 or a number of replicas"
        )
    if transactional:
        transactional_id = transactional_id_of(frame, position, version)
        return append_in_transaction(
            *(channel, version, frame, position, transactional_id, (acks, timeout_ms, topics))
        )
    return append_all(channel, version, frame, (acks, timeout_ms, topics))


def _append_one(channel: Channel, one: OneBatch, version: int) -> Reply:
    """The fast path for one batch, as in small requests; None, with nothing done, if it needs the slow one."""
    acks, timeout_ms, echo, key, index, batch = one
    replicas = channel.broker.replicas
    try:
        partition = (replicas.by_id if version >= TOPIC_IDS else replicas.by_name)[key].get(index)
    except KeyError:
        return None
    if partition is None or not partition.is_leader or partition.internal or (acks != 1 and acks != ACKS_ALL):
        return None
    if len(batch) < HEADER_SIZE or batch[FLAGS_AT] & TRANSACTIONAL:
        return None
    try:
        base_offset, append_time, log_start = partition.append(batch, acks)
    except KafkaError as error:
        failure = encode_failure(version, index, outside_code(error), error.message, error.record_errors)
        return encode_one_result(echo, failure)
    result = encode_result(version, index, base_offset, append_time, log_start)
    if partition.settled:
        return encode_one_result(echo, result)
    answers = [result]
    waiting = Unacknowledged(partition, acks, index, answers)
    if waiting.is_decided(channel, version):
        return encode_results(version, [(echo, answers)], () if waiting.hint is None else (waiting.hint,))
    return DelayedProduce(channel, version, timeout_ms, [(echo, answers)], [waiting], [])


def _refuse_all(version: int, topics: list[TopicData], code: ErrorCode, message: str) -> bytes:
    return encode_produce_response(
        version,
        [
            (echo, [encode_failure(version, index, code, message) for index, _ in partitions])
            for echo, _, partitions in topics
        ],
    )
