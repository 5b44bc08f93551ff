"""Fetch (1), v4-18. Reads record batches, waiting for more where there are too few (long poll).

v5 log start offset; v7 sessions (KIP-227); v9 leader epochs (KIP-320); v11 rack (KIP-392); v12 flexible and
divergence (KIP-595); v13 topic ids (KIP-516); v15 replica state (KIP-903); v16 leader hints (KIP-951); v18
KIP-1166. Hot path: a plain function over the frame. Record data leaves as ranges of segment files, untouched.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.env import Timer
from headrace.handlers.broker import Broker
from headrace.handlers.context import Channel, topic_read
from headrace.handlers.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchSession,
    Watched,
)
from headrace.handlers.registry import hot_api
from headrace.handlers.reply import Body, Pending, Piece, Reply
from headrace.model.errors import ErrorCode, KafkaError
from headrace.replication.partition import Partition
from headrace.storage.files import FileRange
from headrace.wire.fetch import (
    FLEXIBLE,
    ONE_PARTITION_TAIL,
    READ_COMMITTED,
    TOPIC_IDS,
    FetchParameters,
    OnePartition,
    encode_one_partition,
    parse_fetch,
    parse_one_partition,
    tags_after,
    topic_echo,
    write_partition_head,
    write_response_head,
    write_topic_head,
)

Answer = tuple[Watched, tuple[int, int, int, int, int], FileRange | None]
"""A partition, (index, error, high watermark, last stable offset, log start), and its data."""


@hot_api(key=1, name="Fetch", versions=range(4, 19), flexible_since=FLEXIBLE, authorize=topic_read)
def fetch(channel: Channel, version: int, frame: memoryview, position: int) -> Reply:
    """Reads record batches from partitions, as a long poll."""
    broker = channel.broker
    if version >= FLEXIBLE:
        one = parse_one_partition(frame, position, version)
        body = _read_one(broker, one, version >= TOPIC_IDS) if one is not None else None
        if body is not None:
            return body
    parameters = parse_fetch(frame, position, version)
    try:
        plan = _plan(broker, parameters, version)
    except KafkaError as error:
        return _session_error(version, error.code)
    answers, size, final = plan.read()
    if final or size >= parameters.min_bytes or parameters.max_wait_ms <= 0 or not plan.watched:
        return plan.body(answers)
    return ParkedFetch(plan)


def _read_one(broker: Broker, one: OnePartition, by_id: bool) -> Body | None:
    """The short way for one partition without a session, as many clients ask; None if it takes the long one."""
    least, most, committed, echo, topic, index, leader_epoch, offset, partition_most = one
    replicas = broker.replicas
    local = (replicas.by_id if by_id else replicas.by_name).get(topic)
    partition = local.get(index) if local is not None else None
    if partition is None or not partition.is_leader or 0 <= leader_epoch != partition.leader_epoch:
        return None
    log = partition.log
    high_watermark = partition.high_watermark
    stable = log.last_stable_offset(high_watermark)
    try:
        data = log.read(offset, partition_most, stable if committed else high_watermark, True)
    except KafkaError:
        return None
    if data is None:
        return None
    size = data[2]  # by its place: a named tuple's fields are slow to get
    if size < least or size > most or size > broker.fetch_max_bytes:
        return None
    head = encode_one_partition(
        NO_SESSION, echo, (index, 0, high_watermark, stable, log.start_offset), committed, size
    )
    return [head, data, ONE_PARTITION_TAIL]


def _plan(broker: Broker, parameters: FetchParameters, version: int) -> FetchPlan:
    """Full or incremental, with a session or without."""
    sessions = broker.fetch_sessions
    uses_topic_ids = version >= TOPIC_IDS
    epoch = parameters.session_epoch
    if epoch in (FINAL_EPOCH, INITIAL_EPOCH):
        if parameters.session_id != NO_SESSION:
            sessions.close(parameters.session_id)
        session = sessions.open(parameters, uses_topic_ids) if epoch == INITIAL_EPOCH else None
        watched = list(session.watchlist.values()) if session else [Watched(want) for want in parameters.wants]
        return FetchPlan(broker, parameters, version, session, watched, full=True)
    session = sessions.resume(parameters, uses_topic_ids)
    return FetchPlan(broker, parameters, version, session, list(session.watchlist.values()), full=False)


def _session_error(version: int, code: ErrorCode) -> bytes:
    out = bytearray()
    write_response_head(out, version, code, NO_SESSION, 0)
    out += tags_after(version)
    return bytes(out)


class FetchPlan:
    """One Fetch from start to answer; read again each time a long poll is woken."""

    __slots__ = ("_by_topic", "broker", "committed", "full", "parameters", "session", "version", "watched")

    def __init__(
        self,
        broker: Broker,
        parameters: FetchParameters,
        version: int,
        session: FetchSession | None,
        watched: list[Watched],
        full: bool,
    ) -> None:
        self.broker = broker
        self.parameters = parameters
        self.version = version
        self.session = session
        self.watched = watched
        self.full = full
        """Whether every partition is answered, or only those with news."""
        self.committed = parameters.isolation == READ_COMMITTED
        replicas = broker.replicas
        self._by_topic = replicas.by_id if version >= TOPIC_IDS else replicas.by_name

    def read(self) -> tuple[list[Answer], int, bool]:
        """What there is: answers, bytes of data, and whether an error must be told at once."""
        answers: list[Answer] = []
        total = 0
        final = False
        left = min(self.parameters.max_bytes, self.broker.fetch_max_bytes)
        for watched in self.watched:
            try:
                answer = self._read_partition(watched, left, at_least_one=total == 0)
            except KafkaError as error:
                answers.append(self._failure(watched, error.code))
                final = True
                continue
            data = answer[2]
            if data is not None:
                total += data.size
                left -= data.size
            answers.append(answer)
        return answers, total, final

    def _read_partition(self, watched: Watched, left: int, at_least_one: bool) -> Answer:
        partition = watched.partition
        if partition is None or not partition.is_leader:
            partition = watched.partition = self._resolve(watched)
        if watched.leader_epoch >= 0 and watched.leader_epoch != partition.leader_epoch:
            partition.check_epoch(watched.leader_epoch)
        log = partition.log
        high_watermark = partition.high_watermark
        stable = log.last_stable_offset(high_watermark)
        limit = stable if self.committed else high_watermark
        data = None
        offset = watched.offset
        if offset != limit and (left > 0 or at_least_one):
            most = watched.max_bytes if watched.max_bytes < left else max(left, 0)
            data = log.read(offset, most, limit, at_least_one)
        return watched, (watched.index, 0, high_watermark, stable, log.start_offset), data

    def _resolve(self, watched: Watched) -> Partition:
        local = self._by_topic.get(watched.topic)
        partition = local.get(watched.index) if local is not None else None
        if partition is None or not partition.is_leader:
            by_id = self.version >= TOPIC_IDS
            raise self.broker.replicas.why_not_leader(watched.topic, watched.index, by_id=by_id)
        return partition

    def _failure(self, watched: Watched, code: ErrorCode) -> Answer:
        return watched, (watched.index, code, -1, -1, -1), None

    def body(self, answers: list[Answer]) -> Body:
        if not self.full:
            answers = [answer for answer in answers if self._is_news(answer)]
        if self.session is not None:
            self._remember(self.session, answers)
        return self._encode(answers)

    def _is_news(self, answer: Answer) -> bool:
        watched, (_, code, high_watermark, _, log_start), data = answer
        return (
            data is not None
            or code != 0
            or high_watermark != watched.sent_high_watermark
            or log_start != watched.sent_log_start
        )

    def _remember(self, session: FetchSession, answers: list[Answer]) -> None:
        for watched, (_, _, high_watermark, _, log_start), data in answers:
            watched.sent_high_watermark = high_watermark
            watched.sent_log_start = log_start
            if data is not None and len(session.watchlist) > 1:
                session.move_to_end(watched)

    def _encode(self, answers: list[Answer]) -> Body:
        version, committed = self.version, self.committed
        session_id = self.session.id if self.session is not None else NO_SESSION
        if len(answers) == 1 and version >= FLEXIBLE:
            watched, result, data = answers[0]
            size = 0 if data is None else data.size
            head = encode_one_partition(session_id, topic_echo(version, watched.topic), result, committed, size)
            return bytes(head + ONE_PARTITION_TAIL) if data is None else [head, data, ONE_PARTITION_TAIL]
        topics: dict[bytes, list[Answer]] = {}
        for answer in answers:
            topics.setdefault(answer[0].topic, []).append(answer)
        tags = tags_after(version)
        pieces: list[Piece] = []
        out = bytearray()
        write_response_head(out, version, 0, session_id, len(topics))
        for topic, of_topic in topics.items():
            write_topic_head(out, version, topic, len(of_topic))
            for _, result, data in of_topic:
                if data is None:
                    write_partition_head(out, version, result, committed, 0)
                else:
                    write_partition_head(out, version, result, committed, data.size)
                    pieces += (out, data)
                    out = bytearray()
                out += tags
            out += tags
        out += tags
        pieces.append(out)
        return pieces

    def partitions(self) -> Iterable[Partition]:
        return (watched.partition for watched in self.watched if watched.partition is not None)


class ParkedFetch(Pending):
    """A long poll: answered when enough data is there, when something went wrong, or when its time is up."""

    __slots__ = ("_plan", "_timer")

    def __init__(self, plan: FetchPlan) -> None:
        super().__init__()
        self._plan = plan
        for partition in plan.partitions():
            partition.waiters[self] = None
        wait_seconds = plan.parameters.max_wait_ms / 1000
        self._timer: Timer = plan.broker.env.clock.call_later(wait_seconds, self._expire)

    def wake(self) -> None:
        if self.done:
            return
        answers, size, final = self._plan.read()
        if final or size >= self._plan.parameters.min_bytes:
            self._finish(answers)

    def _expire(self) -> None:
        if not self.done:
            self._finish(self._plan.read()[0])

    def _finish(self, answers: list[Answer]) -> None:
        self._let_go()
        self.complete(self._plan.body(answers))

    def cancel(self) -> None:
        self._let_go()
        super().cancel()

    def _let_go(self) -> None:
        self._timer.cancel()
        for partition in self._plan.partitions():
            partition.waiters.pop(self, None)
