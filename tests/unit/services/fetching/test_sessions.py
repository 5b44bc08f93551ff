"""Fetch sessions take a bounded amount of memory, whatever clients put into them."""

from __future__ import annotations

import pytest

from headrace.env.real import real_env
from headrace.model.errors import ErrorCode, KafkaError
from headrace.services.fetching.sessions import NEVER, FetchSession, FetchSessions
from headrace.wire.fetch import FetchParameters


def request(
    *indexes: int, session_id: int = 0, epoch: int = 0, forgotten: list[tuple[bytes, int]] | None = None
) -> FetchParameters:
    wants = [(b"t", index, -1, 0, -1, 1000, -1) for index in indexes]
    return FetchParameters(-1, 0, 1, 1000, 0, session_id, epoch, wants, forgotten or [], "")


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> FetchSessions:
    monkeypatch.setattr("headrace.services.fetching.sessions.MAX_WATCHED_PARTITIONS", 10)
    return FetchSessions(real_env(), slots=100)


def opened(sessions: FetchSessions, *indexes: int) -> FetchSession:
    session = sessions.open(request(*indexes), uses_topic_ids=False)
    assert session is not None
    return session


def test_no_session_beyond_the_limit_until_another_is_closed(sessions: FetchSessions) -> None:
    first = opened(sessions, *range(6))
    assert sessions.open(request(*range(5)), uses_topic_ids=False) is None
    sessions.close(first.id)
    opened(sessions, *range(10))


def test_a_session_that_grows_beyond_the_limit_is_closed(sessions: FetchSessions) -> None:
    session = opened(sessions, *range(8))
    with pytest.raises(KafkaError) as refusal:
        sessions.resume(request(8, 9, 10, session_id=session.id, epoch=session.epoch), uses_topic_ids=False)
    assert refusal.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(sessions) == 0
    opened(sessions, *range(10))


def test_a_new_session_looks_at_everything_and_later_at_what_a_request_names(sessions: FetchSessions) -> None:
    session = opened(sessions, *range(4))
    assert [watched.index for watched in session.changed] == [0, 1, 2, 3]
    session.changed.clear()
    sessions.resume(request(2, 4, session_id=session.id, epoch=session.epoch), uses_topic_ids=False)
    assert [watched.index for watched in session.changed] == [2, 4]
    forgotten = [(b"t", 2)]
    sessions.resume(request(session_id=session.id, epoch=session.epoch, forgotten=forgotten), uses_topic_ids=False)
    assert [watched.index for watched in session.changed] == [4]


def test_what_is_forgotten_makes_room(sessions: FetchSessions) -> None:
    session = opened(sessions, *range(10))
    forgotten = [(b"t", index) for index in range(5)]
    sessions.resume(request(session_id=session.id, epoch=session.epoch, forgotten=forgotten), uses_topic_ids=False)
    opened(sessions, *range(5))


def replica_request(replica_id: int) -> FetchParameters:
    return request(0)._replace(replica_id=replica_id)


def test_a_follower_gets_a_session_at_the_cost_of_a_consumer(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = FetchSessions(real_env(), slots=2)
    first, second = opened(sessions, 0), opened(sessions, 1)
    assert sessions.open(request(2), uses_topic_ids=False) is None
    follower = sessions.open(replica_request(2), uses_topic_ids=False)
    assert follower is not None
    with pytest.raises(KafkaError):
        sessions.resume(request(session_id=first.id, epoch=1), uses_topic_ids=False)
    assert sessions.open(replica_request(3), uses_topic_ids=False) is not None
    with pytest.raises(KafkaError):
        sessions.resume(request(session_id=second.id, epoch=1), uses_topic_ids=False)
    assert sessions.open(replica_request(4), uses_topic_ids=False) is None


def test_a_poll_proves_that_the_follower_had_all_answers_but_the_last_one(sessions: FetchSessions) -> None:
    """Found by the simulation: a poll that was under way during a cut kept a leader of the past alive."""
    session = opened(sessions, 0)
    assert session.followed_at == NEVER
    for now in (1.0, 2.0):
        session.answered(now)
        session.polled(now + 0.1)
    assert session.followed_at == 1.0
    session.polled(50.0)
    assert session.followed_at == 1.0, "it arrived late, and was sent before the last answer"
