"""What the records of a batch must satisfy, for the topics and batches where a header is not enough.

Kafka looks at every record of every batch. Here they are looked into where something depends on it:
- a compacted topic takes no record without a key;
- `message.timestamp.before.max.ms`, where it is set: the header tells the latest timestamp, not the earliest;
- a header whose timestamps are out of range, or which states 0 as the latest one, as librdkafka does for records
  that have none: retention counts from it, so the records must tell;
- `headrace.record.validation.enable`: everything.
Whenever records are looked into, they must add up to what their batch states, and the largest timestamp in the
header is made right. One bad record refuses its batch, and the answer names every bad one (KIP-467).
"""

from __future__ import annotations

from headrace.model.buffers import Buffer
from headrace.model.errors import ErrorCode, KafkaError, RecordsRejected
from headrace.model.limits import MAX_CHECKED_RECORDS, MAX_EXPANSION, MAX_RECORD_ERRORS
from headrace.records.batch import NO_TIMESTAMP, BatchHeader
from headrace.records.builder import set_max_timestamp
from headrace.records.walk import Walk, walk_records
from headrace.storage.log_config import LogConfig


def decompression_limit(config: LogConfig) -> int:
    return config.max_message_bytes * MAX_EXPANSION


def checked_records(
    header: BatchHeader, batch: Buffer, config: LogConfig, now_ms: int
) -> tuple[BatchHeader, Buffer]:
    """Raise what Kafka answers for records that cannot be taken; else the batch, its largest timestamp right."""
    count = header.record_count
    if count > MAX_CHECKED_RECORDS:
        return _unchecked(header, batch, config, now_ms)
    walk = walk_records(header, batch, decompression_limit(config))
    problems: dict[int, str] = {}
    if config.headrace_record_validation_enable:
        problems.update(dict.fromkeys(walk.misplaced, "The record's offset is not its place in the batch"))
    if config.compacted:
        problems.update(dict.fromkeys(walk.without_key, "A compacted topic takes no record without a key"))
    if config.append_time:
        _reject(problems, {}, count)
        return header, batch
    _reject(problems, _bad_times(header, walk, config, now_ms), count)
    latest = max(header.base_timestamp + max(walk.timestamp_deltas), NO_TIMESTAMP)
    return (header, batch) if latest == header.max_timestamp else set_max_timestamp(header, batch, latest)


def _unchecked(header: BatchHeader, batch: Buffer, config: LogConfig, now_ms: int) -> tuple[BatchHeader, Buffer]:
    """Too many records to look at: refused where each counts, taken by its header where only that is odd."""
    if config.looks_into_records:
        # The code at which Java's producer makes two batches of one.
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"A batch of {header.record_count} records, each of which must be checked: "
            f"at most {MAX_CHECKED_RECORDS} are accepted",
        )
    latest = max(header.base_timestamp, header.max_timestamp)
    if latest > now_ms + config.message_timestamp_after_max_ms:
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, f"Timestamp {latest} is too far ahead of {now_ms}")
    return set_max_timestamp(header, batch, latest if header.max_timestamp else header.base_timestamp)


def _bad_times(header: BatchHeader, walk: Walk, config: LogConfig, now_ms: int) -> dict[int, str]:
    first = now_ms - config.message_timestamp_before_max_ms
    last = now_ms + config.message_timestamp_after_max_ms
    base, deltas = header.base_timestamp, walk.timestamp_deltas
    if base + min(deltas) >= first and base + max(deltas) <= last:
        return {}
    return {
        number: f"Timestamp {base + delta} is out of range: it must be within [{first}, {last}]"
        for number, delta in enumerate(deltas)
        if not first <= base + delta <= last and base + delta != NO_TIMESTAMP
    }


def _reject(problems: dict[int, str], bad_times: dict[int, str], count: int) -> None:
    """For a record with two faults the first is reported; a bad timestamp among the reported faults decides the
    code.
    """
    bad_times = {number: problem for number, problem in bad_times.items() if number not in problems}
    listed = sorted({**problems, **bad_times}.items())
    if not listed:
        return
    number, problem = listed[0]
    raise RecordsRejected(
        ErrorCode.INVALID_TIMESTAMP if bad_times else ErrorCode.INVALID_RECORD,
        f"{len(listed)} of {count} records are refused, the first of them record {number}: {problem}",
        tuple(listed[:MAX_RECORD_ERRORS]),
    )
