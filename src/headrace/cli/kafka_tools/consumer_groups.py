"""`headrace kafka-consumer-groups`: Kafka's tool for groups, its flags and its columns."""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from headrace.cli.common.failure import NOT_FOUND, CommandError, cannot_read
from headrace.cli.common.offset_spec import END, START, Kind, Point
from headrace.cli.common.options import Target, bootstrap_option
from headrace.cli.common.output import Column, Row, table_lines, warn
from headrace.cli.common.session import conclude, run
from headrace.cli.group.change import OffsetMove, Shift, apply_moves, delete_all, held_places, plan_moves
from headrace.cli.group.options import PartitionChoice, choice_type
from headrace.cli.group.view import (
    KNOWN_TYPES,
    GroupView,
    GroupWithLag,
    assignment_text,
    group_of,
    lags_of,
    member_row,
    position_row,
    ranges_of,
    state_row,
)
from headrace.cli.kafka_tools.shared import exactly_one, ignored
from headrace.client.address import Address
from headrace.client.cluster import Cluster
from headrace.client.groups import delete_offsets, describe_group, fetch_offsets, list_groups
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicPartition

_DURATION = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?",
    re.IGNORECASE,
)
_SECONDS = {"days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}
CURRENT = Shift(0)
Where = Point | Shift

POSITIONS = (
    Column("group", "GROUP"),
    Column("topic", "TOPIC"),
    Column("partition", "PARTITION"),
    Column("current_offset", "CURRENT-OFFSET"),
    Column("log_end_offset", "LOG-END-OFFSET"),
    Column("lag", "LAG"),
    Column("consumer_id", "CONSUMER-ID"),
    Column("host", "HOST"),
    Column("client_id", "CLIENT-ID"),
)
MEMBERS = (
    Column("group", "GROUP"),
    Column("consumer_id", "CONSUMER-ID"),
    Column("group_instance_id", "GROUP-INSTANCE-ID"),
    Column("host", "HOST"),
    Column("client_id", "CLIENT-ID"),
    Column("partitions", "#PARTITIONS"),
)
MEMBERS_VERBOSE = (
    *MEMBERS,
    Column("epoch", "CURRENT-EPOCH"),
    Column("assignment", "CURRENT-ASSIGNMENT"),
    Column("target", "TARGET-ASSIGNMENT"),
)
STATE = (
    Column("group", "GROUP"),
    Column("coordinator", "COORDINATOR (ID)"),
    Column("assignment_strategy", "ASSIGNMENT-STRATEGY"),
    Column("state", "STATE"),
    Column("members", "#MEMBERS"),
)
STATE_VERBOSE = (
    *STATE[:-1],
    Column("epoch", "GROUP-EPOCH"),
    Column("assignment_epoch", "TARGET-ASSIGNMENT-EPOCH"),
    STATE[-1],
)
RESET = (
    Column("group", "GROUP"),
    Column("topic", "TOPIC"),
    Column("partition", "PARTITION"),
    Column("new_offset", "NEW-OFFSET"),
)


@dataclass(frozen=True, slots=True)
class Given:
    """The options, as they were given."""

    bootstrap: tuple[Address, ...]
    timeout_ms: int
    list_all: bool
    describe: bool
    delete: bool
    reset_offsets: bool
    delete_offsets: bool
    group: tuple[str, ...]
    all_groups: bool
    topic: tuple[PartitionChoice, ...]
    all_topics: bool
    state: str | None
    type: str | None
    members: bool
    offsets: bool
    verbose: bool
    to_earliest: bool
    to_latest: bool
    to_current: bool
    to_offset: int | None
    shift_by: int | None
    to_datetime: str | None
    by_duration: str | None
    from_file: Path | None
    execute: bool
    dry_run: bool
    export: bool

    @property
    def target(self) -> Target:
        return Target(self.bootstrap, self.timeout_ms / 1000)

    @property
    def action(self) -> str:
        return exactly_one(
            {
                "--list": self.list_all,
                "--describe": self.describe,
                "--delete": self.delete,
                "--reset-offsets": self.reset_offsets,
                "--delete-offsets": self.delete_offsets,
            }
        )


@click.command("kafka-consumer-groups")
@click.option("--list", "list_all", is_flag=True)
@click.option("--describe", is_flag=True)
@click.option("--delete", is_flag=True)
@click.option("--reset-offsets", is_flag=True)
@click.option("--delete-offsets", is_flag=True)
@click.option("--group", multiple=True)
@click.option("--all-groups", is_flag=True)
@click.option("--topic", type=choice_type, multiple=True, metavar="TOPIC[:0,1,...]")
@click.option("--all-topics", is_flag=True)
@click.option("--state", is_flag=False, flag_value="", default=None, metavar="[STATE,...]")
@click.option("--type", is_flag=False, flag_value="", default=None, metavar="[TYPE,...]")
@click.option("--members", is_flag=True)
@click.option("--offsets", is_flag=True)
@click.option("--verbose", is_flag=True)
@click.option("--to-earliest", is_flag=True)
@click.option("--to-latest", is_flag=True)
@click.option("--to-current", is_flag=True)
@click.option("--to-offset", type=int)
@click.option("--shift-by", type=int)
@click.option("--to-datetime", metavar="YYYY-MM-DDThh:mm:ss.sss", help="Time; in UTC unless it names a zone.")
@click.option("--by-duration", metavar="PnDTnHnMnS", help="A time before now.")
@click.option("--from-file", type=click.Path(path_type=Path), metavar="FILE.csv")
@click.option("--execute", is_flag=True)
@click.option("--dry-run", is_flag=True)
@click.option("--export", is_flag=True, help="Print the plan as CSV, which --from-file reads.")
@click.option("--timeout", "timeout_ms", type=click.IntRange(min=1), default=30_000, show_default=True)
@bootstrap_option
@ignored("--command-config")
def kafka_consumer_groups(**options: Any) -> None:
    """Kafka's tool for groups: --list, --describe, --delete, --reset-offsets or --delete-offsets."""
    given = Given(**options)
    action = given.action
    if action != "--list" and not given.group and not given.all_groups:
        raise click.UsageError(f"{action} needs --group or --all-groups.")
    if action == "--list":
        _list(given)
    elif action == "--describe":
        _describe(given)
    elif action == "--delete":
        _delete(given)
    elif action == "--reset-offsets":
        _reset(given)
    else:
        _delete_offsets(given)


def _print(rows: Sequence[Row], columns: Sequence[Column]) -> None:
    click.echo()
    for line in table_lines(rows, columns):
        click.echo(line)


def _words(text: str | None) -> list[str]:
    return [word.strip() for word in (text or "").split(",") if word.strip()]


def _list(given: Given) -> None:
    found = run(given.target, lambda cluster: list_groups(cluster, _words(given.state), _words(given.type)))
    columns = [Column("group", "GROUP")]
    if given.type is not None:
        columns += [Column("type", "TYPE")]
    if given.state is not None:
        columns += [Column("state", "STATE")]
    if len(columns) == 1:
        for group in found:
            click.echo(group.id)
        return
    rows = [
        {"group": group.id, "type": group.type.capitalize(), "state": group.state or "Unknown"} for group in found
    ]
    for line in table_lines(rows, columns):
        click.echo(line)


async def _names(cluster: Cluster, given: Given) -> list[str]:
    if not given.all_groups:
        return list(dict.fromkeys(given.group))
    return [group.id for group in await list_groups(cluster) if group.type in KNOWN_TYPES]


def _describe(given: Given) -> None:
    async def views(cluster: Cluster) -> list[GroupView]:
        return [await group_of(cluster, name) for name in await _names(cluster, given)]

    async def lags(cluster: Cluster) -> list[GroupWithLag]:
        return await lags_of(cluster, await _names(cluster, given), may_be_gone=given.all_groups)

    if given.members:
        for group in run(given.target, views):
            _print_members(group, MEMBERS_VERBOSE if given.verbose else MEMBERS)
    elif given.state is not None:
        for group in run(given.target, views):
            _print([state_row(group)], STATE_VERBOSE if given.verbose else STATE)
    else:
        for lag in run(given.target, lags):
            _tell_empty(lag.group)
            _print([position_row(lag.group, position) for position in lag.positions], POSITIONS)


def _print_members(group: GroupView, columns: Sequence[Column]) -> None:
    _tell_empty(group)
    rows = [member_row(group, member) for member in group.members]
    rows = [row | {key: assignment_text(row[key]) for key in ("assignment", "target")} for row in rows]
    static = any(row["group_instance_id"] for row in rows)
    _print(rows, [column for column in columns if static or column.key != "group_instance_id"])


def _tell_empty(group: GroupView) -> None:
    if not group.members:
        click.echo(f"\nConsumer group '{group.id}' has no active members.", err=True)


def _delete(given: Given) -> None:
    async def work(cluster: Cluster) -> list[str]:
        names = await _names(cluster, given)
        if names:
            conclude(await delete_all(cluster, names), "group")
        return names

    deleted = run(given.target, work)
    names = ", ".join(f"'{name}'" for name in deleted)
    click.echo(f"Deletion of requested consumer groups ({names}) was successful.")


def _delete_offsets(given: Given) -> None:
    if len(given.group) != 1 or not given.topic:
        raise click.UsageError("--delete-offsets needs one --group and a --topic.")
    group = given.group[0]

    async def work(cluster: Cluster) -> dict[TopicPartition, KafkaError | None]:
        places = await held_places(cluster, group, given.topic)
        return await delete_offsets(cluster, group, places) if places else {}

    outcomes = run(given.target, work)
    if not outcomes:
        raise CommandError(f"Group {group} has no offsets there.", NOT_FOUND)
    rows = [
        {
            "topic": place.topic,
            "partition": place.partition,
            "status": f"Error: {error}" if error else "Successful",
        }
        for place, error in outcomes.items()
    ]
    _print(rows, (Column("topic", "TOPIC"), Column("partition", "PARTITION"), Column("status", "STATUS")))
    conclude({str(place): error for place, error in outcomes.items()}, "partition")


def _where(given: Given) -> Where | None:
    """What to reset to; None where a file says so."""
    chosen = exactly_one(
        {
            "--to-earliest": given.to_earliest,
            "--to-latest": given.to_latest,
            "--to-current": given.to_current,
            "--to-offset": given.to_offset is not None,
            "--shift-by": given.shift_by is not None,
            "--to-datetime": given.to_datetime is not None,
            "--by-duration": given.by_duration is not None,
            "--from-file": given.from_file is not None,
        }
    )
    match chosen:
        case "--to-earliest":
            return START
        case "--to-latest":
            return END
        case "--to-current":
            return CURRENT
        case "--to-offset":
            return Point(Kind.OFFSET, given.to_offset or 0)
        case "--shift-by":
            return Shift(given.shift_by or 0)
        case "--to-datetime":
            return Point(Kind.TIME, parse_datetime(given.to_datetime or ""))
        case "--by-duration":
            before_ms = int(parse_iso_duration(given.by_duration or "") * 1000)
            return Point(Kind.TIME, int(datetime.now(UTC).timestamp() * 1000) - before_ms)
        case _:
            return None


def parse_datetime(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(f"--to-datetime {text!r} is not of the form 2024-05-01T12:30:00.000.") from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def parse_iso_duration(text: str) -> float:
    match = _DURATION.fullmatch(text.strip())
    parts = {name: value for name, value in match.groupdict().items() if value} if match else {}
    if not parts:
        raise click.UsageError(f"--by-duration {text!r} is not of the form P1DT2H30M.")
    return sum(float(value) * _SECONDS[name] for name, value in parts.items())


def _reset(given: Given) -> None:
    where = _where(given)
    if given.execute and given.dry_run:
        raise click.UsageError("Give one of --execute and --dry-run.")
    if where is not None and bool(given.topic) == given.all_topics:
        raise click.UsageError("Give one of --topic and --all-topics.")
    if not (given.execute or given.dry_run):
        warn("Nothing changes without --execute.")

    async def work(cluster: Cluster) -> list[tuple[str, OffsetMove]]:
        planned = []
        for group in await _names(cluster, given):
            await _check_inactive(cluster, group)
            moves = await _planned(cluster, group, where, given)
            if given.execute:
                await apply_moves(cluster, group, moves)
            planned += [(group, move) for move in moves]
        return planned

    planned = run(given.target, work)
    rows = [
        {"group": group, "topic": one.place.topic, "partition": one.place.partition, "new_offset": one.new_offset}
        for group, one in planned
    ]
    if given.export:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        fields = ("topic", "partition", "new_offset") if len(given.group) == 1 else tuple(one.key for one in RESET)
        writer.writerows([row[field] for field in fields] for row in rows)
    else:
        _print(rows, RESET)


async def _check_inactive(cluster: Cluster, group: str) -> None:
    try:
        await describe_group(cluster, group)
    except KafkaError as error:
        if error.code == ErrorCode.GROUP_ID_NOT_FOUND:
            return
        raise
    view = await group_of(cluster, group)
    if not view.is_empty:
        raise CommandError(
            f"Assignments can only be reset if the group '{group}' is inactive, "
            f"but the current state is {view.state}."
        )


async def _planned(cluster: Cluster, group: str, where: Where | None, given: Given) -> list[OffsetMove]:
    if where is not None:
        return await plan_moves(cluster, group, where, given.topic)
    assert given.from_file is not None
    wanted = read_plan(given.from_file, group)
    ranges = await ranges_of(cluster, list(wanted))
    current = await fetch_offsets(cluster, group)
    missing = [str(place) for place in wanted if place not in ranges]
    if missing:
        raise CommandError(f"There is no partition {', '.join(missing)}.", NOT_FOUND)
    return [
        OffsetMove(place, current.get(place), min(max(offset, ranges[place][0]), ranges[place][1]), *ranges[place])
        for place, offset in wanted.items()
    ]


def read_plan(path: Path, group: str) -> dict[TopicPartition, int]:
    """Lines of `topic,partition,offset`, or with the group in front."""
    wanted: dict[TopicPartition, int] = {}
    try:
        with path.open(newline="") as file:
            for number, line in enumerate(csv.reader(file), 1):
                if not line:
                    continue
                try:
                    *owner, topic, partition, offset = line
                    if len(owner) <= 1 and (not owner or owner[0] == group):
                        wanted[TopicPartition(topic, int(partition))] = int(offset)
                except ValueError:
                    raise CommandError(f"{path}:{number} is not of the form topic,partition,offset.", 2) from None
    except OSError as error:
        raise cannot_read(path, error) from None
    return wanted
