"""Where replicas go (R-REP-1)."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.metadata.image import BrokerImage
from headrace.metadata.placement import Load, place
from headrace.model.errors import ErrorCode, KafkaError


def brokers(*racks: str | None) -> dict[int, BrokerImage]:
    return {number: BrokerImage(number, 1, (), rack) for number, rack in enumerate(racks)}


def test_one_broker_takes_everything() -> None:
    assert place(brokers(None), 3, 1, Load(), Load()) == [(0,), (0,), (0,)]


def test_not_enough_brokers_is_an_invalid_replication_factor() -> None:
    with pytest.raises(KafkaError) as caught:
        place(brokers(None, None), 1, 3, Load(), Load())
    assert caught.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


def test_brokers_that_are_stopped_take_what_the_others_cannot() -> None:
    cluster = Load()
    assert place(brokers(None, None), 1, 2, Load(), cluster, stopped=[7]) == [(0, 1)]
    placed = place(brokers(None, None), 4, 3, Load(), cluster, stopped=[7, 8])
    assert all({0, 1} == set(replicas[:2]) for replicas in placed), "those that run come first"
    assert Counter(replicas[2] for replicas in placed) == {7: 2, 8: 2}
    for alive, factor in ((brokers(None, None), 5), ({}, 1)):
        with pytest.raises(KafkaError) as caught:
            place(alive, 1, factor, Load(), Load(), stopped=[7, 8])
        assert caught.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


@given(
    racks=st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=1, max_size=7),
    count=st.integers(1, 40),
    factor=st.integers(1, 4),
)
def test_replicas_are_distinct_and_leaders_and_replicas_even(
    racks: list[str | None], count: int, factor: int
) -> None:
    factor = min(factor, len(racks))
    placed = place(brokers(*racks), count, factor, Load(), Load())
    assert len(placed) == count
    assert all(len(set(replicas)) == factor for replicas in placed)
    leaders = Counter(replicas[0] for replicas in placed)
    assert max(leaders.values()) - min(leaders[broker] for broker in range(len(racks))) <= 1


@given(count=st.integers(1, 40), factor=st.integers(1, 4), size=st.integers(4, 7))
def test_without_racks_replicas_are_even_too(count: int, factor: int, size: int) -> None:
    placed = place(brokers(*[None] * size), count, factor, Load(), Load())
    held = Counter(broker for replicas in placed for broker in replicas)
    assert max(held.values()) - min(held[broker] for broker in range(size)) <= 2


@given(per_rack=st.integers(1, 3), count=st.integers(1, 30))
def test_replicas_are_in_different_racks_where_there_are_enough(per_rack: int, count: int) -> None:
    cluster = brokers(*["a"] * per_rack, *["b"] * per_rack, *["c"] * per_rack)
    for replicas in place(cluster, count, 3, Load(), Load()):
        assert {cluster[replica].rack for replica in replicas} == {"a", "b", "c"}


def test_the_least_loaded_broker_comes_first() -> None:
    cluster = Load()
    for _ in range(5):
        cluster.add((0, 1))
    assert place(brokers(None, None, None), 1, 1, Load(), cluster) == [(2,)]


def test_a_new_broker_does_not_lead_all_of_a_new_topic() -> None:
    cluster = Load()
    for _ in range(50):
        cluster.add((0, 1))
        cluster.add((1, 0))
    placed = place(brokers(None, None, None), 6, 2, Load(), cluster)
    assert Counter(replicas[0] for replicas in placed) == {0: 2, 1: 2, 2: 2}


def test_topics_of_one_partition_are_spread() -> None:
    cluster = Load()
    leaders = [place(brokers(None, None, None), 1, 1, Load(), cluster)[0][0] for _ in range(6)]
    assert Counter(leaders) == {0: 2, 1: 2, 2: 2}


def test_added_partitions_count_those_that_are_there() -> None:
    topic = Load()
    topic.add((0,))
    topic.add((0,))
    assert place(brokers(None, None), 2, 1, topic, Load()) == [(1,), (1,)]


def test_when_a_broker_dies_the_others_share_what_it_led() -> None:
    """The next leader of a partition is its second replica."""
    brokers = {broker_id: BrokerImage(broker_id, 1, ()) for broker_id in (1, 2, 3)}
    placed = place(brokers, 12, 3, Load(), Load())
    for dead in brokers:
        heirs = Counter(replicas[1] for replicas in placed if replicas[0] == dead)
        assert sorted(heirs.values()) == [2, 2]
