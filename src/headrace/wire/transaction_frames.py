"""The requests that transactional producers send in every transaction, read and answered by hand.

AddPartitionsToTxn of clients (v0-3) and EndTxn, in both encodings. A reader returns None for what is long or not
as usual, cut off or wrong included: then the schema of `wire.messages` decides what it is.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import NamedTuple

from headrace.model.topics import TopicPartition

FLEXIBLE_SINCE = 3
EPOCH_SINCE = 5
"""EndTxn: the answer names the producer's next epoch."""
_ONE_BYTE = 128
"""A length or count of one more than it says, in one byte."""
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_PRODUCER = struct.Struct(">qh")
_PRODUCER_SIZE = _PRODUCER.size
_ENDING = struct.Struct(">qhB")
_ENDING_SIZE = _ENDING.size
_ERROR = struct.Struct(">ih")
_FLEXIBLE_ERROR = struct.Struct(">ihx")
_ERROR_AND_PRODUCER = struct.Struct(">ihqhx")
_RESULT = struct.Struct(">ih")
_FLEXIBLE_RESULT = struct.Struct(">ihx")
_NO_THROTTLE = bytes(4)
_LONGEST_TOPICS = 512
REMEMBERED_TOPICS = 1024


class EndFrame(NamedTuple):
    transactional_id: str
    producer_id: int
    epoch: int
    commit: bool


class AddedTopics(NamedTuple):
    """The partitions of a request as they stand there; most producers write to the same ones all the time."""

    partitions: frozenset[TopicPartition]
    by_topic: tuple[tuple[bytes, tuple[int, ...]], ...]
    """Each name as it is written, length included."""
    flexible: bool


class AddFrame(NamedTuple):
    transactional_id: str
    producer_id: int
    epoch: int
    topics: AddedTopics


def read_end(frame: memoryview, position: int, version: int) -> EndFrame | None:
    try:
        transactional_id, position = _text(frame, position, version >= FLEXIBLE_SINCE)
        producer_id, epoch, commit = _ENDING.unpack_from(frame, position)
    except (IndexError, struct.error, ValueError):
        return None
    if bytes(frame[position + _ENDING_SIZE :]) != (b"\0" if version >= FLEXIBLE_SINCE else b""):
        return None
    return EndFrame(transactional_id, producer_id, epoch, commit != 0)


def end_answer(version: int, error: int, producer_id: int, epoch: int) -> bytes:
    if version >= EPOCH_SINCE:
        return _ERROR_AND_PRODUCER.pack(0, error, producer_id, epoch)
    return (_FLEXIBLE_ERROR if version >= FLEXIBLE_SINCE else _ERROR).pack(0, error)


def read_add(frame: memoryview, position: int, version: int) -> AddFrame | None:
    flexible = version >= FLEXIBLE_SINCE
    try:
        transactional_id, position = _text(frame, position, flexible)
        producer_id, epoch = _PRODUCER.unpack_from(frame, position)
    except (IndexError, struct.error, ValueError):
        return None
    raw = bytes(frame[position + _PRODUCER_SIZE :])
    topics = _added_topics(raw, flexible) if len(raw) <= _LONGEST_TOPICS else None
    return None if topics is None else AddFrame(transactional_id, producer_id, epoch, topics)


def add_answer(topics: AddedTopics, error: int) -> bytes:
    """The same error, or none, for all partitions."""
    by_topic, flexible = topics.by_topic, topics.flexible
    result = _FLEXIBLE_RESULT if flexible else _RESULT
    parts = [_NO_THROTTLE, _count(len(by_topic), flexible)]
    for name, indexes in by_topic:
        parts.append(name)
        parts.append(_count(len(indexes), flexible))
        parts += [result.pack(index, error) for index in indexes]
        if flexible:
            parts.append(b"\0")
    if flexible:
        parts.append(b"\0")
    return b"".join(parts)


def _text(frame: memoryview | bytes, position: int, flexible: bool) -> tuple[str, int]:
    """A short one, and where it ends; ValueError for any other."""
    if flexible:
        size = frame[position] - 1
        position += 1
    else:
        (size,) = _INT16.unpack_from(frame, position)
        position += 2
    end = position + size
    if not 0 < size < _ONE_BYTE - 1 or end > len(frame):
        raise ValueError
    return str(frame[position:end], "utf-8"), end


@lru_cache(REMEMBERED_TOPICS)
def _added_topics(raw: bytes, flexible: bool) -> AddedTopics | None:
    """The rest of a request, from its topics on."""
    by_topic: list[tuple[bytes, tuple[int, ...]]] = []
    partitions: set[TopicPartition] = set()
    try:
        count, position = _counted(raw, 0, flexible)
        for _ in range(count):
            name, end = _text(raw, position, flexible)
            written = raw[position:end]
            count, position = _counted(raw, end, flexible)
            indexes = struct.unpack_from(f">{count}i", raw, position)
            by_topic.append((written, indexes))
            partitions.update(TopicPartition(name, index) for index in indexes)
            position = _past_no_tags(raw, position + 4 * count, flexible)
        if _past_no_tags(raw, position, flexible) != len(raw):
            return None
    except (IndexError, struct.error, ValueError):
        return None
    return AddedTopics(frozenset(partitions), tuple(by_topic), flexible)


def _counted(raw: bytes, position: int, flexible: bool) -> tuple[int, int]:
    """How many elements an array has, at least one, and where they begin."""
    if flexible:
        count, position = raw[position] - 1, position + 1
    else:
        (count,), position = _INT32.unpack_from(raw, position), position + 4
    if not 0 < count < _ONE_BYTE - 1:
        raise ValueError
    return count, position


def _past_no_tags(raw: bytes, position: int, flexible: bool) -> int:
    if flexible and raw[position]:
        raise ValueError
    return position + flexible


def _count(count: int, flexible: bool) -> bytes:
    return (count + 1).to_bytes(1, "big") if flexible else _INT32.pack(count)
