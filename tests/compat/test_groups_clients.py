"""R-CON-2, R-CON-3: groups of real clients: rebalances, positions, patterns, static members, both protocols."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

import confluent_kafka as ck
import pytest
from aiokafka.errors import NoOffsetForPartitionError as AioNoOffset
from kafka.errors import NoOffsetForPartitionError

from tests.compat.clients import Confluent as ConfluentClient
from tests.compat.clients import Record, Settings
from tests.compat.confluent_admin import AdminClient, NewPartitions
from tests.compat.conftest import MakeTopic, unique_name
from tests.compat.group_members import (
    MEMBERS,
    Confluent,
    ConfluentConsumerProtocol,
    Got,
    MakeMember,
    Member,
    Membership,
    all_places,
    poll_count,
    poll_until,
    shared_out,
)

QUIET_S = 0.3


class Crew:
    """Members that a test makes; all of them are closed at its end."""

    def __init__(self, bootstrap: str, make: MakeMember) -> None:
        self.bootstrap = bootstrap
        self._make = make
        self.members: list[Member] = []

    def join(self, membership: Membership) -> Member:
        member = self._make(self.bootstrap, membership)
        self.members.append(member)
        return member

    def leave(self, member: Member) -> None:
        self.members.remove(member)
        member.close()


@pytest.fixture(params=MEMBERS)
def crew(request: pytest.FixtureRequest, group_bootstrap: str, group_topic: MakeTopic) -> Iterator[Crew]:
    """Gone before the topics are."""
    crew = Crew(group_bootstrap, MEMBERS[request.param])
    yield crew
    for member in crew.members:
        member.close()


@pytest.fixture(params=["confluent", "confluent-kip848"])
def librdkafka(request: pytest.FixtureRequest, group_bootstrap: str, group_topic: MakeTopic) -> Iterator[Crew]:
    crew = Crew(group_bootstrap, MEMBERS[request.param])
    yield crew
    for member in crew.members:
        member.close()


@pytest.fixture
def group() -> str:
    return unique_name("g")


def fill(bootstrap: str, topic: str, partitions: int, each: int = 5, start: int = 0) -> None:
    records = [
        Record(b"%d" % number, partition=partition)
        for partition in range(partitions)
        for number in range(start, start + each)
    ]
    ConfluentClient().produce(bootstrap, topic, records, Settings(linger_ms=0))


def poll_for(members: Sequence[Member], seconds: float) -> list[Got]:
    deadline = time.monotonic() + seconds
    return poll_until(members, lambda: time.monotonic() > deadline)


def places(got: list[Got]) -> list[tuple[str, int, int]]:
    return sorted((one.topic, one.partition, one.offset) for one in got)


def expected(topic: str, partitions: int, offsets: range) -> list[tuple[str, int, int]]:
    return [(topic, partition, offset) for partition in range(partitions) for offset in offsets]


def test_a_successor_goes_on_where_the_commit_was(crew: Crew, group: str, group_topic: MakeTopic) -> None:
    topic = group_topic(3)
    fill(crew.bootstrap, topic, 3)
    membership = Membership(group, (topic,))
    first = crew.join(membership)
    assert places(poll_count([first], 15)) == expected(topic, 3, range(5))
    first.commit()
    crew.leave(first)
    fill(crew.bootstrap, topic, 3, start=5)
    assert places(poll_count([crew.join(membership)], 15)) == expected(topic, 3, range(5, 10))


def test_members_share_and_take_over(crew: Crew, group: str, group_topic: MakeTopic) -> None:
    """Also: more members than partitions, and a commit before the partitions are given up loses nothing."""
    topic = group_topic(2)
    fill(crew.bootstrap, topic, 2)
    membership = Membership(group, (topic,), commit_on_revoke=True)
    everything = all_places(topic, 2)
    members = [crew.join(membership)]
    got = poll_until(members, lambda: shared_out(members, everything))
    got += poll_count(members, 10 - len(got))
    members += [crew.join(membership), crew.join(membership)]
    got += poll_until(members, lambda: shared_out(members, everything))
    assert sorted(len(member.assignment()) for member in members) == [0, 1, 1]
    assert members[0].revoked
    fill(crew.bootstrap, topic, 2, start=5)
    got += poll_count(members, 20 - len(got))
    leaver = next(member for member in members if member.assignment())
    crew.leave(leaver)
    members.remove(leaver)
    got += poll_until(members, lambda: shared_out(members, everything))
    assert places(got) == expected(topic, 2, range(10)), "nothing twice, nothing lost"


def test_two_groups_do_not_notice_each_other(crew: Crew, group: str, group_topic: MakeTopic) -> None:
    topic = group_topic(2)
    fill(crew.bootstrap, topic, 2)
    one, two = (crew.join(Membership(f"{group}-{name}", (topic,))) for name in "ab")
    for member in (one, two):
        assert places(poll_count([member], 10)) == expected(topic, 2, range(5))
    one.commit({(topic, 0): 3})
    assert (one.committed(topic, 0), two.committed(topic, 0)) == (3, None)


def test_pattern(crew: Crew, group: str, group_topic: MakeTopic) -> None:
    """Topics that match are read, also one that is made later."""
    other, first = group_topic(), group_topic()
    process = first.split("-")[1]
    last_digit = first[-1]
    member = crew.join(Membership(group, pattern=f"^t-{process}-.*{last_digit}$"))
    poll_until([member], lambda: (first, 0) in member.assignment())
    assert (other, 0) not in member.assignment()
    while not (later := group_topic()).endswith(last_digit):
        pass
    poll_until([member], lambda: {(first, 0), (later, 0)} <= member.assignment())


def test_commits(crew: Crew, group: str, group_topic: MakeTopic) -> None:
    """Synchronous of everything, of any offset, back and forth; asynchronous; seek does not move the commit."""
    topic = group_topic()
    fill(crew.bootstrap, topic, 1)
    member = crew.join(Membership(group, (topic,)))
    poll_count([member], 5)
    assert member.committed(topic, 0) is None
    member.commit()
    assert member.committed(topic, 0) == 5
    for offset in (2, 1000, 0):
        member.commit({(topic, 0): offset})
        assert member.committed(topic, 0) == offset
    member.seek(topic, 0, 3)
    assert [one.offset for one in poll_count([member], 2)] == [3, 4]
    assert member.committed(topic, 0) == 0
    member.commit_async()
    poll_until([member], lambda: member.committed(topic, 0) == 5)


def test_automatic_commits(crew: Crew, group: str, group_topic: MakeTopic) -> None:
    topic = group_topic()
    fill(crew.bootstrap, topic, 1)
    member = crew.join(Membership(group, (topic,), auto_commit=True))
    poll_count([member], 5)
    poll_until([member], lambda: member.committed(topic, 0) == 5)


def test_reset_to_latest(crew: Crew, group: str, group_topic: MakeTopic) -> None:
    topic = group_topic()
    fill(crew.bootstrap, topic, 1)
    member = crew.join(Membership(group, (topic,), reset="latest"))
    poll_until([member], lambda: bool(member.assignment()))
    assert poll_for([member], 0.4) == []
    start, found = 5, list[int]()
    while not found:  # when a client learns where the end is cannot be seen from outside
        fill(crew.bootstrap, topic, 1, start=start)
        start += 5
        found = [one.offset for one in poll_for([member], 0.4)]
    assert found == list(range(found[0], found[0] + len(found)))
    assert found[0] >= 5


def test_reset_to_none(crew: Crew, group: str, group_topic: MakeTopic) -> None:
    """Without a position, reading is an error of the client, until it has one."""
    topic = group_topic()
    fill(crew.bootstrap, topic, 1)
    with pytest.raises((ck.KafkaException, NoOffsetForPartitionError, AioNoOffset)):
        poll_count([crew.join(Membership(group, (topic,), reset="none"))], 1)
    crew.leave(crew.members[0])
    setter = crew.join(Membership(group, (topic,)))
    poll_until([setter], lambda: bool(setter.assignment()))
    setter.commit({(topic, 0): 3})
    crew.leave(setter)
    assert poll_count([crew.join(Membership(group, (topic,), reset="none"))], 1)[0].offset == 3


def test_a_topic_grows(crew: Crew, group: str, group_topic: MakeTopic, group_admin: AdminClient) -> None:
    topic = group_topic(1)
    members = [crew.join(Membership(group, (topic,))) for _ in range(2)]
    poll_until(members, lambda: shared_out(members, all_places(topic, 1)))
    group_admin.create_partitions([NewPartitions(topic, 4)])[topic].result(60)
    poll_until(members, lambda: shared_out(members, all_places(topic, 4)))
    fill(crew.bootstrap, topic, 4)
    assert len(poll_count(members, 20)) == 20


def test_a_topic_is_deleted(crew: Crew, group: str, group_topic: MakeTopic, group_admin: AdminClient) -> None:
    """The member goes on with what is left, and the positions of the deleted topic are gone."""
    kept, deleted = group_topic(), group_topic()
    member = crew.join(Membership(group, (kept, deleted)))
    both = {(kept, 0), (deleted, 0)}
    poll_until([member], lambda: member.assignment() == both)
    member.commit({(kept, 0): 0, (deleted, 0): 0})
    group_admin.delete_topics([deleted])[deleted].result(60)
    fill(crew.bootstrap, kept, 1)
    assert len(poll_count([member], 5)) == 5
    poll_until([member], lambda: member.committed(deleted, 0) is None)
    assert member.committed(kept, 0) == 0


def test_a_static_member_comes_back(crew: Crew, group: str, group_topic: MakeTopic) -> None:
    """KIP-345: the same partitions, and the other member notices nothing."""
    topic = group_topic(4)
    names = ["seat-1", "seat-2"]
    members = [crew.join(Membership(group, (topic,), instance_id=name)) for name in names]
    poll_until(members, lambda: shared_out(members, all_places(topic, 4)))
    stays, goes = members
    # A client may know its partitions a moment before it tells its listener.
    poll_until(members, lambda: all(set().union(*one.assigned) >= one.assignment() for one in members))
    poll_for(members, QUIET_S)
    owned, seen = goes.assignment(), (len(stays.assigned), len(stays.revoked))
    crew.leave(goes)
    back = crew.join(Membership(group, (topic,), instance_id="seat-2"))
    poll_until([stays, back], lambda: bool(back.assignment()))
    assert back.assignment() == owned
    poll_for([stays, back], QUIET_S)
    assert (len(stays.assigned), len(stays.revoked)) == seen


def test_cooperative_rebalance(librdkafka: Crew, group: str, group_topic: MakeTopic) -> None:
    """Only what moves is revoked; KIP-848 is always so."""
    topic = group_topic(4)
    membership = Membership(group, (topic,), cooperative=True)
    everything = all_places(topic, 4)
    first = librdkafka.join(membership)
    poll_until([first], lambda: first.assignment() == everything)
    second = librdkafka.join(membership)
    poll_until([first, second], lambda: shared_out([first, second], everything))
    revoked: set[tuple[str, int]] = set().union(*first.revoked)
    assert revoked == second.assignment()
    assert len(revoked) == 2
    librdkafka.leave(second)
    poll_until([first], lambda: first.assignment() == everything)
    assert set().union(*first.revoked) == revoked, "taking over revokes nothing"


VICTIM = """
import sys
from tests.compat.group_members import MEMBERS, Membership
member = MEMBERS[sys.argv[1]](sys.argv[2], Membership(sys.argv[3], (sys.argv[4],), session_ms=1500))
while True:
    member.poll()
    if member.assignment():
        print("ready", flush=True)
