"""Looks after the data directories (R-LOG-8): one that failed takes its partitions offline, the last the broker.

Failures are found by whoever reads, writes or syncs, on the loop or in a thread, and only noted there. Here they
are acted on, so that there is one place and one order for it.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.env import Env
from headrace.replication.replica_set import ReplicaSet
from headrace.services.full_directories import FullDirectories
from headrace.services.offline_report import OfflineReport
from headrace.storage.log_directories import LogDirectories
from headrace.storage.log_directory import LogDirectory

WATCH_SECONDS = 0.5
RETRY_EVERY = 10
"""Looks, between two attempts to make the logs for which there was no room."""


class DirectoryWatch:
    def __init__(
        self,
        env: Env,
        directories: LogDirectories,
        replicas: ReplicaSet,
        full: FullDirectories,
        report: OfflineReport,
        on_all_failed: Callable[[str], None],
    ) -> None:
        """`on_all_failed` gets the reason; without a directory a broker can only stop."""
        self._env = env
        self._directories = directories
        self._replicas = replicas
        self._full = full
        self._report = report
        self._on_all_failed = on_all_failed
        self._known: dict[LogDirectory, None] = {}

    async def run(self) -> None:
        """Until cancelled."""
        looks = 0
        while True:
            self.look()
            await self._full.look()
            self._report.look()
            looks += 1
            if looks % RETRY_EVERY == 0:
                self._replicas.retry_offline()
            await self._env.clock.sleep(WATCH_SECONDS)

    def look(self) -> None:
        for directory in self._directories:
            if directory.failure is not None and directory not in self._known:
                self._known[directory] = None
                self._replicas.take_offline(directory)
                if not self._directories.online:
                    self._on_all_failed(f"All data directories are offline; the last one {directory.failure}")
