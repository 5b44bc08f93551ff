"""A cluster of real brokers, each a process of its own, that a test or a drill kills, pauses and starts again.

With the embedded store the brokers share one data directory, as `headrace start --workers` has it; with
`zookeeper` (a connect string) each has a directory of its own, as on machines apart. `launcher` is the module
that is run in place of `headrace`, with its first arguments: drills start brokers with a defect that way.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from headrace.testing.process import BrokerProcess

PATIENCE_SECONDS = 60.0
PRODUCT = ("headrace",)


class ClusterBroker(BrokerProcess):
    def __init__(
        self,
        broker_id: int,
        data: Path,
        overrides: Mapping[str, str],
        root: Path,
        launcher: Sequence[str] = PRODUCT,
    ) -> None:
        super().__init__({"node.id": str(broker_id), "headrace.admin.port": "0", **overrides}, root)
        self.broker_id = broker_id
        self._data = data
        self._launcher = launcher

    @property
    def data_dir(self) -> Path:
        return self._data

    @property
    def own_dir(self) -> Path:
        """What of the data directory is this broker's alone."""
        return self._data / f"broker-{self.broker_id}"

    @property
    def second_dir(self) -> Path:
        """The same of the second data directory, for those that have two."""
        return self._data.with_name(f"{self._data.name}-second") / f"broker-{self.broker_id}"

    def partition_dir(self, topic: str, partition: int) -> Path:
        name = f"{topic}-{partition}"
        return self.second_dir / name if (self.second_dir / name).exists() else self.own_dir / name

    def command(self) -> list[str]:
        command = super().command()
        at = command.index("headrace")
        return [sys.executable, "-m", *self._launcher, *command[at + 1 :]]

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def pause(self) -> None:
        """SIGSTOP: alive for the kernel, dead for everybody else."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)


class ProcessCluster:
    def __init__(
        self,
        brokers: int = 3,
        settings: Mapping[str, str] | None = None,
        zookeeper: str | None = None,
        root: Path | None = None,
        launcher: Sequence[str] = PRODUCT,
        directories: int = 1,
    ) -> None:
        """`directories` is how many data directories each broker has, one or two."""
        self.root = root or Path(tempfile.mkdtemp(prefix="headrace-cluster-"))
        self.brokers: dict[int, ClusterBroker] = {}
        for broker_id in range(1, brokers + 1):
            data = self.root / ("data" if zookeeper is None else f"data-{broker_id}")
            store = {"zookeeper.connect": zookeeper} if zookeeper is not None else {}
            home = self.root / str(broker_id)
            home.mkdir()
            if directories > 1:
                store["log.dirs"] = f"{data},{data}-second"
            overrides = {**store, **(settings or {})}
            self.brokers[broker_id] = ClusterBroker(broker_id, data, overrides, home, launcher)

    def settle(self, places: Sequence[tuple[str, list[str]]]) -> None:
        """Before they start: each broker with an address and what comes before its command (`hosts`)."""
        for broker, (address, prefix) in zip(self.brokers.values(), places, strict=True):
            broker.host, broker.prefix = address, prefix

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def start(self) -> None:
        """Start the brokers that do not run, all at once; they find each other."""
        for broker in self.brokers.values():
            if not broker.running:
                broker.launch()
        for broker in self.brokers.values():
            deadline = time.monotonic() + PATIENCE_SECONDS
            while not broker.is_ready(deadline):
                time.sleep(0.02)

    def close(self) -> None:
        for broker in self.brokers.values():
            if broker.running:
                broker.resume()
            broker.close()
        shutil.rmtree(self.root, ignore_errors=True)

    def stop(self) -> None:
        """All cleanly."""
        for broker in self.brokers.values():
            if broker.running:
                broker.terminate()

    def kill(self) -> None:
        """All at once."""
        for broker in self.brokers.values():
            if broker.running:
                os.kill(broker.pid, signal.SIGKILL)
        for broker in self.brokers.values():
            broker.kill()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def wait_until(holds: Callable[[], bool], what: str, patience_s: float = PATIENCE_SECONDS) -> None:
    deadline = time.monotonic() + patience_s
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {patience_s:g} s")
        time.sleep(0.05)
