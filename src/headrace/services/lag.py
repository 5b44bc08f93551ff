"""How far groups are behind, in records and in seconds, as JSON and as metrics (R-OPS-8).

Lag in records is the partition's end minus the committed offset. Lag in seconds is how long ago the end passed the
committed offset: the age of the oldest record that the group has not processed. It comes from what this broker saw
itself, a look at every partition's end once a second (`OffsetHistory`), so it needs no trust in the producers'
clocks. Only for a position from before this broker's start the record's own timestamp is looked up, once.

No request waits for any of this: an idle partition costs one comparison per second.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.env import Env
from headrace.groups.coordinator import GroupCoordinator
from headrace.groups.describe import ListedGroup
from headrace.metadata.image import MetadataImage
from headrace.metrics.exposition import Family, Labels
from headrace.model.topics import TopicPartition
from headrace.records.batch import HEADER_SIZE, parse_header
from headrace.replication.partition import Partition
from headrace.replication.replica_set import ReplicaSet
from headrace.services.offset_history import OffsetHistory

log = logging.getLogger(__name__)

SAMPLE_SECONDS = 1.0
PARTITIONS_PER_TURN = 2_000
"""Partitions that are looked at before others get their turn on the loop."""
GROUPS_PER_TURN = 200
LOOKUPS_PER_SAMPLE = 20
MAX_WANTED = 1_000
"""Old offsets whose time is still to be looked up; more are requested by the next request for lag."""

Coordinators = Callable[[], Iterable[GroupCoordinator]]


@dataclass(frozen=True, slots=True)
class PartitionLag:
    topic: str
    partition: int
    current_offset: int
    log_end_offset: int
    lag_seconds: float | None
    """None while it is unknown: the offset is from before this broker's start and has not been looked up yet."""

    @property
    def lag(self) -> int:
        return max(self.log_end_offset - self.current_offset, 0)


@dataclass(frozen=True, slots=True)
class GroupLag:
    listed: ListedGroup
    members: int
    partitions: tuple[PartitionLag, ...]

    @property
    def lag(self) -> int:
        return sum(partition.lag for partition in self.partitions)

    @property
    def lag_seconds(self) -> float | None:
        """The lag of the partition that is furthest behind; None if the lag of any is unknown."""
        seconds = [partition.lag_seconds for partition in self.partitions]
        known = [one for one in seconds if one is not None]
        return max(known, default=0.0) if len(known) == len(seconds) else None


class Lag:
    def __init__(self, env: Env, replicas: ReplicaSet, coordinators: Coordinators) -> None:
        self._env = env
        self._replicas = replicas
        self._coordinators = coordinators
        self._histories: dict[TopicPartition, tuple[Partition, OffsetHistory]] = {}
        self._sampled_ms = env.clock.wall_ms()
        self._stale = True
        self._wanted: dict[tuple[TopicPartition, int], None] = {}

    # -- seeing

    def follow(self, old: MetadataImage, new: MetadataImage) -> None:
        """Take over that partitions may have been added or removed."""
        self._stale = True

    async def run(self) -> None:
        """Take samples until cancelled."""
        while True:
            await self.sample()
            await self._look_up_wanted()
            await self._env.clock.sleep(SAMPLE_SECONDS)

    async def sample(self) -> None:
        """Note the ends of partitions that have moved since the last time."""
        now_ms = self._env.clock.wall_ms()
        if self._stale:
            self._stale = False
            self._take_up_partitions(now_ms)
        before_ms = self._sampled_ms
        for number, (partition, history) in enumerate(list(self._histories.values()), 1):
            if partition.high_watermark != history.end_offset:
                history.note(partition.high_watermark, before_ms, now_ms)
            if number % PARTITIONS_PER_TURN == 0:
                await self._env.clock.sleep(0)
        self._sampled_ms = now_ms

    def _take_up_partitions(self, now_ms: int) -> None:
        before = self._histories
        self._histories = {}
        for partition in self._replicas.all():
            if partition.is_leader and not partition.internal:
                known = before.get(partition.topic_partition)
                if known is None or known[0] is not partition:
                    known = partition, OffsetHistory(partition.high_watermark, now_ms)
                self._histories[partition.topic_partition] = known

    async def _look_up_wanted(self) -> None:
        for topic_partition, offset in list(self._wanted)[:LOOKUPS_PER_SAMPLE]:
            del self._wanted[topic_partition, offset]
            known = self._histories.get(topic_partition)
            if known is not None and offset < known[1].first_offset:
                time_ms = await self._timestamp(known[0], offset)
                known[1].note_older(offset, self._sampled_ms if time_ms is None else time_ms)

    async def _timestamp(self, partition: Partition, offset: int) -> int | None:
        """The timestamp of the batch that holds `offset`, or of the first that is left; None if it has none."""
        place = partition.log.batch_at(max(offset, partition.log.start_offset))
        if place is None:
            return None
        read = self._env.disk.pread
        try:
            data = await self._env.run_blocking(lambda: read(place.file.fd, HEADER_SIZE, place.position))
        except OSError as error:
            # Clients that fetch from this log get the error from their own reads.
            log.warning("The age of offset %d of %s is not known: %s", offset, partition.topic_partition, error)
            return None
        timestamp = parse_header(data).max_timestamp if len(data) == HEADER_SIZE else -1
        return timestamp if timestamp >= 0 else None

    # -- telling

    async def groups(self) -> list[GroupLag]:
        """Every group that this broker coordinates and has loaded."""
        found: list[GroupLag] = []
        for coordinator in list(self._coordinators()):
            for listed in coordinator.list_groups():
                found.append(self._of_group(coordinator, listed))
                if len(found) % GROUPS_PER_TURN == 0:
                    await self._env.clock.sleep(0)
        return found

    def _of_group(self, coordinator: GroupCoordinator, listed: ListedGroup) -> GroupLag:
        now_ms = self._env.clock.wall_ms()
        group = coordinator.group(listed.group_id)
        offsets = coordinator.offsets.of_group(listed.group_id)
        partitions = (
            self._of_partition(place, stored.commit.offset, now_ms) for place, stored in sorted(offsets.items())
        )
        return GroupLag(
            listed,
            len(group.members) if group is not None else 0,
            tuple(one for one in partitions if one is not None),
        )

    def _of_partition(self, place: TopicPartition, offset: int, now_ms: int) -> PartitionLag | None:
        """The lag in one partition; None if this broker does not lead it."""
        known = self._histories.get(place)
        if known is None:
            return None
        partition, history = known
        end_offset = partition.high_watermark
        passed_ms = history.passed_at(offset, self._sampled_ms, now_ms, end_offset)
        if passed_ms is None and len(self._wanted) < MAX_WANTED:
            self._wanted[place, offset] = None
        seconds = None if passed_ms is None else max(now_ms - passed_ms, 0) / 1000
        return PartitionLag(place.topic, place.partition, offset, end_offset, seconds)


