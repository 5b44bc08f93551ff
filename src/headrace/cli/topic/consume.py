"""`headrace topic consume`: reads records, from any point to any point, or in a group from where it is."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass

import click

from headrace.cli.common.failure import TIMED_OUT, CommandError
from headrace.cli.common.offset_spec import END, START, SYNTAX, Kind, Span, resolve, span_type
from headrace.cli.common.options import Target, reading_options, topic_argument
from headrace.cli.common.output import note, plural, warn, write_out
from headrace.cli.common.session import chosen_partitions, run, topic_of
from headrace.cli.topic.record_format import Format, chosen_format, heading_of
from headrace.client.cluster import Cluster
from headrace.client.fetching import Fetched, FetchLimits, RecordReader
from headrace.client.offsets import READ_COMMITTED, READ_UNCOMMITTED, offset_ranges
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicPartition

CONSUME_FORMATS = ("value", "table", "wide", "json", "jsonl", "yaml")
ISOLATION = {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED}


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What to read and when to stop."""

    topic: str
    partitions: tuple[int, ...]
    span: Span
    max_records: int | None = None
    idle_s: float | None = None
    """Stop when no record arrives for this long."""
    isolation: int = READ_UNCOMMITTED
    idle_is_failure: bool = False

    def end_idle(self) -> None:
        """No record arrived within the timeout."""
        if self.idle_is_failure:
            raise CommandError(f"No record arrived within {self.idle_s:g} s.", TIMED_OUT)


@click.command()
@topic_argument
@click.option("-o", "--offset", "span", type=span_type, default="start", metavar="WHERE", help=f"{SYNTAX}.")
@click.option("--from-beginning", is_flag=True, hidden=True, expose_value=False)  # Kafka's flag; the default here
@click.option("-p", "--partition", "partitions", multiple=True, type=int, help="Only this one; may be repeated.")
@click.option("-g", "--group", help="Join this group: continue at its offsets, and commit.")
@click.option("-n", "--max-records", "-c", type=click.IntRange(min=1), help="Stop after this many records.")
@click.option("-e", "--exit", "exit_at_end", is_flag=True, help="Exit after the last record that exists now.")
@click.option("-f", "--template", help=r"Format of a record, with kcat's letters, such as '%k: %s\n'.")
@click.option("--null-marker", default="", metavar="TEXT", help="Print this for a key or value that is null.")
@click.option("--hex", "in_hex", is_flag=True, help="Keys, values and headers in hexadecimal.")
@click.option(
    "--isolation",
    "--isolation-level",
    "isolation",
    type=click.Choice(list(ISOLATION)),
    default="read_uncommitted",
    show_default=True,
    help="read_committed hides records of open and aborted transactions.",
)
@click.option(
    "--format",
    "format",
    type=click.Choice(CONSUME_FORMATS),
    default="value",
    show_default=True,
    help="Output format. jsonl keeps everything: `produce --format jsonl` reads it back.",
)
@reading_options
def consume(
    target: Target,
    topic: str,
    span: Span,
    partitions: tuple[int, ...],
    group: str | None,
    max_records: int | None,
    exit_at_end: bool,
    template: str | None,
    null_marker: str,
    in_hex: bool,
    isolation: str,
    format: str,
) -> None:
    """Read the records of TOPIC from the first one, then new ones as they arrive, until Ctrl-C.

    \b
    headrace topic consume orders -o end              only new records
    headrace topic consume orders -o -10 -e           the last ten of each partition
    headrace topic consume orders -o @-10m:           the last ten minutes, then stop
    headrace topic consume orders -o @2024-05-01:2024-05-02 --format jsonl
    headrace topic consume orders -o end -n 1 --timeout 5s
    headrace topic consume orders -f '%p %o %k %s\\n'
    """
    try:
        width = shutil.get_terminal_size().columns
        output = chosen_format(format, template, in_hex, null_marker.encode(), width)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--template") from None
    if group is not None and (partitions or span.end is not None or span.begin not in (START, END)):
        raise click.UsageError(
            "--group continues at the group's offsets: -o can only be start or end, for partitions that have none."
            if not partitions
            else "--group assigns partitions itself: leave out -p."
        )
    if exit_at_end and span.end is None:
        span = Span(span.begin, END)
    idle_s = target.timeout_s if target.timeout_given else None
    reading = ReadOptions(topic, partitions, span, max_records, idle_s, ISOLATION[isolation], idle_is_failure=True)
    if template is None:
        write_out(heading_of(format))
    if group is None:
        run(target, lambda cluster: read(cluster, reading, output), ends_with_reader=True)
        return
    from headrace.cli.group.reading import read_in_group

    run(target, lambda cluster: read_in_group(cluster, reading, group, output), ends_with_reader=True)


