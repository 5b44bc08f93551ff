"""When the log of a partition is forced to disk, where its topic asks for more than the page cache (R-LOG-6).

    flush.messages=1   group commit: a batch counts as written, for acks and for readers, once it is on the device.
    flush.messages=N   after N records, and
    flush.ms           so long after a record came: in the background, nobody waits for it.

A group commit has no delay of its own: the first append starts a sync in a thread, what is appended while it runs
gathers, and when it ends everybody it covers is released and the next one begins (partitions share them: see
`sync_rounds`). A sync that fails takes the data directory offline and is not tried again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.env import Env, Timer
from headrace.replication.sync_rounds import SyncOutcome, SyncRounds
from headrace.storage.log import Log
from headrace.storage.log_config import NEVER_MS, LogConfig

if TYPE_CHECKING:
    from headrace.replication.partition import Partition

BEFORE_THE_ACK = 1


class Flusher:
    __slots__ = ("_asked", "_env", "_every_messages", "_every_ms", "_partition", "_rounds", "_timer", "commits")

    def __init__(self, env: Env, rounds: SyncRounds, partition: Partition, config: LogConfig) -> None:
        self._env = env
        self._rounds = rounds
        self._partition = partition
        self._every_messages = config.flush_messages
        self._every_ms = config.flush_ms
        self.commits = config.flush_messages == BEFORE_THE_ACK
        """Whether only what is on the device counts as written."""
        self._asked = False
        """Whether a sync is due or under way."""
        self._timer: Timer | None = None

    @staticmethod
    def is_needed(config: LogConfig) -> bool:
        return config.flush_messages != NEVER_MS or config.flush_ms != NEVER_MS

    @property
    def log(self) -> Log:
        return self._partition.log

    @property
    def _unflushed(self) -> int:
        log = self._partition.log
        return log.end_offset - log.recovery_point

    def appended(self) -> None:
        """Something was appended, or this has just begun to be asked for."""
        unflushed = self._unflushed
        if unflushed >= self._every_messages:
            self._start()
        elif unflushed and self._timer is None and self._every_ms != NEVER_MS:
            self._timer = self._env.clock.call_later(self._every_ms / 1000, self._time_is_up)

    def close(self) -> None:
        """A running sync ends by itself, and its outcome is ignored."""
        if self._timer is not None:
            self._timer.cancel()

    def _time_is_up(self) -> None:
        self._timer = None
        if self._unflushed:
            self._start()

    def _start(self) -> None:
        if not self._asked and self.log.failure is None:
            self._asked = True
            self._rounds.ask(self)

    def synced(self, error: SyncOutcome) -> None:
        self._asked = False
        partition = self._partition
        if partition.flusher is self:
            partition.flushed()
            if error is None:
                self.appended()
