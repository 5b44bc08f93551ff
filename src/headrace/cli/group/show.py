"""`headrace group list|describe`: groups as they are."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import click

from headrace.cli.common.options import Target, cluster_options, format_option, name_pattern
from headrace.cli.common.output import PEOPLE, Column, Row, count, elapsed, emit_data, emit_rows, note, number
from headrace.cli.common.session import run
from headrace.cli.group.options import groups_argument
from headrace.cli.group.view import (
    KNOWN_TYPES,
    GroupView,
    GroupWithLag,
    all_lags,
    assignment_text,
    group_of,
    lags_of,
    member_row,
    position_row,
    state_row,
)
from headrace.client.cluster import Cluster
from headrace.client.groups import list_groups

LIST_COLUMNS = (
    Column("group", "GROUP"),
    Column("type", "TYPE"),
    Column("state", "STATE"),
    Column("protocol_type", "PROTOCOL", wide=True),
)
LAG_COLUMNS = (
    count("members", "#MEMBERS"),
    count("lag", "LAG"),
    elapsed("lag_seconds", "LAG-TIME"),
    Column("topics", "TOPICS"),
)
POSITION_COLUMNS = (
    Column("group", "GROUP"),
    Column("topic", "TOPIC"),
    number("partition", "PARTITION"),
    number("current_offset", "CURRENT-OFFSET"),
    number("log_end_offset", "LOG-END-OFFSET"),
    count("lag", "LAG")._replace(important=True),
    elapsed("lag_seconds", "LAG-TIME"),
    Column("consumer_id", "CONSUMER-ID"),
    Column("host", "HOST"),
    Column("client_id", "CLIENT-ID"),
)
MEMBER_COLUMNS = (
    Column("group", "GROUP"),
    Column("consumer_id", "CONSUMER-ID"),
    Column("group_instance_id", "GROUP-INSTANCE-ID"),
    Column("host", "HOST"),
    Column("client_id", "CLIENT-ID"),
    number("partitions", "#PARTITIONS"),
    Column("assignment", "ASSIGNMENT"),
    number("epoch", "CURRENT-EPOCH", wide=True),
    Column("target", "TARGET-ASSIGNMENT", wide=True),
    Column("subscription", "SUBSCRIPTION", wide=True),
)
STATE_COLUMNS = (
    Column("group", "GROUP"),
    Column("coordinator", "COORDINATOR (ID)"),
    Column("type", "TYPE"),
    Column("assignment_strategy", "ASSIGNMENT-STRATEGY"),
    Column("state", "STATE"),
    number("epoch", "GROUP-EPOCH", wide=True),
    number("assignment_epoch", "TARGET-ASSIGNMENT-EPOCH", wide=True),
    count("members", "#MEMBERS"),
)


@click.command("list")
@click.argument("pattern", required=False, type=name_pattern, metavar="[PATTERN]")
@click.option("--state", "states", multiple=True, metavar="STATE", help="Stable, Empty, ...; may be repeated.")
@click.option("--type", "types", multiple=True, metavar="TYPE", help="classic or consumer; may be repeated.")
@click.option("--lag", "with_lag", is_flag=True, help="Also show members, topics and lag.")
@format_option
@cluster_options
def list_command(
    target: Target,
    pattern: re.Pattern[str] | None,
    states: tuple[str, ...],
    types: tuple[str, ...],
    with_lag: bool,
    format: str,
) -> None:
    """List the groups, or those whose whole name matches the regular expression PATTERN."""

    async def work(cluster: Cluster) -> list[Row]:
        found = [
            one
            for one in await list_groups(cluster, states, types)
            if pattern is None or pattern.fullmatch(one.id)
        ]
        rows: list[dict[str, Any]] = [
            {"group": one.id, "type": one.type, "state": one.state or None, "protocol_type": one.protocol_type}
            for one in found
        ]
        if with_lag:
            asked = await lags_of(cluster, [one.id for one in found if one.type in KNOWN_TYPES], may_be_gone=True)
            lags = {one.group.id: lag_summary(one) for one in asked}
            rows = [{**row, **lags.get(row["group"], {})} for row in rows]
        return list(rows)

    filtered = pattern or states or types
    empty = "No group matches." if filtered else "There are no groups."
    columns = (*LIST_COLUMNS, *LAG_COLUMNS) if with_lag else LIST_COLUMNS
    emit_rows(run(target, work), columns, format, empty)


def lag_summary(lag: GroupWithLag) -> dict[str, Any]:
    return {
        "members": len(lag.group.members),
        "lag": lag.lag,
        "lag_seconds": lag.lag_seconds,
        "topics": lag.topics,
    }


@click.command()
@groups_argument(required=False)
@click.option("--all", "everything", is_flag=True, help="Every group.")
@click.option("--members", is_flag=True, help="Show the members and their partitions.")
@click.option("--state", is_flag=True, help="Show coordinator, assignor and state.")
@format_option
@cluster_options
def describe(
    target: Target, groups: tuple[str, ...], everything: bool, members: bool, state: bool, format: str
) -> None:
    """Show groups: the committed offset of each partition and the lag, in records and in seconds.

    LAG-TIME is the age of the oldest record that the group has not processed.
    """
    if bool(groups) == everything:
        raise click.UsageError("Name groups, or use --all.")
    if members and state:
        raise click.UsageError("Give one of --members and --state.")

    async def lags(cluster: Cluster) -> list[GroupWithLag]:
        return await lags_of(cluster, groups) if groups else await all_lags(cluster)

    async def views(cluster: Cluster) -> list[GroupView]:
        names = groups or [one.id for one in await list_groups(cluster) if one.type in KNOWN_TYPES]
        return [await group_of(cluster, name) for name in dict.fromkeys(names)]

    if members or state:
        _show_views(run(target, views), members, format)
    else:
        _show_positions(run(target, lags), format)


def _show_views(found: list[GroupView], members: bool, format: str) -> None:
    if not members:
        emit_rows([state_row(group) for group in found], STATE_COLUMNS, format)
        return
    rows = [member_row(group, member) for group in found for member in group.members]
    if format in PEOPLE:
        rows = [row | {key: assignment_text(row[key]) for key in ("assignment", "target")} for row in rows]
    emit_rows(rows, MEMBER_COLUMNS, format, "" if format in PEOPLE and found else "There are no groups.")
    tell_empty(found, format)


def _show_positions(found: list[GroupWithLag], format: str) -> None:
    if format not in PEOPLE:
        emit_data([group_document(one) for one in found], format)
        return
    rows = [position_row(one.group, position) for one in found for position in one.positions]
    emit_rows(rows, POSITION_COLUMNS, format, "" if found else "There are no groups.")
    tell_empty([one.group for one in found], format)
    for one in found:
        if not one.positions:
            note(f"Group {one.group.id} has no committed offsets.")


def tell_empty(groups: Sequence[GroupView], format: str) -> None:
    if format in PEOPLE:
        for group in groups:
            if not group.members:
                note(f"Group {group.id} has no active members ({group.state}).")


def group_document(lag: GroupWithLag) -> dict[str, Any]:
    group = lag.group
    return {
        "group": group.id,
        "type": group.type,
        "state": group.state,
        "assignment_strategy": group.assignor,
        "coordinator": {
            "id": group.coordinator_id,
            "host": group.coordinator.host,
            "port": group.coordinator.port,
        },
        "epoch": group.epoch,
        "lag": lag.lag,
        "lag_seconds": lag.lag_seconds,
        "members": [_without_group(member_row(group, member)) for member in group.members],
        "positions": [_without_group(position_row(group, position)) for position in lag.positions],
    }


def _without_group(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key != "group"}
