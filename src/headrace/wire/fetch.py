"""Fetch (1), v4-18: the request read in place, the response laid out by hand. Hot path.

Topics are keyed by the raw bytes of their name (to v12) or id (from v13 on). The response is a list of pieces:
bytes that frame it, and ranges of segment files that stay where they are until the connection sends them.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from headrace.model.errors import ProtocolError
from headrace.model.limits import MAX_FETCH_REQUEST_BYTES
from headrace.model.varint import read_uvarint, write_uvarint
from headrace.wire.tags import skip_tags

FLEXIBLE = 12
TOPIC_IDS = 13
LEADER_HINTS = 16

CONSUMER_REPLICA_ID = -1
NO_SESSION_EPOCH = -1
READ_COMMITTED = 1


FetchWant = tuple[bytes, int, int, int, int, int, int]
"""One partition of a request: topic, partition, leader epoch, offset, last fetched epoch, maximum bytes, where a
follower's log starts. A plain tuple: hot."""


class FetchParameters(NamedTuple):
    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation: int
    session_id: int
    session_epoch: int
    wants: list[FetchWant]
    forgotten: list[tuple[bytes, int]]
    rack: str
    replica_epoch: int = -1
    """The broker epoch of a follower that asks."""


_new_tuple = tuple.__new__
"""Makes a named tuple without a call into Python."""
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT32_ARRAY = ">%di"
_HEAD_V15 = struct.Struct(">iiibii")
_HEAD_V7 = struct.Struct(">iiiibii")
_HEAD_V4 = struct.Struct(">iiiib")
_PARTITION_V12 = struct.Struct(">iiqiqi")
_PARTITION_V9 = struct.Struct(">iiqqi")
_PARTITION_V5 = struct.Struct(">iqqi")
_PARTITION_V4 = struct.Struct(">iqi")
_REPLICA_STATE_TAG = 1
_REPLICA_STATE = struct.Struct(">iq")
_MIN_FLEXIBLE_PARTITION = 33


_ONE_HEAD_V15 = struct.Struct(">iiibiiBB")
_ONE_HEAD_V12 = struct.Struct(">iiiibiiBB")
"""The head, then the number of topics and the first byte of the first: one read for all."""
_ONE_PARTITION = struct.Struct(">BiiqiqiI")
"""The number of partitions, the first of them, and four of the five bytes that follow it."""
_NOTHING_ELSE = 0x00000101
"""No tagged fields of the partition and the topic, no forgotten topics, no rack; a last zero is checked apart."""

OnePartition = tuple[int, int, bool, bytes, bytes, int, int, int, int]
"""Min bytes, max bytes, read committed, the topic as written and itself, partition, leader epoch, offset, max."""


def parse_one_partition(frame: memoryview, position: int, version: int) -> OnePartition | None:
    """A consumer's request for one partition without a session (v12 on); None if it is anything else.

    Small requests are the ones whose cost counts: this reads in four steps what `parse_fetch` takes apart.
    """
    try:
        if version >= 15:
            replica_id = CONSUMER_REPLICA_ID
            _, least, most, isolation, session, epoch, topics, length = _ONE_HEAD_V15.unpack_from(frame, position)
            start = position + 22
        else:
            replica_id, _, least, most, isolation, session, epoch, topics, length = _ONE_HEAD_V12.unpack_from(
                frame, position
            )
            start = position + 26
        if topics != 2 or session or epoch != NO_SESSION_EPOCH or replica_id != CONSUMER_REPLICA_ID:
            return None
        if version >= TOPIC_IDS:
            end = start + 16
            echo = topic = bytes(frame[start:end])
        elif length < 0x80:
            end = start + length
            echo = bytes(frame[start:end])
            topic = echo[1:]
        else:
            return None
        count, index, leader_epoch, offset, _, _, partition_most, rest = _ONE_PARTITION.unpack_from(frame, end)
        if count != 2 or rest != _NOTHING_ELSE or frame[end + 37]:
            return None
        return least, most, isolation == READ_COMMITTED, echo, topic, index, leader_epoch, offset, partition_most
    except (struct.error, IndexError):
        return None  # shorter than that, or cut off


def parse_fetch(frame: memoryview, position: int, version: int) -> FetchParameters:
    if len(frame) > MAX_FETCH_REQUEST_BYTES:
        raise ProtocolError(f"a Fetch request of {len(frame)} bytes")
    try:
        if version >= FLEXIBLE:
            return _parse_flexible(frame, position, version)
        return _parse_classic(frame, position, version)
    except (struct.error, IndexError, OverflowError):
        raise ProtocolError("a Fetch request is cut off") from None
    except UnicodeDecodeError:
        raise ProtocolError("a string is not UTF-8") from None


