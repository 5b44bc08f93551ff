"""The log pipeline as a user runs it: `headrace pipeline run`, its progress read as JSON lines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from examples.demo.broker import DemoFailed
from examples.demo.stopping import stop_process

FILE = Path(__file__).resolve().parent.parent / "pipelines" / "logs" / "pipeline.yml"
STOP_TIMEOUT_S = 300.0


class PipelineProcess:
    def __init__(self, bootstrap: str, directory: Path) -> None:
        self.archive = directory / "archive"
        self._bootstrap = bootstrap
        self._directory = directory
        self._process: subprocess.Popen[str] | None = None
        self.queries: dict[str, dict[str, Any]] = {}
        """The last that was said of each query."""
        self.started_s = 0.0
        self._begin_s = 0.0

    def start(self) -> None:
        self._begin_s = time.monotonic()
        environment = os.environ | {
            "HEADRACE_STATE_DIR": str(self._directory / "state"),
            "LOGS_ARCHIVE": str(self.archive),
        }
        scratch = self._directory / "scratch"
        scratch.mkdir()
        command = [sys.executable, "-m", "headrace", "pipeline", "run", str(FILE), "--format", "jsonl"]
        command += ["--conf", f"spark.local.dir={scratch}"]
        # A run of a minute is too short for Java to compile thoroughly.
        java = f"-Djava.io.tmpdir={scratch} -XX:TieredStopAtLevel=1"
        command += ["--conf", f"spark.driver.extraJavaOptions={java}"]
        with (self._directory / "pipeline.log").open("w") as log:
            self._process = subprocess.Popen(
                [*command, "--bootstrap-server", self._bootstrap],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=log,
                stdin=subprocess.DEVNULL,
                text=True,
                start_new_session=True,
            )
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                row = json.loads(line)
                self.queries[row["query"].partition(".")[2]] = row
                if not self.started_s and row["rows"]:
                    self.started_s = time.monotonic() - self._begin_s

    def check_alive(self) -> None:
        assert self._process is not None
        if self._process.poll() is not None:
            raise DemoFailed(f"the pipeline has ended:\n{(self._directory / 'pipeline.log').read_text()}")

    @property
    def rows(self) -> int:
        """Records that every query has been through: the slowest says how many."""
        return min((int(row["rows"]) for row in self.queries.values()), default=0)

    @property
    def batch_s(self) -> float:
        return max((float(row["batch_seconds"] or 0) for row in self.queries.values()), default=0.0)

    def stop(self) -> tuple[int, float]:
        return stop_process(self._process, STOP_TIMEOUT_S)
