"""`headrace kafka-dump-log`: Kafka's tool for the files of a log, its flags and its output."""

from __future__ import annotations

from pathlib import Path

import click

from headrace.cli.common.failure import FAILED
from headrace.cli.common.output import note
from headrace.cli.debug.dump_log import content_of
from headrace.cli.debug.file_reading import Content, batches, marker_text
from headrace.cli.kafka_tools.shared import ignored
from headrace.records.batch import CONTROL, TRANSACTIONAL, BatchHeader
from headrace.records.compression import Codec
from headrace.records.reader import read_records


@click.command("kafka-dump-log")
@click.option("--files", required=True, metavar="FILE,FILE,...")
@click.option("--print-data-log", is_flag=True, help="Show the records too.")
@click.option("--deep-iteration", is_flag=True, help="Show the records without their content.")
@ignored("--verify-index-only", "--index-sanity-check", flag=True)
@ignored("--max-message-size", "--max-bytes")
def kafka_dump_log(files: str, print_data_log: bool, deep_iteration: bool) -> None:
    """Kafka's tool for log files. `headrace debug dump-log` also checks them."""
    problems = 0
    for name in files.split(","):
        path = Path(name.strip())
        content = content_of(path)
        click.echo(f"Dumping {path}")
        if content.kind == "segment":
            _segment(path, print_data_log, print_data_log or deep_iteration)
        else:
            _entries(content)
        for problem in content.problems:
            note(f"problem: {problem}")
        problems += len(content.problems)
    if problems:
        raise click.exceptions.Exit(FAILED)


def _segment(path: Path, with_payload: bool, with_records: bool) -> None:
    if path.stem.isdigit():
        click.echo(f"Log starting offset: {int(path.stem)}")
    for position, header, batch in batches(path):
        click.echo(_batch_line(position, header))
        if not with_records:
            continue
        for number, record in enumerate(read_records(batch)):
            sequence = header.base_sequence + number if header.base_sequence >= 0 else -1
            names = ",".join(name for name, _ in record.headers)
            line = (
                f"| offset: {record.offset} CreateTime: {record.timestamp} keySize: {_length(record.key)}"
                f" valueSize: {_length(record.value)} sequence: {sequence} headerKeys: [{names}]"
            )
            if header.attributes & CONTROL:
                kind, coordinator_epoch = marker_text(batch)
                click.echo(f"{line} endTxnMarker: {kind.upper()} coordinatorEpoch: {coordinator_epoch}")
                continue
            if with_payload and record.key is not None:
                line += f" key: {record.key.decode(errors='replace')}"
            if with_payload and record.value is not None:
                line += f" payload: {record.value.decode(errors='replace')}"
            click.echo(line)


def _batch_line(position: int, header: BatchHeader) -> str:
    last_sequence = header.base_sequence + header.record_count - 1 if header.base_sequence >= 0 else -1
    return (
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.record_count}"
        f" baseSequence: {header.base_sequence} lastSequence: {last_sequence} producerId: {header.producer_id}"
        f" producerEpoch: {header.producer_epoch} partitionLeaderEpoch: {header.leader_epoch}"
        f" isTransactional: {_flag(header.attributes & TRANSACTIONAL)}"
        f" isControl: {_flag(header.attributes & CONTROL)}"
        f" position: {position} CreateTime: {header.max_timestamp} size: {header.size} magic: {header.magic}"
        f" compresscodec: {Codec(header.codec).name.lower()} crc: {header.crc} isvalid: true"
    )


def _entries(content: Content) -> None:
    for entry in content.entries:
        click.echo(" ".join(f"{_camel(name)}: {value}" for name, value in entry.items()))


def _camel(name: str) -> str:
    first, *rest = name.removesuffix("_ms").split("_")
    return first + "".join(word.capitalize() for word in rest)


def _flag(value: int) -> str:
    return "true" if value else "false"


def _length(data: bytes | None) -> int:
    return -1 if data is None else len(data)