def _parse_flexible(frame: memoryview, position: int, version: int) -> FetchParameters:
    if version >= 15:
        replica_id = CONSUMER_REPLICA_ID
        wait, min_bytes, max_bytes, isolation, session_id, epoch = _HEAD_V15.unpack_from(frame, position)
        position += 21
    else:
        replica_id, wait, min_bytes, max_bytes, isolation, session_id, epoch = _HEAD_V7.unpack_from(
            frame, position
        )
        position += 25
    wants, position = _flexible_wants(frame, position, version)
    forgotten: list[tuple[bytes, int]] = []
    if frame[position] > 1:
        forgotten, position = _flexible_forgotten(frame, position, version)
    else:
        position += 1
    length = frame[position]
    position += 1
    if length >= 0x80:
        length, position = read_uvarint(frame, position - 1)
    rack = ""
    if length > 1:
        rack = str(frame[position : position + length - 1], "utf-8")
        position += length - 1
    replica_epoch = -1
    if frame[position]:
        replica_id, replica_epoch, position = _request_tags(frame, position, replica_id)
    else:
        position += 1
    if position > len(frame):
        raise ProtocolError("a Fetch request is cut off")
    return _new_tuple(
        FetchParameters,
        (
            replica_id,
            wait,
            min_bytes,
            max_bytes,
            isolation,
            session_id,
            epoch,
            wants,
            forgotten,
            rack,
            replica_epoch,
        ),
    )


def _flexible_topic(frame: memoryview, position: int, version: int) -> tuple[bytes, int]:
    if version >= TOPIC_IDS:
        return bytes(frame[position : position + 16]), position + 16
    length, position = read_uvarint(frame, position)
    end = position + length - 1
    return bytes(frame[position:end]), end


def _flexible_wants(frame: memoryview, position: int, version: int) -> tuple[list[FetchWant], int]:
    # A varint below 128 is one byte, the usual case, taken without a call.
    wants: list[FetchWant] = []
    topic_count = frame[position]
    position += 1
    if topic_count >= 0x80:
        topic_count, position = read_uvarint(frame, position - 1)
    for _ in range(topic_count - 1):
        topic, position = _flexible_topic(frame, position, version)
        count = frame[position]
        position += 1
        if count >= 0x80:
            count, position = read_uvarint(frame, position - 1)
        if (count - 1) * _MIN_FLEXIBLE_PARTITION > len(frame) - position:
            raise ProtocolError(f"a count of {count - 1} partitions in a frame that is too short for them")
        for _ in range(count - 1):
            index, leader_epoch, offset, last_epoch, start, max_bytes = _PARTITION_V12.unpack_from(frame, position)
            position += 32
            wants.append((topic, index, leader_epoch, offset, last_epoch, max_bytes, start))
            position = skip_tags(frame, position) if frame[position] else position + 1
        position = skip_tags(frame, position) if frame[position] else position + 1
    return wants, position


def _flexible_forgotten(frame: memoryview, position: int, version: int) -> tuple[list[tuple[bytes, int]], int]:
    forgotten: list[tuple[bytes, int]] = []
    topic_count, position = read_uvarint(frame, position)
    for _ in range(topic_count - 1):
        topic, position = _flexible_topic(frame, position, version)
        count, position = read_uvarint(frame, position)
        if (count - 1) * 4 > len(frame) - position:
            raise ProtocolError("a Fetch request is cut off")
        indexes = struct.unpack_from(_INT32_ARRAY % (count - 1), frame, position)
        position = skip_tags(frame, position + 4 * (count - 1))
        forgotten += [(topic, index) for index in indexes]
    return forgotten, position


def _request_tags(frame: memoryview, position: int, replica_id: int) -> tuple[int, int, int]:
    """From v15 on a follower names itself and its broker epoch in a tagged field."""
    replica_epoch = -1
    count, position = read_uvarint(frame, position)
    for _ in range(count):
        tag, position = read_uvarint(frame, position)
        size, position = read_uvarint(frame, position)
        if tag == _REPLICA_STATE_TAG:
            replica_id, replica_epoch = _REPLICA_STATE.unpack_from(frame, position)
        position += size
    return replica_id, replica_epoch, position


