"""`headrace pipeline submit`: the line for spark-submit, and that signals reach the driver behind it."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headrace.cli.pipeline import submitted
from headrace.cli.pipeline.submit import passing_on
from tests.unit.cli.command_line import Done, headrace

GOOD = "sources:\n  raw: {topic: logs}\nsinks:\n  out: {from: raw, topic: out, format: raw}\n"
SPARK = "spark: {master: 'spark://file:7077', conf: {spark.executor.cores: 2, spark.executor.memory: 1g}}\n"
TIMEOUT_S = 60
DRIVER_PYTHON = ("--conf", f"spark.pyspark.driver.python={sys.executable}")


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("SPARK_HOME", "PYSPARK_PYTHON", "HEADRACE_BOOTSTRAP_SERVERS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HEADRACE_STATE_DIR", str(tmp_path / "state"))
    java = tmp_path / "java"
    (java / "bin").mkdir(parents=True)
    (java / "bin" / "java").touch()
    (java / "release").write_text('JAVA_VERSION="17.0.1"\n')
    monkeypatch.setenv("JAVA_HOME", str(java))
    (tmp_path / "one.yml").write_text(GOOD)
    (tmp_path / "two.yml").write_text(SPARK + GOOD)
    return tmp_path


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "headrace", "pipeline", "submit", *arguments]


def run(*arguments: str, code: int = 0) -> Done:
    done = headrace("pipeline", "submit", *arguments)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


def dry_run(*arguments: str) -> tuple[dict[str, str], list[str]]:
    """The variables before the command, and the command."""
    words = shlex.split(run(*arguments[:1], "--dry-run", *arguments[1:]).stdout)
    begin = next(at for at, word in enumerate(words) if word.endswith("bin/spark-submit"))
    variables = [word.partition("=") for word in words[:begin]]
    return {name: value for name, _, value in variables}, words[begin:]


def fake_spark(directory: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    file = directory / "spark" / "bin" / "spark-submit"
    file.parent.mkdir(parents=True)
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    monkeypatch.setenv("SPARK_HOME", str(directory / "spark"))


def test_the_line_is_that_of_the_installed_spark(directory: Path) -> None:
    variables, line = dry_run("one.yml", "--master", "spark://host:7077", "--once", "-b", "broker:9092")
    assert variables == {
        "JAVA_HOME": str(directory / "java"),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    assert line[0].endswith("pyspark/bin/spark-submit")
    assert Path(line[0]).is_file()
    spark = ["--master", "spark://host:7077", "--name", "one", *DRIVER_PYTHON]
    assert line[1:] == [*spark, submitted.__file__, "one.yml", "--once", "--bootstrap-server", "broker:9092"]


def test_what_the_file_sets_comes_first_so_that_the_line_wins() -> None:
    options = ["--conf", "spark.executor.memory=2g", "--", "--executor-memory", "3g", "--py-files", "x.whl"]
    _, line = dry_run("two.yml", *options)
    script = line.index(submitted.__file__)
    assert line[1:script] == [
        *("--master", "spark://file:7077", "--name", "two", *DRIVER_PYTHON),
        *("--conf", "spark.executor.cores=2", "--conf", "spark.executor.memory=2g"),
        *("--executor-memory", "3g", "--py-files", "x.whl"),
    ]
    assert line[script + 1 :] == ["two.yml"]


def test_every_option_of_run_reaches_the_driver() -> None:
    given = [
        "--schedule",
        "10m",
        "--checkpoint",
        "s3a://bucket/x",
        "--metrics-port",
        "9",
        "--format",
        "jsonl",
        "-q",
    ]
    _, line = dry_run("one.yml", *given)
    assert line[line.index(submitted.__file__) + 1 :] == [
        *("one.yml", "--quiet", "--schedule", "600s", "--checkpoint", "s3a://bucket/x"),
        *("--metrics-port", "9", "--format", "jsonl"),
    ]


def test_the_python_of_the_workers_can_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python3.11")
    variables, line = dry_run("one.yml")
    assert variables["PYSPARK_PYTHON"] == variables["PYSPARK_DRIVER_PYTHON"] == "/opt/python3.11"
    assert f"spark.pyspark.driver.python={sys.executable}" in line


def test_packages_that_travel_are_found_beside_the_driver_too(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark plans our source and sink in processes that --py-files alone does not reach."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    variables, _ = dry_run("one.yml", "--", "--py-files", "a.zip,s3a://x/b.zip, steps.py", "--py-files=/c/d.whl")
    assert variables["PYTHONPATH"].split(":") == ["/c/d.whl", str(directory / "a.zip")]
    monkeypatch.setenv("PYTHONPATH", str(directory))
    variables, _ = dry_run("one.yml", "--", "--py-files", "a.zip")
    assert variables["PYTHONPATH"] == f"{directory / 'a.zip'}:{directory}"
    assert "PYTHONPATH" not in dry_run("one.yml")[0]


def test_mistakes_are_told_before_anything_starts(directory: Path) -> None:
    (directory / "bad.yml").write_text(GOOD.replace("topic: logs", "topik: logs"))
    assert "bad.yml:2:9: source raw has no key topik" in run("bad.yml", code=1).stderr
    assert "cannot be combined" in run("one.yml", "--once", "--schedule", "1m", code=2).stderr
    assert "exactly one FILE" in run("one.yml", "two.yml", "--checkpoint", "x", code=2).stderr


def test_its_exit_code_is_that_of_the_driver(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    says = f'echo 1 > "${submitted.DRIVER_VARIABLE}"; echo "a line of log" >&2; exit 3'
    fake_spark(directory, monkeypatch, says)
    done = run("one.yml", code=3)
    assert "a line of log" not in done.stderr
    assert "a line of log" in (directory / "state" / "pipelines" / "one" / "spark.log").read_text()


def test_what_spark_submit_says_is_shown_when_the_driver_never_began(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_spark(directory, monkeypatch, 'echo "Error: Unrecognized option: --oops" >&2; exit 1')
    done = run("one.yml", "--", "--oops", code=1)
    assert "spark-submit ended before the pipeline began.\n  Error: Unrecognized option: --oops" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_goes_to_the_driver_and_not_to_java(
    directory: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """Java would end at once, in the middle of a batch."""
    driver = (
        "import os, signal, sys, pathlib\n"
        f"signal.signal({int(number)}, lambda *_: (pathlib.Path('stopped').touch(), sys.exit(0)))\n"
        f"pathlib.Path(os.environ['{submitted.DRIVER_VARIABLE}']).write_text(str(os.getpid()))\n"
        "pathlib.Path('ready').touch()\n"
        "signal.pause()\n"
    )
    (directory / "driver.py").write_text(driver)
    trap = 'trap "touch java-was-told" TERM INT'
    fake_spark(directory, monkeypatch, f"{trap}; {sys.executable} driver.py & wait $!")
    process = subprocess.Popen(command("one.yml"), stdin=subprocess.DEVNULL)
    try:
        await_file(directory / "ready")
        process.send_signal(number)
        assert process.wait(TIMEOUT_S) == 0
    finally:
        process.kill()
    assert (directory / "stopped").exists()
    assert not (directory / "java-was-told").exists()


def test_before_the_driver_is_there_java_is_ended(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_spark(directory, monkeypatch, "echo $$ > process; exec sleep 60")
    process = subprocess.Popen(command("one.yml"), stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        await_file(directory / "process")
        process.terminate()
        assert process.wait(TIMEOUT_S) == 128 + signal.SIGTERM
    finally:
        process.kill()
    with pytest.raises(ProcessLookupError):
        os.kill(int((directory / "process").read_text()), 0)


def test_a_signal_while_java_is_being_started_reaches_it(directory: Path) -> None:
    with passing_on(directory / "driver") as started:
        signal.raise_signal(signal.SIGTERM)
        with subprocess.Popen(["sleep", "60"]) as java:
            started(java.pid)
            assert java.wait(TIMEOUT_S) == -signal.SIGTERM


def await_file(file: Path) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not (file.exists() and (file.name == "ready" or file.read_text().strip())):
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
