"""Records that should have been read but no longer exist.

A stream's offset says what comes next; the cluster says what it has. Where they disagree something was lost, and
each way to lose it is a class of its own. With `failOnDataLoss` the query stops with the first loss; without it
every loss is a warning and the query continues at the nearest possible offset:

| what happened                                   | class               | continues                     |
|-------------------------------------------------|---------------------|-------------------------------|
| the topic is gone                               | TopicDeleted        | without it                    |
| another topic has its name (the id differs)     | TopicRecreated      | at the new one's first record |
| the topic is there, the partition is not        | PartitionGone       | without it                    |
| the log begins after the offset (retention)     | OffsetAgedOut       | at the log's first record     |
| the log ends before the offset (truncated)      | OffsetBeyondEnd     | at the log's end              |
| a partition that is new does not begin at 0     | NewPartitionTrimmed | at its first record           |

Both places where Spark asks are covered: `check_start` when the end of the next batch is chosen, `check_range`
when a batch is planned, which may be much later (a restart plans the last batch again).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from headrace.model.topics import TopicPartition
from headrace.spark.source.offsets import StreamOffset, planned_start

ADVICE = (
    "To continue without these records set the source option failOnDataLoss to false; "
    "to read everything again from startingOffsets start the query with a new checkpoint location."
)


class PartitionBounds(NamedTuple):
    """What a partition holds: [log_start, log_end), up to the last stable offset when only committed records
    count."""

    log_start: int
    log_end: int


@dataclass(frozen=True, slots=True)
class TopicsNow:
    """What the cluster has now, of what the query reads."""

    topic_ids: Mapping[str, str]
    bounds: Mapping[TopicPartition, PartitionBounds]

    def has_topic(self, topic: str) -> bool:
        return topic in self.topic_ids or any(partition.topic == topic for partition in self.bounds)


class DataLoss(Exception):
    """Records that cannot be read. `partitions` says of what, `what` says why; str() adds what to do."""

    def __init__(self, partitions: Sequence[TopicPartition], what: str) -> None:
        super().__init__(tuple(partitions), what)
        self.partitions = tuple(partitions)
        self.what = what

    def __str__(self) -> str:
        return f"{self.what} {ADVICE}"


class TopicGone(DataLoss):
    """The topic is gone, or no longer among those the query reads."""


class TopicRecreated(DataLoss):
    """Another topic has the name now."""


class PartitionGone(DataLoss):
    """The topic has fewer partitions, or the query reads fewer of them."""


class OffsetAgedOut(DataLoss):
    """The records were removed by retention or DeleteRecords before they were read."""


class OffsetBeyondEnd(DataLoss):
    """The log is shorter than what was read of it."""


class NewPartitionTrimmed(DataLoss):
    """A partition the query has not seen before has already lost its first records."""


@dataclass(frozen=True, slots=True)
class Checked:
    """Where to continue (every partition of the view), and what is lost by that."""

    start: StreamOffset
    losses: tuple[DataLoss, ...]


@dataclass(frozen=True, slots=True)
class CheckedRange:
    """What a planned batch can read of each partition, and what is lost by it."""

    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    losses: tuple[DataLoss, ...]


def check_start(previous: StreamOffset, view: TopicsNow) -> Checked:
    """Where to continue from `previous`, for latestOffset() (and for the start of a batch query)."""
    recreated = _recreated_topics(previous, view)
    losses = _vanished(previous.positions, view) + _recreated_losses(previous, view, recreated)
    starts: dict[TopicPartition, int] = {}
    for partition in sorted(view.bounds):
        position = None if partition.topic in recreated else previous.positions.get(partition)
        starts[partition], loss = _first_readable(partition, position, view.bounds[partition])
        if loss is not None and partition.topic not in recreated:
            losses.append(loss)
    ids = {**previous.topic_ids, **{topic: found for topic, found in view.topic_ids.items() if found}}
    return Checked(replace(previous, positions=starts, topic_ids=ids), tuple(losses))


def check_range(start: StreamOffset, end: StreamOffset, view: TopicsNow) -> CheckedRange:
    """What can be read between the two offsets, for partitions(start, end).

    Partitions of `start` that `end` lacks were given up when `end` was chosen. A topic created again between the
    two starts at its beginning; one created again since `end` was chosen has nothing of this batch.
    """
    begin = planned_start(start, end)
    recreated = _recreated_topics(end, view)
    losses = _vanished(end.positions, view) + _recreated_losses(end, view, recreated)
    replaced = {topic for topic in begin.topic_ids if _differ(begin.topic_ids, end.topic_ids, topic)}
    starts: dict[TopicPartition, int] = {}
    ends: dict[TopicPartition, int] = {}
    for partition, wanted_end in sorted(end.positions.items()):
        if partition not in view.bounds or partition.topic in recreated:
            continue
        bounds = view.bounds[partition]
        position = None if partition.topic in replaced else begin.positions.get(partition)
        if position is not None and position >= wanted_end:
            starts[partition] = ends[partition] = wanted_end  # nothing to read, whatever the log holds
            continue
        first, loss = _first_readable(partition, position, bounds)
        if loss is None and wanted_end > bounds.log_end:
            loss = _beyond_end(partition, wanted_end, bounds)
        if loss is not None and partition.topic not in replaced:
            losses.append(loss)
        ends[partition] = min(wanted_end, bounds.log_end)
        starts[partition] = min(first, ends[partition])
    return CheckedRange(starts, ends, tuple(losses))


def raise_or_warn(losses: Sequence[DataLoss], *, fail_on_data_loss: bool) -> list[str]:
    """Raises the first loss when losses fail the query, its text naming the others; else one warning for each. The
    same loss has the same text each time, so that it need be logged only once."""
    if losses and fail_on_data_loss:
        first = losses[0]
        others = "".join(f" Also: {loss.what}" for loss in losses[1:])
        raise type(first)([p for loss in losses for p in loss.partitions], first.what + others)
    return [f"{loss.what} The query continues without these records (failOnDataLoss is false)." for loss in losses]


def not_yet_visible(previous: StreamOffset, view: TopicsNow) -> list[TopicPartition]:
    """Partitions that seem to end before what was read of them. A new leader may say so for a moment: ask again
    (fetchOffset.numRetries) before `check_start` calls it a loss."""
    recreated = _recreated_topics(previous, view)
    return [
        partition
        for partition, position in sorted(previous.positions.items())
        if partition.topic not in recreated
        and partition in view.bounds
        and position > view.bounds[partition].log_end
    ]


def available_now_end(
    start: Mapping[TopicPartition, int], target: Mapping[TopicPartition, int], view: TopicsNow
) -> dict[TopicPartition, int]:
    """The ends of a batch in a run up to `target`, the ends of the log when the run began.

    Only partitions of the target that still exist; never past what the log holds now, never below the start. When
    partitions vanish the rest still reaches its end, and the run ends.
    """
    return {
        partition: max(start[partition], min(offset, view.bounds[partition].log_end))
        for partition, offset in sorted(target.items())
        if partition in view.bounds and partition in start
    }


def _differ(before: Mapping[str, str], after: Mapping[str, str], topic: str) -> bool:
    """Whether both know an id of the topic, and not the same."""
    one, other = before.get(topic), after.get(topic)
    return bool(one and other and one != other)


def _recreated_topics(offset: StreamOffset, view: TopicsNow) -> set[str]:
    topics = {partition.topic for partition in offset.positions}
    return {topic for topic in topics if _differ(offset.topic_ids, view.topic_ids, topic)}


def _of_topic(partitions: Iterable[TopicPartition], topic: str) -> list[TopicPartition]:
    return sorted(partition for partition in partitions if partition.topic == topic)


def _positions_text(positions: Mapping[TopicPartition, int], partitions: Sequence[TopicPartition]) -> str:
    return ", ".join(f"{partition} at offset {positions[partition]}" for partition in partitions)


def _vanished(positions: Mapping[TopicPartition, int], view: TopicsNow) -> list[DataLoss]:
    losses: list[DataLoss] = []
    for topic in sorted({partition.topic for partition in positions}):
        gone = [partition for partition in _of_topic(positions, topic) if partition not in view.bounds]
        where = _positions_text(positions, gone)
        if gone and not view.has_topic(topic):
            what = (
                f"Topic {topic} is gone: it was deleted, or it is no longer among the topics this query reads. "
                f"Its records after {where} cannot be read."
            )
            losses.append(TopicGone(gone, what))
        elif gone:
            what = (
                f"Topic {topic} no longer has all partitions this query has read: they were assigned before and "
                f"are not now, or the topic was created again. Records after {where} cannot be read."
            )
            losses.append(PartitionGone(gone, what))
    return losses


def _recreated_losses(offset: StreamOffset, view: TopicsNow, topics: Iterable[str]) -> list[DataLoss]:
    losses: list[DataLoss] = []
    for topic in sorted(topics):
        partitions = _of_topic(offset.positions, topic)
        what = (
            f"Topic {topic} was deleted and created again (its id was {offset.topic_ids[topic]} and is now "
            f"{view.topic_ids[topic]}). Records of the old topic after "
            f"{_positions_text(offset.positions, partitions)} cannot be read; "
            f"the new topic is read from its beginning."
        )
        losses.append(TopicRecreated(partitions, what))
    return losses


def _first_readable(
    partition: TopicPartition, position: int | None, bounds: PartitionBounds
) -> tuple[int, DataLoss | None]:
    """The offset to read first, and what is lost before it. position None: the partition is new."""
    if position is None:
        if bounds.log_start == 0:
            return 0, None
        what = (
            f"Partition {partition} is new to this query and begins at offset {bounds.log_start} instead of 0: "
            f"its first records were removed before they were read."
        )
        return bounds.log_start, NewPartitionTrimmed([partition], what)
    if position < bounds.log_start:
        what = (
            f"Records of {partition} were removed before they were read: offset {position} comes next, but the "
            f"log begins at {bounds.log_start} ({bounds.log_start - position} offsets lost to retention or "
            f"DeleteRecords)."
        )
        return bounds.log_start, OffsetAgedOut([partition], what)
    if position > bounds.log_end:
        return bounds.log_end, _beyond_end(partition, position, bounds)
    return position, None


def _beyond_end(partition: TopicPartition, offset: int, bounds: PartitionBounds) -> OffsetBeyondEnd:
    what = (
        f"Partition {partition} ends at offset {bounds.log_end}, before offset {offset} that this query has "
        f"reached: its log was cut off, or the topic was deleted and created again on a broker without topic ids, "
        f"or the start offset was set beyond the end."
    )
    return OffsetBeyondEnd([partition], what)
