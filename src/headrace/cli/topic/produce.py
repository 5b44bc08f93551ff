"""`headrace topic produce`: writes records, from arguments or from the lines of standard input (R-OPS-1)."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import click

from headrace.cli.common.failure import CommandError
from headrace.cli.common.options import Target, cluster_options, topic_argument
from headrace.cli.common.output import PEOPLE, emit_data, note, plural
from headrace.cli.common.session import chosen_partitions, run, topic_of
from headrace.cli.topic.record_input import JsonRules, LineReader, LineRules
from headrace.client.cluster import Cluster
from headrace.client.producer import PlacedRecord, Producer, ProducerSettings, WrittenBatch
from headrace.records.compression import CODEC_NAMES

STANDARD_INPUT = 0
CHUNK_BYTES = 1 << 20
ACKS = {"all": -1, "-1": -1, "0": 0, "1": 1}
INPUT_FORMATS = ("text", "json", "jsonl")
REPORTS = ("table", "json", "jsonl", "yaml")
_ESCAPES = {"\\t": "\t", "\\n": "\n", "\\0": "\0"}


@click.command()
@topic_argument
@click.argument("values", nargs=-1)
@click.option("-k", "--key", help="The key of every record.")
@click.option("-K", "--key-delimiter", help="Separates the key from the value in each line.")
@click.option("-H", "--header", "headers", multiple=True, metavar="NAME=VALUE", help="May be repeated.")
@click.option("-p", "--partition", type=click.IntRange(min=0), help="Send all records to this partition.")
@click.option("-z", "--compression", type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]), default="none")
@click.option("-D", "--delimiter", default="\\n", show_default=True, help="Separates the records of the input.")
@click.option("-Z", "--null", "empty_is_null", is_flag=True, help="Write an empty value as null (a tombstone).")
@click.option("--null-marker", metavar="TEXT", help="Write a key or value with this text as null.")
@click.option(
    "--timestamp",
    "timestamp_ms",
    type=int,
    metavar="MS",
    help="Timestamp of every record instead of the current time.",
)
@click.option("--acks", type=click.Choice(["0", "1", "all"]), default="all", show_default=True)
@click.option(
    "--format",
    "input_format",
    type=click.Choice(INPUT_FORMATS),
    default="text",
    show_default=True,
    help="Input format: text, or records as `consume --format jsonl` prints them.",
)
@click.option(
    "--repartition", is_flag=True, help="Choose partitions by key, not by the records' partition fields."
)
@click.option(
    "--report",
    type=click.Choice(REPORTS),
    default="table",
    show_default=True,
    help="How to report the written records; table is a line on standard error.",
)
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
    input_format: str,
    repartition: bool,
    report: str,
) -> None:
    """Write records to TOPIC: the VALUES given, or each line of standard input.

    \b
    headrace topic produce orders -K : 'alice:{"total": 7}'
    headrace topic consume orders -e --format jsonl > orders.jsonl
    headrace topic produce copy --format jsonl < orders.jsonl
    """
    if key is not None and key_delimiter is not None:
        raise click.UsageError("-k gives all records one key, -K each its own: use one of them.")
    rules: LineReader
    if input_format == "text":
        rules = LineRules(
            None if key is None else key.encode(),
            None if key_delimiter is None else unescaped(key_delimiter),
            tuple(_header(text) for text in headers),
            empty_is_null,
            timestamp_ms,
            None if null_marker is None else null_marker.encode(),
            key_required=True,
        )
    else:
        _check_goes_with_json(key, key_delimiter, headers, empty_is_null, null_marker)
        _check_no_file(topic, values)
        rules = JsonRules(repartition or partition is not None, timestamp_ms)
    settings = ProducerSettings(ACKS[acks], CODEC_NAMES[compression], partition)
    lines = _from_arguments(values) if values else _announced(unescaped(delimiter))

    async def work(cluster: Cluster) -> list[WrittenBatch]:
        await check_partition(cluster, topic, partition)
        return await write_lines(cluster, topic, settings, rules, lines)

    _report(topic, run(target, work), report)


def _check_goes_with_json(*given: object) -> None:
    """Refuse options that set what the JSON records already contain."""
    options = ("--key", "--key-delimiter", "--header", "--null", "--null-marker")
    if wrong := [option for option, value in zip(options, given, strict=True) if value]:
        raise click.UsageError(
            f"{wrong[0]} is for text input: JSON records have their own key, headers and nulls."
        )


def _check_no_file(topic: str, values: tuple[str, ...]) -> None:
    """VALUES are records; the name of a file in their place is a common mistake."""
    if len(values) == 1 and not values[0].lstrip().startswith("{") and Path(values[0]).is_file():
        raise click.UsageError(
            f"{values[0]} is a file, and VALUES are records. Write: "
            f"headrace topic produce {topic} --format jsonl < {values[0]}"
        )


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
    rules: LineReader,
    lines: AsyncIterator[list[bytes]],
) -> list[WrittenBatch]:
    """Each group of lines as one batch per partition; what was written where."""
    producer = Producer(cluster, topic, settings)
    await producer.start()
    written: list[WrittenBatch] = []
    line_number = 0
    async for group in lines:
        now_ms = cluster.env.clock.wall_ms()
        placed: list[PlacedRecord] = []
        problem: CommandError | None = None
        for line in group:
            line_number += 1
            try:
                placed.append(_checked(rules.placed(line, now_ms), topic, producer.partition_count))
            except CommandError as error:
                problem = error
                break
        written += await producer.send_placed(placed)
        if problem is not None:
            await producer.flush()
            written_before = f"Written before it: {plural(line_number - 1, 'record')}."
            raise CommandError(f"Line {line_number}: {problem.message}", advice=written_before)
    await producer.flush()
    return written


def _checked(placed: PlacedRecord, topic: str, partition_count: int) -> PlacedRecord:
    partition = placed[0]
    if partition is not None and partition >= partition_count:
        raise CommandError(
            f"{topic} has no partition {partition}, only {plural(partition_count, 'partition')}. "
            "Choose partitions by key with --repartition."
        )
    return placed


async def _from_arguments(values: Iterable[str]) -> AsyncIterator[list[bytes]]:
    yield [value.encode() for value in values]


def _announced(delimiter: bytes) -> AsyncIterator[list[bytes]]:
    if sys.stdin.isatty():
        note("One record a line; Ctrl-D to finish.")
    return input_lines(delimiter)


async def input_lines(delimiter: bytes = b"\n") -> AsyncIterator[list[bytes]]:
    """The lines of standard input, as soon as they arrive."""
    rest = b""
    async for chunk in _chunks(STANDARD_INPUT):
        *lines, rest = (rest + chunk).split(delimiter)
        if lines:
            yield lines
    if rest:
        yield [rest]


async def _chunks(descriptor: int) -> AsyncIterator[bytes]:
    """Reads without blocking the loop, so that Ctrl-C and lost connections are noticed while nothing is typed."""
    while True:
        await _until_readable(descriptor)
        chunk = os.read(descriptor, CHUNK_BYTES)
        if not chunk:
            return
        yield chunk


async def _until_readable(descriptor: int) -> None:
    """Watch for one read only: a second notification for the same bytes would make the next read block."""
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


def _report(topic: str, written: list[WrittenBatch], report: str) -> None:
    rows = totals(topic, written)
    if report not in PEOPLE:
        emit_data(rows, report)
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
