"""Syncs in rounds: the logs of a data directory that are due go to the device together, as one job of a thread.

To hand a job to a thread and hear of its end costs the loop as much as several syncs, and a thread that wants the
interpreter back takes it from the loop each time. So a partition does not sync by itself: whatever has become due
by the end of a turn of the loop makes up a round, and what comes due while one runs waits for the next. A round is
bounded, so that nobody waits for very many others, and a directory has more than one lane, so that one slow file
does not hold up the rest.

Every file is still synced by itself, and each partition is told how its own sync ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import islice
from typing import Protocol

from headrace.env import Env
from headrace.model.errors import KafkaError
from headrace.storage.log import Log

LANES = 2
LOGS_PER_ROUND = 16

SyncOutcome = KafkaError | None


class Syncing(Protocol):
    """Somebody who wants a log on the device, and who does not ask again before hearing of the end."""

    @property
    def log(self) -> Log: ...

    def synced(self, error: SyncOutcome) -> None: ...


class SyncRounds:
    """The rounds of all data directories: a directory that hangs holds up only its own logs."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self._directories: dict[str, _DirectoryRounds] = {}

    def ask(self, asking: Syncing) -> None:
        """Sync the log soon, up to where it then ends."""
        path = asking.log.directory.rpartition("/")[0]
        directory = self._directories.get(path)
        if directory is None:
            directory = self._directories[path] = _DirectoryRounds(self._env)
        directory.ask(asking)


class _DirectoryRounds:
    def __init__(self, env: Env) -> None:
        self._env = env
        self._due: dict[Syncing, None] = {}
        self._running = 0

    def ask(self, asking: Syncing) -> None:
        if not self._due:
            # After this turn, when others may be due too.
            self._env.clock.call_soon(self._begin)
        self._due[asking] = None

    def _begin(self) -> None:
        while self._due and self._running < LANES:
            members = list(islice(self._due, LOGS_PER_ROUND))
            for member in members:
                del self._due[member]
            _Round(self._env, self, members).start()
            self._running += 1

    def ended(self, unheard: Sequence[Syncing]) -> None:
        """A round is over; those that it did not come to are due again."""
        self._running -= 1
        self._due.update(dict.fromkeys(unheard))
        self._begin()


class _Round:
    def __init__(self, env: Env, directory: _DirectoryRounds, members: list[Syncing]) -> None:
        self._env = env
        self._directory = directory
        self._members = members
        self._outcomes: list[SyncOutcome] = []

    def start(self) -> None:
        self._env.start_blocking(self._work).add_done_callback(self._ended)

    def _work(self) -> None:
        """In a thread."""
        for member in self._members:
            try:
                # The index can wait for the checkpoint: recovery would only look a little further back.
                member.log.flush(save_index=False)
            except KafkaError as error:
                self._outcomes.append(error)
            else:
                self._outcomes.append(None)

    def _ended(self, work: asyncio.Future[None]) -> None:
        if work.cancelled():
            return  # the process ends
        done = len(self._outcomes)
        for member, outcome in zip(self._members, self._outcomes, strict=False):
            try:
                member.synced(outcome)
            except Exception as error:
                self._env.background.fail(f"What follows a sync of {member.log.directory}", error)
        self._directory.ended(self._members[done + 1 :])
        fault = work.exception()
        if fault is not None:  # a bug: whoever waits for that sync would wait forever
            self._env.background.fail(f"Syncing {self._members[done].log.directory}", fault)