def _parse_classic(frame: memoryview, position: int, version: int) -> FetchParameters:
    session_id, session_epoch = 0, -1
    if version >= 7:
        replica_id, wait, min_bytes, max_bytes, isolation, session_id, session_epoch = _HEAD_V7.unpack_from(
            frame, position
        )
        position += 25
    else:
        replica_id, wait, min_bytes, max_bytes, isolation = _HEAD_V4.unpack_from(frame, position)
        position += 17
    wants, position = _classic_wants(frame, position, version)
    forgotten: list[tuple[bytes, int]] = []
    if version >= 7:
        forgotten, position = _classic_forgotten(frame, position)
    rack = ""
    if version >= 11:
        (length,) = _INT16.unpack_from(frame, position)
        rack = str(frame[position + 2 : position + 2 + max(length, 0)], "utf-8")
        position += 2 + max(length, 0)
    if position > len(frame):
        raise ProtocolError("a Fetch request is cut off")
    return FetchParameters(
        replica_id, wait, min_bytes, max_bytes, isolation, session_id, session_epoch, wants, forgotten, rack
    )


def _classic_count(frame: memoryview, position: int, smallest: int) -> int:
    count: int = _INT32.unpack_from(frame, position)[0]
    if count < 0 or count * smallest > len(frame) - position:
        raise ProtocolError(f"a count of {count} in a frame that is too short for it")
    return count


def _classic_topic(frame: memoryview, position: int) -> tuple[bytes, int]:
    (length,) = _INT16.unpack_from(frame, position)
    end = position + 2 + length
    if length < 0 or end > len(frame):
        raise ProtocolError("a topic's name is cut off")
    return bytes(frame[position + 2 : end]), end


def _classic_wants(frame: memoryview, position: int, version: int) -> tuple[list[FetchWant], int]:
    wants: list[FetchWant] = []
    topic_count = _classic_count(frame, position, 6)
    position += 4
    for _ in range(topic_count):
        topic, position = _classic_topic(frame, position)
        count = _classic_count(frame, position, 16)
        position += 4
        for _ in range(count):
            leader_epoch = start = -1
            if version >= 9:
                index, leader_epoch, offset, start, max_bytes = _PARTITION_V9.unpack_from(frame, position)
                position += _PARTITION_V9.size
            elif version >= 5:
                index, offset, start, max_bytes = _PARTITION_V5.unpack_from(frame, position)
                position += _PARTITION_V5.size
            else:
                index, offset, max_bytes = _PARTITION_V4.unpack_from(frame, position)
                position += _PARTITION_V4.size
            wants.append((topic, index, leader_epoch, offset, -1, max_bytes, start))
    return wants, position


def _classic_forgotten(frame: memoryview, position: int) -> tuple[list[tuple[bytes, int]], int]:
    forgotten: list[tuple[bytes, int]] = []
    topic_count = _classic_count(frame, position, 6)
    position += 4
    for _ in range(topic_count):
        topic, position = _classic_topic(frame, position)
        count = _classic_count(frame, position, 4)
        indexes = struct.unpack_from(_INT32_ARRAY % count, frame, position + 4)
        position += 4 + 4 * count
        forgotten += [(topic, index) for index in indexes]
    return forgotten, position


_FLEXIBLE_HEAD = struct.Struct(">ihi")
_RESULT_V12 = struct.Struct(">ihqqqBi")
_RESULT_V5 = struct.Struct(">ihqqq")
_RESULT_V4 = struct.Struct(">ihqq")
_NULL_ABORTED = b"\xff\xff\xff\xff"
_NO_ABORTED = b"\0\0\0\0"
NO_REPLICA = -1
_LIMITS = struct.Struct(">ii")
_NO_REPLICA_ID = 15
"""From this version on the request begins with the maximum wait, the minimum bytes and the maximum bytes."""
_ABORTED = struct.Struct(">qq")
AbortedRow = Sequence[int]
"""An aborted transaction: producer id, first offset; what follows is not for readers."""
_DIVERGING = struct.Struct(">BBBiqB")
_DIVERGING_SIZE = 13
"""One tagged field, number 0, its size; epoch, end offset, no tagged fields of its own."""


def write_response_head(out: bytearray, version: int, error_code: int, session_id: int, topic_count: int) -> None:
    if version >= FLEXIBLE:
        out += _FLEXIBLE_HEAD.pack(0, error_code, session_id)
        write_uvarint(out, topic_count + 1)
        return
    if version >= 7:
        out += _FLEXIBLE_HEAD.pack(0, error_code, session_id)
    else:
        out += b"\0\0\0\0"
    out += _INT32.pack(topic_count)


