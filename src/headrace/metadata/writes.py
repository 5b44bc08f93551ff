"""Large decisions are cut into writes that the store takes, in order, each right by itself.

ZooKeeper takes about a megabyte at once, so what a change takes there is estimated, never too low. Besides, a
write is limited in partitions: everybody waits for it. A topic that is too large for one write is created with its
first partitions and grows by the others; when it is deleted, its last partitions go first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from headrace.coordination.contract import MAX_WRITE_BYTES, OP_OVERHEAD_BYTES
from headrace.metadata.changes import (
    Change,
    PartitionsAdded,
    PartitionsChanged,
    PartitionsRemoved,
    TopicCreated,
    TopicDeleted,
    operations,
)
from headrace.metadata.image import PartitionImage, TopicImage
from headrace.metadata.layout import encode_config, state_path, topic_config_path, topic_path

USUAL_BYTES = MAX_WRITE_BYTES - 20_000
"""The usual limit of a write, which also checks the controller and deletes old entries of `/changes`."""
MAX_TOPIC_NODE_BYTES = 900_000
"""The limit of a topic's own node, which lists its partitions: every write that adds some contains it."""
WEIGHT_OF_A_CHANGE = 2
"""A changed partition is written twice: in its own node and in the entry of `/changes`."""
STATE_BYTES = 170
"""The bytes of a partition's state, without its numbers."""
NUMBER_BYTES = 12
ENTRY_BYTES = 60
"""The bytes that name a partition in a list, without its numbers."""


def in_writes(changes: Iterable[Change], most: int, most_bytes: int = USUAL_BYTES) -> Iterator[list[Change]]:
    """Writes of about `most` partitions each, and of at most `most_bytes` unless a single change takes more."""
    write: list[Change] = []
    weight = size = 0
    for change in (part for whole in changes for part in _parts(whole, most, most_bytes)):
        cost, length = _weight(change), size_of(change)
        if write and (weight + cost > most or size + length > most_bytes):
            yield write
            write, weight, size = [], 0, 0
        write.append(change)
        weight += cost
        size += length
    if write:
        yield write


