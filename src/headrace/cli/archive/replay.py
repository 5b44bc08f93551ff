"""`headrace replay`: archived records, all or a slice of them, back into a topic, once."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.archive.common import (
    ProgressLine,
    archive_argument,
    cluster_of,
    open_store,
    percent,
    told_errors,
)
from headrace.cli.common.offset_spec import parse_time
from headrace.cli.common.options import Target, cluster_options
from headrace.cli.common.output import note, plural, warn
from headrace.records.compression import CODEC_NAMES

if TYPE_CHECKING:
    from headrace.spark.archive.replaying import ReplayPlan


def time_type(text: str) -> int:
    """The type of an option: milliseconds. The same text must mean the same when it is started again."""
    if text.startswith("-") or text == "now":
        raise click.BadParameter(
            "a replay that is started again must select the same records: give a date or time"
        )
    try:
        return parse_time(text, time.time_ns() // 1_000_000)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def offsets_type(text: str) -> tuple[int | None, int | None]:
    """The type of an option: `A:B`, `A:`, `:B`."""
    begin, colon, end = text.partition(":")
    if not colon or not all(part == "" or part.isdigit() for part in (begin, end)):
        raise click.BadParameter(f"{text!r} is not a range of offsets; write 100:200, 100: or :200")
    return int(begin) if begin else None, int(end) if end else None


@click.command()
@archive_argument
@click.argument("topic")
@click.argument("destination", required=False)
@click.option("--from", "start_ms", type=time_type, metavar="TIME", help="Records from this time on.")
@click.option("--to", "end_ms", type=time_type, metavar="TIME", help="Records before this time.")
@click.option("--offsets", type=offsets_type, default=":", metavar="A:B", help="Offsets A to B, excluding B.")
@click.option("-p", "--partition", "partitions", type=int, multiple=True, help="Only this partition; repeatable.")
@click.option("-k", "--key", "keys", multiple=True, help="Only records with this key; repeatable.")
@click.option(
    "-w",
    "--where",
    multiple=True,
    metavar="CONDITION",
    help="Only records where value.total>=100, ...",
)
@click.option(
    "--filter", "function", default="", metavar="FILE:NAME", help="Only records a Python function keeps."
)
@click.option("--repartition", is_flag=True, help="Choose partitions by key.")
@click.option("--original-offsets", is_flag=True, help="Store each record's old offset in a header.")
@click.option("--restore", is_flag=True, help="Restore the whole topic, keeping old offsets as headers.")
@click.option("--job", default="", metavar="NAME", help="Name of this replay; a finished one is not repeated.")
@click.option("--dry-run", is_flag=True, help="Count the records without writing any.")
@click.option("-z", "--compression", type=click.Choice(list(CODEC_NAMES)), default="none", show_default=True)
@cluster_options
def replay(target: Target, archive: str, topic: str, destination: str | None, **given: Any) -> None:
    """Put records of TOPIC from ARCHIVE back into the topic DESTINATION, with keys, headers and timestamps.

    Each is written once: after a kill the same command continues where the last transaction ended, and when all is
    done it writes nothing more, unless --job gives it another name. DESTINATION is created like TOPIC if it does
    not exist. TIME is a date, a time such as 2026-05-01T12:30, or seconds since 1970.

    \b
    headrace replay backup orders orders-again --from 2026-05-01 --to 2026-05-02T12:00
    headrace replay backup orders found --key ann --where 'value.total>=100'
    headrace replay s3://bucket/all orders orders --restore
    """
    destination = destination or topic
    dry_run = given.pop("dry_run")
    with told_errors():
        store = open_store(archive)
        plan = _plan(topic, destination, given)
        from headrace.spark.archive.replaying import Replay, ReplayProgress

        with cluster_of(target) as cluster:
            work = Replay(store, cluster, plan)
            if dry_run:
                note(f"{plural(work.count(), 'record')} would go to {destination}.")
                return
            for warning in work.prepare():
                warn(warning)
            line = ProgressLine()

            def told(progress: ReplayProgress) -> None:
                share = percent(progress.passed, progress.total)
                line.draw(f"{share} of the archive, {plural(progress.written, 'record')} written")

            done = work.run(told)
    if done.was_done:
        note("This replay was already done, and nothing was written. To repeat it, give another --job.")
    else:
        note(f"Replayed {plural(done.written, 'record')} from {topic} in {archive} to {destination}.")


def _plan(topic: str, destination: str, given: dict[str, Any]) -> ReplayPlan:
    from headrace.spark.archive.replaying import ReplayPlan, restoring
    from headrace.spark.archive.slices import Slice, parse_condition

    start_offset, end_offset = given["offsets"]
    try:
        where = tuple(parse_condition(one) for one in given["where"])
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--where") from None
    wanted = Slice(
        topic,
        partitions=given["partitions"],
        start_offset=start_offset,
        end_offset=end_offset,
        start_ms=given["start_ms"],
        end_ms=given["end_ms"],
        keys=given["keys"],
        where=where,
        function=given["function"],
    )
    plan = ReplayPlan(
        wanted,
        destination,
        by_key=given["repartition"],
        offset_header=given["original_offsets"],
        job=given["job"],
        codec=CODEC_NAMES[given["compression"]],
    )
    if not given["restore"]:
        return plan
    if wanted != Slice(topic):
        raise click.UsageError("--restore restores the whole topic: leave out the options that select records.")
    return restoring(plan)
