"""One Fetch from its request to its answer: what is read, what of it is news, and how it is laid out.

A full request answers for every partition it names. An incremental one looks only at those of its session that may
have news, and answers for those that have. A plan with very many partitions is worked off in steps
(`steps`), so that nobody else waits for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple, Protocol

from headrace.env import Env
from headrace.metadata.cluster import ClusterMetadata
from headrace.model.errors import ErrorCode, KafkaError
from headrace.replication.leadership import SingleFetch
from headrace.replication.nearest import nearest_replica
from headrace.replication.partition import COMMITTED, REPLICA, UNCOMMITTED, Partition
from headrace.replication.replica_set import ReplicaSet
from headrace.replication.throttle import Side
from headrace.services.fetching.sessions import NO_SESSION, FetchSession, FetchSessions, Watched
from headrace.services.leader_hints import leader_elsewhere
from headrace.services.reply import Body, Piece
from headrace.storage.files import FileRange
from headrace.wire.fetch import (
    FLEXIBLE,
    LEADER_HINTS,
    NO_REPLICA,
    NO_TAGS,
    ONE_PARTITION_TAIL,
    READ_COMMITTED,
    TOPIC_IDS,
    AbortedRow,
    FetchParameters,
    diverging_tag,
    encode_one_partition,
    tags_after,
    topic_echo,
    write_partition_head,
    write_response_head,
    write_topic_head,
)
from headrace.wire.leader_hints import LeaderHint, endpoints_tag, leader_tag

LEADER_IS_ELSEWHERE = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
FOLLOWER_READS = 11
"""From this version on consumers read from followers too (KIP-392)."""
STORAGE_ERROR_SINCE = 6
"""Older clients give up at KAFKA_STORAGE_ERROR; at NOT_LEADER_OR_FOLLOWER they look for another leader."""
STEP_PARTITIONS = 1_000
"""Partitions that are read in one turn of the loop: some milliseconds."""

PartitionAnswer = tuple[Watched, tuple[int, int, int, int, int], FileRange | None, "Aside | None"]
"""A partition, (index, error, high watermark, last stable offset, log start), its data, and the rare fields."""


class Aside(NamedTuple):
    preferred_replica: int = NO_REPLICA
    tags: bytes = NO_TAGS
    aborted: Sequence[AbortedRow] = ()
    """Aborted transactions whose records a reader of committed records must skip."""


HELD_BACK = Aside()
"""The answer for a follower whose copying is limited: nothing for now."""


class FetchBroker(Protocol):
    """The broker as a plan needs it."""

    @property
    def id(self) -> int: ...
    @property
    def env(self) -> Env: ...
    @property
    def replicas(self) -> ReplicaSet: ...
    @property
    def metadata(self) -> ClusterMetadata: ...
    @property
    def fetch_sessions(self) -> FetchSessions: ...
    @property
    def fetch_max_bytes(self) -> int: ...


class Readings:
    """The results so far: answers, bytes of data, bytes left, and whether an error must be reported at once."""

    __slots__ = ("answers", "final", "left", "size")

    def __init__(self, left: int) -> None:
        self.answers: list[PartitionAnswer] = []
        self.size = 0
        self.left = left
        self.final = False


class FetchPlan:
    __slots__ = (
        "_by_topic",
        "_listener",
        "_rack",
        "_replicas",
        "_serves_from_followers",
        "_watched",
        "broker",
        "committed",
        "hints",
        "parameters",
        "reader",
        "session",
        "version",
    )

    def __init__(
        self,
        broker: FetchBroker,
        parameters: FetchParameters,
        version: int,
        session: FetchSession | None,
        watched: list[Watched] | None = None,
        listener: str = "",
    ) -> None:
        """`watched` are the partitions of a full request; without them only the news of the session is reported.

        `listener` is the one that the request came in on: other leaders are named by their addresses there.
        """
        self.broker = broker
        self._listener = listener
        self.hints: list[LeaderHint] = []
        self.parameters = parameters
        self.version = version
        self.session = session
        self._watched = watched
        self.committed = parameters.isolation == READ_COMMITTED
        replicas = broker.replicas
        if parameters.replica_id >= 0:
            replicas = replicas.for_follower()
            self.reader = REPLICA
        else:
            self.reader = COMMITTED if self.committed else UNCOMMITTED
        self._rack = parameters.rack
        self._serves_from_followers = version >= FOLLOWER_READS and self.reader != REPLICA
        self._replicas = replicas
        self._by_topic = replicas.by_id if version >= TOPIC_IDS else replicas.by_name

    @property
    def full(self) -> bool:
        """Whether every partition is answered, not only those with news."""
        return self._watched is not None

    def _due(self) -> Iterable[Watched]:
        if self._watched is not None:
            return self._watched
        assert self.session is not None
        return list(self.session.changed)

    @property
    def is_large(self) -> bool:
        watched = self._watched if self._watched is not None else self.session.changed  # type: ignore[union-attr]
        return len(watched) > STEP_PARTITIONS

    @property
    def has_partitions(self) -> bool:
        """Whether there are partitions to wait for."""
        return bool(self._watched) if self.session is None else bool(self.session.watchlist)

    def partitions(self) -> Iterable[Partition]:
        """The partitions of a full request that were found."""
        return [watched.partition for watched in self._watched or () if watched.partition is not None]

    # -- reading

    def read(self) -> tuple[list[PartitionAnswer], int, bool]:
        """The results so far, bytes of data, and whether an error must be reported at once."""
        readings = self._begin()
        self._read_into(readings, self._due())
        return readings.answers, readings.size, readings.final

    def _begin(self) -> Readings:
        return Readings(min(self.parameters.max_bytes, self.broker.fetch_max_bytes))

    def _read_into(self, readings: Readings, due: Iterable[Watched]) -> None:
        for watched in due:
            try:
                answer = self._read_partition(watched, readings.left, at_least_one=readings.size == 0)
            except KafkaError as error:
                code = error.code
                if code is ErrorCode.KAFKA_STORAGE_ERROR and self.version < STORAGE_ERROR_SINCE:
                    code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                failure = (watched.index, code, -1, -1, -1)
                readings.answers.append((watched, failure, None, self._hint(watched, code)))
                readings.final = True
                continue
            data = answer[2]
            if data is not None:
                size = data[2]  # by index: the fields of a named tuple are slow
                readings.size += size
                readings.left -= size
            elif self._watched is None and readings.left > 0 and not self._is_news(answer):
                # Any later change there puts it back.
                assert self.session is not None
                self.session.settle(watched)
                continue
            readings.answers.append(answer)

    def _hint(self, watched: Watched, code: ErrorCode) -> Aside | None:
        if code not in LEADER_IS_ELSEWHERE or self.version < LEADER_HINTS or self.reader == REPLICA:
            return None
        hint = leader_elsewhere(self.broker, self._listener, watched.topic, watched.index, by_id=True)
        if hint is None:
            return None
        self.hints.append(hint)
        return Aside(tags=leader_tag(1, hint))

    def _read_partition(self, watched: Watched, left: int, at_least_one: bool) -> PartitionAnswer:
        partition = watched.partition
        if partition is None or not partition.is_leader:
            partition = self._resolve(watched)
        if watched.leader_epoch != -1 and watched.leader_epoch != partition.leader_epoch:
            partition.check_epoch(watched.leader_epoch)
        if self.reader == REPLICA or watched.last_epoch >= 0 or self._rack:
            aside = self._look_aside(watched, partition)
            if aside is not None:
                high_watermark, stable, log_start, _ = partition.read(watched.offset, 0, self.reader, False)
                return watched, (watched.index, 0, high_watermark, stable, log_start), None, aside
        most = watched.max_bytes if watched.max_bytes < left else max(left, 0)
        high_watermark, stable, log_start, data = partition.read(watched.offset, most, self.reader, at_least_one)
        aside = None
        if data is not None and self.reader == REPLICA:
            limit = self._limit_for(partition)
            if limit is not None:
                limit.copied(data[2])
        elif data is not None and self.reader == COMMITTED and partition.log.has_aborted:
            aside = Aside(aborted=partition.log.aborted_transactions(watched.offset, data))
        return watched, (watched.index, 0, high_watermark, stable, log_start), data, aside

    def _look_aside(self, watched: Watched, partition: Partition) -> Aside | None:
        """Note a follower's fetch; find out where a reader's log diverges, or which replica is nearer to it."""
        if watched.last_epoch >= 0:
            parted = partition.divergence(watched.offset, watched.last_epoch)
            if parted is not None:
                return Aside(tags=diverging_tag(*parted))
        if self.reader == REPLICA:
            parameters = self.parameters
            poll = self.session or SingleFetch()
            partition.follower_starts(parameters.replica_id, watched.log_start)
            partition.follower_fetched(parameters.replica_id, watched.offset, parameters.replica_epoch, poll)
            limit = self._limit_for(partition)
            if limit is not None and limit.delay() > 0.0:
                return HELD_BACK
        elif self._rack and partition.leadership is not None:
            nearest = nearest_replica(partition, self._rack, watched.offset, self.broker.metadata.image.brokers)
            if nearest is not None:
                return Aside(preferred_replica=nearest)
        return None

    def _limit_for(self, partition: Partition) -> Side | None:
        """The limit for a replica's copying; None if there is none, as for every replica that is in sync."""
        limit = self._replicas.sending_limit
        if limit is None or not limit.active or not limit.limits(partition, self.parameters.replica_id):
            return None
        return limit

    def _resolve(self, watched: Watched) -> Partition:
        local = self._by_topic.get(watched.topic)
        partition = local.get(watched.index) if local is not None else None
        if partition is not None and partition.follows and self._serves_from_followers:
            watched.attach(partition)
            return partition
        if partition is None or not partition.is_leader:
            watched.attach(None)
            by_id = self.version >= TOPIC_IDS
            raise self._replicas.why_not_leader(watched.topic, watched.index, by_id=by_id)
        watched.attach(partition)
        return partition

    # -- answering

    def body(self, answers: list[PartitionAnswer]) -> Body:
        if self.session is not None:
            answers = [answer for answer in answers if self._remember(self.session, answer)]
            if self.reader == REPLICA:
                self.session.answered(self.broker.env.clock.monotonic())
        return self._encode(answers)

    def _is_news(self, answer: PartitionAnswer) -> bool:
        watched, (_, code, high_watermark, _, log_start), data, aside = answer
        return (
            data is not None
            or aside is not None
            or code != 0
            or high_watermark != watched.sent_high_watermark
            or log_start != watched.sent_log_start
        )

    def _remember(self, session: FetchSession, answer: PartitionAnswer) -> bool:
        """Note what the response tells the client; False if nothing is new and it is omitted."""
        watched, (_, code, high_watermark, _, log_start), data, _ = answer
        told = self.full or self._is_news(answer)
        watched.sent_high_watermark = high_watermark
        watched.sent_log_start = log_start
        if data is not None:
            # It may have more, or the same again. It goes last, so that a size limit starves nobody.
            session.changed.pop(watched, None)
            session.changed[watched] = None
        elif code == 0 and watched.offset == self._visible_end(watched):
            session.settle(watched)
        return told

    def _visible_end(self, watched: Watched) -> int:
        partition = watched.partition
        assert partition is not None
        if self.reader == REPLICA:
            return partition.end_offset
        return partition.last_stable_offset if self.committed else partition.high_watermark

    def _encode(self, answers: list[PartitionAnswer]) -> Body:
        if len(answers) == 1 and self.version >= FLEXIBLE and answers[0][3] is None:
            watched, result, data, _ = answers[0]
            size = 0 if data is None else data.size
            echo = topic_echo(self.version, watched.topic)
            head = encode_one_partition(self._session_id, echo, result, self.committed, size)
            return bytes(head + ONE_PARTITION_TAIL) if data is None else [head, data, ONE_PARTITION_TAIL]
        layout = _Layout(self, answers)
        for topic in layout.topics:
            layout.write(topic)
        return layout.finish()

    @property
    def _session_id(self) -> int:
        return self.session.id if self.session is not None else NO_SESSION

    # -- in steps

    def steps(self, last_call: bool) -> Iterator[Body | None]:
        """`read` and `body` in steps: yields None for each, and at last the body if it is to be sent."""
        readings = self._begin()
        due = iter(list(self._due()))
        while step := list(islice(due, STEP_PARTITIONS)):
            self._read_into(readings, step)
            yield None
        if not (last_call or readings.final or readings.size >= self.parameters.min_bytes):
            return
        answers = []
        rest = iter(readings.answers)
        while some := list(islice(rest, STEP_PARTITIONS)):
            if self.session is not None:
                some = [answer for answer in some if self._remember(self.session, answer)]
            answers += some
            yield None
        if self.session is not None and self.reader == REPLICA:
            self.session.answered(self.broker.env.clock.monotonic())
        layout = _Layout(self, answers)
        written = 0
        for topic in layout.topics:
            layout.write(topic)
            written += len(layout.topics[topic])
            if written >= STEP_PARTITIONS:
                written = 0
                yield None
        yield layout.finish()


