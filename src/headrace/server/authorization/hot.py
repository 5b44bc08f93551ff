"""This broker's partitions as one principal may use them: what Produce and Fetch look topics up in.

The hot handlers find their partitions in a `ReplicaSet` by the raw bytes of a topic's name or id. Behind the
gate they are given one that finds only what the principal may write to, or read; for all else it says why, as
it does for a partition that is not here. So the handlers know nothing of rights, and without a gate pay nothing
for them.

Fetch sessions belong to who opened them, and end when the rules change: partitions that a session has found
once are not looked up again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, cast

from headrace.metadata.image import MetadataImage
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import MAX_TOPIC_NAME_LENGTH, TopicId
from headrace.replication.partition import Partition
from headrace.replication.replica_set import ReplicaSet
from headrace.replication.throttle import Side
from headrace.server.authorization.asking import NOT_THIS_TOPIC, refusal
from headrace.services.fetching.sessions import FetchSession, FetchSessions
from headrace.wire.fetch import FetchParameters

if TYPE_CHECKING:
    from headrace.handlers.broker import Broker

MAX_REMEMBERED = 10_000
"""Topics of one principal; then they are looked up again."""

May = Callable[[str], bool]
"""Whether a topic of this name may be used."""
Local = dict[int, Partition]


class PermittedTopics(dict[bytes, Local]):
    """Some of the entries of `by_name` or `by_id`, found as quickly: what was allowed once is kept.

    What is kept may be out of date: a topic that is gone and there again has other partitions. Then it is empty,
    so that the quick handlers find nothing in it and ask again by `get`, which looks and keeps what it finds.
    """

    __slots__ = ("_all", "_decided", "_may", "_name_of")

    def __init__(
        self, everything: Mapping[bytes, Local], name_of: Callable[[bytes], str | None], may: May
    ) -> None:
        super().__init__()
        self._all = everything
        self._name_of = name_of
        self._may = may
        self._decided: dict[bytes, bool] = {}

    def __missing__(self, topic: bytes) -> Local:
        found = self.get(topic)
        if found is None:
            raise KeyError(topic)
        return found

    def get(self, topic: bytes, default: None = None) -> Local | None:  # type: ignore[override]
        allowed = self._decided.get(topic)
        if allowed is None:
            allowed = self.allows(topic)
        found = self._all.get(topic) if allowed else None
        if found is None:
            self.pop(topic, None)
        else:
            self[bytes(topic)] = found
        return found

    def allows(self, topic: bytes) -> bool:
        """A topic that is not known by its id may be asked for: the answer is that it is not known.

        A name that no topic can have is not remembered: who asks for thousands of them would fill the memory.
        """
        name = self._name_of(topic)
        if name is None:
            return True
        if len(topic) > MAX_TOPIC_NAME_LENGTH:
            return self._may(name)
        if len(self._decided) >= MAX_REMEMBERED:
            self._decided.clear()
            self.clear()
        allowed = self._decided[bytes(topic)] = self._may(name)
        return allowed


class PermittedReplicas:
    """What the hot handlers use of a `ReplicaSet`."""

    def __init__(
        self, replicas: ReplicaSet, image: Callable[[], MetadataImage], may: May, code: ErrorCode = NOT_THIS_TOPIC
    ) -> None:
        def name_of(topic_id: bytes) -> str | None:
            known = image().topics_by_id.get(TopicId(topic_id))
            return None if known is None else known.name

        self._replicas = replicas
        self._code = code
        self.may_copy = False
        """Whether it may read as a follower does."""
        self.by_name = PermittedTopics(replicas.by_name, lambda name: bytes(name).decode(errors="replace"), may)
        self.by_id = PermittedTopics(replicas.by_id, name_of, may)

    @property
    def sending_limit(self) -> Side | None:
        return self._replicas.sending_limit

    def why_not_leader(self, topic: bytes, index: int, *, by_id: bool) -> KafkaError:
        topics = self.by_id if by_id else self.by_name
        if not topics.allows(topic):
            return refusal(self._code)
        return self._replicas.why_not_leader(topic, index, by_id=by_id)

    def for_follower(self) -> ReplicaSet:
        """A broker copies whatever it is told to, so it finds everything; but only as a follower."""
        if not self.may_copy:
            raise refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return self._replicas


class OwnSessions:
    """The fetch sessions of one principal, kept among those of all."""

    def __init__(self, sessions: FetchSessions, replicas: PermittedReplicas) -> None:
        self._sessions = sessions
        self._replicas = replicas
        self._own: set[int] = set()
        self.steps = sessions.steps

    def open(self, parameters: FetchParameters, uses_topic_ids: bool) -> FetchSession | None:
        if parameters.replica_id >= 0:
            self._replicas.for_follower()  # a follower's session may take a consumer's place
        session = self._sessions.open(parameters, uses_topic_ids)
        if session is not None:
            self._own = {session_id for session_id in self._own if session_id in self._sessions}
            self._own.add(session.id)
        return session

    def resume(self, parameters: FetchParameters, uses_topic_ids: bool) -> FetchSession:
        if parameters.session_id not in self._own:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        return self._sessions.resume(parameters, uses_topic_ids)

    def close(self, session_id: int) -> None:
        if session_id in self._own:
            self._own.discard(session_id)
            self._sessions.close(session_id)

    def close_all(self) -> None:
        for session_id in self._own:
            self._sessions.close(session_id)
        self._own.clear()


class HotChannel:
    """A connection as a hot handler sees it, behind the gate."""

    __slots__ = ("broker", "client_host", "listener", "principal")

    def __init__(self, broker: Broker, principal: str, client_host: str, listener: str) -> None:
        self.broker = broker
        self.principal = principal
        self.client_host = client_host
        self.listener = listener


def as_replica_set(permitted: PermittedReplicas) -> ReplicaSet:
    """It has all that Produce and Fetch use, and they get it in the place of the whole."""
    return cast(ReplicaSet, permitted)


def as_fetch_sessions(own: OwnSessions) -> FetchSessions:
    return cast(FetchSessions, own)
