"""`pipeline reset`: the checkpoint is moved aside, and the next run begins where it was asked to."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from headrace.cli.common.failure import CommandError
from headrace.cli.main import command_line
from headrace.cli.pipeline.reset import replayed
from headrace.spark.pipelines.loading.files import load_pipeline
from headrace.spark.pipelines.running.run_files import Claim, RunFiles, run_files

PIPELINE = """\
name: orders
sources:
  orders: {topic: orders, format: json, schema: "id string", starting: latest}
  users: {table: users, format: json, schema: "name string", key: id}
steps:
  - {name: named, sql: "SELECT * FROM orders JOIN users USING (id)"}
sinks:
  out: {from: named, topic: out}
"""


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFiles:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADRACE_STATE_DIR", str(tmp_path / "state"))
    (tmp_path / "orders.yml").write_text(PIPELINE)
    return run_files("orders")


def reset(*arguments: str) -> str:
    """What is said; raises what ends the command."""
    done = CliRunner().invoke(command_line, ["pipeline", "reset", *arguments], standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    return done.stderr


def test_the_checkpoint_is_moved_aside(files: RunFiles) -> None:
    assert "has no checkpoint" in reset("orders.yml", "--yes")
    (files.checkpoint / "out").mkdir(parents=True)
    said = reset("orders.yml", "--yes")
    (aside,) = files.directory.glob("checkpoint.reset-*")
    assert str(aside) in said
    assert (aside / "out").is_dir()
    assert not files.checkpoint.exists()
    assert replayed([load_pipeline("orders.yml")])[0].sources[0].starting == "latest"


def test_a_checkpoint_of_its_own(files: RunFiles, tmp_path: Path) -> None:
    (tmp_path / "here" / "orders" / "out").mkdir(parents=True)
    reset("orders.yml", "--checkpoint", str(tmp_path / "here"), "--yes")
    assert not (tmp_path / "here" / "orders").exists()
    with pytest.raises(CommandError, match="not on this machine"):
        reset("orders.yml", "--checkpoint", "s3a://bucket/x", "--yes")


@pytest.mark.parametrize(
    ("where", "starting", "words"),
    [
        ("earliest", "earliest", "at the first record"),
        ("latest", "latest", "at the end"),
        ("@1767225600", "2026-01-01T00:00:00.000Z", "at 2026-01-01T00:00:00.000Z"),
    ],
)
def test_a_point_to_start_at(files: RunFiles, where: str, starting: str, words: str) -> None:
    said = reset("orders.yml", "--to", where, "--yes")
    assert f"Reset pipeline orders: its next run starts {words}." in said
    (pipeline,) = replayed([load_pipeline("orders.yml")])
    assert pipeline.sources[0].starting == starting
    assert pipeline.sources[1] == load_pipeline("orders.yml").sources[1], "a table is always read whole"
    reset("orders.yml", "--yes")
    assert replayed([load_pipeline("orders.yml")])[0].sources[0].starting == "latest"


def test_a_point_that_is_none_is_answered_with_what_reset_takes(files: RunFiles) -> None:
    with pytest.raises(click.BadParameter, match=r"write earliest, latest, an offset N, .*@TIME") as found:
        reset("orders.yml", "--to", "noon", "--yes")
    assert "range" not in found.value.message


def test_not_while_it_runs_and_not_unasked(files: RunFiles) -> None:
    (files.checkpoint / "out").mkdir(parents=True)
    with pytest.raises(CommandError, match="add --yes"):
        reset("orders.yml")
    with Claim(files), pytest.raises(CommandError, match="Pipeline orders is already running"):
        reset("orders.yml", "--yes")
    assert (files.checkpoint / "out").is_dir()
    with pytest.raises(CommandError, match=r"There is no file none\.yml"):
        reset("none.yml", "--yes")
