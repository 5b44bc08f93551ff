"""Where a running pipeline can be found by other commands: `<state>/pipelines/<name>/`.

    lock        held (flock) for as long as the pipeline runs, so that a crash needs no cleaning up
    run.json    who runs it: process, file, since when; and how far it is, rewritten every few seconds
    stop        there while the pipeline is asked to finish: its sources hand out nothing new
    spark.log   what Spark has to say

The state directory is `HEADRACE_STATE_DIR`, or `headrace` below `XDG_STATE_HOME`, or `~/.local/state/headrace`.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

STATE_VARIABLE = "HEADRACE_STATE_DIR"


class AlreadyRuns(Exception):
    """Another process runs this pipeline."""

    def __init__(self, name: str, pid: int | None) -> None:
        super().__init__(f"pipeline {name} is already running" + (f", as process {pid}" if pid else ""))
        self.name = name
        self.pid = pid


def state_directory() -> Path:
    given = os.environ.get(STATE_VARIABLE)
    if given:
        return Path(given)
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "headrace"


class RunFiles(NamedTuple):
    """The files of one pipeline, running or not."""

    name: str
    directory: Path

    @property
    def log(self) -> Path:
        return self.directory / "spark.log"

    @property
    def stop_request(self) -> Path:
        return self.directory / "stop"

    @property
    def checkpoint(self) -> Path:
        """The checkpoint of the pipeline unless its file names another."""
        return self.directory / "checkpoint"

    def runs(self) -> bool:
        try:
            descriptor = os.open(self.directory / "lock", os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def read(self) -> dict[str, Any]:
        """What the last run wrote; empty when there was none."""
        try:
            found = json.loads((self.directory / "run.json").read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return {}
        return found if isinstance(found, dict) else {}

    def write(self, facts: Mapping[str, Any]) -> None:
        """Write atomically: a reader never sees half of it."""
        fresh = self.directory / "run.json.new"
        fresh.write_text(json.dumps(facts, indent=1))
        fresh.replace(self.directory / "run.json")


class Claim:
    """Holds a pipeline's lock until the block ends."""

    def __init__(self, files: RunFiles) -> None:
        self.files = files
        self._descriptor = -1

    def __enter__(self) -> RunFiles:
        self.files.directory.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.files.directory / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise AlreadyRuns(self.files.name, self.files.read().get("pid")) from None
        self._descriptor = descriptor
        self.files.stop_request.unlink(missing_ok=True)
        return self.files

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.files.stop_request.unlink()
        os.close(self._descriptor)


def run_files(name: str) -> RunFiles:
    return RunFiles(name, state_directory() / "pipelines" / name)


def known_pipelines() -> list[RunFiles]:
    """Every pipeline that has run on this machine under this user."""
    directory = state_directory() / "pipelines"
    if not directory.is_dir():
        return []
    return [RunFiles(one.name, one) for one in sorted(directory.iterdir()) if (one / "lock").exists()]


def sharers(directory: str, name: str) -> dict[str, frozenset[str]]:
    """Other pipelines, with their queries, whose last run kept state in `directory`, as earlier versions did."""
    found: dict[str, frozenset[str]] = {}
    for files in known_pipelines():
        facts = files.read() if files.name != name else {}
        if str(facts.get("checkpoint", "")).rstrip("/") == directory:
            names = [str(query.get("query", "")) for query in facts.get("queries", ())]
            found[files.name] = frozenset(one.removeprefix(f"{files.name}.") for one in names)
    return found
