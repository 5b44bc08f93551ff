"""Incremental fetch sessions (KIP-227): a client names its partitions once and then only what changed.

A session keeps, per partition, what the client wants and what it was last told. Sessions are few and bounded;
when there is no room the longest idle one makes way if it has been idle long enough, else the client gets none
and sends full requests.
"""

from __future__ import annotations

from headrace.env import Env
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.limits import MAX_WATCHED_PARTITIONS
from headrace.replication.partition import Partition
from headrace.wire.fetch import FetchParameters, FetchWant

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_MAX_EPOCH = 2**31 - 1
_EVICTION_IDLE_SECONDS = 120.0


class Watched:
    """One partition in a fetch: what is wanted, and what the client was last told."""

    __slots__ = (
        "index",
        "leader_epoch",
        "max_bytes",
        "offset",
        "partition",
        "sent_high_watermark",
        "sent_log_start",
        "topic",
    )

    def __init__(self, want: FetchWant) -> None:
        self.topic, self.index, self.leader_epoch, self.offset, _, self.max_bytes = want
        self.partition: Partition | None = None
        self.sent_high_watermark = -1
        self.sent_log_start = -1

    def update(self, want: FetchWant) -> None:
        _, _, self.leader_epoch, self.offset, _, self.max_bytes = want


Watchlist = dict[tuple[bytes, int], Watched]


class FetchSession:
    __slots__ = ("epoch", "id", "last_used", "uses_topic_ids", "watchlist")

    def __init__(self, session_id: int, uses_topic_ids: bool, watchlist: Watchlist, now: float) -> None:
        self.id = session_id
        self.epoch = 1
        self.uses_topic_ids = uses_topic_ids
        self.watchlist = watchlist
        self.last_used = now

    def change(self, parameters: FetchParameters) -> None:
        """Take over what a request adds, changes and forgets."""
        for want in parameters.wants:
            key = want[:2]
            known = self.watchlist.get(key)
            if known is None:
                self.watchlist[key] = Watched(want)
            else:
                known.update(want)
        for key in parameters.forgotten:
            self.watchlist.pop(key, None)

    def move_to_end(self, watched: Watched) -> None:
        """Those that gave data go last, so that a size limit starves nobody."""
        key = (watched.topic, watched.index)
        if self.watchlist.pop(key, None) is not None:
            self.watchlist[key] = watched


class FetchSessions:
    def __init__(self, env: Env, slots: int) -> None:
        self._env = env
        self._slots = slots
        self._sessions: dict[int, FetchSession] = {}
        """Least recently used first."""
        self._watched = 0
        """Partitions in all of them."""

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, parameters: FetchParameters, uses_topic_ids: bool) -> FetchSession | None:
        """A new session over the partitions of a full request; None if there is no room for it."""
        now = self._env.clock.monotonic()
        if len(self._sessions) >= self._slots and not self._evict(now):
            return None
        if self._watched + len(parameters.wants) > MAX_WATCHED_PARTITIONS:
            return None
        session_id = self._new_id()
        watchlist = {want[:2]: Watched(want) for want in parameters.wants}
        session = FetchSession(session_id, uses_topic_ids, watchlist, now)
        self._sessions[session_id] = session
        self._watched += len(watchlist)
        return session

    def resume(self, parameters: FetchParameters, uses_topic_ids: bool) -> FetchSession:
        """The session of an incremental request, moved on to its next epoch and changed as asked."""
        session = self._sessions.pop(parameters.session_id, None)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        self._sessions[session.id] = session
        if session.epoch != parameters.session_epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.epoch = session.epoch + 1 if session.epoch < _MAX_EPOCH else 1
        session.last_used = self._env.clock.monotonic()
        if parameters.wants or parameters.forgotten:
            before = len(session.watchlist)
            session.change(parameters)
            self._watched += len(session.watchlist) - before
            if self._watched > MAX_WATCHED_PARTITIONS:
                self.close(session.id)
                raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        return session

    def close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._watched -= len(session.watchlist)

    def _evict(self, now: float) -> bool:
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None or now - oldest.last_used < _EVICTION_IDLE_SECONDS:
            return False
        self.close(oldest.id)
        return True

    def _new_id(self) -> int:
        while True:
            session_id = self._env.rng.randrange(2**31 - 1) + 1
            if session_id not in self._sessions:
                return session_id