class _Layout:
    """A response with any number of topics, as pieces."""

    def __init__(self, plan: FetchPlan, answers: list[PartitionAnswer]) -> None:
        self._version, self._committed = plan.version, plan.committed
        self.topics: dict[bytes, list[PartitionAnswer]] = {}
        for answer in answers:
            self.topics.setdefault(answer[0].topic, []).append(answer)
        self._tags = tags_after(self._version)
        self._end = endpoints_tag(plan.hints) if plan.hints else self._tags
        self._pieces: list[Piece] = []
        self._out = bytearray()
        write_response_head(self._out, self._version, 0, plan._session_id, len(self.topics))

    def write(self, topic: bytes) -> None:
        version, committed, tags = self._version, self._committed, self._tags
        of_topic = self.topics[topic]
        out = self._out
        write_topic_head(out, version, topic, len(of_topic))
        for _, result, data, aside in of_topic:
            if data is None:
                if aside is not None:
                    write_partition_head(out, version, result, committed, 0, aside.preferred_replica)
                    out += aside.tags if tags else b""
                    continue
                write_partition_head(out, version, result, committed, 0)
            else:
                aborted = () if aside is None else aside.aborted
                write_partition_head(out, version, result, committed, data.size, NO_REPLICA, aborted)
                self._pieces += (out, data)
                out = self._out = bytearray()
            out += tags
        out += tags

    def finish(self) -> Body:
        self._out += self._end
        self._pieces.append(self._out)
        return self._pieces


def encode_session_error(version: int, code: ErrorCode) -> bytes:
    out = bytearray()
    write_response_head(out, version, code, NO_SESSION, 0)
    out += tags_after(version)
    return bytes(out)
