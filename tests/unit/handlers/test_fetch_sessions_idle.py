"""A session that nobody polls any more costs a partition one call, not one for each append."""

from __future__ import annotations

import asyncio
from typing import Any

from headrace.services.fetching.parked import ParkedFetch
from headrace.services.fetching.plan import FetchPlan
from headrace.services.fetching.sessions import FetchSession
from headrace.wire.fetch import FetchParameters


def poll(bench: Any, session: FetchSession | None = None) -> tuple[FetchPlan, FetchSession]:
    sessions = bench.broker.fetch_sessions
    wants = [(b"t", 0, -1, bench.partition("t").end_offset, -1, 1000, -1)]
    if session is None:
        parameters = FetchParameters(-1, 10_000, 1, 1000, 0, 0, 0, wants, [], "")
        session = sessions.open(parameters, False)
        assert session is not None
        return FetchPlan(bench.broker, parameters, 11, session, list(session.watchlist.values())), session
    parameters = FetchParameters(-1, 10_000, 1, 1000, 0, session.id, session.epoch, wants, [], "")
    return FetchPlan(bench.broker, parameters, 11, sessions.resume(parameters, False)), session


async def test_a_session_without_polls_is_told_once(bench: Any) -> None:
    await bench.create_topic("t")
    plan, session = poll(bench)
    plan.body(plan.read()[0])
    partition = bench.partition("t")
    assert len(partition.waiters) == 1
    bench.append("t", 1)
    await asyncio.sleep(0)
    assert partition.waiters == {}
    assert len(session.changed) == 1
    bench.append("t", 2)
    plan, _ = poll(bench, session)
    plan.body(plan.read()[0])
    assert len(partition.waiters) == 1, "the client knows all again: it wants to hear of news"


async def test_a_poll_hears_of_every_change_while_it_waits(bench: Any) -> None:
    await bench.create_topic("t")
    plan, session = poll(bench)
    plan.body(plan.read()[0])
    bench.append("t", 1)
    await asyncio.sleep(0)
    plan, _ = poll(bench, session)
    assert plan.read()[1] == 0
    waiting = ParkedFetch(plan)
    bench.append("t", 2)
    for _ in range(3):
        await asyncio.sleep(0)
    assert waiting.done
    assert session.polls == {}
