"""`headrace archive run`: archives what is committed now and not archived yet, once or repeatedly."""

from __future__ import annotations

import time

import click

from headrace.cli.archive.common import (
    ProgressLine,
    archive_argument,
    cluster_of,
    open_store,
    percent,
    told_errors,
)
from headrace.cli.common.failure import FAILED, PARTLY_DONE, CommandError
from headrace.cli.common.options import Target, cluster_options, duration
from headrace.cli.common.output import note, plural, size_text, warn


@click.command("run")
@archive_argument
@click.option("--every", "every_s", type=duration, metavar="TIME", help="Run every 30s, 10m, ... until Ctrl-C.")
@click.option("--accept-loss", is_flag=True, help="Skip records deleted before they were archived.")
@cluster_options
def run_archive(target: Target, archive: str, every_s: float | None, accept_loss: bool) -> None:
    """Archive what is new in the topics of ARCHIVE.

    Can be stopped and killed at any time: the next run continues after the last commit. Exit code 6 if some
    topics or partitions could not be archived.

    \b
    headrace archive run backup
    headrace archive run s3://bucket/all --every 10m
    """
    with told_errors():
        store = open_store(archive)
        from headrace.spark.archive.archiving import ArchiveRun, RunProgress

        line = ProgressLine()
        began = time.monotonic()

        def told(progress: RunProgress) -> None:
            rate = progress.rows / max(time.monotonic() - began, 1e-3)
            line.draw(
                f"{percent(progress.done, progress.offsets)}, {plural(progress.rows, 'record')}, "
                f"{size_text(progress.size)} in {plural(progress.files, 'file')}, {rate:,.0f} records/s"
            )

        with cluster_of(target) as cluster:
            while True:
                progress = ArchiveRun(store, cluster, accept_loss=accept_loss).run(told)
                files = f"{plural(progress.files, 'file')} ({size_text(progress.size)})"
                note(f"Archived {plural(progress.rows, 'record')} in {files}.")
                if every_s is None:
                    break
                for problem in progress.problems:
                    warn(problem)
                time.sleep(every_s)
                began = time.monotonic()
    if progress.problems:
        raise CommandError("\n".join(progress.problems), PARTLY_DONE if progress.offsets else FAILED)
