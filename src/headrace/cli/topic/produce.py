"""`headrace topic produce`: writes records, from arguments or from the lines of standard input."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import Any

import click

from headrace.cli.common.failure import CommandError
from headrace.cli.common.options import Target, cluster_options, format_option, topic_argument
from headrace.cli.common.output import PEOPLE, emit_data, note, plural
from headrace.cli.common.session import chosen_partitions, run, topic_of
from headrace.client.cluster import Cluster
from headrace.client.producer import Producer, ProducerSettings, WrittenBatch
from headrace.records.builder import NewRecord
from headrace.records.compression import CODEC_NAMES

STANDARD_INPUT = 0
CHUNK_BYTES = 1 << 20
ACKS = {"all": -1, "-1": -1, "0": 0, "1": 1}
_ESCAPES = {"\\t": "\t", "\\n": "\n", "\\0": "\0"}


@dataclass(frozen=True, slots=True)
class LineRules:
    """How a line becomes a record."""

    key: bytes | None = None
    key_delimiter: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    empty_is_null: bool = False
    timestamp_ms: int | None = None
    null_marker: bytes | None = None
    """A key or value that stands for null."""
    key_required: bool = False
    """A line without the delimiter is an error, not a record without a key."""

    def record(self, line: bytes, now_ms: int) -> NewRecord:
        key = self.key
        value: bytes | None = line
        if self.key_delimiter is not None:
            before, found, after = line.partition(self.key_delimiter)
            if found:
                key, value = None if before == self.null_marker else before, after
            elif self.key_required:
                raise CommandError(f"No key separator found in the line {line[:60].decode(errors='replace')!r}.")
        if (self.empty_is_null and not value) or value == self.null_marker:
            value = None
        return NewRecord(value, key, now_ms if self.timestamp_ms is None else self.timestamp_ms, self.headers)


@click.command()
@topic_argument
@click.argument("values", nargs=-1)
@click.option("-k", "--key", help="The key of every record.")
@click.option("-K", "--key-delimiter", help="Separates the key from the value in each line.")
@click.option("-H", "--header", "headers", multiple=True, metavar="NAME=VALUE", help="May be repeated.")
@click.option("-p", "--partition", type=click.IntRange(min=0), help="Send all records to this partition.")
@click.option("-z", "--compression", type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]), default="none")
@click.option("-D", "--delimiter", default="\\n", show_default=True, help="Separates the records of the input.")
@click.option("-Z", "--null", "empty_is_null", is_flag=True, help="An empty value is null (a tombstone).")
@click.option("--null-marker", metavar="TEXT", help="A key or value that is this text is null.")
@click.option(
    "--timestamp",
    "timestamp_ms",
    type=int,
    metavar="MS",
    help="Timestamp of every record instead of the current time.",
)
@click.option("--acks", type=click.Choice(["0", "1", "all"]), default="all", show_default=True)
@format_option
@cluster_options
def produce(
    target: Target,
    topic: str,
    values: tuple[str, ...],
    key: str | None,
    key_delimiter: str | None,
    headers: tuple[str, ...],
    partition: int | None,
    compression: str,
    delimiter: str,
    empty_is_null: bool,
    null_marker: str | None,
    timestamp_ms: int | None,
    acks: str,
    format: str,
) -> None:
    """Write records to TOPIC: the VALUES given, or each line of standard input."""
    rules = LineRules(
        None if key is None else key.encode(),
        None if key_delimiter is None else unescaped(key_delimiter),
        tuple(_header(text) for text in headers),
        empty_is_null,
        timestamp_ms,
        None if null_marker is None else null_marker.encode(),
    )
    settings = ProducerSettings(ACKS[acks], CODEC_NAMES[compression], partition)
    lines = _from_arguments(values) if values else _announced(unescaped(delimiter))

    async def work(cluster: Cluster) -> list[WrittenBatch]:
        await check_partition(cluster, topic, partition)
        return await write_lines(cluster, topic, settings, rules, lines)

    _report(topic, run(target, work), format)


def unescaped(text: str) -> bytes:
    if not text:
        raise click.UsageError("A delimiter cannot be empty.")
    return _ESCAPES.get(text, text).encode()


def _header(text: str) -> tuple[str, bytes | None]:
    name, equals, value = text.partition("=")
    if not name:
        raise click.UsageError(f"--header {text!r} is not of the form name=value")
    return name, value.encode() if equals else None


async def check_partition(cluster: Cluster, topic: str, partition: int | None) -> None:
    chosen_partitions(await topic_of(cluster, topic), [] if partition is None else [partition])


async def write_lines(
    cluster: Cluster,
    topic: str,
    settings: ProducerSettings,
    rules: LineRules,
    lines: AsyncIterator[list[bytes]],
) -> list[WrittenBatch]:
    """Each group of lines as one batch per partition; what was written where."""
    producer = Producer(cluster, topic, settings)
    await producer.start()
    written: list[WrittenBatch] = []
    async for group in lines:
        now_ms = cluster.env.clock.wall_ms()
        written += await producer.send([rules.record(line, now_ms) for line in group])
    await producer.flush()
    return written


async def _from_arguments(values: Iterable[str]) -> AsyncIterator[list[bytes]]:
    yield [value.encode() for value in values]


def _announced(delimiter: bytes) -> AsyncIterator[list[bytes]]:
    if sys.stdin.isatty():
        note("One record a line; Ctrl-D ends.")
    return input_lines(delimiter)


async def input_lines(delimiter: bytes = b"\n") -> AsyncIterator[list[bytes]]:
    """What has come of standard input, line by line, as soon as it comes."""
    rest = b""
    async for chunk in _chunks(STANDARD_INPUT):
        *lines, rest = (rest + chunk).split(delimiter)
        if lines:
            yield lines
    if rest:
        yield [rest]


async def _chunks(descriptor: int) -> AsyncIterator[bytes]:
    """Reads without blocking the loop, so that Ctrl-C and lost connections are noticed while nobody types."""
    while True:
        await _until_readable(descriptor)
        chunk = os.read(descriptor, CHUNK_BYTES)
        if not chunk:
            return
        yield chunk


async def _until_readable(descriptor: int) -> None:
    """Watched for one read only: a second notice of the same bytes would make the next read block."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    try:
        loop.add_reader(descriptor, readable.set)
    except PermissionError:  # a plain file: it never blocks, and cannot be watched
        return
    try:
        await readable.wait()
    finally:
        loop.remove_reader(descriptor)


def _report(topic: str, written: list[WrittenBatch], format: str) -> None:
    rows = totals(topic, written)
    if format not in PEOPLE:
        emit_data(rows, format)
        return
    count = sum(row["records"] for row in rows)
    places = ", ".join(
        f"{row['partition']}" if row["first_offset"] is None else f"{row['partition']}@{row['first_offset']}"
        for row in rows[:8]
    )
    where = f" (partition@offset {places}{', ...' if len(rows) > 8 else ''})" if rows else ""
    note(f"Wrote {plural(count, 'record')} to {topic}{where}.")


def totals(topic: str, written: Iterable[WrittenBatch]) -> list[dict[str, Any]]:
    rows: dict[int, dict[str, Any]] = {}
    for one in written:
        offset = one.base_offset if one.base_offset >= 0 else None
        row = rows.setdefault(
            one.partition, {"topic": topic, "partition": one.partition, "first_offset": offset, "records": 0}
        )
        row["records"] += one.record_count
    return [rows[partition] for partition in sorted(rows)]
