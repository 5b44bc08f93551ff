"""Incremental fetch sessions (KIP-227): a client names its partitions once and then only what changed.

A session keeps, per partition, what the client wants and what it was last told, and it keeps the set of those that
may have news: whatever a request names, and whatever a partition says of itself since. A poll looks at that set
alone, so a partition where nothing happens costs nothing, however many there are.

Sessions are few and bounded; when there is no room the longest idle one makes way if it has been idle long enough,
else the client gets none and sends full requests.
"""

from __future__ import annotations

from headrace.env import Env
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.limits import MAX_WATCHED_PARTITIONS
from headrace.replication.partition import Partition
from headrace.replication.waiters import Waiter
from headrace.services.fetching.steps import StepQueue
from headrace.wire.fetch import CONSUMER_REPLICA_ID, FetchParameters, FetchWant

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
NEVER = float("-inf")
_MAX_EPOCH = 2**31 - 1
_EVICTION_IDLE_SECONDS = 120.0


class Watched:
    """One partition in a fetch: what the client wants, and what it was last told."""

    __slots__ = (
        "index",
        "last_epoch",
        "leader_epoch",
        "log_start",
        "max_bytes",
        "offset",
        "partition",
        "sent_high_watermark",
        "sent_log_start",
        "session",
        "topic",
    )

    def __init__(self, want: FetchWant, session: FetchSession | None = None) -> None:
        self.topic, self.index, self.leader_epoch, self.offset, self.last_epoch, self.max_bytes, self.log_start = (
            want
        )
        self.session = session
        self.partition: Partition | None = None
        self.sent_high_watermark = -1
        self.sent_log_start = -1

    def update(self, want: FetchWant) -> None:
        before = self.offset
        _, _, self.leader_epoch, self.offset, self.last_epoch, self.max_bytes, self.log_start = want
        if self.offset <= before:
            self.sent_high_watermark = -1  # sent again: the client may have dropped what it was told before

    def attach(self, partition: Partition | None) -> None:
        """Read from this partition from now on; None for no partition."""
        self._deafen()
        self.partition = partition
        if self.session is not None and self.session.polls:
            self.listen()

    def listen(self) -> None:
        """In a session: wait for the partition's changes, until one is noted for which no poll waits.

        So an abandoned session costs a partition one call, not one for each append.
        """
        session, partition = self.session, self.partition
        if session is None or partition is None:
            return
        if session.replica_id == CONSUMER_REPLICA_ID:
            partition.waiters[self] = None
            return
        for other in list(partition.end_waiters):
            # A follower that returns has left its former session behind.
            if isinstance(other, Watched) and other.session is not session and other.is_of(session.replica_id):
                del partition.end_waiters[other]
        partition.end_waiters[self] = None

    def is_of(self, replica_id: int) -> bool:
        return self.session is not None and self.session.replica_id == replica_id

    def _deafen(self) -> None:
        if self.session is not None and self.partition is not None:
            self.partition.waiters.pop(self, None)
            self.partition.end_waiters.pop(self, None)

    def wake(self) -> None:
        """The partition has news: the session's next poll looks at it, and a waiting poll does so now."""
        session, partition = self.session, self.partition
        if session is not None and partition is not None:
            session.changed[self] = None
            if session.polls:
                partition.wakes.wake(session.polls)
            else:
                self._deafen()

    def noted(self) -> None:
        """The partition has news that can wait for the next answer."""
        if self.session is not None:
            self.session.changed[self] = None

    def failed(self, error: Exception) -> None:
        raise error  # notes only, which cannot fail


Watchlist = dict[tuple[bytes, int], Watched]


