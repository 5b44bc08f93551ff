"""`headrace topic list|describe|offsets`: topics as they are."""

from __future__ import annotations

import re
from typing import Any

import click

from headrace.cli.common.errors import explain_kafka
from headrace.cli.common.offset_spec import SYNTAX, Span, resolve, span_type
from headrace.cli.common.options import (
    Target,
    cluster_options,
    complete_topics,
    format_option,
    name_pattern,
    topic_argument,
)
from headrace.cli.common.output import PEOPLE, Column, Row, count, emit_data, emit_pairs, emit_rows, number
from headrace.cli.common.session import chosen_partitions, run, topic_of, topics_of
from headrace.client.cluster import Cluster
from headrace.client.offsets import MAX_TIMESTAMP, list_offsets, offset_ranges
from headrace.client.reassigning import with_moves
from headrace.client.view import NO_LEADER, TopicView
from headrace.model.errors import KafkaError
from headrace.model.topics import TopicPartition, topic_id_text

LIST_COLUMNS = (
    Column("name", "NAME"),
    count("partitions", "PARTITIONS"),
    number("replication_factor", "REPLICATION-FACTOR"),
    Column("internal", "INTERNAL", wide=True),
    count("under_replicated", "UNDER-REPLICATED", wide=True),
    count("offline", "OFFLINE", wide=True),
    Column("id", "ID", wide=True),
)
PARTITION_COLUMNS = (
    number("partition", "PARTITION"),
    number("leader", "LEADER"),
    Column("replicas", "REPLICAS"),
    Column("isr", "ISR"),
    Column("offline", "OFFLINE", wide=True),
    number("leader_epoch", "LEADER-EPOCH", wide=True),
    number("log_start_offset", "LOG-START-OFFSET"),
    number("log_end_offset", "LOG-END-OFFSET"),
)


@click.command("list")
@click.argument("pattern", required=False, type=name_pattern, metavar="[PATTERN]")
@click.option("--internal", is_flag=True, help="Include internal topics.")
@format_option
@cluster_options
def list_command(target: Target, pattern: re.Pattern[str] | None, internal: bool, format: str) -> None:
    """List the topics, or those whose whole name matches the regular expression PATTERN."""

    async def work(cluster: Cluster) -> list[Row]:
        topics = (await with_moves(cluster, await cluster.metadata())).topics.values()
        return [
            summary(topic)
            for topic in topics
            if (internal or not topic.internal) and (pattern is None or pattern.fullmatch(topic.name))
        ]

    empty = (
        f"No topic matches {pattern.pattern}."
        if pattern
        else "There are no topics. Create one with `headrace topic create`."
    )
    emit_rows(run(target, work), LIST_COLUMNS, format, empty)


def summary(topic: TopicView) -> dict[str, Any]:
    return {
        "name": topic.name,
        "id": topic_id_text(topic.id),
        "internal": topic.internal,
        "partitions": len(topic.partitions),
        "replication_factor": topic.replication_factor,
        "under_replicated": sum(one.under_replicated for one in topic.partitions),
        "offline": sum(one.leader == NO_LEADER for one in topic.partitions),
    }


@click.command()
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...", shell_complete=complete_topics)
@click.option("--all", "all_settings", is_flag=True, help="Every setting, including those at their default.")
@format_option
@cluster_options
def describe(target: Target, topics: tuple[str, ...], all_settings: bool, format: str) -> None:
    """Show topics: partitions with their replicas and offsets, and the settings that differ from the default."""

    async def work(cluster: Cluster) -> list[dict[str, Any]]:
        _, found = await topics_of(cluster, topics)
        return [await _described(cluster, topic, all_settings) for topic in found]

    described = run(target, work)
    if format not in PEOPLE:
        emit_data(described, format)
        return
    for position, one in enumerate(described):
        if position:
            click.echo()
        _print_topic(one, format)


async def _described(cluster: Cluster, topic: TopicView, all_settings: bool) -> dict[str, Any]:
    from headrace.client.admin import ConfigResource, describe_configs
    from headrace.model.config_resources import ResourceType

    led = [TopicPartition(topic.name, one.number) for one in topic.partitions if one.leader != NO_LEADER]
    ranges = await offset_ranges(cluster, led) if led else {}
    partitions = []
    for one in topic.partitions:
        start, end = ranges.get(TopicPartition(topic.name, one.number), (None, None))
        partitions.append(
            {
                "partition": one.number,
                "leader": None if one.leader == NO_LEADER else one.leader,
                "leader_epoch": one.leader_epoch,
                "replicas": list(one.replicas),
                "isr": list(one.in_sync),
                "offline": list(one.offline),
                "log_start_offset": start,
                "log_end_offset": end,
            }
        )
    try:
        configs = await describe_configs(cluster, ConfigResource(ResourceType.TOPIC, topic.name))
    except KafkaError as error:
        raise explain_kafka(error, f"topic {topic.name}") from None
    settings = {entry.name: entry.value for entry in configs if all_settings or entry.source == "topic"}
    return {**summary(topic), "configs": settings, "partition_list": partitions}


def _print_topic(described: dict[str, Any], format: str) -> None:
    settings = described["configs"]
    emit_pairs(
        [
            ("Topic", described["name"]),
            ("Id", described["id"]),
            ("Partitions", described["partitions"]),
            ("Replication factor", described["replication_factor"]),
            ("Settings", "these differ from the default:" if settings else "all at their defaults"),
        ]
    )
    for name, value in settings.items():
        click.echo(f"  {name}={value if value is not None else ''}")
    click.echo()
    emit_rows(described["partition_list"], PARTITION_COLUMNS, format)


@click.command()
@topic_argument
@click.option("-p", "--partition", "partitions", multiple=True, type=int, help="Only this one; may be repeated.")
@click.option("-o", "--offset", "span", type=span_type, metavar="WHERE", help=f"Which offset: {SYNTAX}.")
@format_option
@cluster_options
def offsets(target: Target, topic: str, partitions: tuple[int, ...], span: Span | None, format: str) -> None:
    """Show the first and end offset of each partition of TOPIC, or with -o the offset at that point."""
    if span is not None and span.end is not None:
        raise click.BadParameter("this takes a single offset or time, not a range", param_hint="--offset")

    async def work(cluster: Cluster) -> list[Row]:
        chosen = chosen_partitions(await topic_of(cluster, topic), partitions)
        listed = [TopicPartition(topic, one) for one in chosen]
        ranges = await offset_ranges(cluster, listed)
        found = await resolve(cluster, span.begin, ranges) if span else None
        latest = await _latest_times(cluster, listed) if span is None and format != "table" else {}
        return [
            {
                "topic": topic,
                "partition": one.partition,
                "log_start_offset": ranges[one][0],
                "log_end_offset": ranges[one][1],
                **({"offset": found[one]} if found is not None else {}),
                **({"latest_timestamp_ms": latest[one]} if one in latest else {}),
            }
            for one in listed
        ]

    columns = [number("partition", "PARTITION")]
    if span is not None:
        columns.append(number("offset", "OFFSET"))
    columns += [number("log_start_offset", "LOG-START-OFFSET"), number("log_end_offset", "LOG-END-OFFSET")]
    columns.append(number("latest_timestamp_ms", "LATEST-TIMESTAMP-MS", wide=True))
    emit_rows(run(target, work), columns, format)


async def _latest_times(cluster: Cluster, partitions: list[TopicPartition]) -> dict[TopicPartition, int | None]:
    found = await list_offsets(cluster, dict.fromkeys(partitions, MAX_TIMESTAMP))
    return {one: found[one].timestamp if found[one].offset >= 0 else None for one in partitions}
