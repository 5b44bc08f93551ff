"""Plans that even out brokers: what they reach, and how little they move (R-OPS-8)."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.metadata.balancing import (
    Location,
    PartitionReplicas,
    Replicas,
    balance,
    evacuate,
    replace_lost,
    resize,
)
from headrace.model.topics import TopicPartition

Plan = dict[TopicPartition, Replicas]


def on_hosts(*brokers: int) -> dict[int, Location]:
    return {broker: Location(None, f"host-{broker}") for broker in brokers}


def topic(*rows: Replicas, name: str = "t") -> Plan:
    return {TopicPartition(name, index): replicas for index, replicas in enumerate(rows)}


def counts(assignment: PartitionReplicas) -> Counter[int]:
    return Counter(broker for replicas in assignment.values() for broker in replicas)


def copies(before: PartitionReplicas, plan: Plan) -> int:
    return sum(len(set(now) - set(before[name])) for name, now in plan.items())


def test_a_new_broker_gets_its_share_and_nothing_else_moves() -> None:
    before = topic(*[(1, 2), (2, 3), (3, 1)] * 4)
    plan = balance(on_hosts(1, 2, 3, 4), before)
    after = {**before, **plan}
    assert set(counts(after).values()) == {6}
    assert copies(before, plan) == 6, "as many copies as the new broker should have"
    leaders = Counter(replicas[0] for replicas in after.values())
    assert set(leaders.values()) == {3}


def test_what_is_even_stays() -> None:
    assert balance(on_hosts(1, 2, 3), topic((1, 2), (2, 3), (3, 1))) == {}


def test_leaders_are_evened_out_without_a_copy() -> None:
    before = topic((1, 2), (1, 2), (1, 2), (1, 2))
    plan = balance(on_hosts(1, 2), before)
    assert copies(before, plan) == 0
    assert Counter(replicas[0] for replicas in {**before, **plan}.values()) == {1: 2, 2: 2}


def test_racks_come_first() -> None:
    racks = {n: Location("a" if n <= 2 else "b", f"host-{n}") for n in (1, 2, 3, 4)}
    plan = balance(racks, topic((1, 2), (1, 2)))
    for replicas in plan.values():
        assert {racks[one].rack for one in replicas} == {"a", "b"}
    assert len(plan) == 2


def test_a_broker_is_emptied_with_one_copy_for_each_replica() -> None:
    before = topic((1, 2), (2, 3), (3, 1), (1, 3))
    plan = evacuate(on_hosts(2, 3, 4), before, 1)
    assert copies(before, plan) == 3
    assert 1 not in counts({**before, **plan})


def test_without_anybody_to_take_over_there_are_fewer_replicas() -> None:
    assert evacuate(on_hosts(2), topic((1, 2)), 1) == topic((2,))
    assert evacuate({}, topic((1, 2)), 1) == {}, "2 is down: somebody who lives must stay"


def test_fewer_replicas_are_those_that_live() -> None:
    assert resize(on_hosts(1, 2), topic((1, 2, 3)), 2) == topic((1, 2))
    assert resize(on_hosts(2, 3), topic((1, 2, 3)), 2) == topic((2, 3))


def test_lost_replicas_are_replaced_and_never_dropped() -> None:
    """Of brokers that are dead, and of those that live and lost a disk; the load is spread over the others."""
    before = topic((1, 2), (2, 1), (1, 3), (3, 4))
    lost = {TopicPartition("t", index): (1,) for index in range(3)}
    for brokers in (on_hosts(1, 2, 3, 4), on_hosts(2, 3, 4)):
        plan = replace_lost(brokers, before, lost)
        assert [len(replicas) for replicas in plan.values()] == [2, 2, 2]
        assert copies(before, plan) == 3
        assert 1 not in counts({**before, **plan})
        assert sorted(counts({**before, **plan}).values()) == [2, 3, 3], "who has the fewest gets more"
    three = topic((1, 2, 3))
    assert replace_lost(on_hosts(1, 2, 3), three, {TopicPartition("t", 0): (1,)}) == {}, "nobody can take it"
    both = replace_lost(on_hosts(3, 4), three, {TopicPartition("t", 0): (1, 2)})
    assert both == topic((4, 2, 3)), "one of two is better than none"


@pytest.mark.parametrize(("factor", "total"), [(1, 2), (2, 4), (3, 6), (5, 6)])
def test_more_and_fewer_replicas(factor: int, total: int) -> None:
    before = topic((1, 2), (2, 1))
    after = {**before, **resize(on_hosts(1, 2, 3), before, factor)}
    assert sum(counts(after).values()) == total
    assert all(replicas[0] == before[name][0] for name, replicas in after.items())


@given(
    st.lists(st.lists(st.integers(1, 6), min_size=1, max_size=3, unique=True), min_size=1, max_size=25),
    st.sets(st.integers(1, 8), min_size=3),
    st.integers(1, 3),
)
def test_a_plan_is_even_and_keeps_factor_and_spread(rows: list[list[int]], brokers: set[int], racks: int) -> None:
    before = topic(*(tuple(row) for row in rows))
    places = {broker: Location(f"rack-{broker % racks}", f"host-{broker}") for broker in brokers}
    plan = balance(places, before)
    after = {**before, **plan}
    for name, replicas in after.items():
        assert len(replicas) == len(set(replicas)) == len(before[name])
        assert set(replicas) <= brokers
    assert balance(places, after).keys() <= after.keys()
    if racks == 1:
        loads = [counts(after)[broker] for broker in brokers]
        assert max(loads) - min(loads) <= 1
