"""`headrace kafka-console-producer` and `kafka-console-consumer`: Kafka's console tools, flags and output."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator

import click

from headrace.cli.common.offset_spec import END, START, Kind, Point, Span
from headrace.cli.common.options import Target, cluster_options, parse_pairs
from headrace.cli.common.output import note, warn
from headrace.cli.common.session import run
from headrace.cli.kafka_tools.shared import ignored, is_true, known_properties, unescaped
from headrace.cli.topic.consume import ISOLATION, ReadOptions, read
from headrace.cli.topic.produce import ACKS, check_partition, input_lines, write_lines
from headrace.cli.topic.record_format import Format
from headrace.cli.topic.record_input import LineRules
from headrace.client.cluster import Cluster
from headrace.client.producer import ProducerSettings, WrittenBatch
from headrace.records.compression import CODEC_NAMES
from headrace.records.reader import Record

READER = {"parse.key": "false", "key.separator": "\t", "ignore.error": "false", "null.marker": ""}
FORMATTER = {
    "print.timestamp": "false",
    "print.partition": "false",
    "print.offset": "false",
    "print.headers": "false",
    "print.key": "false",
    "print.value": "true",
    "key.separator": "\t",
    "line.separator": "\n",
    "headers.separator": ",",
    "null.literal": "null",
}
DESERIALIZERS = ("key.deserializer", "value.deserializer")


@click.command("kafka-console-producer")
@click.option("--topic", required=True)
@click.option("--property", "--reader-property", "properties", multiple=True, metavar="KEY=VALUE")
@click.option(
    "--producer-property", "--command-property", "producer_properties", multiple=True, metavar="KEY=VALUE"
)
@click.option("--compression-codec", is_flag=False, flag_value="gzip", default=None)
@click.option("--request-required-acks", "acks", default=None)
@ignored("--sync", flag=True)
@ignored(
    "--producer.config",
    "--command-config",
    "--batch-size",
    "--line-reader",
    "--max-block-ms",
    "--request-timeout-ms",
)
@cluster_options
def kafka_console_producer(
    target: Target,
    topic: str,
    properties: tuple[str, ...],
    producer_properties: tuple[str, ...],
    compression_codec: str | None,
    acks: str | None,
) -> None:
    """Kafka's console producer: each line of standard input is a record."""
    known = known_properties(properties, READER, "--property")
    given = parse_pairs(producer_properties, "--producer-property")
    codec = compression_codec or given.pop("compression.type", "none")
    wanted_acks = acks or given.pop("acks", "all")
    if codec not in CODEC_NAMES or wanted_acks not in ACKS:
        raise click.UsageError(f"Unknown compression {codec!r} or acks {wanted_acks!r}.")
    for name in given:
        warn(f"--producer-property {name} has no effect here.")
    parse_key = is_true(known["parse.key"])
    rules = LineRules(
        key_delimiter=unescaped(known["key.separator"]).encode() if parse_key else None,
        key_required=parse_key and not is_true(known["ignore.error"]),
        null_marker=known["null.marker"].encode() or None,
    )

    async def work(cluster: Cluster) -> list[WrittenBatch]:
        await check_partition(cluster, topic, None)
        return await write_lines(
            cluster, topic, ProducerSettings(ACKS[wanted_acks], CODEC_NAMES[codec]), rules, _prompted()
        )

    run(target, work)


async def _prompted() -> AsyncIterator[list[bytes]]:
    asking = sys.stdin.isatty()
    if asking:
        click.echo(">", nl=False, err=True)
    async for lines in input_lines():
        yield lines
        if asking:
            click.echo(">", nl=False, err=True)
    if asking:
        click.echo(err=True)


@click.command("kafka-console-consumer")
@click.option("--topic", required=True)
@click.option("--partition", type=click.IntRange(min=0))
@click.option("--offset", default=None, help="earliest, latest or a number; needs --partition.")
@click.option("--from-beginning", is_flag=True)
@click.option("--max-messages", type=click.IntRange(min=1))
@click.option("--timeout-ms", type=click.IntRange(min=1))
@click.option("--property", "--formatter-property", "properties", multiple=True, metavar="KEY=VALUE")
@click.option("--isolation-level", type=click.Choice(list(ISOLATION)), default="read_uncommitted")
@click.option("--group", help="Read as a member of this group.")
@ignored("--skip-message-on-error", "--enable-systest-events", flag=True)
@ignored("--consumer.config", "--command-config", "--consumer-property", "--command-property", "--formatter")
@cluster_options
def kafka_console_consumer(
    target: Target,
    topic: str,
    partition: int | None,
    offset: str | None,
    from_beginning: bool,
    max_messages: int | None,
    timeout_ms: int | None,
    properties: tuple[str, ...],
    isolation_level: str,
    group: str | None,
) -> None:
    """Kafka's console consumer: prints records as they arrive."""
    if group is not None and partition is not None:
        raise click.UsageError("--group and --partition cannot be combined.")
    if offset is not None and partition is None:
        raise click.UsageError("--offset needs --partition.")
    wanted = tuple(pair for pair in properties if not pair.startswith(DESERIALIZERS))
    output = _output(known_properties(wanted, FORMATTER, "--property"))
    reading = ReadOptions(
        topic,
        () if partition is None else (partition,),
        Span(_begin(offset, from_beginning), None),
        max_messages,
        None if timeout_ms is None else timeout_ms / 1000,
        ISOLATION[isolation_level],
    )

    async def work(cluster: Cluster) -> int:
        if group is None:
            return await read(cluster, reading, output)
        from headrace.cli.group.reading import read_in_group

        return await read_in_group(cluster, reading, group, output)

    count = run(target, work, ends_with_reader=True)
    note(f"Processed a total of {count} messages")


def _begin(offset: str | None, from_beginning: bool) -> Point:
    if offset in ("earliest", "latest"):
        return START if offset == "earliest" else END
    if offset is None:
        return START if from_beginning else END
    if not offset.isdigit():
        raise click.UsageError(f"--offset {offset!r} is not earliest, latest or a number.")
    return Point(Kind.OFFSET, int(offset))


def _output(wanted: dict[str, str]) -> Format:
    null = wanted["null.literal"].encode()
    separator = unescaped(wanted["key.separator"]).encode()
    between_headers = unescaped(wanted["headers.separator"]).encode()
    line_end = unescaped(wanted["line.separator"]).encode()

    def text(data: bytes | None) -> bytes:
        return null if data is None else data

    def headers(record: Record) -> bytes:
        pairs = (name.encode() + b":" + text(value) for name, value in record.headers)
        return between_headers.join(pairs) or b"NO_HEADERS"

    parts: dict[str, Format] = {
        "print.timestamp": lambda topic, partition, record: b"CreateTime:%d" % record.timestamp,
        "print.partition": lambda topic, partition, record: b"Partition:%d" % partition,
        "print.offset": lambda topic, partition, record: b"Offset:%d" % record.offset,
        "print.headers": lambda topic, partition, record: headers(record),
        "print.key": lambda topic, partition, record: text(record.key),
        "print.value": lambda topic, partition, record: text(record.value),
    }
    chosen = [part for name, part in parts.items() if is_true(wanted[name])]
    return lambda topic, partition, record: (
        separator.join(part(topic, partition, record) for part in chosen) + line_end
    )