def write_topic_head(out: bytearray, version: int, topic: bytes, partition_count: int) -> None:
    if version >= FLEXIBLE:
        if version < TOPIC_IDS:
            write_uvarint(out, len(topic) + 1)
        out += topic
        write_uvarint(out, partition_count + 1)
    else:
        out += _INT16.pack(len(topic))
        out += topic
        out += _INT32.pack(partition_count)


def write_partition_head(
    out: bytearray,
    version: int,
    result: tuple[int, int, int, int, int],
    committed: bool,
    size: int,
    preferred_replica: int = NO_REPLICA,
    aborted: Sequence[AbortedRow] = (),
) -> None:
    """All fields of a partition before its records: (index, error, high watermark, last stable, log start)."""
    if aborted:
        _write_head_with_aborted(out, version, result, size, aborted)
        return
    if version >= FLEXIBLE:
        # aborted transactions: null unless the client reads committed, then none.
        out += _RESULT_V12.pack(*result, 1 if committed else 0, preferred_replica)
        write_uvarint(out, size + 1)
        return
    out += _RESULT_V5.pack(*result) if version >= 5 else _RESULT_V4.pack(*result[:4])
    out += _NO_ABORTED if committed else _NULL_ABORTED
    if version >= 11:
        out += _INT32.pack(preferred_replica)
    out += _INT32.pack(size)


def _write_head_with_aborted(
    out: bytearray, version: int, result: tuple[int, int, int, int, int], size: int, aborted: Sequence[AbortedRow]
) -> None:
    """The same where the reader must leave out the records of some transactions."""
    out += _RESULT_V5.pack(*result) if version >= 5 else _RESULT_V4.pack(*result[:4])
    if version >= FLEXIBLE:
        write_uvarint(out, len(aborted) + 1)
        for row in aborted:
            out += _ABORTED.pack(row[0], row[1])
            out.append(0)
    else:
        out += _INT32.pack(len(aborted))
        for row in aborted:
            out += _ABORTED.pack(row[0], row[1])
    if version >= 11:
        out += _INT32.pack(NO_REPLICA)
    if version >= FLEXIBLE:
        write_uvarint(out, size + 1)
    else:
        out += _INT32.pack(size)


def limited(frame: memoryview, position: int, version: int, most: int) -> memoryview:
    """The request with another limit of bytes, if its own is higher; for that many its client waits at most."""
    start = position + (4 if version >= _NO_REPLICA_ID else 8)
    try:
        least, wanted = _LIMITS.unpack_from(frame, start)
    except struct.error:
        raise ProtocolError("a Fetch request is cut off") from None
    if wanted <= most:
        return frame
    changed = bytearray(frame)
    _LIMITS.pack_into(changed, start, min(least, most), most)
    return memoryview(changed)


def diverging_tag(epoch: int, end_offset: int) -> bytes:
    """The tagged fields of a partition whose reader must go back: where the logs part (KIP-595)."""
    return _DIVERGING.pack(1, 0, _DIVERGING_SIZE, epoch, end_offset, 0)


def encode_one_partition(
    session_id: int, echo: bytes, result: tuple[int, int, int, int, int], committed: bool, size: int
) -> bytearray:
    """Everything before the records in a flexible response about one partition: the usual case, in one go."""
    out = bytearray(_FLEXIBLE_HEAD.pack(0, 0, session_id))
    out += b"\2"
    out += echo
    out += b"\2"
    out += _RESULT_V12.pack(*result, committed, -1)
    size += 1
    while size >= 0x80:
        out.append(size & 0x7F | 0x80)
        size >>= 7
    out.append(size)
    return out


def topic_echo(version: int, topic: bytes) -> bytes:
    """A topic as it stands in the flexible versions: its id, or its name with the length before it."""
    if version >= TOPIC_IDS:
        return topic
    out = bytearray()
    write_uvarint(out, len(topic) + 1)
    return bytes(out + topic)


NO_TAGS = b"\0"
ONE_PARTITION_TAIL = b"\0\0\0"
"""No tagged fields after the partition, the topic and the response."""


def tags_after(version: int) -> bytes:
    """What follows a partition, a topic and the whole response in the flexible versions."""
    return b"\0" if version >= FLEXIBLE else b""
