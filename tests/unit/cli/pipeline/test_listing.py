"""`pipeline list` and `pipeline status`: what runs have left behind."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from headrace.cli.common.output import table_lines
from headrace.cli.main import command_line
from headrace.cli.pipeline.listing import COLUMNS, ago
from headrace.spark.pipelines.running.progress import QueryProgress, kept_rows, totals
from headrace.spark.pipelines.running.run_files import Claim, run_files


@pytest.fixture
def orders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> QueryProgress:
    """Of a pipeline that was killed in its second run."""
    monkeypatch.setenv("HEADRACE_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "orders.yml").write_text("sources: {raw: {topic: t}}\nsinks: {out: {from: raw, console: true}}\n")
    earlier = QueryProgress("orders", "orders", rows=40, lag=9, began="2026-03-01T10:00:00+00:00")
    progress = QueryProgress("orders", "orders", "running", rows=2, lag=3, earlier=earlier)
    with Claim(run_files("orders")) as files:
        files.write(
            {
                "state": "running",
                "checkpoint": str(files.checkpoint),
                "file": str(tmp_path / "orders.yml"),
                "totals": totals([progress.over_all_runs()]),
                "queries": kept_rows([progress]),
            }
        )
    return progress


def said(*words: str) -> str:
    done = CliRunner().invoke(command_line, ["pipeline", *words])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_status_shows_rows_lag_and_since_when(orders: QueryProgress) -> None:
    (row,) = json.loads(said("status", "orders.yml", "--format", "json"))
    assert (row["state"], row["rows"], row["lag"]) == ("killed", 42, 3)
    assert row["since"] == "2026-03-01T10:00:00+00:00"
    assert "42" in said("status")
    (listed,) = json.loads(said("list", "--format", "json"))
    assert (listed["rows"], listed["since"]) == (42, row["since"])


def test_when_it_started_is_readable_on_80_columns() -> None:
    """The time was cut off in the middle. Two days and four hours stay that for an hour."""
    started = (datetime.now(UTC) - timedelta(days=2, hours=4, minutes=20)).isoformat(timespec="seconds")
    row = {
        "name": "orders-of-all-shops",
        "state": "running",
        "pid": 1234567,
        "started": started,
        "rows": 12_345_678,
    }
    row |= {"rows_per_second": 104_000, "lag": 1_200_300, "malformed": 17, "file": "/srv/pipelines/orders.yml"}
    shown = [column for column in COLUMNS if not column.wide]
    lines = table_lines([row], shown, limit=80)
    assert max(map(len, lines)) <= 80
    assert "2d 4h ago" in lines[1]
    assert "12,345,678" in lines[1]
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    assert ago(later) == "0ms ago", "the clock was set back"


def test_a_reset_begins_anew(orders: QueryProgress) -> None:
    run_files("orders").checkpoint.mkdir(parents=True)
    said("reset", "orders.yml", "--yes")
    assert json.loads(said("status", "orders", "--format", "json")) == []