def _parts(change: Change, most: int, most_bytes: int) -> Iterator[Change]:
    match change:
        case TopicCreated(topic) if _is_large(change, most, most_bytes):
            first, *others = _growth(topic, 0, most, most_bytes, _new_bytes)
            yield TopicCreated(replace(topic, partitions=topic.partitions[: first[1]]))
            for start, end in others:
                yield PartitionsAdded(replace(topic, partitions=topic.partitions[:end]), start)
        case PartitionsAdded(topic, first) if _is_large(change, most, most_bytes):
            for start, end in _growth(topic, first, most, most_bytes, _new_bytes):
                yield PartitionsAdded(replace(topic, partitions=topic.partitions[:end]), start)
        case TopicDeleted(topic) if _is_large(change, most, most_bytes):
            (_, least), *others = _growth(topic, 0, most, most_bytes, _gone_bytes)
            for start, end in reversed(others):
                yield PartitionsRemoved(replace(topic, partitions=topic.partitions[:start]), end)
            yield TopicDeleted(replace(topic, partitions=topic.partitions[:least]))
        case PartitionsChanged(name, partitions) if _is_large(change, most, most_bytes):
            rows = list(partitions.items())
            sizes = [_changed_bytes(name, index, partition) for index, partition in rows]
            for start, end in _ranges(sizes, max(most // WEIGHT_OF_A_CHANGE, 1), most_bytes - 2 * len(name)):
                yield PartitionsChanged(name, dict(rows[start:end]))
        case _:
            yield change


def _is_large(change: Change, most: int, most_bytes: int) -> bool:
    return _weight(change) > most or size_of(change) > most_bytes


def _growth(
    topic: TopicImage,
    first: int,
    most: int,
    most_bytes: int,
    bytes_of: Callable[[str, int, PartitionImage], int],
) -> list[tuple[int, int]]:
    """Ranges of partitions, one for each write; the topic's own node then lists all that exist."""
    sizes = [bytes_of(topic.name, index, topic.partitions[index]) for index in range(first, len(topic.partitions))]
    own = _topic_bytes(topic) + _listed_bytes(topic.partitions)
    return [(first + start, first + end) for start, end in _ranges(sizes, most, most_bytes - own)]


def _ranges(sizes: Sequence[int], most: int, most_bytes: int) -> Iterator[tuple[int, int]]:
    start = total = 0
    for index, size in enumerate(sizes):
        if index > start and (index - start >= most or total + size > most_bytes):
            yield start, index
            start, total = index, 0
        total += size
    yield start, len(sizes)


def _weight(change: Change) -> int:
    match change:
        case TopicCreated(topic) | TopicDeleted(topic):
            return len(topic.partitions)
        case PartitionsAdded(topic, first):
            return len(topic.partitions) - first
        case PartitionsRemoved(topic, end):
            return end - len(topic.partitions)
        case PartitionsChanged(_, partitions):
            return WEIGHT_OF_A_CHANGE * len(partitions)
        case _:
            return 1


def size_of(change: Change) -> int:
    """The bytes that a change takes in a write, including its part of the entry of `/changes`; never too low."""
    match change:
        case TopicCreated(topic):
            return _topic_bytes(topic) + _listed_bytes(topic.partitions) + _all_new_bytes(topic, 0)
        case PartitionsAdded(topic, first):
            return _topic_bytes(topic) + _listed_bytes(topic.partitions) + _all_new_bytes(topic, first)
        case TopicDeleted(topic):
            return _topic_bytes(topic) + len(topic.partitions) * _gone_bytes(topic.name, len(topic.partitions))
        case PartitionsRemoved(topic, end):
            going = (end - len(topic.partitions)) * _gone_bytes(topic.name, end)
            return _topic_bytes(topic) + _listed_bytes(topic.partitions) + going
        case PartitionsChanged(name, partitions):
            rows = partitions.items()
            return 2 * (len(name) + ENTRY_BYTES) + sum(_changed_bytes(name, *row) for row in rows)
        case _:
            ops = operations(change, 0)
            return sum(2 * len(op.path) + len(getattr(op, "value", b"")) + OP_OVERHEAD_BYTES for op in ops)


def listed_bytes(partition: PartitionImage) -> int:
    """The bytes of a partition in the node of its topic: its number, quotes, and ids without spaces."""
    return NUMBER_BYTES + len(f"{partition.replicas}") - len(partition.replicas)


def _listed_bytes(partitions: Sequence[PartitionImage]) -> int:
    return sum(map(listed_bytes, partitions))


def _topic_bytes(topic: TopicImage) -> int:
    """The bytes of its nodes, without those about partitions."""
    paths = 2 * len(topic_path(topic.name)) + len(topic_config_path(topic.name)) + 2 * len(topic.name)
    return paths + 4 * OP_OVERHEAD_BYTES + 2 * ENTRY_BYTES + len(encode_config(topic.configs))


def _all_new_bytes(topic: TopicImage, first: int) -> int:
    partitions = topic.partitions
    return sum(_new_bytes(topic.name, index, partitions[index]) for index in range(first, len(partitions)))


def _new_bytes(name: str, index: int, partition: PartitionImage) -> int:
    return _gone_bytes(name, index) + _state_bytes(partition)


def _gone_bytes(name: str, index: int, _: PartitionImage | None = None) -> int:
    return 2 * (OP_OVERHEAD_BYTES + len(state_path(name, index)))


def _changed_bytes(name: str, index: int, partition: PartitionImage) -> int:
    return OP_OVERHEAD_BYTES + len(state_path(name, index)) + 2 * _state_bytes(partition) + ENTRY_BYTES


def _state_bytes(partition: PartitionImage) -> int:
    numbers = (partition.leader, partition.leader_epoch, partition.leader_incarnation)
    members = (partition.isr, partition.replicas, partition.elr, partition.last_known_elr)
    move = (partition.target, partition.original)
    return STATE_BYTES + len(f"{numbers}{members}{move}")
