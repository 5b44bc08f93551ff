"""When a broker counts as surely alive, over several sessions."""

from __future__ import annotations

from headrace.coordination.lease import LeaseState
from headrace.env.real import real_env

CLOCK = real_env().clock
LATER = CLOCK.boottime() + 1e9
"""Long after the last test: this is computed when tests are collected."""


def test_a_renewed_session_gives_a_lease_until_it_is_lost() -> None:
    lease = LeaseState(CLOCK)
    assert not lease.valid()
    lease.renewed(LATER)
    assert lease.valid()
    lease.lost()
    assert not lease.valid()


def test_a_later_session_gives_none_before_the_broker_knows_what_was_decided_meanwhile() -> None:
    """Found by the simulation: with its new session a leader of the past answered acks=1 once more."""
    lease = LeaseState(CLOCK)
    lease.renewed(LATER)
    lease.suspend()
    assert not lease.valid()
    lease.renewed(LATER)
    assert not lease.valid()
    lease.resume()
    assert lease.valid()


def test_a_session_that_was_lost_meanwhile_gives_none() -> None:
    lease = LeaseState(CLOCK)
    lease.suspend()
    lease.renewed(LATER)
    lease.lost()
    lease.resume()
    assert not lease.valid()
