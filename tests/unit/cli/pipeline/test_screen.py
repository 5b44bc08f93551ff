"""What a running pipeline shows where there is no terminal: what is new, and no more."""

from __future__ import annotations

import json

import pytest

from headrace.cli.pipeline import screen as pipeline_screen
from headrace.cli.pipeline.screen import PipelineScreen, clock
from headrace.spark.pipelines.running.progress import QueryProgress


@pytest.fixture(autouse=True)
def at_every_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline_screen, "DRAW_EVERY_S", 0.0)
    monkeypatch.setattr(pipeline_screen, "LINE_EVERY_S", 0.0)


def two() -> list[QueryProgress]:
    return [QueryProgress("logs", "logs.errors", "waiting"), QueryProgress("logs", "logs.counts", "waiting")]


def test_a_line_is_printed_for_what_has_moved(capsys: pytest.CaptureFixture[str]) -> None:
    screen, queries = PipelineScreen("table", quiet=False), two()
    screen.look(queries)
    assert capsys.readouterr().err == "", "nothing has been done yet"
    queries[0].rows, queries[0].lag = 1200, 34
    screen.look(queries)
    screen.look(queries)
    queries[0].state = "running"
    screen.look(queries)
    assert capsys.readouterr().err == "logs.errors: waiting, 1,200 rows, 0/s, lag 34\n"
    queries[1].state, queries[1].restarts, queries[1].problem = "restarting", 1, "the broker is away"
    screen.look(queries)
    assert capsys.readouterr().err == "logs.counts: restarting, 0 rows, 0/s: the broker is away\n"


def test_lines_come_now_and_then(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline_screen, "LINE_EVERY_S", 60.0)
    screen, queries = PipelineScreen("table", quiet=False), two()
    for rows in range(1, 5):
        queries[0].rows = rows
        screen.look(queries)
    assert capsys.readouterr().err.count("\n") == 1


def test_the_end_is_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    screen, queries = PipelineScreen("table", quiet=False), two()
    queries[0].rows, queries[0].malformed = 1200, 3
    screen.look(queries, final=True)
    screen.end(queries)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.splitlines()[1].split() == [
        *("QUERY", "STATE", "BATCHES", "ROWS", "ROWS/S", "LAG", "BATCH-TIME", "LATE", "MALFORMED")
    ]
    assert shown.err.splitlines()[2].split() == ["logs.errors", "waiting", "0", "1,200", "0", "-", "-", "-", "3"]


def test_programs_get_an_object_for_each_query_that_has_changed(capsys: pytest.CaptureFixture[str]) -> None:
    screen, queries = PipelineScreen("jsonl", quiet=True), two()
    screen.look(queries)
    screen.look(queries)
    queries[1].rows = 7
    screen.look(queries)
    screen.say("not for programs")
    screen.end(queries)
    shown = capsys.readouterr()
    rows = [json.loads(line) for line in shown.out.splitlines()]
    assert [(row["query"], row["rows"]) for row in rows] == [
        ("logs.errors", 0),
        ("logs.counts", 0),
        ("logs.counts", 7),
    ]
    assert all(row["time"] > 0 for row in rows)
    assert shown.err == ""


def test_after_the_last_word_nothing_is_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    screen, queries = PipelineScreen("table", quiet=False), two()
    screen.give_up("Stopped at once.")
    queries[0].rows = 5
    screen.look(queries)
    screen.end(queries)
    assert capsys.readouterr().err == "Stopped at once.\n"


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (75.9, "1:15"), (3671, "1:01:11")])
def test_the_clock(seconds: float, text: str) -> None:
    assert clock(seconds) == text
