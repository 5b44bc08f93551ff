"""Cron schedules: when they are due, what is refused, and how a run waits for them."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import cast

import click
import pytest

from headrace.cli.pipeline.run import run_pipelines
from headrace.spark.pipelines.cron import Cron, is_cron, parse_cron
from headrace.spark.pipelines.definition import PipelineError
from headrace.spark.pipelines.loading.files import load_pipeline
from headrace.spark.pipelines.running.launching import CRON_LOOK_S, Launch, LaunchSettings

SUNDAY = datetime(2026, 3, 1, 10, 7, 30)
REST = "sources:\n  raw: {topic: t}\nsinks:\n  out: {from: raw, topic: o}\n"


@pytest.mark.parametrize(
    ("text", "due"),
    [
        ("* * * * *", "2026-03-01 10:08"),
        ("*/15 * * * *", "2026-03-01 10:15"),
        ("5 * * * *", "2026-03-01 11:05"),
        ("7 10 * * *", "2026-03-02 10:07"),
        ("30 2 * * mon-fri", "2026-03-02 02:30"),
        ("0 0 * * 7", "2026-03-08 00:00"),
        ("0 0 * * sun", "2026-03-08 00:00"),
        ("0 12 15 * *", "2026-03-15 12:00"),
        ("0 12 15 * tue", "2026-03-03 12:00"),
        ("0 0 29 2 *", "2028-02-29 00:00"),
        ("0 6 1 jan,jul *", "2026-07-01 06:00"),
        ("10-20/5 11 * * *", "2026-03-01 11:10"),
        ("50/5 10 * * *", "2026-03-01 10:50"),
        ("@hourly", "2026-03-01 11:00"),
        ("@daily", "2026-03-02 00:00"),
        ("@yearly", "2027-01-01 00:00"),
    ],
)
def test_when_it_is_due(text: str, due: str) -> None:
    assert is_cron(text)
    assert parse_cron(text).after(SUNDAY) == datetime.fromisoformat(due)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("60 * * * *", "'60' is not a valid minute: it is 0 to 59"),
        ("* 24 * * *", "hour"),
        ("* * 0 * *", "day of the month"),
        ("* * * foo *", "'foo' is not a valid month"),
        ("* * * * 8", "day of the week"),
        ("*/0 * * * *", "minute"),
        ("5-1 * * * *", "minute"),
        ("0 0 31 2 *", "never happens"),
        ("@often", "not a cron schedule"),
    ],
)
def test_mistakes(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_cron(text)


def test_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "p.yml"
    path.write_text('schedule: "30 2 * * mon-fri"\n' + REST)
    pipeline = load_pipeline(path)
    assert pipeline.schedule_s is None
    assert pipeline.cron == parse_cron("30 2 * * mon-fri")
    path.write_text("schedule: 10m\n" + REST)
    assert (load_pipeline(path).schedule_s, load_pipeline(path).cron) == (600, None)
    path.write_text('schedule: "61 * * * *"\nevery: 1s\n' + REST)
    with pytest.raises(PipelineError, match="1:11: '61' is not a valid minute: it is 0 to 59"):
        load_pipeline(path)
    path.write_text('schedule: "@daily"\nevery: 1s\n' + REST)
    with pytest.raises(PipelineError, match="schedule or every, not both"):
        load_pipeline(path)


class Due:
    """A schedule that is due at once, and says how often it was asked."""

    asked = 0

    def after(self, time: datetime) -> datetime:
        self.asked += 1
        return time


class Listener:
    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)

    def look(self, queries: object, final: bool = False) -> None:
        pass


def test_a_run_waits_for_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "p.yml"
    path.write_text('schedule: "@daily"\n' + REST)
    due, listener = Due(), Listener()
    pipeline = replace(load_pipeline(path), cron=cast(Cron, due))
    launch = Launch([pipeline], LaunchSettings(), listener)
    turns = []

    def turn(self: Launch, jobs: object) -> None:
        turns.append(due.asked)
        if len(turns) == 2:
            self.stop.set()

    monkeypatch.setattr(Launch, "_turn", turn)
    assert launch.schedule_s
    assert launch._scheduled({}) is None
    assert turns == [1, 2], "each run waits for the next time, the first one too"
    assert listener.said[0].startswith("The next run begins at 20")
    once = Launch([pipeline], LaunchSettings(once=True), listener)
    assert once.schedule_s is None


def test_a_cron_schedule_of_the_command_goes_before_the_file(tmp_path: Path) -> None:
    path = tmp_path / "p.yml"
    path.write_text("schedule: 10m\n" + REST)
    found = run_pipelines.make_context("run", [str(path), "--schedule", "30 2 * * mon-fri"]).params["schedule"]
    assert isinstance(found, Cron)
    launch = Launch([load_pipeline(path)], LaunchSettings(schedule=found), Listener())
    assert launch._crons == [found]
    assert launch.schedule_s == CRON_LOOK_S
    assert found.after(datetime(2026, 3, 6, 3, 0)) == datetime(2026, 3, 9, 2, 30), "Friday, then Monday"
    every = run_pipelines.make_context("run", [str(path), "--schedule", "5m"]).params["schedule"]
    path.write_text('schedule: "@daily"\n' + REST)
    assert Launch([load_pipeline(path)], LaunchSettings(schedule=every), Listener()).schedule_s == 300
    with pytest.raises(click.BadParameter, match="hour"):
        run_pipelines.make_context("run", [str(path), "--schedule", "30 99 * * *"])
