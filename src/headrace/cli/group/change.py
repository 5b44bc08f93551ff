"""`headrace group seek|delete`: changes or deletes offsets. Both first show what they would do."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import click

from headrace.cli.common.errors import explain_kafka
from headrace.cli.common.failure import CommandError
from headrace.cli.common.offset_spec import Point, parse_point, resolve
from headrace.cli.common.options import Target, cluster_options, confirm, format_option, yes_option
from headrace.cli.common.output import PEOPLE, Column, count, emit_rows, note, number, plural, warn
from headrace.cli.common.session import conclude, run
from headrace.cli.group.options import PartitionChoice, choice_type, chosen_places, group_argument, groups_argument
from headrace.cli.group.view import GroupView, group_of, missing_group, ranges_of
from headrace.client.cluster import Cluster
from headrace.client.groups import (
    commit_offsets,
    delete_group,
    delete_offsets,
    describe_group,
    fetch_offsets,
    list_groups,
)
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicPartition

WHERE = "earliest, latest, N, +N or -N (from where the group is), @TIME"
_SHIFT = re.compile(r"[+-]\d+")

COLUMNS = (
    Column("group", "GROUP"),
    Column("topic", "TOPIC"),
    number("partition", "PARTITION"),
    number("current_offset", "CURRENT-OFFSET"),
    number("new_offset", "NEW-OFFSET"),
    count("change", "CHANGE"),
    number("log_start_offset", "LOG-START-OFFSET", wide=True),
    number("log_end_offset", "LOG-END-OFFSET", wide=True),
)


class Shift(NamedTuple):
    """Move this many records forward or back from the group's offset."""

    records: int


class OffsetMove(NamedTuple):
    place: TopicPartition
    current_offset: int | None
    new_offset: int
    log_start_offset: int
    log_end_offset: int

    @property
    def change(self) -> int | None:
        return None if self.current_offset is None else self.new_offset - self.current_offset


def parse_where(text: str, now_ms: int) -> Point | Shift:
    """ValueError says what is wrong."""
    if _SHIFT.fullmatch(text.strip()):
        return Shift(int(text))
    try:
        return parse_point(text, now_ms)
    except ValueError as error:
        if "is not a valid offset" in str(error):
            raise ValueError(f"{text!r} is not a valid position; write {WHERE}") from None
        raise


