"""`headrace debug dump-log`: the files of a log, printed and checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from headrace.cli.common.failure import FAILED, cannot_read
from headrace.cli.common.options import format_option
from headrace.cli.common.output import PEOPLE, Column, count, emit_data, emit_rows, note, number, plural
from headrace.cli.debug.file_reading import Content, batches, marker_text, read_content
from headrace.cli.topic.record_format import as_object, hexadecimal, raw, time_text, wide_format
from headrace.model.errors import KafkaError
from headrace.records.batch import CONTROL
from headrace.records.reader import read_records

BATCH_COLUMNS = (
    number("position", "POSITION"),
    number("base_offset", "BASE-OFFSET"),
    number("last_offset", "LAST-OFFSET"),
    count("records", "RECORDS"),
    number("size", "SIZE"),
    Column("codec", "CODEC"),
    Column("time", "MAX-TIMESTAMP"),
    number("leader_epoch", "EPOCH"),
    number("producer_id", "PRODUCER-ID"),
    number("base_sequence", "SEQUENCE"),
    Column("transactional", "TRANSACTIONAL", wide=True),
    Column("marker", "MARKER", wide=True),
    number("producer_epoch", "PRODUCER-EPOCH", wide=True),
    number("crc", "CRC", wide=True),
)


@click.command("dump-log")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
@click.option("-r", "--records", "with_records", is_flag=True, help="Show the records of a segment too.")
@click.option("--hex", "in_hex", is_flag=True, help="Keys and values in hexadecimal.")
@format_option
def dump_log(files: tuple[Path, ...], with_records: bool, in_hex: bool, format: str) -> None:
    """Show segments, indexes, snapshots and checkpoints, and report damage.

    Exit code 1 if any is damaged. Files of a running broker may end in the middle of a write.
    """
    problems = 0
    for position, path in enumerate(files):
        content = content_of(path)
        if format in PEOPLE:
            if position:
                click.echo()
            _print(path, content, with_records, in_hex, format)
        else:
            emit_data(_as_data(path, content, with_records, in_hex), format)
        problems += len(content.problems)
    if problems:
        raise click.exceptions.Exit(FAILED)


def content_of(path: Path) -> Content:
    try:
        return read_content(path)
    except OSError as error:
        raise cannot_read(path, error) from None
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="FILE") from None


def _print(path: Path, content: Content, with_records: bool, in_hex: bool, format: str) -> None:
    count = len(content.entries)
    counted = plural(count, "line")
    if content.kind == "segment":
        counted = "1 batch" if count == 1 else f"{count:,} batches"
    click.echo(f"{path}: {content.kind}, {counted}")
    if content.kind == "segment":
        rows = [{**entry, "time": time_text(entry["max_timestamp_ms"])} for entry in content.entries]
        emit_rows(rows, BATCH_COLUMNS, format)
    elif content.entries:
        names = content.entries[0]
        columns = [Column(name, name.upper().replace("_", "-"), isinstance(names[name], int)) for name in names]
        emit_rows(content.entries, columns, format)
    if with_records and content.kind == "segment":
        _print_records(path, content, in_hex)
    for problem in content.problems:
        note(f"problem: {problem}")


def _print_records(path: Path, content: Content, in_hex: bool) -> None:
    show = wide_format(hexadecimal if in_hex else raw)
    for position, header, batch in batches(path):
        if header.attributes & CONTROL:
            kind, coordinator_epoch = marker_text(batch)
            click.echo(f"{header.base_offset}\t{kind} marker, coordinator epoch {coordinator_epoch}")
            continue
        try:
            for record in read_records(batch):
                click.echo(show("", 0, record)[:-1].split(b"\t", 1)[1])
        except KafkaError as error:
            content.problems.append(f"the batch at position {position}: {error.message}")


def _as_data(path: Path, content: Content, with_records: bool, in_hex: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"file": str(path), "kind": content.kind, "entries": content.entries}
    if with_records and content.kind == "segment":
        show = hexadecimal if in_hex else raw
        topic, _, partition = path.parent.name.rpartition("-")
        number_of = int(partition) if partition.isdigit() else -1
        try:
            found["records"] = [
                as_object(topic, number_of, record, show)
                for _, header, batch in batches(path)
                if not header.attributes & CONTROL
                for record in read_records(batch)
            ]
        except KafkaError as error:
            content.problems.append(str(error))
    found["problems"] = content.problems
    return found
