"""Logs as JSON: one object a line, whatever is logged; and the flags and variables that choose it."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

from headrace.cli.broker.logs import JsonFormatter

ANY_PORTS = ("--override", "listeners=PLAINTEXT://127.0.0.1:0", "--override", "headrace.admin.port=0")


def formatted(record: logging.LogRecord) -> dict[str, str]:
    line = JsonFormatter().format(record)
    assert "\n" not in line
    parsed: dict[str, str] = json.loads(line)
    return parsed


def test_an_object_with_the_facts() -> None:
    record = logging.LogRecord("headrace.x", logging.WARNING, "x.py", 1, 'lost "%s"\nand %d', ("a", 2), None)
    record.created, record.msecs = 1_700_000_000.5, 500.0
    assert formatted(record) == {
        "time": "2023-11-14T22:13:20.500Z",
        "level": "WARNING",
        "logger": "headrace.x",
        "message": 'lost "a"\nand 2',
    }


def test_an_exception_is_a_key_of_its_own() -> None:
    try:
        raise ValueError("broken")
    except ValueError:
        record = logging.LogRecord("headrace", logging.ERROR, "x.py", 1, "failed", (), sys.exc_info())
    line = formatted(record)
    assert line["message"] == "failed"
    assert line["exc"].startswith("Traceback")
    assert line["exc"].endswith("ValueError: broken")


def start(data: Path, *flags: str, **environment: str) -> tuple[int, list[str]]:
    """The exit code and the log of a broker that is stopped once it serves, or fails."""
    command = [sys.executable, "-m", "headrace", "start", "--data-dir", str(data), *ANY_PORTS, *flags]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment}
    ) as broker:
        assert broker.stdout is not None
        if broker.stdout.readline():
            broker.terminate()
        _, log = broker.communicate(timeout=120)
    return broker.returncode, log.splitlines()


def test_a_broker_that_logs_json(tmp_path: Path) -> None:
    code, log = start(tmp_path, "--log-format", "json", "--override", "num.io.threads=8")
    assert code == 0
    lines = [json.loads(line) for line in log]
    assert any(line["level"] == "WARNING" and "num.io.threads" in line["message"] for line in lines)
    assert all(line.keys() >= {"time", "level", "logger", "message"} for line in lines)


def test_the_environment_chooses_and_the_level_counts(tmp_path: Path) -> None:
    _, log = start(tmp_path, HEADRACE_LOG_FORMAT="json", HEADRACE_LOG_LEVEL="warning")
    assert not log, "nothing to warn about, also not about the two variables"


def test_a_refusal_to_start_is_json_too(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, log = start(tmp_path / "file", "--log-format", "json")
    assert code == 1
    assert json.loads(log[-1])["level"] == "ERROR"
