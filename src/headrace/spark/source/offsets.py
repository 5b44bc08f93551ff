"""What a stream's offset says, and its JSON in the checkpoint.

    {"orders": {"0": 12, "1": 7}, "@ids": {"orders": "Zk3..."}, "@start": {"orders": {"0": 10, "1": 7}}}

The next offset per topic and partition, as Spark's `kafka` format writes it, and two keys of our own. They begin
with a character that no topic name can hold.

- `@ids` holds the ids of the topics, so that a topic deleted and created again is told from a truncated one. A
  broker without ids leaves it out.
- `@start` is where the first batch of the query began. Spark asks for the initial offset again when it restarts
  before the first batch was committed; "latest" then has another answer, and the rows between would be lost. So
  the initial offset carries itself, every offset keeps that while nothing has been read, and a batch planned
  from an initial offset starts at the `@start` of its end (`planned_start`).

Spark compares offsets as text: keys are always sorted (partitions as numbers), and when nothing is new the
answer is the very offset that was given, or empty batches would never end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from headrace.model.topics import TopicPartition

IDS_KEY = "@ids"
START_KEY = "@start"
RESERVED_KEYS = frozenset({IDS_KEY, START_KEY})

PartitionOffsets = Mapping[TopicPartition, int]
Nested = dict[str, dict[str, int]]
Json = dict[str, dict[str, int] | dict[str, str] | Nested]


class OffsetFormatError(ValueError):
    """An offset in the checkpoint that is neither ours nor one of Spark's `kafka` format."""


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """The next offset of every partition, the ids of the topics, and for the first batch where it began."""

    positions: PartitionOffsets
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    first_start: PartitionOffsets | None = None

    @property
    def is_initial(self) -> bool:
        """Nothing was read up to here: it is an initial offset, or still equal to it."""
        return self.first_start is not None and self.first_start == self.positions

    def to_json(self) -> Json:
        """A dict in stable order: the same offset gives the same text."""
        json: Json = {**_nested(self.positions)}
        topics = {partition.topic for partition in self.positions}
        ids = {topic: self.topic_ids[topic] for topic in sorted(topics) if self.topic_ids.get(topic)}
        if ids:
            json[IDS_KEY] = ids
        if self.first_start is not None:
            json[START_KEY] = _nested(self.first_start)
        return json


def offset_from_json(given: Mapping[str, object]) -> StreamOffset:
    """Reads `to_json` back, and the offsets of Spark's `kafka` format."""
    ids = given.get(IDS_KEY, {})
    if not isinstance(ids, Mapping) or not all(isinstance(one, str) for pair in ids.items() for one in pair):
        raise OffsetFormatError(f"{IDS_KEY} must map topics to ids, not {ids!r}")
    topics = {topic: partitions for topic, partitions in given.items() if topic not in RESERVED_KEYS}
    start = given.get(START_KEY)
    return StreamOffset(
        positions=_flat(topics),
        topic_ids=dict(ids),
        first_start=None if start is None else _flat(start),
    )


def initial_offset(positions: PartitionOffsets, topic_ids: Mapping[str, str]) -> StreamOffset:
    """What initialOffset() answers: it carries itself as `first_start`."""
    return StreamOffset(dict(positions), dict(topic_ids), dict(positions))


def next_offset(start: StreamOffset, ends: PartitionOffsets, topic_ids: Mapping[str, str]) -> StreamOffset:
    """What latestOffset() answers: where a batch from `start` ends. `start` itself when that holds nothing new.

    `start` is the offset Spark gave, not a repaired one: a start that had to be moved is something new, and a
    batch without rows puts it into the checkpoint. Partitions that `ends` lacks are gone. That alone is nothing
    new (a run to the end must end, and a topic that was only out of sight can come back); they are dropped when
    anything else moves.
    """
    moved = any(start.positions.get(partition) != offset for partition, offset in ends.items())
    recreated = any(
        start.topic_ids.get(topic) and topic_ids.get(topic) and start.topic_ids[topic] != topic_ids[topic]
        for topic in {partition.topic for partition in ends}
    )
    if not moved and not recreated:
        return start
    first_start = start.first_start if start.is_initial else None
    return StreamOffset(dict(ends), {**start.topic_ids, **_known(topic_ids)}, first_start)


def planned_start(start: StreamOffset, end: StreamOffset) -> StreamOffset:
    """Where a batch really starts, for partitions(start, end).

    Both offsets that Spark gives an initial one may come from different answers of initialOffset(); the one
    written into `end` is the one that counts. Any other start was read up to, and stands.
    """
    if start.is_initial and end.first_start is not None:
        return replace(start, positions=end.first_start, topic_ids=end.topic_ids, first_start=end.first_start)
    return start


def _known(topic_ids: Mapping[str, str]) -> dict[str, str]:
    return {topic: topic_id for topic, topic_id in topic_ids.items() if topic_id}


def _nested(positions: PartitionOffsets) -> Nested:
    nested: Nested = {}
    for partition in sorted(positions):
        nested.setdefault(partition.topic, {})[str(partition.partition)] = positions[partition]
    return nested


def _flat(given: object) -> dict[TopicPartition, int]:
    if not isinstance(given, Mapping):
        raise OffsetFormatError(f'an offset looks like {{"topic": {{"0": 12}}}}, not {given!r}')
    flat: dict[TopicPartition, int] = {}
    for topic, partitions in given.items():
        if not isinstance(partitions, Mapping):
            raise OffsetFormatError(f'the offsets of {topic} look like {{"0": 12}}, not {partitions!r}')
        for partition, offset in partitions.items():
            if not str(partition).isdecimal() or not isinstance(offset, int) or isinstance(offset, bool):
                raise OffsetFormatError(f"{topic}: {partition!r}: {offset!r} is not a partition and its offset")
            flat[TopicPartition(topic, int(partition))] = offset
    return flat
