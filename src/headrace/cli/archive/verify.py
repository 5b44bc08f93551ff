"""`headrace archive verify`: whether an archive is complete, by its manifest, its files, and the log."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import click

from headrace.cli.archive.common import (
    ProgressLine,
    archive_argument,
    cluster_of,
    open_store,
    percent,
    told_errors,
)
from headrace.cli.common.failure import FAILED, CommandError
from headrace.cli.common.options import Target, cluster_options
from headrace.cli.common.output import emit_data, note, plural


@click.command()
@archive_argument
@click.argument("topics", nargs=-1, metavar="[TOPIC]...")
@click.option("--offline", is_flag=True, help="Check only the manifest and files, not the log.")
@click.option("--format", "format", type=click.Choice(("text", "json")), default="text", show_default=True)
@cluster_options
def verify(target: Target, archive: str, topics: tuple[str, ...], offline: bool, format: str) -> None:
    """Check that ARCHIVE is complete and undamaged, and equal to the records that the log still has.

    Every file is read and its checksum compared; every record of the log is compared with the archived one, in all
    columns. Exit code 1 if anything is wrong.
    """
    with told_errors(), ExitStack() as stack:
        store = open_store(archive)
        from headrace.spark.archive.verifying import Verified, Verifier

        cluster = None if offline else stack.enter_context(cluster_of(target))
        verifier = Verifier(store, cluster, topics)
        line = ProgressLine()
        total = verifier.rows

        def told(so_far: Verified) -> None:
            line.draw(f"{percent(so_far.rows, total)}, {plural(so_far.rows, 'record')}")

        result = verifier.verify(told)
    if format == "json":
        facts: dict[str, Any] = {name: getattr(result, name) for name in result.__dataclass_fields__}
        emit_data(facts, format)
    else:
        note(f"{plural(result.rows, 'record')} in {plural(result.files, 'file')} read, checksums compared.")
        if not offline:
            note(f"{plural(result.compared, 'record')} are the same in the log.")
        for count, what in (
            (result.compacted_since, "have been compacted away in the log since"),
            (result.only_archived, "are before the beginning of the log now"),
        ):
            if count:
                note(f"{plural(count, 'record')} {what}.")
    if result.problems:
        raise CommandError("\n".join(result.problems), FAILED)
    if format != "json":
        note("The archive is complete and undamaged.")
