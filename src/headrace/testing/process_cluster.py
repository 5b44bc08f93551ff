"""A cluster of real brokers, each a process of its own, that a test or a drill kills, pauses and starts again.

With the embedded store the brokers share one data directory, as `headrace start --workers` has it; with
`zookeeper` (a connect string) each has a directory of its own, as on machines apart.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from headrace.testing.process import BrokerProcess

PATIENCE_SECONDS = 60.0


class ClusterBroker(BrokerProcess):
    def __init__(self, broker_id: int, data: Path, overrides: Mapping[str, str], root: Path) -> None:
        super().__init__({"node.id": str(broker_id), "headrace.admin.port": "0", **overrides}, root)
        self.broker_id = broker_id
        self._data = data

    @property
    def data_dir(self) -> Path:
        return self._data

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
    ) -> None:
        self.root = root or Path(tempfile.mkdtemp(prefix="headrace-cluster-"))
        self.brokers: dict[int, ClusterBroker] = {}
        for broker_id in range(1, brokers + 1):
            data = self.root / ("data" if zookeeper is None else f"data-{broker_id}")
            store = {"zookeeper.connect": zookeeper} if zookeeper is not None else {}
            home = self.root / str(broker_id)
            home.mkdir()
            self.brokers[broker_id] = ClusterBroker(broker_id, data, {**store, **(settings or {})}, home)

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def start(self) -> None:
        """All at once; they find each other."""
        for broker in self.brokers.values():
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

    def replica_bytes(self, broker_id: int, topic: str, partition: int) -> bytes:
        """Every byte of a replica's log, of a cluster that is stopped."""
        directory = self.brokers[broker_id].data_dir / f"broker-{broker_id}" / f"{topic}-{partition}"
        return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))

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