def lag_json(groups: Iterable[GroupLag]) -> dict[str, Any]:
    return {"groups": [_group_json(group) for group in groups]}


def lag_families(groups: Sequence[GroupLag]) -> Iterator[Family]:
    """Metrics with the names and labels of the common Kafka exporter, and one metric of Headrace."""
    rows = [
        (_labels(group, ("topic", one.topic), ("partition", one.partition)), one)
        for group in groups
        for one in group.partitions
    ]
    yield _family(
        "kafka_consumergroup_current_offset",
        "Committed offset of a group in a partition.",
        ((labels, one.current_offset) for labels, one in rows),
    )
    yield _family(
        "kafka_consumergroup_lag",
        "Records between a group's committed offset and the end of a partition.",
        ((labels, one.lag) for labels, one in rows),
    )
    yield _family(
        "headrace_consumergroup_lag_seconds",
        "Age of the oldest record of a partition that a group has not processed.",
        ((labels, one.lag_seconds) for labels, one in rows if one.lag_seconds is not None),
    )
    yield _family("kafka_consumergroup_lag_sum", "Records that a group is behind in a topic.", _sums(groups))
    yield _family(
        "kafka_consumergroup_members",
        "Members of a group.",
        ((_labels(group), group.members) for group in groups),
    )


def _labels(group: GroupLag, *more: tuple[str, str | int]) -> Labels:
    return (("consumergroup", group.listed.group_id), *more)


def _family(name: str, help_text: str, samples: Iterable[tuple[Labels, float]]) -> Family:
    return Family(name, "gauge", help_text, list(samples))


def _sums(groups: Iterable[GroupLag]) -> Iterator[tuple[Labels, float]]:
    for group in groups:
        sums: dict[str, int] = {}
        for one in group.partitions:
            sums[one.topic] = sums.get(one.topic, 0) + one.lag
        for topic, lag in sums.items():
            yield _labels(group, ("topic", topic)), lag


def _group_json(group: GroupLag) -> dict[str, Any]:
    return {
        "group": group.listed.group_id,
        "type": group.listed.type,
        "state": group.listed.state,
        "members": group.members,
        "lag": group.lag,
        "lag_seconds": group.lag_seconds,
        "partitions": [
            {
                "topic": one.topic,
                "partition": one.partition,
                "current_offset": one.current_offset,
                "log_end_offset": one.log_end_offset,
                "lag": one.lag,
                "lag_seconds": one.lag_seconds,
            }
            for one in group.partitions
        ],
    }
