"""What a move will do, before it is done: the partitions, where they go, and how much is copied."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from headrace.cli.common.failure import NOT_FOUND, CommandError
from headrace.cli.common.output import Column, Row, number, plural, size_text
from headrace.cli.common.session import topics_of
from headrace.client.admin import ConfigResource, describe_configs, describe_log_dirs
from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.reassigning import MovingPartition
from headrace.client.view import ClusterView
from headrace.metadata.balancing import Location, Replicas
from headrace.metadata.cordons import CORDONED, EVERY_DIRECTORY, parse_directories
from headrace.model.config_resources import ResourceType
from headrace.model.errors import KafkaError
from headrace.model.topics import TopicPartition

COLUMNS = (
    Column("topic", "TOPIC"),
    number("partition", "PARTITION"),
    Column("from", "FROM"),
    Column("to", "TO"),
    number("copied", "TO-COPY"),
)

SHOWN = 10

Sizes = Mapping[tuple[int, TopicPartition], int]
"""Bytes of each replica, by broker."""


@dataclass(frozen=True, slots=True)
class Move:
    partition: TopicPartition
    before: Replicas
    after: Replicas
    size_bytes: int

    @property
    def adding(self) -> Replicas:
        return tuple(broker for broker in self.after if broker not in self.before)

    @property
    def bytes_to_copy(self) -> int:
        return self.size_bytes * len(self.adding)

    def row(self) -> dict[str, Any]:
        return {
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "from": list(self.before),
            "to": list(self.after),
            "bytes_to_copy": self.bytes_to_copy,
        }


def table_row(move: Move) -> Row:
    return {**move.row(), "copied": size_text(move.bytes_to_copy)}


def summary(moves: Iterable[Move]) -> str:
    listed = list(moves)
    copies = sum(len(move.adding) for move in listed)
    total = size_text(sum(move.bytes_to_copy for move in listed))
    fewer = sum(len(move.after) < len(move.before) for move in listed)
    text = f"{plural(len(listed), 'partition')}, {plural(copies, 'replica')} to copy, {total}"
    return text + (f"; {fewer} will have fewer replicas than now" if fewer else "")


def some(names: Sequence[TopicPartition]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(f"{name.topic}:{name.partition}" for name in names[:SHOWN]) + more


def places(view: ClusterView) -> dict[int, Location]:
    return {broker.id: Location(broker.rack, broker.address.host) for broker in view.brokers.values()}


async def open_places(cluster: Cluster, view: ClusterView) -> dict[int, Location]:
    """The places without brokers that may not get replicas: the controller would refuse such moves."""
    return {id: place._replace(closed=await _is_cordoned(cluster, id)) for id, place in places(view).items()}


async def _is_cordoned(cluster: Cluster, broker: int) -> bool:
    try:
        entries = await describe_configs(
            cluster, ConfigResource(ResourceType.BROKER, str(broker)), (CORDONED, "log.dirs", "log.dir")
        )
    except (ClientError, KafkaError):
        return False
    values = {entry.name: entry.value or "" for entry in entries}
    cordoned = parse_directories(values.get(CORDONED, ""))
    held = parse_directories(values.get("log.dirs") or values.get("log.dir") or "")
    return EVERY_DIRECTORY in cordoned or (bool(held) and set(held) <= set(cordoned))


def assignment(view: ClusterView, topics: Iterable[str] | None = None) -> dict[TopicPartition, Replicas]:
    """Who has a replica now. While a partition moves, those that come and those that go."""
    names = list(view.topics) if topics is None else list(topics)
    return {
        TopicPartition(name, one.number): one.replicas for name in names for one in view.topics[name].partitions
    }


def destination(
    view: ClusterView, moving: Mapping[TopicPartition, MovingPartition], topics: Iterable[str] | None = None
) -> dict[TopicPartition, Replicas]:
    """Who will have a replica when the running moves have ended, which were listed before the view was taken."""
    there = assignment(view, topics)
    for name, state in moving.items():
        if name in there:
            there[name] = tuple(one for one in state.replicas if one not in state.removing)
    return there


async def named_partitions(cluster: Cluster, names: Iterable[str]) -> tuple[ClusterView, list[TopicPartition]]:
    """From `orders` (all of it) and `orders:3`."""
    asked = [_parsed(name) for name in names]
    view, topics = await topics_of(cluster, list(dict.fromkeys(topic for topic, _ in asked)))
    view = await with_the_living(cluster, view)
    by_name = {topic.name: topic for topic in topics}
    found: dict[TopicPartition, None] = {}
    for topic, wanted in asked:
        numbers = [one.number for one in by_name[topic].partitions]
        if wanted is not None and wanted not in numbers:
            raise CommandError(
                f"{topic} has no partition {wanted}, only {plural(len(numbers), 'partition')}.", NOT_FOUND
            )
        found.update((TopicPartition(topic, one), None) for one in (numbers if wanted is None else [wanted]))
    return view, list(found)


async def with_the_living(cluster: Cluster, view: ClusterView) -> ClusterView:
    """If topics are named, a broker also lists brokers that have just died, for clients that look them up."""
    return view._replace(brokers=(await cluster.metadata([])).brokers)


def _parsed(name: str) -> tuple[str, int | None]:
    topic, colon, number_text = name.rpartition(":")
    if not colon:
        return name, None
    if not number_text.isdigit():
        raise click.UsageError(f"{name!r} is not of the form TOPIC or TOPIC:PARTITION.")
    return topic, int(number_text)


async def replica_sizes(cluster: Cluster, brokers: Iterable[int]) -> dict[tuple[int, TopicPartition], int]:
    sizes: dict[tuple[int, TopicPartition], int] = {}
    for broker in brokers:
        for directory in await describe_log_dirs(cluster, broker):
            for topic in directory.topics:
                for one in topic.partitions:
                    if not one.is_future_key:
                        sizes[broker, TopicPartition(topic.name, one.partition_index)] = one.partition_size
    return sizes


async def moves_of(
    cluster: Cluster,
    view: ClusterView,
    wanted: Mapping[TopicPartition, Replicas],
    moving: Collection[TopicPartition] = (),
) -> list[Move]:
    """The plan as moves, each with what it copies; moves that change nothing are left out."""
    before = assignment(view, dict.fromkeys(one.topic for one in wanted))
    changed = {name: to for name, to in wanted.items() if before[name] != to or name in moving}
    holders = {broker for name in changed for broker in before[name] if broker in view.brokers}
    sizes = await replica_sizes(cluster, sorted(holders))
    return [
        Move(name, before[name], to, max((sizes.get((one, name), 0) for one in before[name]), default=0))
        for name, to in changed.items()
    ]


def read_plan(path: str) -> dict[TopicPartition, Replicas]:
    """A file as `kafka-reassign-partitions` has it."""
    try:
        return parse_plan(Path(path).read_text())
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}.", NOT_FOUND) from None


def parse_plan(text: str) -> dict[TopicPartition, Replicas]:
    try:
        fields = json.loads(text)
        rows = [
            (TopicPartition(row["topic"], int(row["partition"])), tuple(int(one) for one in row["replicas"]))
            for row in fields["partitions"]
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise CommandError(
            f"This is not a plan: {error}.",
            advice='Write {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}]}.',
        ) from None
    counts = Counter(name for name, _ in rows)
    if twice := [name for name, count in counts.items() if count > 1]:
        raise CommandError(f"The plan names {twice[0]} more than once.")
    if not rows:
        raise CommandError("The plan names no partition.")
    return dict(rows)


def plan_text(plan: Mapping[TopicPartition, Replicas]) -> str:
    """In Kafka's form, on one line."""
    rows = [
        {"topic": name.topic, "partition": name.partition, "replicas": list(to), "log_dirs": ["any"] * len(to)}
        for name, to in sorted(plan.items())
    ]
    return json.dumps({"version": 1, "partitions": rows}, separators=(",", ":"))
