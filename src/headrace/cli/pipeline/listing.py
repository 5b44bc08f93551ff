"""`headrace pipeline list`, `status` and `stop`: the pipelines that run on this machine."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from headrace.cli.common.completing import complete_pipelines
from headrace.cli.common.failure import NOT_FOUND, TIMED_OUT, CommandError
from headrace.cli.common.options import duration, format_option
from headrace.cli.common.output import Column, count, duration_text, emit_rows, note, number
from headrace.spark.pipelines.running.run_files import RunFiles, known_pipelines, run_files

POLL_S = 0.05
UNFINISHED = ("starting", "running", "stopping")
"""A run that ended by itself has said how; one that says this and does not run was killed."""


def ago(time_text: str) -> str:
    """How long ago a moment was, as people read it: short, where a table must fit 80 columns."""
    seconds = (datetime.now(UTC) - datetime.fromisoformat(time_text)).total_seconds()
    return f"{duration_text(max(seconds, 0))} ago"


def moment(key: str, title: str, wide: bool = False) -> Column:
    """Never cut off: it is as short as it can be."""
    return Column(key, title, True, wide, ago)


COLUMNS = (
    Column("name", "PIPELINE"),
    Column("state", "STATE"),
    number("pid", "PID"),
    moment("started", "STARTED"),
    moment("since", "COUNTED SINCE", wide=True),
    count("rows", "ROWS"),
    count("rows_per_second", "ROWS/S"),
    count("lag", "LAG"),
    count("late", "LATE", wide=True),
    count("malformed", "MALFORMED"),
    Column("file", "FILE"),
    Column("problem", "PROBLEM", wide=True),
    Column("checkpoint", "CHECKPOINT", wide=True),
)


@click.command("list")
@click.option("--running", "only_running", is_flag=True, help="Hide pipelines that have stopped.")
@format_option
def list_pipelines(only_running: bool, format: str) -> None:
    """Show the pipelines on this machine: running ones with their progress, and past runs."""
    rows = [_row(files) for files in known_pipelines() if files.runs() or not only_running]
    emit_rows(rows, COLUMNS, format, "No pipeline has been run here. Start one with `headrace pipeline run FILE`.")


def _row(files: RunFiles) -> dict[str, Any]:
    facts = files.read()
    runs = files.runs()
    state = facts.get("state", "starting")
    if not runs and state in UNFINISHED:
        state = "killed" if facts else "reset"
    totals = facts.get("totals") or {}
    return {
        "name": files.name,
        "state": state,
        "pid": facts.get("pid") if runs else None,
        "started": facts.get("started"),
        "since": totals.get("since"),
        "rows": totals.get("rows"),
        "rows_per_second": totals.get("rows_per_second") if runs else None,
        "lag": totals.get("lag"),
        "late": totals.get("late"),
        "malformed": totals.get("malformed"),
        "file": facts.get("file"),
        "problem": facts.get("problem"),
        "checkpoint": facts.get("checkpoint"),
        "queries": facts.get("queries", []),
    }


QUERY_COLUMNS = (
    Column("pipeline", "PIPELINE"),
    Column("query", "QUERY"),
    Column("state", "STATE"),
    moment("since", "SINCE"),
    count("rows", "ROWS"),
    count("lag", "LAG"),
    count("late", "LATE"),
    count("malformed", "MALFORMED"),
    count("batches", "BATCHES", wide=True),
    count("restarts", "RESTARTS", wide=True),
    Column("problem", "PROBLEM", wide=True),
)


@click.command("status")
@click.argument("pipelines", nargs=-1, metavar="[FILE|NAME...]", shell_complete=complete_pipelines)
@format_option
def show_status(pipelines: tuple[str, ...], format: str) -> None:
    """Show how far the queries of pipelines are, running or not.

    Counts are over all runs with the same checkpoint, since the time under SINCE: they continue when the command
    is started again, and restart at zero after `headrace pipeline reset`.
    """
    chosen = [_find(given) for given in pipelines] or known_pipelines()
    rows = [row for files in chosen for row in _query_rows(files)]
    emit_rows(rows, QUERY_COLUMNS, format, "Nothing has been read yet. Start with `headrace pipeline run FILE`.")


def _query_rows(files: RunFiles) -> list[dict[str, Any]]:
    whole = _row(files)
    rows = whole["queries"]
    return rows if files.runs() else [{**row, "state": whole["state"]} for row in rows]


@click.command("stop")
@click.argument("pipelines", nargs=-1, required=True, metavar="FILE|NAME...", shell_complete=complete_pipelines)
@click.option("--timeout", "timeout_s", type=duration, default="90s", show_default=True, help="How long to wait.")
@click.option(
    "--force",
    is_flag=True,
    help="Kill pipelines that have not stopped by then; the next run continues from the last commit.",
)
def stop_pipelines(pipelines: tuple[str, ...], timeout_s: float, force: bool) -> None:
    """Stop running pipelines: the current batch is finished, and the next run continues after it."""
    asked: dict[int, list[str]] = {}
    for files in [_find(given) for given in pipelines]:
        pid = files.read().get("pid") if files.runs() else None
        if pid is None:
            note(f"Pipeline {files.name} is not running.")
        elif pid not in asked:
            asked[pid] = _names_of(pid)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
    deadline_s = time.monotonic() + timeout_s
    for pid, names in asked.items():
        _await_end(names, pid, deadline_s, force)
        for name in names:
            note(f"Pipeline {name} has stopped.")


def _names_of(pid: int) -> list[str]:
    """Pipelines that were started together run in one process, and stop together."""
    return [files.name for files in known_pipelines() if files.runs() and files.read().get("pid") == pid]


def _find(given: str) -> RunFiles:
    """By the name of the pipeline, or by its file."""
    named = run_files(given) if "/" not in given else None
    if named is not None and named.directory.is_dir():
        return named
    wanted = str(Path(given).resolve())
    for files in known_pipelines():
        if files.read().get("file") == wanted:
            return files
    raise CommandError(
        f"No pipeline {given} has run here.", NOT_FOUND, "`headrace pipeline list` shows the pipelines."
    )


def _await_end(names: Sequence[str], pid: int, deadline_s: float, force: bool) -> None:
    while any(run_files(name).runs() for name in names):
        if time.monotonic() < deadline_s:
            time.sleep(POLL_S)
        elif force:
            os.kill(pid, signal.SIGKILL)
            return
        else:
            raise CommandError(
                f"Pipeline {', '.join(names)} (process {pid}) is still running.",
                TIMED_OUT,
                "Wait longer with --timeout, or kill it with --force.",
            )
