"""Produce (0), v3-13: the request read in place, the response written by hand. Hot path: no object per record.

Everything is parsed before anything is appended, so that a broken frame leaves nothing half done. Record batches
come out as memoryviews of the receive buffer. In both encodings the response repeats a topic's name or id just as
the request wrote it, so those raw bytes are kept and echoed.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from headrace.model.errors import ErrorCode, ProtocolError
from headrace.model.limits import MAX_PRODUCE_PARTITIONS, MAX_STRING_BYTES
from headrace.model.varint import read_uvarint, write_uvarint
from headrace.wire.leader_hints import LeaderHint, endpoints_tag, leader_tag
from headrace.wire.tags import skip_tags

RECORD_ERRORS = 8
FLEXIBLE = 9
LEADER_HINTS = 10
TOPIC_IDS = 13

PartitionData = tuple[int, memoryview | None]
TopicData = tuple[bytes, bytes, list[PartitionData]]
"""The name or id as written, the name or id itself, and what goes to each partition."""

_ACKS_TIMEOUT = struct.Struct(">hi")
_BODY_HEAD = struct.Struct(">BhiBB")
"""No transactional id, acks, timeout, number of topics, first byte of the first topic: one read for all."""
_FIRST_PARTITION = struct.Struct(">BiBB")
"""Number of partitions, index of the first, two bytes from where its batch's length begins."""
_ACKS_TIMEOUT_COUNT = struct.Struct(">hiB")
_INDEX_SIZE = struct.Struct(">ii")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_FLEXIBLE_PARTITION = struct.Struct(">ihqqqBBB")
_RESULT_V2 = struct.Struct(">ihqq")
_RESULT_V5 = struct.Struct(">ihqqq")
_RESULT_V8 = struct.Struct(">ihqqqih")
_FLEXIBLE_HEAD = struct.Struct(">ihqqq")
_NO_THROTTLE = b"\0\0\0\0"


ProduceParameters = tuple[bool, int, int, list[TopicData]]
"""Whether the request names a transactional id, acks, timeout in ms, topics."""


def parse_produce(frame: memoryview, position: int, version: int) -> ProduceParameters:
    """`position` is where the body begins."""
    try:
        if version >= FLEXIBLE:
            return _parse_flexible(frame, position, version >= TOPIC_IDS)
        return _parse_classic(frame, position)
    except (struct.error, IndexError, OverflowError):
        raise ProtocolError("a Produce request is cut off") from None


OneBatch = tuple[int, int, bytes, bytes, int, memoryview]
"""Acks, timeout in ms, the topic as written and itself, partition, batch."""


def transactional_id_of(frame: memoryview, position: int, version: int) -> str:
    """The transactional id of a request that names one and was parsed before."""
    if version >= FLEXIBLE:
        length, start = read_uvarint(frame, position)
        length -= 1
        if length > MAX_STRING_BYTES:
            raise ProtocolError(f"a transactional id of {length} bytes, and {MAX_STRING_BYTES} are the most")
    else:
        (length,) = _INT16.unpack_from(frame, position)
        start = position + 2
    try:
        return bytes(frame[start : start + length]).decode()
    except UnicodeDecodeError:
        raise ProtocolError("a transactional id is not UTF-8") from None


def parse_one_in_transaction(frame: memoryview, position: int, topic_ids: bool) -> tuple[str, OneBatch] | None:
    """The same in a transaction, and its id."""
    try:
        length = frame[position]
        end = position + length
        if not 1 < length < 0x80:
            return None
        one = parse_one_batch(frame, end - 1, topic_ids, in_transaction=True)
        return None if one is None else (str(frame[position + 1 : end], "utf-8"), one)
    except (IndexError, UnicodeDecodeError):
        return None