class FetchSession:
    __slots__ = (
        "_answered",
        "changed",
        "epoch",
        "followed_at",
        "id",
        "last_used",
        "polls",
        "replica_id",
        "uses_topic_ids",
        "watchlist",
    )

    def __init__(self, session_id: int, uses_topic_ids: bool, parameters: FetchParameters, now: float) -> None:
        self.id = session_id
        self.epoch = 1
        self.uses_topic_ids = uses_topic_ids
        self.replica_id = max(parameters.replica_id, CONSUMER_REPLICA_ID)
        """The broker id of a follower; -1 for a consumer."""
        self.watchlist: Watchlist = {want[:2]: Watched(want, self) for want in parameters.wants}
        self.changed: dict[Watched, None] = dict.fromkeys(self.watchlist.values())
        """The partitions that may have news, in the order in which they take their turns."""
        self.polls: dict[Waiter, None] = {}
        """Polls of this session that wait for news."""
        self.last_used = now
        self._answered = (NEVER, NEVER)
        """When the last two polls were answered, the older one first."""
        self.followed_at = NEVER
        """For a follower, the last time at which it certainly still fetched here. A poll proves nothing by its
        arrival, since it may have been under way for as long as a network was cut. But it was sent after all
        answers but one had arrived."""

    def answered(self, now: float) -> None:
        """Note that a response is sent now."""
        self._answered = (self._answered[1], now)

    def polled(self, now: float) -> None:
        self.last_used = now
        self.followed_at = self._answered[0]

    def change(self, parameters: FetchParameters) -> None:
        """Apply what a request adds, changes and forgets."""
        for want in parameters.wants:
            key = want[:2]
            known = self.watchlist.get(key)
            if known is None:
                known = self.watchlist[key] = Watched(want, self)
            else:
                known.update(want)
            self.changed[known] = None
        for key in parameters.forgotten:
            self._forget(self.watchlist.pop(key, None))

    def settle(self, watched: Watched) -> None:
        """Note that the client is up to date: look again when the partition has news."""
        self.changed.pop(watched, None)
        watched.listen()

    def wait(self, poll: Waiter) -> None:
        """Let a poll wait for news of any partition."""
        self.polls[poll] = None
        for watched in self.changed:
            watched.listen()

    def close(self) -> None:
        self.polls.clear()
        for watched in self.watchlist.values():
            self._forget(watched)

    def _forget(self, watched: Watched | None) -> None:
        if watched is not None:
            if watched.partition is not None and self.replica_id != CONSUMER_REPLICA_ID:
                watched.partition.follower_left(self.replica_id, self)
            watched.attach(None)
            self.changed.pop(watched, None)


class FetchSessions:
    def __init__(self, env: Env, slots: int) -> None:
        self._env = env
        self._slots = slots
        self._sessions: dict[int, FetchSession] = {}
        """The sessions, least recently used first."""
        self._watched = 0
        """The number of partitions in all sessions."""
        self.steps = StepQueue(env.clock)
        """The queue in which fetches of very many partitions, with a session or without, take turns."""

    def __len__(self) -> int:
        return len(self._sessions)

    def __contains__(self, session_id: int) -> bool:
        return session_id in self._sessions

    def open(self, parameters: FetchParameters, uses_topic_ids: bool) -> FetchSession | None:
        """A new session over the partitions of a full request; None if there is no room for it."""
        now = self._env.clock.monotonic()
        is_follower = parameters.replica_id >= 0
        if len(self._sessions) >= self._slots and not self._evict(now, is_follower):
            return None
        if self._watched + len(parameters.wants) > MAX_WATCHED_PARTITIONS:
            return None
        session_id = self._new_id()
        session = FetchSession(session_id, uses_topic_ids, parameters, now)
        self._sessions[session_id] = session
        self._watched += len(session.watchlist)
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
        session.polled(self._env.clock.monotonic())
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
            session.close()

    def _evict(self, now: float, for_follower: bool) -> bool:
        """Make room: a consumer's session that has been idle for long; for a follower, any consumer's."""
        for session in self._sessions.values():
            idle = now - session.last_used
            if idle >= _EVICTION_IDLE_SECONDS or (for_follower and session.replica_id == CONSUMER_REPLICA_ID):
                self.close(session.id)
                return True
            if not for_follower:
                return False  # the others were used later
        return False

    def _new_id(self) -> int:
        while True:
            session_id = self._env.rng.randrange(2**31 - 1) + 1
            if session_id not in self._sessions:
                return session_id
