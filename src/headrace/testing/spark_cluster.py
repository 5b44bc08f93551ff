"""A standalone Spark cluster as processes of this machine: a master, and workers that start executors.

It uses only the PySpark package: `spark-class` runs the classes of a real cluster. Everything listens on loopback
addresses, at free ports, and writes below one directory. Workers may have an address each: Spark runs no second
attempt of a task on the host of the first.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from headrace.testing.process import HOST, ServerProcess

WORKERS = 2
CORES = "1"
MEMORY = "700m"
EXECUTOR_MEMORY = "512m"
DAEMON_MEMORY = "128m"
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""These processes live for seconds: compiling well takes longer than it saves."""
WAIT_S = 400.0
POLL_S = 0.05
LOOK_S = 0.25
"""The pause between two checks of results, which take time from Spark."""
EXECUTOR = "CoarseGrainedExecutorBackend"
_BEGUN = re.compile(r"Running (task \S+ in stage \S+) \(TID (\d+)")
_ENDED = re.compile(r"(?:Finished|Exception in|Executor killed) task \S+ in stage \S+ \(TID (\d+)")


class SparkDaemon(ServerProcess):
    """One process of the cluster; `java` is JAVA_HOME."""

    def __init__(self, java: str, root: Path, host: str = HOST) -> None:
        root.mkdir(parents=True)
        super().__init__(root=root)
        self.java = java
        self._host = host

    def environment(self) -> dict[str, str]:
        quick = os.environ.get("SPARK_SUBMIT_OPTS", "")
        daemon = {"SPARK_DAEMON_MEMORY": DAEMON_MEMORY, "SPARK_DAEMON_JAVA_OPTS": quick}
        return cluster_environment(self.java, self.root) | daemon | {"SPARK_LOCAL_IP": self._host}

    def spark_class(self, name: str, *arguments: str) -> list[str]:
        from pyspark.find_spark_home import _find_spark_home

        command = [f"{_find_spark_home()}/bin/spark-class", f"org.apache.spark.deploy.{name}"]
        return [*command, "--host", self._host, "--webui-port", "0", *arguments]


class SparkMaster(SparkDaemon):
    name = "spark-master"

    @property
    def url(self) -> str:
        return f"spark://{HOST}:{self.port}"

    def command(self) -> list[str]:
        return self.spark_class("master.Master", "--port", str(self.port))


class SparkWorker(SparkDaemon):
    name = "spark-worker"

    def __init__(self, java: str, root: Path, master: str, host: str = HOST) -> None:
        super().__init__(java, root, host)
        self._master = master

    def command(self) -> list[str]:
        settings = ["--cores", CORES, "--memory", MEMORY, "--work-dir", str(self.root / "applications")]
        return self.spark_class("worker.Worker", "--port", str(self.port), *settings, self._master)

    def _serves(self) -> bool:
        return "Successfully registered with master" in self.log_text()

    def executors(self) -> list[int]:
        return [pid for pid in children(self.pid) if EXECUTOR in command_of(pid)]

    def executor_logs(self) -> list[Path]:
        """The logs of all executors that ran here, the newest last."""
        found = (self.root / "applications").glob("app-*/*/stderr")
        return sorted(found, key=lambda log: log.stat().st_ctime_ns)


class SparkCluster:
    """The cluster in a `with` block, with a worker on each host; leaving it ends every process, executors too."""

    def __init__(self, java: str, root: Path, hosts: Sequence[str] = (HOST,) * WORKERS) -> None:
        self.master = SparkMaster(java, root / "master")
        self.workers = [
            SparkWorker(java, root / f"worker-{number}", self.master.url, host)
            for number, host in enumerate(hosts, start=1)
        ]

    @property
    def url(self) -> str:
        return self.master.url

    def executors(self) -> list[int]:
        return [pid for worker in self.workers for pid in worker.executors()]

    def __enter__(self) -> Self:
        try:
            self.master.start(WAIT_S)
            for worker in self.workers:
                worker.launch()
            deadline_s = time.monotonic() + WAIT_S
            for worker in self.workers:
                while not worker.is_ready(deadline_s):
                    time.sleep(POLL_S)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        executors = [pid for worker in self.workers if worker.exit_code() is None for pid in self._of(worker)]
        for worker in self.workers:
            if self._is_up(worker):
                worker.terminate()
        for pid in executors:  # a worker takes its executors with it; one that it left would outlive the tests
            if EXECUTOR in command_of(pid):
                os.kill(pid, signal.SIGKILL)
        self.master.kill()

    @staticmethod
    def _is_up(worker: SparkWorker) -> bool:
        return worker._process is not None and worker.exit_code() is None

    def _of(self, worker: SparkWorker) -> list[int]:
        return worker.executors() if self._is_up(worker) else []


def cluster_environment(java: str, scratch: Path) -> dict[str, str]:
    """The environment for everything that belongs to the cluster, the driver too."""
    return os.environ | {
        "JAVA_HOME": java,
        "SPARK_LOCAL_IP": HOST,
        "SPARK_LOCAL_DIRS": str(scratch / "scratch"),
        "JAVA_TOOL_OPTIONS": QUICK_JAVA,
    }


def children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for file in found for child in _text(file).split()]


def descendants(pid: int) -> Iterator[int]:
    for child in children(pid):
        yield child
        yield from descendants(child)


def command_of(pid: int) -> str:
    """The command line of a process; empty if it no longer exists."""
    return _text(Path(f"/proc/{pid}/cmdline")).replace("\0", " ")


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def tasks_in_hand(log: Path) -> list[str]:
    """Tasks that an executor has started and not finished, according to its log."""
    text = _text(log)
    ended = set(_ENDED.findall(text))
    return [task for task, number in _BEGUN.findall(text) if number not in ended]


def kill_in_the_middle_of_a_task(worker: SparkWorker) -> list[str]:
    """Kill the executor of a worker with kill -9 during a task; returns its tasks. It is stopped while we look."""
    deadline_s = time.monotonic() + WAIT_S
    while time.monotonic() < deadline_s:
        for pid in worker.executors():
            os.kill(pid, signal.SIGSTOP)
            tasks = tasks_in_hand(worker.executor_logs()[-1])
            os.kill(pid, signal.SIGKILL if tasks else signal.SIGCONT)
            if tasks:
                return tasks
        time.sleep(POLL_S)
    raise AssertionError(f"no task ran within {WAIT_S:.0f} s\n{worker.log_tail()}")


def wait_for(what: str, reached: Callable[[], bool], told: Callable[[], str] = str) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not reached():
        assert time.monotonic() < deadline_s, f"{what} did not come within {WAIT_S:.0f} s\n{told()}"
        time.sleep(LOOK_S)