def parse_one_batch(
    frame: memoryview, position: int, topic_ids: bool, in_transaction: bool = False
) -> OneBatch | None:
    """One batch of up to 2 MB for one partition, outside of a transaction; None if it is anything else.

    For v9 on. Small requests are the ones whose cost counts, and nearly all of them look like this.
    `in_transaction`: `position` is that of the last byte of the transactional id.
    """
    try:
        transactional_id, acks, timeout_ms, topic_count, name_length = _BODY_HEAD.unpack_from(frame, position)
        if topic_count != 2 or (transactional_id and not in_transaction):
            return None
        start = position + 8
        if topic_ids:
            end = start + 16
            echo = key = bytes(frame[start:end])
        elif name_length < 0x80:
            end = start + name_length
            echo = bytes(frame[start:end])
            key = echo[1:]
        else:
            return None
        partition_count, index, low, high = _FIRST_PARTITION.unpack_from(frame, end)
        if partition_count != 2:
            return None
        if low >= 0x80 > high > 0:  # two bytes: from 127 bytes to 16 KB
            start = end + 7
            length = low & 0x7F | high << 7
        elif 0 < low < 0x80:
            start = end + 6
            length = low
        elif low >= 0x80 <= high and 0 < frame[end + 7] < 0x80:
            start = end + 8
            length = low & 0x7F | (high & 0x7F) << 7 | frame[end + 7] << 14
        else:
            return None  # no batch, a huge one, or a length written longer than it must be
        end = start + length - 1
        if frame[end] or frame[end + 1] or frame[end + 2]:
            return None  # tagged fields
        return acks, timeout_ms, echo, key, index, frame[start:end]
    except (struct.error, IndexError):
        return None  # shorter than that, or cut off


def _parse_flexible(frame: memoryview, position: int, topic_ids: bool) -> ProduceParameters:
    # A varint below 128 is one byte, the usual case, taken without a call.
    length = frame[position]
    position += 1
    if length >= 0x80:
        length, position = read_uvarint(frame, position - 1)
    transactional = length > 0
    if length > 1:
        position += length - 1
    acks, timeout_ms, topic_count = _ACKS_TIMEOUT_COUNT.unpack_from(frame, position)
    position += 7
    if topic_count >= 0x80:
        topic_count, position = read_uvarint(frame, position - 1)
    topics: list[TopicData] = []
    total = 0
    for _ in range(topic_count - 1):
        if topic_ids:
            end = position + 16
            echo = key = bytes(frame[position:end])
        else:
            length = frame[position]
            if length < 0x80:
                end = position + length
                echo = bytes(frame[position:end])
                key = echo[1:]
            else:
                length, start = read_uvarint(frame, position)
                end = start + length - 1
                echo = bytes(frame[position:end])
                key = echo[start - position :]
        partitions, position = _flexible_partitions(frame, end)
        topics.append((echo, key, partitions))
        total += 1 + len(partitions)
        if total > MAX_PRODUCE_PARTITIONS:
            raise ProtocolError(f"more than {MAX_PRODUCE_PARTITIONS} partitions in one Produce")
        position = skip_tags(frame, position) if frame[position] else position + 1
    if frame[position]:
        skip_tags(frame, position)
    return transactional, acks, timeout_ms, topics


def _flexible_partitions(frame: memoryview, position: int) -> tuple[list[PartitionData], int]:
    count = frame[position]
    position += 1
    if count >= 0x80:
        count, position = read_uvarint(frame, position - 1)
    partitions: list[PartitionData] = []
    size = len(frame)
    if count > MAX_PRODUCE_PARTITIONS:
        raise ProtocolError(f"{count - 1} partitions of one topic in one Produce")
    for _ in range(count - 1):
        (index,) = _INT32.unpack_from(frame, position)
        length, following = frame[position + 4], frame[position + 5]
        if length >= 0x80 > following:  # two bytes: batches of up to 16 KB
            length = length & 0x7F | following << 7
            position += 6
        else:
            length, position = read_uvarint(frame, position + 4)
        if length == 0:
            partitions.append((index, None))
        else:
            end = position + length - 1
            if end > size:
                raise ProtocolError("a record batch is cut off")
            partitions.append((index, frame[position:end]))
            position = end
        position = skip_tags(frame, position) if frame[position] else position + 1
    return partitions, position


def _parse_classic(frame: memoryview, position: int) -> ProduceParameters:
    size = len(frame)
    (length,) = _INT16.unpack_from(frame, position)
    position += 2 + max(length, 0)
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(frame, position)
    (topic_count,) = _INT32.unpack_from(frame, position + 6)
    position += 10
    topics: list[TopicData] = []
    total = 0
    for _ in range(_bounded(topic_count, min(size - position, MAX_PRODUCE_PARTITIONS))):
        (name_length,) = _INT16.unpack_from(frame, position)
        end = position + 2 + _bounded(name_length, size - position)
        echo = bytes(frame[position:end])
        (partition_count,) = _INT32.unpack_from(frame, end)
        position = end + 4
        partitions: list[PartitionData] = []
        total += partition_count
        if total > MAX_PRODUCE_PARTITIONS:
            raise ProtocolError(f"more than {MAX_PRODUCE_PARTITIONS} partitions in one Produce")
        for _ in range(_bounded(partition_count, size - position)):
            index, length_of_records = _INDEX_SIZE.unpack_from(frame, position)
            position += 8
            if length_of_records < 0:
                partitions.append((index, None))
                continue
            end = position + length_of_records
            if end > size:
                raise ProtocolError("a record batch is cut off")
            partitions.append((index, frame[position:end]))
            position = end
        topics.append((echo, echo[2:], partitions))
    return length >= 0, acks, timeout_ms, topics


