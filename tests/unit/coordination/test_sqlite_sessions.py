"""The lease in a session's file: what a late owner may believe, and when others may remove it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.coordination.contract import Create, SessionLost
from headrace.coordination.sqlite_sessions import SessionFile, overdue
from headrace.coordination.sqlite_tree import SqliteTree
from headrace.env import Env
from headrace.env.real import RealClock, real_env

TIMEOUT = 6.0


class StoppedClock(RealClock):
    """Boot time as the test says."""

    def __init__(self) -> None:
        self.now = 1000.0

    def boottime(self) -> float:
        return self.now


@pytest.fixture
def clock() -> StoppedClock:
    return StoppedClock()


@pytest.fixture
def env(clock: StoppedClock) -> Env:
    return replace(real_env(), clock=clock)


@pytest.fixture
def file(env: Env, tmp_path: Path) -> Iterator[SessionFile]:
    file = SessionFile(env.disk, env.clock, str(tmp_path / "session"), TIMEOUT)
    file.begin()
    yield file
    file.end()


def test_a_lease_ends_a_timeout_after_the_last_renewal_was_sent(
    file: SessionFile, env: Env, clock: StoppedClock, tmp_path: Path
) -> None:
    path = str(tmp_path / "session")
    clock.now += 4
    assert file.renew(clock.now - 1)
    clock.now += 4.9
    assert not overdue(env.disk, clock, path)
    clock.now += 0.2
    assert overdue(env.disk, clock, path)


def test_a_renewal_after_the_end_is_not_trusted_until_the_session_was_seen(
    file: SessionFile, clock: StoppedClock
) -> None:
    clock.now += TIMEOUT + 1
    assert not file.renew(clock.now)
    assert not file.renew(clock.now), "the first attempt must not make the second look as if it were in time"
    file.revive(clock.now)
    assert file.renew(clock.now)


def test_a_file_that_says_nothing_is_left_to_its_lock(env: Env, clock: StoppedClock, tmp_path: Path) -> None:
    path = tmp_path / "session"
    assert not overdue(env.disk, clock, str(path))
    path.write_bytes(b"00000")
    assert not overdue(env.disk, clock, str(path))


def test_half_of_a_write_never_looks_older_than_what_was_there(
    env: Env, clock: StoppedClock, tmp_path: Path
) -> None:
    path = tmp_path / "session"
    old, new = f"{1099.5:020.6f}", f"{1105.1:020.6f}"
    clock.now = 1099.4
    for cut in range(len(old) + 1):
        path.write_text(new[:cut] + old[cut:])
        assert not overdue(env.disk, clock, str(path))


def two_trees(env: Env, tmp_path: Path) -> tuple[SqliteTree, SqliteTree]:
    path = str(tmp_path / "cluster.db")
    owner, other = SqliteTree(env, path, "owner", TIMEOUT), SqliteTree(env, path, "other", TIMEOUT)
    owner.apply([Create("/a", b"", ephemeral=True)])
    return owner, other


def poll(tree: SqliteTree) -> None:
    tree.look_for_others()
    tree.remove_dead_sessions()


def test_a_late_owner_goes_on_if_nobody_removed_it(env: Env, clock: StoppedClock, tmp_path: Path) -> None:
    owner, other = two_trees(env, tmp_path)
    clock.now += 100
    owner.renew_late(clock.now)
    clock.now += TIMEOUT / 2
    poll(other)
    assert other.get("/a") is not None
    owner.close()
    other.close()


def test_a_late_owner_is_told_if_it_was_removed(env: Env, clock: StoppedClock, tmp_path: Path) -> None:
    owner, other = two_trees(env, tmp_path)
    for _ in range(8):
        clock.now += 1
        poll(other)
    assert other.get("/a") is None
    with pytest.raises(SessionLost):
        owner.renew_late(clock.now)
    owner.close()
    other.close()


def test_whoever_was_away_itself_gives_the_others_time_to_renew(
    env: Env, clock: StoppedClock, tmp_path: Path
) -> None:
    """After a machine has slept, whoever wakes first must not remove everybody else."""
    owner, other = two_trees(env, tmp_path)
    clock.now += 1000
    poll(other)
    assert other.get("/a") is not None
    clock.now += TIMEOUT / 2 - 0.1
    poll(other)
    assert other.get("/a") is not None
    clock.now += 0.2
    poll(other)
    assert other.get("/a") is None
    owner.close()
    other.close()
