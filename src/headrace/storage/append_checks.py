"""What a batch from a client must satisfy before it is appended: all of it read from the header alone.

Records are looked into only where the topic, or an odd header, needs it: see `record_checks`.
"""

from __future__ import annotations

from headrace.model.buffers import Buffer
from headrace.model.errors import ErrorCode, KafkaError
from headrace.records.batch import (
    CODEC_MASK,
    CONTROL,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    BatchHeader,
    checked_header,
)
from headrace.records.builder import recompress, stamp_append_time
from headrace.records.compression import LAST_CODEC
from headrace.storage.log_config import LogConfig
from headrace.storage.record_checks import checked_records, decompression_limit


def check_size(size: int, config: LogConfig) -> None:
    if size > config.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The record batch of {size} bytes exceeds max.message.bytes={config.max_message_bytes}",
        )
    if size > config.segment_bytes:
        raise KafkaError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"The record batch of {size} bytes exceeds segment.bytes={config.segment_bytes}",
        )


def check_header(header: BatchHeader, config: LogConfig, now_ms: int) -> bool:
    """Raise the error that Kafka answers for a header that does not add up or is not a client's to write.

    Whether its timestamps look odd, so that the records must tell.
    """
    (
        base_offset,
        _,
        _,
        _,
        _,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    ) = header  # at once: a named tuple's fields are slow to get one by one
    if count <= 0 or last_offset_delta != count - 1 or base_offset:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"The record batch states {count} records, last offset delta {last_offset_delta} "
            f"and base offset {base_offset}",
        )
    if attributes:
        _check_attributes(attributes, producer_id)
    if producer_id >= 0 and (base_sequence < 0 or producer_epoch < 0):
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"Producer {producer_id} sent epoch {producer_epoch}, sequence {base_sequence}",
        )
    return (
        max_timestamp - now_ms > config.message_timestamp_after_max_ms
        or base_timestamp > max_timestamp
        or not max_timestamp
    )


def _check_attributes(attributes: int, producer_id: int) -> None:
    if attributes & CODEC_MASK > LAST_CODEC:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Codec {attributes & CODEC_MASK} is not known")
    if attributes & CONTROL:
        raise KafkaError(ErrorCode.INVALID_RECORD, "Clients are not allowed to write control records")
    if attributes & LOG_APPEND_TIME:
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, "Producers must not set the timestamp type to LogAppendTime")
    if attributes & TRANSACTIONAL and producer_id < 0:
        raise KafkaError(ErrorCode.INVALID_RECORD, "A transactional batch must name its producer")


def recompressed(header: BatchHeader, batch: Buffer, config: LogConfig) -> tuple[BatchHeader, bytearray]:
    """The batch in the codec that the topic stores, however it was sent."""
    codec = config.codec
    assert codec is not None
    changed = recompress(header, batch, codec, config.compression_level(codec), decompression_limit(config))
    check_size(len(changed), config)
    return checked_header(memoryview(changed)), changed


def adapted(
    header: BatchHeader,
    batch: Buffer,
    config: LogConfig,
    now_ms: int,
    odd_times: bool = False,
    our_own: bool = False,
) -> tuple[BatchHeader, Buffer, int]:
    """The batch as the topic wants it stored, and its append time (-1 where the topic stamps none).

    The records of `our_own`, which this broker built, are not looked into.
    """
    if not our_own and (config.looks_into_records or (odd_times and not config.append_time)):
        header, batch = checked_records(header, batch, config, now_ms)
    if config.compression_type != "producer" and header.codec != config.codec:
        header, batch = recompressed(header, batch, config)
    if not config.append_time:
        return header, batch, -1
    header, batch = stamp_append_time(header, batch, now_ms)
    return header, batch, now_ms
