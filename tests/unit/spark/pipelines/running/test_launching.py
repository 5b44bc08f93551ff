"""What is told and kept when Spark does not start. No Java runs here; the logs are Java's, shortened."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.cli.pipeline.screen import PipelineScreen
from headrace.spark.pipelines.definition import Pipeline, PipelineError, Problem
from headrace.spark.pipelines.running.checkpoint_lock import CheckpointInUse
from headrace.spark.pipelines.running.launching import Launch, LaunchSettings, SparkFailed, _words_of_java
from headrace.spark.pipelines.running.run_files import STATE_VARIABLE
from headrace.spark.pipelines.running.session import NoMaster

CHATTER = """\
Picked up JAVA_TOOL_OPTIONS: -XX:+UseSerialGC
WARNING: Using incubator modules: jdk.incubator.vector
Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties
26/11/15 18:02:30 WARN Utils: Your hostname, vm, resolves to a loopback address
"""
TRACE = "\tat org.apache.spark.deploy.SparkSubmit.error(SparkSubmit.scala:1)\n"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            f'{CHATTER}Exception in thread "main" org.apache.spark.SparkException: Master must be yarn.\n{TRACE}',
            "Master must be yarn",
        ),
        (
            "Invalid maximum heap size: -Xmxzz\nError: Could not.\n",
            "Invalid maximum heap size: -Xmxzz Error: Could not",
        ),
        (CHATTER, "nothing"),
        ("", "nothing"),
    ],
)
def test_the_last_words_of_java(tmp_path: Path, said: str, told: str) -> None:
    log = tmp_path / "spark.log"
    log.write_text(f"of another run\n{said}")
    assert _words_of_java(log, len("of another run\n")) == told
    assert _words_of_java(tmp_path / "nowhere", 0) == "nothing"


def test_what_spark_said_in_full_is_in_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path))

    def refused(_: Launch) -> None:
        problem = PipelineError([Problem("p.yml", 3, 1, "it is wrong")])
        raise problem from RuntimeError("at org.apache.spark.Deep")

    monkeypatch.setattr(Launch, "_with_spark", refused)
    launch = Launch([Pipeline("p", 1, path="p.yml")], LaunchSettings(), PipelineScreen("table", quiet=True))
    with pytest.raises(PipelineError):
        launch.run()
    text = launch.log.read_text()
    assert "at org.apache.spark.Deep" in text
    assert "p.yml:3:1: it is wrong" in text


def test_a_master_that_is_away_is_told_before_java_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path))
    settings = LaunchSettings(master="spark://127.0.0.1:1")
    launch = Launch([Pipeline("p", 1, path="p.yml")], settings, PipelineScreen("table", quiet=True))
    with pytest.raises(NoMaster, match="no Spark master answers"):
        launch.run()


def launch_of(name: str, checkpoint: Path) -> Launch:
    pipeline = Pipeline(name, 1, path=f"{name}.yml", checkpoint=str(checkpoint))
    return Launch([pipeline], LaunchSettings(), PipelineScreen("table", quiet=True))


def test_two_runs_cannot_share_a_checkpoint_but_two_pipelines_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when nothing else tells that they are two: their other files are in different directories."""

    def inside(first: Launch) -> None:
        assert first._checkpoint(first.pipelines[0]).directory == str(tmp_path / "ck" / "p")
        monkeypatch.setattr(Launch, "_with_spark", lambda _: None)
        monkeypatch.setenv(STATE_VARIABLE, str(tmp_path / "other"))
        with pytest.raises(CheckpointInUse):
            launch_of("p", tmp_path / "ck").run()
        assert launch_of("q", tmp_path / "ck").run() is None

    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path / "state"))
    monkeypatch.setattr(Launch, "_with_spark", inside)
    assert launch_of("p", tmp_path / "ck").run() is None
    monkeypatch.setattr(Launch, "_with_spark", lambda _: None)
    assert launch_of("p", tmp_path / "ck").run() is None


@pytest.mark.parametrize(("stopped", "how"), [(True, "was stopped"), (False, "ended")])
def test_java_that_ends_before_it_is_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopped: bool, how: str
) -> None:
    """As with `timeout 60 headrace pipeline run`, whose signal goes to Java too."""
    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path))

    def refused(*_: object) -> None:
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(Launch, "_made", refused)
    launch = Launch([Pipeline("p", 1, path="p.yml")], LaunchSettings(), PipelineScreen("table", quiet=True))
    if stopped:
        launch.stop.set()
    with pytest.raises(SparkFailed, match=f"Spark did not start: Java {how} before it was ready"):
        launch.run()
