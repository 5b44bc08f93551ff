"""`headrace pipeline check`: what it prints, its exit codes, and what is said when something is not there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest
from pyspark.errors import PySparkRuntimeError

from headrace.cli.common.failure import INTERRUPTED, CommandError
from headrace.cli.common.output import note
from headrace.cli.pipeline.check import check_files, check_sql, require_spark
from headrace.spark.pipelines.running.session import NoJava
from tests.unit.cli.command_line import Done, headrace

CHECK = "headrace.cli.pipeline.check"
UNUSED = "127.0.0.1:1"
GOOD = "sources:\n  raw: {topic: pc.logs}\nsinks:\n  out: {from: raw, topic: pc.out, format: raw, create: true}\n"
BAD = "sources:\n  raw: {topic: pc.logs, formatt: json}\nsinks:\n  out: {from: raw, topic: o, mode: apend}\n"


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.yml").write_text(GOOD)
    (tmp_path / "bad.yml").write_text(BAD)
    return tmp_path


def check(*arguments: str, code: int) -> Done:
    done = headrace("pipeline", "check", *arguments)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


def test_a_good_file_is_drawn() -> None:
    assert (
        check("good.yml", "--no-spark", "--no-cluster", code=0).stdout
        == """\
good.yml: pipeline good
  source  raw  <- topic pc.logs  (raw)
  sink    out  raw -> topic pc.out  (raw)
1 file checked (keys and files): no problems.
"""
    )


def test_problems_are_shown_as_compilers_show_them() -> None:
    done = check("bad.yml", "good.yml", "--no-spark", "--no-cluster", code=1)
    assert (
        done.stdout
        == """\
bad.yml:2:25: source raw has no key formatt
    Did you mean format?
bad.yml:4:36: mode cannot be apend
    Did you mean append? It is one of append, update, complete.
good.yml: pipeline good
  source  raw  <- topic pc.logs  (raw)
  sink    out  raw -> topic pc.out  (raw)
2 files checked (keys and files): 2 problems.
"""
    )
    assert done.stderr == ""


def test_problems_for_programs() -> None:
    (one,) = json.loads(check("bad.yml", "--no-spark", "--no-cluster", "--format", "json", code=1).stdout)
    assert (one["file"], one["name"], one["ok"], one["checked"]) == ("bad.yml", None, False, ["file"])
    assert one["problems"][0] == {
        "file": "bad.yml",
        "line": 2,
        "column": 25,
        "severity": "error",
        "what": "source raw has no key formatt",
        "advice": "Did you mean format?",
    }


def test_a_cluster_that_is_not_there() -> None:
    done = check("good.yml", "--no-spark", "-b", UNUSED, code=3)
    assert "Cannot reach a broker at 127.0.0.1:1" in done.stderr
    assert "keys and files): the topics could not be checked" in done.stdout


def test_an_unreachable_cluster_is_reported_before_spark_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{CHECK}.check_sql", lambda *_, **__: note("Starting Spark"))
    said = check("good.yml", "-b", UNUSED, code=3).stderr
    assert said.count("Cannot reach a broker") == 1
    assert said.index("Cannot reach a broker") < said.index("Starting Spark")


def test_problems_of_the_file_are_told_without_a_cluster(directory: Path) -> None:
    (directory / "misfit.yml").write_text(GOOD.replace("from: raw", "from: rwa"))
    done = check("misfit.yml", "--no-spark", "-b", UNUSED, code=1)
    assert "Did you mean raw?" in done.stdout
    assert "Cannot reach" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 2, "Missing argument 'FILE...'"),
        (["none.yml", "--no-cluster"], 4, "There is no file none.yml."),
        (["good.yml", "-b", "host:port"], 2, "not of the form host:port"),
        (["good.yml", "--format", "xml"], 2, "'xml' is not one of"),
    ],
)
def test_wrong_use(arguments: list[str], code: int, said: str) -> None:
    done = check(*arguments, code=code)
    assert said in done.stdout + done.stderr


def test_two_files_of_one_name(directory: Path) -> None:
    (directory / "other.yml").write_text(f"name: good\n{GOOD}")
    first, second = check_files([Path("good.yml"), Path("other.yml")])
    assert first.problems == []
    assert str(second.problems[0]).startswith("other.yml:1:7: good.yml is also a pipeline named good\n")


def test_a_file_named_twice_is_one() -> None:
    assert len(check_files([Path("good.yml"), Path("good.yml")])) == 1


def no_java(*_: object, **__: object) -> NoReturn:
    raise NoJava("Spark needs Java 17 or newer, but none was found")


def no_start(*_: object, log_file: Path, **__: object) -> NoReturn:
    log_file.write_text("Error: could not create the Java Virtual Machine.\n")
    raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})


@pytest.mark.parametrize(
    ("make_session", "said"),
    [
        (no_java, ["Spark needs Java 17 or newer, but none was found.\n  Install one", "JAVA_HOME"]),
        (no_start, ["Spark did not start: [JAVA_GATEWAY_EXITED]", "could not create the Java Virtual Machine"]),
    ],
)
def test_a_spark_that_does_not_start(
    monkeypatch: pytest.MonkeyPatch, make_session: Callable[..., NoReturn], said: list[str]
) -> None:
    monkeypatch.setattr("headrace.spark.pipelines.running.session.make_session", make_session)
    with pytest.raises(CommandError) as raised:
        check_sql(check_files([Path("good.yml")]))
    for part in said:
        assert part in raised.value.format_message()


def test_sql_of_a_file_with_problems_is_not_analysed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.spark.pipelines.running.session.make_session", no_java)
    check_sql(check_files([Path("bad.yml")]))


def test_without_spark_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = sys.modules["importlib.util"].find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "pyspark" else real(name))
    with pytest.raises(CommandError) as raised:
        require_spark()
    assert raised.value.format_message() == (
        "Pipelines need packages that are not installed here: pyspark.\n"
        "  Install them with: pip install 'headrace[spark]'"
    )


def test_ctrl_c_while_java_starts(directory: Path) -> None:
    """PySpark has removed the folder for Java's address by then, so Java would wait there without an end."""
    running = directory / "java.pid"
    make_command(directory / "jdk/bin/java", "")
    (directory / "jdk/release").write_text('JAVA_VERSION="17.0.1"\n')
    script = f"echo $$ > {running}.new; mv {running}.new {running}; exec sleep 600"
    make_command(directory / "spark/bin/spark-submit", script)
    environment = os.environ | {"JAVA_HOME": f"{directory}/jdk", "SPARK_HOME": f"{directory}/spark"}
    command = [sys.executable, "-m", "headrace", "pipeline", "check", "good.yml", "--no-cluster"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as checking:
        while not running.exists():
            assert checking.poll() is None
            time.sleep(0.05)
        checking.send_signal(signal.SIGINT)
        _, said = checking.communicate(timeout=60)
    assert checking.returncode == INTERRUPTED
    assert "Traceback" not in said
    with pytest.raises(ProcessLookupError):
        os.kill(int(running.read_text()), 0)


def make_command(path: Path, script: str) -> None:
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
