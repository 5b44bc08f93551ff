"""The requests that members of groups send all the time, read and answered by hand: heartbeats and commits.

Only the usual shapes of the flexible versions: strings and arrays shorter than 127, no tagged fields. A reader
returns None for anything else, cut off or wrong included: then the schema of `wire.messages` decides what it is.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import lru_cache
from itertools import repeat
from typing import NamedTuple

HEARTBEAT_FLEXIBLE_SINCE = 4
COMMIT_FLEXIBLE_SINCE = 8
COMMIT_BY_TOPIC_ID_SINCE = 10
_ONE_BYTE = 128
"""A length or count of one more than it says, in one byte."""
_UUID_SIZE = 16
_INT32 = struct.Struct(">i")
_POSITION = struct.Struct(">iqi")
_HEARTBEAT_ANSWER = struct.Struct(">ihx")
_CONSUMER_ANSWER_HEAD = struct.Struct(">ihB")
_CONSUMER_ANSWER_TAIL = struct.Struct(">iibx")
_PARTITION_ANSWER = struct.Struct(">ihx")
_NO_THROTTLE = bytes(4)
_ONE_TOPIC = _NO_THROTTLE + b"\2"
_ONE_POSITION = struct.Struct(">BihxH")
"""The number of offsets, the only one, and no tagged fields of the topic and the response."""
_LAST_POSITION = struct.Struct(">iqiI")
"""The only offset of a commit: partition, offset, leader epoch, and all that comes after them."""
_LAST_POSITION_SIZE = _LAST_POSITION.size
_NO_METADATA = (0x01000000, 0)
"""What comes after: an empty text or none, and no tagged fields of offset, topic and request."""
_LONGEST_HEAD = 512
REMEMBERED_HEADS = 4096
_NO_MESSAGE = 0
_NO_ASSIGNMENT = -1
_STILL_THE_SAME = {
    0: b"\0\0\xff\xff\xff\xff\0\0",
    1: b"\0\0\xff\xff\xff\xff\0\0\0",
}
"""By version, all between the epoch and the partitions: no instance, rack, timeout, topics, pattern, assignor."""


_new_tuple = tuple.__new__
"""Makes a named tuple without a call into Python."""


class HeartbeatFrame(NamedTuple):
    group_id: str
    generation: int
    member_id: str
    instance_id: str | None


class ConsumerHeartbeatFrame(NamedTuple):
    """One that says only that the member is alive; what it owns matters only while something moves."""

    group_id: str
    member_id: str
    member_epoch: int


class CommittedPosition(NamedTuple):
    partition: int
    offset: int
    leader_epoch: int
    metadata: str | None


class CommittedTopic(NamedTuple):
    raw: bytes
    """Its name or id as it stands in the request, and in the answer."""
    name: str
    """Empty where there is an id."""
    topic_id: bytes | None
    positions: list[CommittedPosition]


class CommitHead(NamedTuple):
    """Everything in a commit before its one offset: the same each time that a member commits."""

    member: tuple[str, int, str, str | None]
    """Group id, generation, member id, instance id."""
    name: str
    """The name of the topic; empty where there is an id."""
    topic_id: bytes | None
    answer: bytes
    """The beginning of the response."""


class CommitFrame(NamedTuple):
    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    topics: list[CommittedTopic]


def client_id_of(frame: memoryview) -> str | None:
    """From the header, where it stands in every version; None for one that has to be looked at more closely."""
    size = int.from_bytes(frame[8:10], "big", signed=True)
    if size <= 0:
        return "" if size in (0, -1) else None
    try:
        return str(frame[10 : 10 + size], "utf-8")
    except UnicodeDecodeError:
        return None


def read_heartbeat(frame: memoryview, position: int) -> HeartbeatFrame | None:
    try:
        size = frame[position]
        end = position + size
        if not 0 < size < _ONE_BYTE:
            return None
        group_id = str(frame[position + 1 : end], "utf-8")
        (generation,) = _INT32.unpack_from(frame, end)
        position = end + 4
        size = frame[position]
        end = position + size
        if not 0 < size < _ONE_BYTE:
            return None
        member_id = str(frame[position + 1 : end], "utf-8")
        size = frame[end]
        instance_id = None
        if size:
            position, end = end, end + size
            if size >= _ONE_BYTE:
                return None
            instance_id = str(frame[position + 1 : end], "utf-8")
        else:
            end += 1
        if frame[end]:
            return None
    except (IndexError, struct.error, UnicodeDecodeError):
        return None
    return HeartbeatFrame(group_id, generation, member_id, instance_id)


def heartbeat_answer(error: int) -> bytes:
    return _HEARTBEAT_ANSWER.pack(0, error)


def read_consumer_heartbeat(frame: memoryview, position: int, version: int) -> ConsumerHeartbeatFrame | None:
    try:
        size = frame[position]
        end = position + size
        if not 0 < size < _ONE_BYTE:
            return None
        group_id = str(frame[position + 1 : end], "utf-8")
        position = end
        size = frame[position]
        end = position + size
        if not 0 < size < _ONE_BYTE:
            return None
        member_id = str(frame[position + 1 : end], "utf-8")
        (member_epoch,) = _INT32.unpack_from(frame, end)
        nothing_new = _STILL_THE_SAME[version]
        position = end + 4 + len(nothing_new)
        if frame[end + 4 : position] != nothing_new or not _ends_with_partitions(frame, position):
            return None
    except (IndexError, struct.error, UnicodeDecodeError):
        return None
    return ConsumerHeartbeatFrame(group_id, member_id, member_epoch)


def _ends_with_partitions(frame: memoryview, position: int) -> bool:
    """Whether the rest is what a member says that it owns, and no tagged fields."""
    topics = frame[position]
    position += 1
    if topics >= _ONE_BYTE:
        return False
    for _ in range(topics - 1):
        count = frame[position + _UUID_SIZE]
        position += _UUID_SIZE + 1 + 4 * (count - 1)
        if not 0 < count < _ONE_BYTE or frame[position]:
            return False
        position += 1
    return frame[position] == 0


def consumer_heartbeat_answer(member_id: str, member_epoch: int, interval_ms: int) -> bytes:
    """No error, and no assignment: the member has its own already."""
    raw = member_id.encode()
    assert len(raw) + 1 < _ONE_BYTE
    return b"".join(
        (
            _CONSUMER_ANSWER_HEAD.pack(0, 0, _NO_MESSAGE),
            (len(raw) + 1).to_bytes(1, "big"),
            raw,
            _CONSUMER_ANSWER_TAIL.pack(member_epoch, interval_ms, _NO_ASSIGNMENT),
        )
    )


def read_one_position(frame: memoryview, position: int, version: int) -> tuple[CommitHead, int, int, int] | None:
    """A commit of one offset without metadata: its head, partition, offset and leader epoch."""
    start = len(frame) - _LAST_POSITION_SIZE
    if not position < start <= position + _LONGEST_HEAD:
        return None
    partition, offset, leader_epoch, rest = _LAST_POSITION.unpack_from(frame, start)
    if rest not in _NO_METADATA:
        return None
    head = _commit_head(bytes(frame[position:start]), version)
    return None if head is None else (head, partition, offset, leader_epoch)


@lru_cache(REMEMBERED_HEADS)
def _commit_head(raw: bytes, version: int) -> CommitHead | None:
    """Everything in a commit but its last bytes, if those are its only offset."""
    found = _read_commit(memoryview(raw + bytes(_LAST_POSITION_SIZE)), 0, version)
    if found is None or found[1] != len(raw) + _LAST_POSITION_SIZE:
        return None
    group_id, generation, member_id, instance_id, topics = found[0]
    if len(topics) != 1 or len(topics[0].positions) != 1:
        return None
    (topic,) = topics
    member = (group_id, generation, member_id, instance_id)
    return CommitHead(member, topic.name, topic.topic_id, _ONE_TOPIC + topic.raw)


def one_position_answer(head: bytes, partition: int, code: int) -> bytes:
    """The response to a commit with this head."""
    return head + _ONE_POSITION.pack(2, partition, code, 0)


def read_commit(frame: memoryview, position: int, version: int) -> CommitFrame | None:
    found = _read_commit(frame, position, version)
    return None if found is None else found[0]


def _read_commit(frame: memoryview, position: int, version: int) -> tuple[CommitFrame, int] | None:
    """With where it ends."""
    try:
        size = frame[position]
        end = position + size
        if not 0 < size < _ONE_BYTE:
            return None
        group_id = str(frame[position + 1 : end], "utf-8")
        (generation,) = _INT32.unpack_from(frame, end)
        position = end + 4
        size = frame[position]
        end = position + size
        if not 0 < size < _ONE_BYTE:
            return None
        member_id = str(frame[position + 1 : end], "utf-8")
        size = frame[end]
        instance_id = None
        if size:
            position, end = end, end + size
            if size >= _ONE_BYTE:
                return None
            instance_id = str(frame[position + 1 : end], "utf-8")
        else:
            end += 1
        count = frame[end]
        if not 0 < count < _ONE_BYTE:
            return None
        topics = []
        position = end + 1
        for _ in range(count - 1):
            topic, position = _read_topic(frame, position, version)
            topics.append(topic)
        if frame[position]:
            return None
    except (IndexError, struct.error, ValueError):
        return None
    return _new_tuple(CommitFrame, (group_id, generation, member_id, instance_id, topics)), position + 1


def _read_topic(frame: memoryview, position: int, version: int) -> tuple[CommittedTopic, int]:
    """ValueError for a shape that is not a usual one."""
    if version >= COMMIT_BY_TOPIC_ID_SINCE:
        end = position + _UUID_SIZE
        raw = topic_id = bytes(frame[position:end])
        name = ""
    else:
        end = position + frame[position]
        raw = bytes(frame[position:end])
        topic_id = None
        name = str(raw[1:], "utf-8")
        if not raw or raw[0] >= _ONE_BYTE:
            raise ValueError
    count = frame[end]
    position = end + 1
    if not 0 < count < _ONE_BYTE:
        raise ValueError
    positions = []
    for _ in range(count - 1):
        partition, offset, leader_epoch = _POSITION.unpack_from(frame, position)
        position += 16
        size = frame[position]
        end = position + (size or 1)
        if size >= _ONE_BYTE or frame[end]:
            raise ValueError
        metadata = str(frame[position + 1 : end], "utf-8") if size else None
        positions.append(_new_tuple(CommittedPosition, (partition, offset, leader_epoch, metadata)))
        position = end + 1
    if frame[position]:
        raise ValueError
    return _new_tuple(CommittedTopic, (raw, name, topic_id, positions)), position + 1


def even_commit_answer(topics: list[CommittedTopic], code: int) -> bytes:
    """The same code for all offsets."""
    return commit_answer(topics, repeat(code))


def commit_answer(topics: list[CommittedTopic], errors: Iterable[int]) -> bytes:
    """One code for each offset, in the request's order."""
    codes = iter(errors)
    parts = [_NO_THROTTLE, (len(topics) + 1).to_bytes(1, "big")]
    for topic in topics:
        parts.append(topic.raw)
        parts.append((len(topic.positions) + 1).to_bytes(1, "big"))
        parts += [_PARTITION_ANSWER.pack(one.partition, next(codes)) for one in topic.positions]
        parts.append(b"\0")
    parts.append(b"\0")
    return b"".join(parts)