"""


@pytest.mark.parametrize("name", MEMBERS)
def test_takeover_after_a_kill(group_bootstrap: str, name: str, group: str, group_topic: MakeTopic) -> None:
    """Within the session timeout: no goodbye, no heartbeat, only silence."""
    topic = group_topic(2)
    command = [sys.executable, "-c", VICTIM, name, group_bootstrap, group, topic]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as victim:
        assert victim.stdout is not None
        assert victim.stdout.readline() == b"ready\n"
        member = MEMBERS[name](group_bootstrap, Membership(group, (topic,), session_ms=1500))
        poll_until([member], lambda: len(member.assignment()) == 1)
        victim.kill()
    # Long before the session timeout of a member that did not ask for one (45 s).
    poll_until([member], lambda: member.assignment() == all_places(topic, 2), timeout_s=40)
    member.close()


def test_migration_there_and_back(group_bootstrap: str, group: str, group_topic: MakeTopic) -> None:
    """KIP-848: a living group takes members of the other protocol in, and goes on when the first ones leave."""
    topic = group_topic(4)
    fill(group_bootstrap, topic, 4)
    membership = Membership(group, (topic,))
    everything = all_places(topic, 4)
    old: Member = Confluent(group_bootstrap, membership)
    got = poll_count([old], 20)
    old.commit()
    new: Member = ConfluentConsumerProtocol(group_bootstrap, membership)
    got += poll_until([old, new], lambda: shared_out([old, new], everything))
    old.close()
    got += poll_until([new], lambda: new.assignment() == everything)
    again: Member = Confluent(group_bootstrap, membership)
    got += poll_until([new, again], lambda: shared_out([new, again], everything))
    new.close()
    got += poll_until([again], lambda: again.assignment() == everything)
    fill(group_bootstrap, topic, 4, start=5)
    got += poll_count([again], 20)
    again.close()
    assert places(got) == expected(topic, 4, range(10))
