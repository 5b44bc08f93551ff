"""`headrace topic copy`: records to another topic, here or in another cluster, with all that belongs to them.

Key, value, headers, timestamp and partition stay; offsets are those of the destination.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import click

from headrace.cli.common.errors import explain_client, explain_kafka
from headrace.cli.common.failure import UNREACHABLE, USAGE, CommandError
from headrace.cli.common.offset_spec import END, SYNTAX, Span, resolve, span_type
from headrace.cli.common.options import Target, cluster_options, topic_argument
from headrace.cli.common.output import note, plural, size_text
from headrace.cli.common.screen import Screen
from headrace.cli.common.session import run, topic_of
from headrace.cli.topic.admin import make_topics
from headrace.cli.topic.consume import ISOLATION, poll
from headrace.client.address import Address, parse_bootstrap
from headrace.client.admin import BROKER_DEFAULT, ConfigResource, NewTopic, describe_configs
from headrace.client.cluster import Cluster
from headrace.client.errors import NoneReachable
from headrace.client.fetching import Fetched, FetchLimits, RecordReader
from headrace.client.offsets import offset_ranges
from headrace.client.producer import PlacedRecord, Producer, ProducerSettings
from headrace.env.real import real_env
from headrace.model.config_resources import ResourceType
from headrace.model.errors import ErrorCode
from headrace.model.topics import TopicPartition
from headrace.records.builder import NewRecord
from headrace.records.compression import CODEC_NAMES

OF_THE_TOPIC = "topic"
"""The source of a setting that was given for the topic itself."""
PROGRESS_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class CopyOptions:
    source: str
    destination: str
    span: Span
    isolation: int
    codec: str
    repartition: bool
    follow: bool


@click.command()
@topic_argument
@click.argument("destination")
@click.option(
    "--to", "other", metavar="HOST:PORT,...", help="Bootstrap brokers of DESTINATION, if it is on another cluster."
)
@click.option("-o", "--offset", "span", type=span_type, default="start", metavar="WHERE", help=f"{SYNTAX}.")
@click.option("-F", "--follow", is_flag=True, help="Keep copying new records until Ctrl-C.")
@click.option("--repartition", is_flag=True, help="Choose partitions by key.")
@click.option("-z", "--compression", type=click.Choice(list(CODEC_NAMES)), default="none", show_default=True)
@click.option("--isolation", type=click.Choice(list(ISOLATION)), default="read_committed", show_default=True)
@cluster_options
def copy(
    target: Target,
    topic: str,
    destination: str,
    other: str | None,
    span: Span,
    follow: bool,
    repartition: bool,
    compression: str,
    isolation: str,
) -> None:
    """Copy the records of TOPIC to DESTINATION, which is created like TOPIC if it does not exist.

    \b
    headrace topic copy orders orders-backup
    headrace topic copy orders orders --to other-host:9092 --follow
    headrace topic copy orders recent -o @-1h
    """
    options = CopyOptions(topic, destination, span, ISOLATION[isolation], compression, repartition, follow)
    elsewhere = _addresses(other)
    if elsewhere is None and topic == destination:
        raise click.UsageError("A topic cannot be copied to itself. Give another cluster with --to.")
    if follow and span.end is not None:
        raise click.UsageError("--follow copies without end: give -o only a start.")

    async def work(cluster: Cluster) -> int:
        async with _destination_cluster(cluster, elsewhere) as receiving:
            return await _copy(cluster, receiving, options)

    count = run(target, work)
    note(f"Copied {plural(count, 'record')} from {topic} to {destination}.")


def _addresses(text: str | None) -> tuple[Address, ...] | None:
    try:
        return None if text is None else parse_bootstrap(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--to") from None


@asynccontextmanager
async def _destination_cluster(here: Cluster, elsewhere: tuple[Address, ...] | None) -> AsyncIterator[Cluster]:
    if elsewhere is None:
        yield here
        return
    async with Cluster(real_env(), elsewhere, here.settings) as cluster:
        yield cluster


async def _copy(source: Cluster, receiving: Cluster, options: CopyOptions) -> int:
    topic = await topic_of(source, options.source)
    places = [TopicPartition(options.source, one.number) for one in topic.partitions]
    await _prepare(source, receiving, options, len(places))
    producer = Producer(receiving, options.destination, ProducerSettings(codec=CODEC_NAMES[options.codec]))
    await producer.start()
    if not options.repartition and producer.partition_count < len(places):
        here, there = plural(len(places), "partition"), plural(producer.partition_count, "partition")
        raise CommandError(
            f"{options.source} has {here}, but {options.destination} has only {there}.",
            USAGE,
            "Add partitions with `headrace topic add-partitions`, or choose them by key with --repartition.",
        )
    ranges = await offset_ranges(source, places, options.isolation)
    begin = await resolve(source, options.span.begin, ranges)
    end = None if options.follow else await resolve(source, options.span.end or END, ranges)
    if end is not None:
        begin = {place: offset for place, offset in begin.items() if offset < end[place]}
    reader = RecordReader(source, begin, FetchLimits(isolation=options.isolation))
    return await _transfer(reader, producer, end, options.repartition)


async def _prepare(source: Cluster, receiving: Cluster, options: CopyOptions, partitions: int) -> None:
    """Create the destination with the partitions and settings of the source, unless it exists."""
    try:
        view = await receiving.metadata([options.destination])
    except NoneReachable as unreachable:
        message = explain_client(unreachable).message
        raise CommandError(message, UNREACHABLE, "Check the address given with --to.") from None
    if view.errors.get(options.destination) != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return
    entries = await describe_configs(source, ConfigResource(ResourceType.TOPIC, options.source))
    configs = {one.name: one.value for one in entries if one.source == OF_THE_TOPIC and one.value is not None}
    topic = NewTopic(options.destination, partitions, BROKER_DEFAULT, configs)
    (error,) = (await make_topics(receiving, [topic])).values()
    if error is not None:
        raise explain_kafka(error, f"topic {options.destination}")
    note(f"Created topic {options.destination} with {plural(partitions, 'partition')}.")


async def _transfer(
    reader: RecordReader, producer: Producer, end: Mapping[TopicPartition, int] | None, repartition: bool
) -> int:
    progress = _Progress(reader, end)
    try:
        while reader.positions:
            fetched = await poll(reader)
            records = [one for each in fetched for one in _records(each, end, repartition)]
            if records:
                await producer.send_placed(records)
            for each in fetched:
                if end is not None and each.next_offset >= end[each.partition]:
                    reader.drop(each.partition)
            progress.add(records)
    except asyncio.CancelledError:
        progress.draw()
        _note_interruption(progress.count, follow=end is None)
        raise
    progress.draw()
    return progress.count


def _note_interruption(count: int, *, follow: bool) -> None:
    again = "" if follow else " The same command copies them again: delete the destination first."
    note(f"Interrupted after copying {plural(count, 'record')}.{again if count else ''}")


def _records(fetched: Fetched, end: Mapping[TopicPartition, int] | None, repartition: bool) -> list[PlacedRecord]:
    partition = None if repartition else fetched.partition.partition
    stop = None if end is None else end[fetched.partition]
    return [
        (partition, NewRecord(record.value, record.key, record.timestamp, record.headers))
        for record in fetched.records()
        if stop is None or record.offset < stop
    ]


class _Progress:
    """A line on a terminal: how many records, which share of the topic, how fast."""

    def __init__(self, reader: RecordReader, end: Mapping[TopicPartition, int] | None) -> None:
        self._reader = reader
        self._clock = reader.cluster.env.clock
        self._screen = Screen(err=True) if sys.stderr.isatty() else None
        self._end = end
        self._total = self._left()
        self._began = self._drawn = self._clock.monotonic()
        self._bytes = 0
        self.count = 0

    def add(self, records: list[PlacedRecord]) -> None:
        self.count += len(records)
        self._bytes += sum(len(one.key or b"") + len(one.value or b"") for _, one in records)
        if self._clock.monotonic() - self._drawn >= PROGRESS_SECONDS:
            self.draw()

    def _left(self) -> int:
        """Offsets up to the end; 0 if there is none."""
        end = self._end
        return 0 if end is None else sum(end[place] - at for place, at in self._reader.positions.items())

    def draw(self) -> None:
        self._drawn = self._clock.monotonic()
        if self._screen is None:
            return
        parts = [plural(self.count, "record"), size_text(self._bytes)]
        if self._total:
            parts.append(f"{100 * (self._total - self._left()) // self._total}%")
        rate = int(self._bytes / max(self._drawn - self._began, 1e-3))
        self._screen.draw([", ".join([*parts, f"{size_text(rate)}/s"])])
