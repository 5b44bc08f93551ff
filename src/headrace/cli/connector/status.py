"""`headrace connector status`: the connectors that a cluster knows, whether they run and where they are."""

from __future__ import annotations

import json
from typing import Any

import click

from headrace.cli.common.options import Target, cluster_options, format_option
from headrace.cli.common.output import Column, count, emit_rows
from headrace.cli.common.session import run
from headrace.connect.runner import STATUS_EVERY_S
from headrace.connect.store import POSITION, STATUS, StoredState, read_state, under
from headrace.env.real import real_env

COLUMNS = (
    Column("name", "NAME"),
    Column("connector", "CONNECTOR"),
    Column("state", "STATE"),
    count("records", "RECORDS"),
    count("lag", "LAG"),
    count("restarts", "RESTARTS"),
    Column("position", "POSITION"),
    Column("gauges", "MEASURED", wide=True),
    Column("where", "WHERE", wide=True),
    Column("problem", "PROBLEM"),
)
LIVE = ("starting", "running", "retrying")
SILENT_AFTER_S = 4 * STATUS_EVERY_S


@click.command()
@format_option
@cluster_options
def status(target: Target, format: str) -> None:
    """Show the connectors of a cluster: whether and where they run, and what they have done.

    One that stopped reporting without reporting its end was killed.
    """
    state = run(target, read_state)
    emit_rows(rows_of(state, real_env().clock.wall_ms()), COLUMNS, format, "No connector has run in this cluster.")


def rows_of(state: StoredState, now_ms: int) -> list[dict[str, Any]]:
    statuses = under(state, STATUS)
    names = {*statuses, *(key.partition("/")[0] for key in under(state, POSITION))}
    return [_row(name, statuses.get(name, {}), under(state, POSITION, name), now_ms) for name in sorted(names)]


def _row(name: str, told: dict[str, Any], positions: StoredState, now_ms: int) -> dict[str, Any]:
    state = told.get("state")
    if state in LIVE and now_ms - told["updated_ms"] > SILENT_AFTER_S * 1000:
        state = "killed"
    shown = {task: json.dumps(position, separators=(",", ":")) for task, position in positions.items()}
    return {
        "name": name,
        "connector": told.get("connector"),
        "state": state,
        "records": told.get("records"),
        "lag": told.get("lag") if told.get("kind") == "sink" else None,
        "restarts": told.get("restarts"),
        "position": " ".join(shown.values() if len(shown) == 1 else (f"{one}:{at}" for one, at in shown.items())),
        "gauges": " ".join(f"{key}={value:g}" for key, value in (told.get("gauges") or {}).items()),
        "where": f"{told['host']} {told['pid']}" if told else None,
        "problem": told.get("problem") if state in ("failed", "retrying") else None,
    }