def _bounded(count: int, left: int) -> int:
    if count < 0 or count > left:
        raise ProtocolError(f"a count of {count} with {left} bytes left")
    return count


def encode_result(version: int, index: int, base_offset: int, append_time: int, log_start: int) -> bytes:
    """One partition that took its batch."""
    if version >= FLEXIBLE:
        # Then: no record errors (an empty array), no error message (null), no tagged fields.
        return _FLEXIBLE_PARTITION.pack(index, 0, base_offset, append_time, log_start, 1, 0, 0)
    return _classic_result(version, index, 0, base_offset, append_time, log_start)


def with_leader(result: bytes, hint: LeaderHint) -> bytes:
    """A result of `encode_result` that tells who leads from now on; from the version of leader hints on."""
    return result[:-1] + leader_tag(0, hint)


def encode_failure(
    version: int,
    index: int,
    code: ErrorCode,
    message: str | None,
    record_errors: Sequence[tuple[int, str]] = (),
    hint: LeaderHint | None = None,
) -> bytes:
    """One partition that refused its batch, which records of it are to blame (KIP-467), and who leads instead."""
    if version < RECORD_ERRORS:
        return _classic_result(version, index, code, -1, -1, -1)
    out = bytearray(_FLEXIBLE_HEAD.pack(index, code, -1, -1, -1))
    if version < FLEXIBLE:
        out += _INT32.pack(len(record_errors))
        for number, problem in record_errors:
            out += _INT32.pack(number) + _classic_string(problem)
        return bytes(out + _classic_string(message))
    write_uvarint(out, len(record_errors) + 1)
    for number, problem in record_errors:
        out += _INT32.pack(number)
        _write_string(out, problem)
        out.append(0)
    _write_string(out, message)
    out += leader_tag(0, hint) if hint is not None else b"\0"
    return bytes(out)


def _classic_string(text: str | None) -> bytes:
    if text is None:
        return _INT16.pack(-1)
    data = text.encode()
    return _INT16.pack(len(data)) + data


def _write_string(out: bytearray, text: str | None) -> None:
    data = (text or "").encode()
    write_uvarint(out, len(data) + 1 if text is not None else 0)
    out += data


def _classic_result(
    version: int, index: int, code: int, base_offset: int, append_time: int, log_start: int
) -> bytes:
    if version >= RECORD_ERRORS:
        return _RESULT_V8.pack(index, code, base_offset, append_time, log_start, 0, -1)
    if version >= 5:
        return _RESULT_V5.pack(index, code, base_offset, append_time, log_start)
    return _RESULT_V2.pack(index, code, base_offset, append_time)


def encode_one_result(echo: bytes, result: bytes) -> bytes:
    """The whole body of a flexible response about one partition."""
    return b"".join((b"\2", echo, b"\2", result, b"\0\0\0\0\0\0"))


def with_throttle_time(version: int, body: bytes, throttle_ms: int) -> bytes:
    """An encoded response that tells its client to wait; one that tells who leads instead stays as it is."""
    if version < FLEXIBLE:
        return body[:-4] + _INT32.pack(throttle_ms)
    if body[-5:] != b"\0\0\0\0\0":  # addresses of leaders follow, the last with a port
        return body
    return b"".join((body[:-5], _INT32.pack(throttle_ms), b"\0"))


def encode_produce_response(
    version: int, topics: list[tuple[bytes, list[bytes]]], hints: Sequence[LeaderHint] = ()
) -> bytes:
    """The whole body, from each topic's echo and its partitions' results."""
    if version < FLEXIBLE:
        parts = [_INT32.pack(len(topics))]
        for echo, results in topics:
            parts += (echo, _INT32.pack(len(results)), *results)
        parts.append(_NO_THROTTLE)
        return b"".join(parts)
    out = bytearray()
    write_uvarint(out, len(topics) + 1)
    for echo, results in topics:
        out += echo
        write_uvarint(out, len(results) + 1)
        for result in results:
            out += result
        out.append(0)
    out += _NO_THROTTLE
    out += endpoints_tag(hints)
    return bytes(out)