def where_type(text: str) -> Point | Shift:
    """The type of an option."""
    try:
        return parse_where(text, time.time_ns() // 1_000_000)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command()
@group_argument
@click.option("--to", "where", type=where_type, required=True, metavar="WHERE", help=f"{WHERE}.")
@click.option(
    "-t",
    "--topic",
    "choices",
    type=choice_type,
    multiple=True,
    metavar="TOPIC[:P,...]",
    help="Only this topic; may be repeated. Default: all topics the group has read.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would change.")
@yes_option
@format_option
@cluster_options
def seek(
    target: Target,
    group: str,
    where: Point | Shift,
    choices: tuple[PartitionChoice, ...],
    dry_run: bool,
    yes: bool,
    format: str,
) -> None:
    """Change the committed offsets of GROUP, which must have no running members.

    \b
    headrace group seek billing --to earliest              read everything again
    headrace group seek billing --to latest -t orders      skip all existing records
    headrace group seek billing --to @-2h --dry-run        what would be read again?
    headrace group seek billing --to -100 -t orders:0,2    read the last hundred again
    """

    async def work(cluster: Cluster) -> tuple[list[OffsetMove], GroupView | None]:
        view = await _group_if_any(cluster, group, bool(choices))
        if not dry_run:
            _refuse_members(view)
        moves = await plan_moves(cluster, group, where, choices)
        if not dry_run:
            if format in PEOPLE and not yes:
                show_moves(group, moves, format)
            confirm(f"Move group {group} in {plural(len(moves), 'partition')} ({summary(moves)})?", yes)
            await apply_moves(cluster, group, moves)
        return moves, view

    moves, view = run(target, work)
    if dry_run or yes or format not in PEOPLE:
        show_moves(group, moves, format)
    if not dry_run:
        note(f"Moved group {group} in {plural(len(moves), 'partition')}: {summary(moves)}.")
    elif view is not None and view.members:
        warn(f"{_has_members(view)} Stop them before moving its offsets.")


async def _group_if_any(cluster: Cluster, group: str, may_be_new: bool) -> GroupView | None:
    """The group, or None: offsets can be set for a group that does not exist yet if they are named."""
    if not may_be_new:
        return await group_of(cluster, group)
    try:
        await describe_group(cluster, group)
    except KafkaError as error:
        if error.code == ErrorCode.GROUP_ID_NOT_FOUND:
            return None
        raise
    return await group_of(cluster, group)


def _has_members(view: GroupView) -> str:
    return f"Group {view.id} has {plural(len(view.members), 'member')} ({view.state})."


def _refuse_members(view: GroupView | None) -> None:
    if view is not None and not view.is_empty:
        advice = f"Stop them first; `headrace group describe {view.id} --members` shows them."
        raise CommandError(
            f"{_has_members(view)} Offsets can only be moved while the group has no members.", advice=advice
        )


async def plan_moves(
    cluster: Cluster, group: str, where: Point | Shift, choices: Sequence[PartitionChoice]
) -> list[OffsetMove]:
    """The changes, with every offset inside its log."""
    current = await fetch_offsets(cluster, group)
    places = await chosen_places(cluster, choices) if choices else list(current)
    ranges = await ranges_of(cluster, places)
    for place in places:
        if place not in ranges:
            warn(f"{place} is gone or has no leader; unchanged.")
    if not places:
        raise CommandError(f"Group {group} has no committed offsets.", advice="Name a topic with --topic.")
    wanted = await _wanted(cluster, where, current, ranges)
    moves = []
    for place, offset in wanted.items():
        start, end = ranges[place]
        inside = min(max(offset, start), end)
        if inside != offset:
            warn(f"{place} has offsets {start} to {end}: {offset} becomes {inside}.")
        moves.append(OffsetMove(place, current.get(place), inside, start, end))
    return moves


async def _wanted(
    cluster: Cluster,
    where: Point | Shift,
    current: Mapping[TopicPartition, int],
    ranges: Mapping[TopicPartition, tuple[int, int]],
) -> dict[TopicPartition, int]:
    if isinstance(where, Point):
        return await resolve(cluster, where, ranges) if ranges else {}
    for place in ranges:
        if place not in current:
            warn(f"The group has no offset in {place} to count from; unchanged.")
    return {place: current[place] + where.records for place in ranges if place in current}


def summary(moves: Sequence[OffsetMove]) -> str:
    again = sum(-move.change for move in moves if move.change is not None and move.change < 0)
    skipped = sum(move.change for move in moves if move.change is not None and move.change > 0)
    parts = []
    if again:
        parts.append(f"{plural(again, 'record')} will be read again")
    if skipped:
        parts.append(f"{plural(skipped, 'record')} will be skipped")
    new = sum(move.current_offset is None for move in moves)
    if new:
        parts.append(f"{plural(new, 'new offset')}")
    return ", ".join(parts) or "nothing changes"


def move_rows(group: str, moves: Sequence[OffsetMove]) -> list[dict[str, Any]]:
    return [
        {
            "group": group,
            "topic": move.place.topic,
            "partition": move.place.partition,
            "current_offset": move.current_offset,
            "new_offset": move.new_offset,
            "change": move.change,
            "log_start_offset": move.log_start_offset,
            "log_end_offset": move.log_end_offset,
        }
        for move in moves
    ]


def show_moves(group: str, moves: Sequence[OffsetMove], format: str) -> None:
    emit_rows(move_rows(group, moves), COLUMNS, format, "Nothing to move.")


async def apply_moves(cluster: Cluster, group: str, moves: Sequence[OffsetMove]) -> None:
    if not moves:
        return
    try:
        outcomes = await commit_offsets(cluster, group, {move.place: move.new_offset for move in moves})
    except KafkaError as error:
        raise explain_kafka(error, f"group {group}") from None
    conclude({str(place): error for place, error in outcomes.items()}, "partition")


@click.command()
@groups_argument(required=True)
@click.option(
    "-t",
    "--topic",
    "choices",
    type=choice_type,
    multiple=True,
    metavar="TOPIC[:P,...]",
    help="Only delete the offsets of this topic; may be repeated.",
)
@yes_option
@cluster_options
def delete(target: Target, groups: tuple[str, ...], choices: tuple[PartitionChoice, ...], yes: bool) -> None:
    """Delete groups without members, with all their offsets; with --topic, only the offsets of that topic."""
    names = list(dict.fromkeys(groups))
    if choices:
        confirm(f"Delete the offsets of {', '.join(names)} in {', '.join(one.topic for one in choices)}?", yes)
        run(target, lambda cluster: _forget(cluster, names, choices))
        return
    confirm(f"Delete {plural(len(names), 'group')} ({', '.join(names)}) with all their offsets?", yes)
    outcomes = run(target, lambda cluster: delete_all(cluster, names))
    for name, error in outcomes.items():
        if error is None:
            note(f"Deleted group {name}.")
    conclude(outcomes, "group")


async def delete_all(cluster: Cluster, names: Sequence[str]) -> dict[str, KafkaError | None]:
    outcomes = {name: await delete_group(cluster, name) for name in names}
    error = outcomes[names[0]]
    if len(names) == 1 and error is not None and error.code == ErrorCode.GROUP_ID_NOT_FOUND:
        raise missing_group(names[0], [one.id for one in await list_groups(cluster)])
    return outcomes


async def _forget(cluster: Cluster, names: Sequence[str], choices: Sequence[PartitionChoice]) -> None:
    for name in names:
        places = await held_places(cluster, name, choices)
        if not places:
            note(f"Group {name} has no offsets there.")
            continue
        try:
            outcomes = await delete_offsets(cluster, name, places)
        except KafkaError as error:
            raise explain_kafka(error, f"group {name}") from None
        conclude({str(place): error for place, error in outcomes.items()}, "partition")
        note(f"Deleted {plural(len(places), 'offset')} of group {name}.")


async def held_places(cluster: Cluster, group: str, choices: Sequence[PartitionChoice]) -> list[TopicPartition]:
    """The chosen partitions for which the group has offsets, including those of deleted topics."""
    held = await fetch_offsets(cluster, group)
    return [
        place
        for place in held
        if any(
            place.topic == one.topic and (not one.partitions or place.partition in one.partitions)
            for one in choices
        )
    ]
