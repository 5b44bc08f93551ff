"""Fetch (1), v4-18. Reads record batches, waiting for more where there are too few (long poll).

v5 log start offset; v7 sessions (KIP-227); v9 leader epochs (KIP-320); v11 rack (KIP-392); v12 flexible and
divergence (KIP-595); v13 topic ids (KIP-516); v15 replica state (KIP-903); v16 leader hints (KIP-951); v18
KIP-1166. Hot path: a plain function over the frame. Record data leaves as ranges of segment files, untouched.
"""

from __future__ import annotations

from headrace.handlers.broker import Broker
from headrace.handlers.context import Channel, topic_read
from headrace.handlers.registry import hot_api
from headrace.model.errors import ErrorCode, KafkaError
from headrace.replication.partition import COMMITTED, UNCOMMITTED
from headrace.services.fetching.parked import ParkedFetch, hurry
from headrace.services.fetching.plan import FetchPlan, encode_session_error
from headrace.services.fetching.sessions import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, Watched
from headrace.services.reply import Body, Reply
from headrace.wire.fetch import (
    FLEXIBLE,
    ONE_PARTITION_TAIL,
    TOPIC_IDS,
    FetchParameters,
    OnePartition,
    encode_one_partition,
    parse_fetch,
    parse_one_partition,
)


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
        plan = _plan(channel, parameters, version)
    except KafkaError as error:
        return encode_session_error(version, error.code)
    if plan.session is not None and plan.session.polls:
        hurry(plan.session)
    if plan.is_large:
        return ParkedFetch(plan)
    answers, size, final = plan.read()
    if final or size >= parameters.min_bytes or parameters.max_wait_ms <= 0 or not plan.has_partitions:
        return plan.body(answers)
    return ParkedFetch(plan)


def fetch_nothing(channel: Channel, version: int, frame: memoryview, position: int) -> Body:
    """The empty answer to a client over its quota (KIP-219): its session continues, and it asks again later."""
    parameters = parse_fetch(frame, position, version)
    if parameters.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
        return encode_session_error(version, ErrorCode.NONE)
    try:
        plan = _plan(channel, parameters, version)
    except KafkaError as error:
        return encode_session_error(version, error.code)
    if plan.session is not None and plan.session.polls:
        hurry(plan.session)
    return plan.body([])


def _read_one(broker: Broker, one: OnePartition, by_id: bool) -> Body | None:
    """The fast path for one partition without a session, which many clients use; None if it needs the slow one."""
    least, most, committed, echo, topic, index, leader_epoch, offset, partition_most = one
    replicas = broker.replicas
    try:
        partition = (replicas.by_id if by_id else replicas.by_name)[topic].get(index)
    except KeyError:
        return None
    if partition is None or not partition.is_leader or 0 <= leader_epoch != partition.leader_epoch:
        return None
    try:
        high_watermark, stable, log_start, data = partition.read(
            offset, partition_most, COMMITTED if committed else UNCOMMITTED, True
        )
    except KafkaError:
        return None
    if data is None or (committed and partition.log.has_aborted):
        return None
    size = data[2]  # by its place: a named tuple's fields are slow to get
    if size < least or size > most or size > broker.fetch_max_bytes:
        return None
    head = encode_one_partition(NO_SESSION, echo, (index, 0, high_watermark, stable, log_start), committed, size)
    return [head, data, ONE_PARTITION_TAIL]


def _plan(channel: Channel, parameters: FetchParameters, version: int) -> FetchPlan:
    """Full or incremental, with a session or without."""
    broker, listener = channel.broker, channel.listener
    sessions = broker.fetch_sessions
    uses_topic_ids = version >= TOPIC_IDS
    epoch = parameters.session_epoch
    if epoch not in (FINAL_EPOCH, INITIAL_EPOCH):
        resumed = sessions.resume(parameters, uses_topic_ids)
        return FetchPlan(broker, parameters, version, resumed, listener=listener)
    if parameters.session_id != NO_SESSION:
        sessions.close(parameters.session_id)
    session = sessions.open(parameters, uses_topic_ids) if epoch == INITIAL_EPOCH else None
    watched = list(session.watchlist.values()) if session else [Watched(want) for want in parameters.wants]
    return FetchPlan(broker, parameters, version, session, watched, listener)
