"""Pipelines checked against a real broker."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from headrace.cli.pipeline.check import checked_pipelines
from headrace.testing import Broker
from tests.unit.cli.pipeline.test_check import GOOD, UNUSED, check, directory

__all__ = ["directory"]


def test_topics_are_looked_for_on_the_cluster(headrace_broker: Broker) -> None:
    at = headrace_broker.bootstrap_servers
    done = check("good.yml", "--no-spark", "-b", at, code=1)
    assert "good.yml:2:16: there is no topic pc.logs" in done.stdout
    assert done.stdout.endswith("1 file checked (keys and files, topics): 1 problem.\n")
    headrace_broker.create_topic("pc.logs", 1)
    assert "no problems" in check("good.yml", "--no-spark", "-b", at, code=0).stdout


def test_the_file_names_the_cluster(directory: Path, headrace_broker: Broker) -> None:
    (directory / "good.yml").write_text(
        f"bootstrap: {headrace_broker.bootstrap_servers}\n{GOOD}".replace("pc.logs", "pc.no")
    )
    assert "there is no topic pc.no" in check("good.yml", "--no-spark", code=1).stdout


def test_what_runs_is_checked_first(
    directory: Path, headrace_broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(click.exceptions.Exit) as ended:
        checked_pipelines([Path("bad.yml")], UNUSED)
    assert ended.value.exit_code == 1
    assert "Did you mean format?" in capsys.readouterr().err
    (directory / "good.yml").write_text(GOOD.replace("pc.logs", headrace_broker.create_topic("pc.runs", 1)))
    (pipeline,) = checked_pipelines([Path("good.yml")], headrace_broker.bootstrap_servers)
    assert pipeline.name == "good"
