"""The consumer protocol embedded in the classic one: the bytes of a member's subscription and assignment.

The coordinator needs them only for groups whose protocol type is `consumer`: to know the topics a group reads (for
expiry and deletion of offsets), and to change a group from one protocol to the other while it lives.

Subscription: int16 version, [string] topics, bytes user data, v1 [string, [int32]] owned, v2 int32 generation,
v3 nullable string rack. Assignment: int16 version, [string, [int32]] partitions, bytes user data. Lengths are
int16 for strings and int32 for arrays and bytes; -1 is null. Newer versions only append.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from headrace.groups.events import Assignment
from headrace.groups.topics import TopicsView
from headrace.model.errors import ProtocolError

CONSUMER_PROTOCOL_TYPE = "consumer"
_NULL_BYTES = struct.pack(">i", -1)


@dataclass(frozen=True, slots=True)
class Subscription:
    version: int
    topics: tuple[str, ...]
    owned: Mapping[str, frozenset[int]]
    generation: int
    rack_id: str | None


class _Reader:
    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def number(self, code: str) -> int:
        try:
            (value,) = struct.unpack_from(code, self._data, self._position)
        except struct.error:
            raise ProtocolError("the embedded consumer protocol is cut off") from None
        self._position += struct.calcsize(code)
        assert isinstance(value, int)
        return value

    def count(self) -> int:
        value = self.number(">i")
        # Every element takes two bytes or more, so a larger count is a lie.
        if value > (len(self._data) - self._position) // 2:
            raise ProtocolError("an array of the embedded consumer protocol is cut off")
        return max(value, 0)

    def raw(self, size: int) -> bytes:
        end = self._position + size
        if size < 0 or end > len(self._data):
            raise ProtocolError("the embedded consumer protocol is cut off")
        piece = self._data[self._position : end]
        self._position = end
        return piece

    def nullable_string(self) -> str | None:
        size = self.number(">h")
        if size == -1:
            return None
        try:
            return self.raw(size).decode()
        except UnicodeDecodeError:
            raise ProtocolError("a name in the embedded consumer protocol is not UTF-8") from None

    def string(self) -> str:
        value = self.nullable_string()
        if value is None:
            raise ProtocolError("a name in the embedded consumer protocol is null")
        return value

    def skip_bytes(self) -> None:
        size = self.number(">i")
        if size != -1:
            self.raw(size)

    def partitions(self) -> dict[str, frozenset[int]]:
        result: dict[str, frozenset[int]] = {}
        for _ in range(self.count()):
            topic = self.string()
            result[topic] = frozenset(self.number(">i") for _ in range(self.count()))
        return result


def read_version(data: bytes) -> int:
    version = _Reader(data).number(">h")
    if version < 0:
        raise ProtocolError("the version of the embedded consumer protocol is negative")
    return version


def read_subscription(data: bytes) -> Subscription:
    version = read_version(data)
    reader, topics = _topics(data)
    owned = reader.partitions() if version >= 1 else {}
    generation = reader.number(">i") if version >= 2 else -1
    rack_id = reader.nullable_string() if version >= 3 else None
    return Subscription(version, topics, owned, generation, rack_id or None)


def read_topics(data: bytes) -> tuple[str, ...]:
    """The topics alone, which every version begins with: some clients write version 1 without owned partitions."""
    read_version(data)
    return _topics(data)[1]


def _topics(data: bytes) -> tuple[_Reader, tuple[str, ...]]:
    """What every version begins with, and the reader of the rest."""
    reader = _Reader(data)
    reader.number(">h")
    topics = tuple(reader.string() for _ in range(reader.count()))
    reader.skip_bytes()
    return reader, topics


def read_assignment(data: bytes) -> dict[str, frozenset[int]]:
    """Partitions by topic name; no bytes at all mean none."""
    if not data:
        return {}
    reader = _Reader(data)
    reader.number(">h")
    return reader.partitions()


def write_assignment(partitions: Mapping[str, frozenset[int]], version: int) -> bytes:
    parts = [struct.pack(">hi", version, len(partitions))]
    for topic in sorted(partitions):
        name = topic.encode()
        numbers = sorted(partitions[topic])
        parts.append(struct.pack(f">h{len(name)}si{len(numbers)}i", len(name), name, len(numbers), *numbers))
    parts.append(_NULL_BYTES)
    return b"".join(parts)


def write_subscription(subscription: Subscription) -> bytes:
    """What a client sends; tools and tests need it."""
    parts = [struct.pack(">hi", subscription.version, len(subscription.topics))]
    for topic in subscription.topics:
        name = topic.encode()
        parts.append(struct.pack(f">h{len(name)}s", len(name), name))
    parts.append(_NULL_BYTES)
    if subscription.version >= 1:
        parts.append(write_assignment(subscription.owned, 0)[2:-4])
    if subscription.version >= 2:
        parts.append(struct.pack(">i", subscription.generation))
    if subscription.version >= 3:
        rack = None if subscription.rack_id is None else subscription.rack_id.encode()
        parts.append(struct.pack(">h", -1) if rack is None else struct.pack(f">h{len(rack)}s", len(rack), rack))
    return b"".join(parts)


def by_topic_id(partitions: Mapping[str, frozenset[int]], topics: TopicsView) -> Assignment:
    """The same by id; topics that no longer exist are left out."""
    return {
        topics.by_name[name].id: numbers
        for name, numbers in partitions.items()
        if numbers and name in topics.by_name
    }


def by_topic_name(assignment: Assignment, topics: TopicsView) -> dict[str, frozenset[int]]:
    return {
        topics.by_id[topic_id].name: numbers
        for topic_id, numbers in assignment.items()
        if topic_id in topics.by_id
    }
