"""Reports the offline partitions of this broker to the cluster, so that others lead them (R-LOG-8)."""

from __future__ import annotations

import asyncio
import logging

from headrace.coordination.contract import Store, StoreError
from headrace.env import Env
from headrace.metadata.registration import report_offline
from headrace.model.topics import TopicId
from headrace.replication.replica_set import ReplicaSet
from headrace.services.full_directories import FullDirectories

RETRY_SECONDS = 0.5

logger = logging.getLogger(__name__)


class OfflineReport:
    def __init__(self, env: Env, store: Store, replicas: ReplicaSet, full: FullDirectories) -> None:
        self._env = env
        self._store = store
        self._replicas = replicas
        self._full = full
        self._told: frozenset[tuple[TopicId, int]] | None = frozenset()
        """The content of the store, or None if that is unknown: a report whose response was lost may be stored."""
        self._session = 0
        """The current session's number: a report that was under way when one ended may be in either."""
        self._telling: asyncio.Task[None] | None = None

    def look(self) -> None:
        """Report the offline partitions if they may have changed."""
        if self._current() != self._told and (self._telling is None or self._telling.done()):
            self._telling = self._env.background.start("Reporting offline partitions", self._tell())

    def tell_again(self) -> None:
        """Report again in a new session: the last report is gone, unless it was made after this session began."""
        self._told = None
        self._session += 1
        self.look()

    def _current(self) -> frozenset[tuple[TopicId, int]]:
        failed = ((topic_id, name.partition) for name, topic_id in self._replicas.offline.items())
        return self._full.given_up.union(failed)

    async def _tell(self) -> None:
        while (current := self._current()) != self._told:
            session, self._told = self._session, None
            try:
                await report_offline(self._store, self._replicas.broker_id, current)
                if session == self._session:
                    self._told = current
            except StoreError as error:
                logger.warning("Offline partitions could not be reported yet: %s", error)
                await self._env.clock.sleep(RETRY_SECONDS)
