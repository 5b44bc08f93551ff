"""What a batch from a client must satisfy before it is appended: all of it read from the header alone.

Records are looked into only where the topic needs it: a compacted topic refuses records without a key.
"""

from __future__ import annotations

from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.limits import MAX_CHECKED_RECORDS, MAX_EXPANSION
from headrace.records.batch import (
    CODEC_MASK,
    CONTROL,
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
    checked_header,
    parse_header,
)
from headrace.records.builder import recompress, stamp_append_time
from headrace.records.compression import LAST_CODEC, Buffer
from headrace.records.reader import read_records
from headrace.storage.log_config import LogConfig


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


def check_header(header: BatchHeader, config: LogConfig, now_ms: int, allow_transactional: bool) -> None:
    """Raise the error that Kafka answers for a header that does not add up or is not a client's to write."""
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
        _check_attributes(attributes, allow_transactional)
    if producer_id >= 0 and (base_sequence < 0 or producer_epoch < 0):
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"Producer {producer_id} sent epoch {producer_epoch}, sequence {base_sequence}",
        )
    if (
        max_timestamp - now_ms > config.message_timestamp_after_max_ms
        or now_ms - base_timestamp > config.message_timestamp_before_max_ms
        or base_timestamp > max_timestamp
    ):
        _check_times(header, config, now_ms)


def _check_attributes(attributes: int, allow_transactional: bool) -> None:
    if attributes & CODEC_MASK > LAST_CODEC:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Codec {attributes & CODEC_MASK} is not known")
    if attributes & CONTROL:
        raise KafkaError(ErrorCode.INVALID_RECORD, "Clients are not allowed to write control records")
    if attributes & LOG_APPEND_TIME:
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, "Producers must not set the timestamp type to LogAppendTime")
    if attributes & TRANSACTIONAL and not allow_transactional:
        raise KafkaError(ErrorCode.INVALID_TXN_STATE, "This partition is not part of a transaction")


def _check_times(header: BatchHeader, config: LogConfig, now_ms: int) -> None:
    """The long way round, for a batch that looked out of range: the topic may stamp it, or it may have no time."""
    if config.append_time:
        return
    before_ms, after_ms = config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms
    for timestamp in (header.max_timestamp, header.base_timestamp):
        if timestamp != NO_TIMESTAMP and not -after_ms <= now_ms - timestamp <= before_ms:
            raise KafkaError(
                ErrorCode.INVALID_TIMESTAMP,
                f"Timestamp {timestamp} is out of range: at most {before_ms} ms before "
                f"and {after_ms} ms after now, which is {now_ms}",
            )


def decompression_limit(config: LogConfig) -> int:
    return config.max_message_bytes * MAX_EXPANSION


def check_keys(batch: Buffer, config: LogConfig) -> None:
    """A compacted topic can do nothing with a record that has no key."""
    count = parse_header(batch).record_count
    if count > MAX_CHECKED_RECORDS:
        raise KafkaError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"A batch of {count} records: a compacted topic takes {MAX_CHECKED_RECORDS} at once",
        )
    for record in read_records(batch, decompression_limit(config)):
        if record.key is None:
            raise KafkaError(
                ErrorCode.INVALID_RECORD, "Compacted topic cannot accept message without key in topic partition"
            )


def recompressed(header: BatchHeader, batch: Buffer, config: LogConfig) -> tuple[BatchHeader, bytearray]:
    """The batch in the codec that the topic stores, however it was sent."""
    codec = config.codec
    assert codec is not None
    changed = recompress(header, batch, codec, config.compression_level(codec), decompression_limit(config))
    check_size(len(changed), config)
    return checked_header(memoryview(changed)), changed


def adapted(
    header: BatchHeader, batch: memoryview | bytearray | bytes, config: LogConfig, now_ms: int
) -> tuple[BatchHeader, memoryview | bytearray | bytes, int]:
    """The batch as the topic wants it stored, and its append time (-1 where the topic stamps none)."""
    if config.compacted:
        check_keys(batch, config)
    if config.compression_type != "producer" and header.codec != config.codec:
        header, batch = recompressed(header, batch, config)
    if not config.append_time:
        return header, batch, -1
    header, batch = stamp_append_time(header, batch, now_ms)
    return header, batch, now_ms