async def read(cluster: Cluster, reading: ReadOptions, output: Format) -> int:
    """Print the records asked for; returns how many there were."""
    chosen = chosen_partitions(await topic_of(cluster, reading.topic), reading.partitions)
    listed = [TopicPartition(reading.topic, one) for one in chosen]
    ranges = await offset_ranges(cluster, listed, reading.isolation)
    begin = await _begin(cluster, reading.span, ranges)
    end = await resolve(cluster, reading.span.end, ranges) if reading.span.end is not None else None
    if end is not None:
        begin = {one: offset for one, offset in begin.items() if offset < end[one]}
    reader = RecordReader(cluster, begin, FetchLimits(isolation=reading.isolation))
    return await _print(reader, reading, output, end, ranges)


async def _begin(
    cluster: Cluster, span: Span, ranges: Mapping[TopicPartition, tuple[int, int]]
) -> dict[TopicPartition, int]:
    wanted = await resolve(cluster, span.begin, ranges)
    if span.begin.kind is not Kind.OFFSET:
        return wanted
    beyond = [one for one in wanted if wanted[one] > ranges[one][1]]
    if len(beyond) == len(wanted):
        ends = ", ".join(f"{one} at {ranges[one][1]}" for one in beyond)
        raise CommandError(f"Offset {span.begin.value} does not exist yet: the log ends in {ends}.")
    for one in wanted:
        if wanted[one] < ranges[one][0]:
            warn(f"{one} begins at {ranges[one][0]}; earlier records are gone.")
    return {one: max(wanted[one], ranges[one][0]) for one in wanted if one not in beyond}


async def _print(
    reader: RecordReader,
    reading: ReadOptions,
    output: Format,
    end: Mapping[TopicPartition, int] | None,
    ranges: Mapping[TopicPartition, tuple[int, int]],
) -> int:
    count = 0
    clock = reader.cluster.env.clock
    last_news = clock.monotonic()
    at_end = False
    while reader.positions:
        fetched = await poll(reader)
        lines: list[bytes] = []
        for one in fetched:
            stop = end[one.partition] if end is not None else None
            left = None if reading.max_records is None else reading.max_records - count - len(lines)
            lines += record_lines(one, output, stop, left)
            if stop is not None and one.next_offset >= stop:
                reader.drop(one.partition)
        if lines:
            write_out(b"".join(lines))
            count += len(lines)
            last_news = clock.monotonic()
        if reading.max_records is not None and count >= reading.max_records:
            break
        if reading.idle_s is not None and clock.monotonic() - last_news > reading.idle_s:
            reading.end_idle()
            break
        if not at_end and all(position >= ranges[one][1] for one, position in reader.positions.items()):
            at_end = True
            if end is None and sys.stderr.isatty():
                note(f"End of the topic ({plural(count, 'record')}); waiting for more. Ctrl-C to stop.")
    return count


def record_lines(fetched: Fetched, output: Format, stop: int | None, left: int | None) -> list[bytes]:
    lines: list[bytes] = []
    topic, partition = fetched.partition
    for record in fetched.records():
        if (stop is not None and record.offset >= stop) or (left is not None and len(lines) >= left):
            break
        lines.append(output(topic, partition, record))
    return lines


async def poll(reader: RecordReader) -> list[Fetched]:
    """Retention may overtake a slow reader: continue at the first record left."""
    try:
        return await reader.poll()
    except KafkaError as error:
        if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
            raise
    ranges = await offset_ranges(reader.cluster, reader.positions)
    for one, position in reader.positions.items():
        if not ranges[one][0] <= position <= ranges[one][1]:
            warn(f"Offset {position} of {one} is gone; continuing at {ranges[one][0]}.")
            reader.positions[one] = ranges[one][0]
    return []
