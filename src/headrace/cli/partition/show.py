"""`headrace partition status|cancel|elect`: running moves, and leadership."""

from __future__ import annotations

from typing import Any

import click

from headrace.cli.common.errors import explain_kafka
from headrace.cli.common.failure import PARTLY_DONE, CommandError
from headrace.cli.common.options import (
    Target,
    cluster_options,
    complete_topics,
    confirm,
    format_option,
    yes_option,
)
from headrace.cli.common.output import PEOPLE, Column, emit_data, emit_rows, note, number, plural, size_text
from headrace.cli.common.session import run
from headrace.cli.partition import throttle
from headrace.cli.partition.planning import named_partitions
from headrace.cli.partition.progress import copied_bytes
from headrace.client.cluster import Cluster
from headrace.client.reassigning import (
    PREFERRED,
    UNCLEAN,
    alter_reassignments,
    elect_leaders,
    list_reassignments,
)
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicPartition

COLUMNS = (
    Column("topic", "TOPIC"),
    number("partition", "PARTITION"),
    Column("replicas", "REPLICAS"),
    Column("adding", "ADDING"),
    Column("removing", "REMOVING"),
    number("copied", "COPIED"),
    number("total", "OF"),
)
LEADERS = "Records that only dead replicas have will be lost."


@click.command()
@click.option("--remove-throttle", is_flag=True, help="Also remove throttles left by earlier moves.")
@format_option
@cluster_options
def status(target: Target, remove_throttle: bool, format: str) -> None:
    """Show running moves: replicas added and removed, and how much has been copied."""

    async def work(cluster: Cluster) -> tuple[list[dict[str, Any]], list[str]]:
        moving = await list_reassignments(cluster)
        copied = await copied_bytes(cluster, moving)
        limited: list[str] = []
        if remove_throttle:
            limited = await throttle.lift(cluster, (await cluster.metadata()).topics)
        elif not moving:
            limited = list(await throttle.limits(cluster, ()))
        rows = [
            {
                "topic": name.topic,
                "partition": name.partition,
                "replicas": list(state.replicas),
                "adding": list(state.adding),
                "removing": list(state.removing),
                "copied_bytes": copied[name][0],
                "total_bytes": copied[name][1],
            }
            for name, state in sorted(moving.items())
        ]
        return rows, limited

    rows, limited = run(target, work)
    if format in PEOPLE:
        shown = [
            {**row, "copied": size_text(row["copied_bytes"]), "total": size_text(row["total_bytes"])}
            for row in rows
        ]
        emit_rows(shown, COLUMNS, format, "No partition is being moved.")
    else:
        emit_data(rows, format)
    if remove_throttle:
        note(f"Removed the throttles of {', '.join(limited)}." if limited else "There were no throttles.")
    elif limited:
        note(
            f"Throttles of earlier moves are left: {', '.join(limited)}. `headrace partition status "
            "--remove-throttle` removes them."
        )


@click.command()
@click.argument("partitions", nargs=-1, metavar="[TOPIC|TOPIC:PARTITION]...", shell_complete=complete_topics)
@click.option("--all", "everything", is_flag=True, help="All running moves.")
@yes_option
@cluster_options
def cancel(target: Target, partitions: tuple[str, ...], everything: bool, yes: bool) -> None:
    """Cancel running moves. Partitions keep their old replicas; copied data is set aside."""
    if everything == bool(partitions):
        raise click.UsageError("Name partitions, such as orders or orders:3, or give --all.")

    async def work(cluster: Cluster) -> int:
        moving = await list_reassignments(cluster)
        names = list(moving)
        if not everything:
            _, asked = await named_partitions(cluster, partitions)
            names = [name for name in asked if name in moving]
        if not names:
            return 0
        confirm(f"Cancel the moves of {plural(len(names), 'partition')}?", yes)
        outcomes = await alter_reassignments(cluster, dict.fromkeys(names))
        _conclude({name: error for name, error in outcomes.items() if not _is(error, _NOT_MOVING)})
        return len(names)

    count = run(target, work)
    none = "No partition is being moved." if everything else "None of them is being moved."
    note(f"Cancelled the moves of {plural(count, 'partition')}." if count else none)


_NOT_MOVING = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


@click.command()
@click.argument("partitions", nargs=-1, metavar="[TOPIC|TOPIC:PARTITION]...", shell_complete=complete_topics)
@click.option("--all", "everything", is_flag=True, help="All partitions.")
@click.option(
    "--unclean", is_flag=True, help="Elect any live replica for partitions without a leader; records may be lost."
)
@yes_option
@cluster_options
def elect(target: Target, partitions: tuple[str, ...], everything: bool, unclean: bool, yes: bool) -> None:
    """Give leadership back to the preferred replica, the first in the list."""
    if everything == bool(partitions):
        raise click.UsageError("Name partitions, such as orders or orders:3, or give --all.")
    if unclean:
        confirm(f"Elect leaders that may lack records? {LEADERS}", yes)

    async def work(cluster: Cluster) -> dict[TopicPartition, KafkaError | None]:
        names = None if everything else (await named_partitions(cluster, partitions))[1]
        return await elect_leaders(cluster, names, UNCLEAN if unclean else PREFERRED)

    outcomes = run(target, work)
    needed = {name: error for name, error in outcomes.items() if not _is(error, ErrorCode.ELECTION_NOT_NEEDED)}
    elected = sum(error is None for error in needed.values())
    note(f"Elected {plural(elected, 'leader')}." if needed else "All leaders are already as requested.")
    _conclude(needed)


def _is(error: KafkaError | None, code: ErrorCode) -> bool:
    return error is not None and error.code is code


def _conclude(outcomes: dict[TopicPartition, KafkaError | None]) -> None:
    failed = {name: error for name, error in outcomes.items() if error is not None}
    if not failed:
        return
    explained = [explain_kafka(error, str(name)) for name, error in failed.items()]
    code = PARTLY_DONE if len(failed) < len(outcomes) else explained[0].code
    raise CommandError("\n".join(one.message for one in explained), code)
