"""Elections and in-sync sets as a table of cases (R-REP-2, R-REP-3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.metadata.changes import PartitionsChanged
from headrace.metadata.controller import _granted_changes
from headrace.metadata.image import NO_LEADER, BrokerImage, MetadataImage, PartitionImage, TopicImage
from headrace.metadata.partition_decisions import (
    InSyncWish,
    Liveness,
    decide_in_sync,
    decide_leader,
    decide_leaders,
    decide_more_replicas,
    decide_without,
)
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicId

Ids = tuple[int, ...]
EPOCH = 7
TOPIC_ID = TopicId(bytes(range(16)))


class Rules:
    """Of topics without settings of their own."""

    def __init__(self, min_in_sync: int = 1, unclean: bool = False) -> None:
        self._min_in_sync = min_in_sync
        self._unclean = unclean

    def allows_unclean(self, topic: TopicImage) -> bool:
        return self._unclean

    def min_in_sync(self, topic: TopicImage, partition: PartitionImage) -> int:
        return min(self._min_in_sync, len(partition.replicas))


def state(leader: int, isr: Ids, replicas: Ids = (1, 2, 3), elr: Ids = (), last_known: Ids = ()) -> PartitionImage:
    incarnation = leader * 10 if leader != NO_LEADER else -1
    return PartitionImage(replicas, leader, EPOCH, isr, 4, incarnation, elr=elr, last_known_elr=last_known)


def alive(*brokers: int, restarted: Sequence[int] = (), suspects: Sequence[int] = ()) -> Liveness:
    epochs = {broker: broker * 10 + (1 if broker in restarted else 0) for broker in brokers}
    return Liveness(epochs, frozenset(suspects))


def decided(partition: PartitionImage, liveness: Liveness, unclean: bool = False) -> tuple[int, Ids, int]:
    """(leader, in-sync set, by how much the leader epoch grew)."""
    after = decide_leader(partition, liveness, lambda: unclean, lambda partition: 1)
    if after.leader != NO_LEADER and after is not partition and after.leader_epoch > partition.leader_epoch:
        assert after.leader_incarnation == liveness.epochs[after.leader]
    return after.leader, after.isr, after.leader_epoch - partition.leader_epoch


@pytest.mark.parametrize(
    ("partition", "liveness", "unclean", "expected"),
    [
        pytest.param(state(1, (1, 2, 3)), alive(1, 2, 3), False, (1, (1, 2, 3), 0), id="all is well"),
        pytest.param(state(1, (1, 2, 3)), alive(1, 2), False, (1, (1, 2), 0), id="a follower died"),
        pytest.param(state(1, (1, 2, 3)), alive(2, 3), False, (2, (2, 3), 1), id="the leader died"),
        pytest.param(state(1, (1, 3)), alive(2, 3), False, (3, (3,), 1), id="only in-sync replicas are elected"),
        pytest.param(state(1, (1,)), alive(2, 3), False, (NO_LEADER, (1,), 1), id="the last member never leaves"),
        pytest.param(state(1, (1,)), alive(2, 3), True, (2, (2,), 1), id="unclean, if it is allowed"),
        pytest.param(state(NO_LEADER, (1,)), alive(2, 3), False, (NO_LEADER, (1,), 0), id="still nobody"),
        pytest.param(state(NO_LEADER, (1,)), alive(1, 2), False, (1, (1,), 1), id="the last member returns"),
        pytest.param(state(NO_LEADER, (1, 2, 3)), alive(3), False, (3, (3,), 1), id="one of several returns"),
        pytest.param(state(NO_LEADER, (1,)), alive(2, 3), True, (2, (2,), 1), id="unclean, allowed later"),
        pytest.param(state(1, (1, 2, 3)), alive(), False, (NO_LEADER, (1, 2, 3), 1), id="all died"),
        pytest.param(state(1, (1, 2, 3)), alive(), True, (NO_LEADER, (1, 2, 3), 1), id="nobody to elect"),
        pytest.param(
            state(1, (1, 2, 3)),
            alive(1, 2, 3, restarted=[1]),
            False,
            (1, (1, 2, 3), 1),
            id="a leader restarted",
        ),
        pytest.param(
            state(1, (1, 2)), alive(1, 2, restarted=[2]), False, (1, (1, 2), 0), id="a follower that restarted"
        ),
        pytest.param(
            state(1, (1, 2, 3)),
            alive(1, 2, 3, restarted=[1], suspects=[1]),
            False,
            (2, (2, 3), 1),
            id="a leader that may have lost records",
        ),
        pytest.param(
            state(1, (1, 2, 3)), alive(1, 2, 3, suspects=[3]), False, (1, (1, 2), 0), id="a follower that may have"
        ),
        pytest.param(
            state(1, (1,)),
            alive(1, 2, restarted=[1], suspects=[1]),
            False,
            (1, (1,), 1),
            id="the last member leads again, whatever it lost",
        ),
        pytest.param(
            state(NO_LEADER, (1, 2)),
            alive(2, suspects=[2]),
            False,
            (NO_LEADER, (1,), 0),
            id="a suspect is not elected while a trusted member may return",
        ),
        pytest.param(
            state(1, (1,), (1,)), alive(1, restarted=[1]), False, (1, (1,), 0), id="an only replica that restarted"
        ),
        pytest.param(
            state(1, (1,), (1,)),
            alive(1, restarted=[1], suspects=[1]),
            False,
            (1, (1,), 1),
            id="an only replica that may have lost records: consumers must be able to notice",
        ),
    ],
)
def test_elections(
    partition: PartitionImage, liveness: Liveness, unclean: bool, expected: tuple[int, Ids, int]
) -> None:
    assert decided(partition, liveness, unclean) == expected


@given(
    isr=st.sets(st.integers(1, 4), min_size=1),
    leader=st.integers(0, 4),
    live=st.sets(st.integers(1, 4)),
    restarted=st.sets(st.integers(1, 4)),
    suspects=st.sets(st.integers(1, 4)),
    eligible=st.sets(st.integers(1, 4)),
    min_in_sync=st.sampled_from((1, 2)),
)
def test_what_always_holds(
    isr: set[int],
    leader: int,
    live: set[int],
    restarted: set[int],
    suspects: set[int],
    eligible: set[int],
    min_in_sync: int,
) -> None:
    elr = tuple(sorted(eligible - isr))
    partition = state(leader if leader in isr else NO_LEADER, tuple(sorted(isr)), (1, 2, 3, 4), elr)
    liveness = alive(*sorted(live), restarted=sorted(restarted), suspects=sorted(suspects & live))
    after = decide_leader(partition, liveness, lambda: False, lambda partition: min_in_sync)
    assert after.isr, "somebody is always known to have every committed record"
    complete = isr | set(partition.elr)
    assert set(after.isr) | set(after.elr) <= complete, "nobody joins by an election"
    assert not set(after.isr) & set(after.elr)
    if complete - (suspects & live):
        assert not (set(after.isr) | set(after.elr)) & suspects & live, "who may have lost records leaves"
        if after.leader == NO_LEADER or len(after.isr) < 2:
            assert set(after.isr) | set(after.elr) == complete - (suspects & live), "nobody else does"
    assert after.leader == NO_LEADER or (after.leader in after.isr and after.leader in live)
    if after.leader != NO_LEADER:
        assert liveness.epochs[after.leader] == after.leader_incarnation
    assert after.leader_epoch - partition.leader_epoch in (0, 1)
    if after.leader != partition.leader:
        assert after.leader_epoch > partition.leader_epoch
    again = decide_leader(after, liveness, lambda: False, lambda partition: min_in_sync)
    assert again is after, "a decision settles it"


@pytest.mark.parametrize(
    ("partition", "liveness", "expected"),
    [
        pytest.param(state(1, (1, 2, 3)), alive(1, 2), (1, (1, 2), (), ()), id="enough are in sync"),
        pytest.param(state(1, (1, 2)), alive(1, 3), (1, (1,), (2,), ()), id="a follower that left is eligible"),
        pytest.param(state(1, (1, 2, 3)), alive(3), (3, (3,), (1, 2), ()), id="several are"),
        pytest.param(state(1, (1,), elr=(2,)), alive(3), (NO_LEADER, (1,), (2,), ()), id="they are waited for"),
        pytest.param(
            state(NO_LEADER, (1,), elr=(2,)), alive(2, 3), (2, (2,), (1,), ()), id="one of them returns first"
        ),
        pytest.param(state(NO_LEADER, (1,), elr=(2, 3)), alive(2, 3), (2, (2, 3), (), ()), id="they are enough"),
        pytest.param(
            state(NO_LEADER, (1,), elr=(2,)), alive(1, 2, 3), (1, (1,), (2,), ()), id="who is in sync comes first"
        ),
        pytest.param(
            state(1, (1,), elr=(2, 3)),
            alive(1, 2, 3, restarted=[1], suspects=[1]),
            (2, (2, 3), (), ()),
            id="the last member may have lost records, others have them",
        ),
        pytest.param(
            state(1, (1,), elr=(2, 3)),
            alive(1, restarted=[1], suspects=[1]),
            (NO_LEADER, (2, 3), (), (1,)),
            id="and they are waited for",
        ),
        pytest.param(
            state(1, (1,), elr=(2,)),
            alive(1, 2, restarted=[1, 2], suspects=[1, 2]),
            (1, (1,), (), (2,)),
            id="all may have lost records: the last member leads",
        ),
        pytest.param(
            state(1, (1,), elr=(2,)),
            alive(1, 2, restarted=[2], suspects=[2]),
            (1, (1,), (), (2,)),
            id="an eligible one may have lost records",
        ),
        pytest.param(
            state(1, (1, 2), elr=(3,), last_known=(3,)),
            alive(1, 2, 3),
            (1, (1, 2), (), ()),
            id="fewer are needed than before: a setting changed",
        ),
    ],
)
def test_eligible_leaders(
    partition: PartitionImage, liveness: Liveness, expected: tuple[int, Ids, Ids, Ids]
) -> None:
    after = decide_leader(partition, liveness, lambda: False, lambda partition: 2)
    assert (after.leader, after.isr, after.elr, after.last_known_elr) == expected
    assert decide_leader(after, liveness_after(liveness), lambda: False, lambda partition: 2) is after


def liveness_after(liveness: Liveness) -> Liveness:
    """The suspicion is cleared in the same write."""
    return Liveness(liveness.epochs)


def test_an_unclean_election_leaves_nobody_eligible() -> None:
    partition = state(1, (1,), elr=(2,), last_known=(2,))
    after = decide_leader(partition, alive(3), lambda: True, lambda partition: 2)
    assert (after.leader, after.isr, after.elr, after.last_known_elr) == (3, (3,), (), ())


def test_eligible_leaders_come_before_an_unclean_election() -> None:
    after = decide_leader(state(1, (1,), elr=(3,)), alive(2, 3), lambda: True, lambda partition: 2)
    assert (after.leader, after.isr, after.elr) == (3, (3,), (1,))


def test_a_leader_for_whom_it_is_enough_empties_the_list() -> None:
    """Brokers may differ in `min.insync.replicas`: what counts is the leader's."""
    needed = {1: 3, 2: 2}
    partition = state(1, (1,), elr=(2, 3))
    after = decide_leader(partition, alive(2, 3), lambda: False, lambda partition: needed[partition.leader])
    assert (after.leader, after.isr, after.elr) == (2, (2, 3), ())


@pytest.mark.parametrize(
    ("partition", "liveness", "expected"),
    [
        pytest.param(state(1, (1, 2, 3)), alive(2, 3), (2, (2, 3), ()), id="one of two is there"),
        pytest.param(state(1, (1, 2)), alive(2, 3), (2, (2,), (1,)), id="a leader died"),
        pytest.param(state(1, (1, 2)), alive(1, 3), (1, (1,), (2,)), id="a follower died"),
        pytest.param(state(1, (1,), elr=(2,)), alive(1, 2, 3), (1, (1,), (2,)), id="it has not said so yet"),
        pytest.param(state(1, (1,), elr=(2,)), alive(2, 3), (2, (2,), (1,)), id="it never said so"),
        pytest.param(
            state(1, (1,), elr=(2,)),
            alive(1, 2, restarted=[1], suspects=[1]),
            (2, (2,), ()),
            id="it comes back without its records",
        ),
    ],
)
def test_a_last_member_that_has_not_said_that_it_is_there(
    partition: PartitionImage, liveness: Liveness, expected: tuple[int, Ids, Ids]
) -> None:
    """With `min.insync.replicas=1`: it may be dead, its disk lost, and only not missed yet."""
    after = decide_leader(partition, liveness, lambda: False, lambda partition: 1)
    assert (after.leader, after.isr, after.elr) == expected


def test_who_hands_over_to_a_last_member_may_lead_until_that_says_that_it_is_there() -> None:
    image = cluster(state(1, (1, 2)))
    ((_, _, after),) = decide_without(image, 1, Rules())
    assert (after.leader, after.isr, after.elr) == (2, (2,), (1,))
    leads = replace(after, leader_incarnation=20)
    asked = wish((2,), leader_epoch=leads.leader_epoch)
    ((_, outcome),) = decide_in_sync(cluster(leads), 2, [asked], Rules())
    assert outcome == replace(leads, elr=())
    image = cluster(leads)
    ((_, outcome),) = decide_in_sync(image, 2, [asked], Rules(2))
    assert _granted_changes(image, [(asked, outcome)]) == []


def test_a_leader_that_asks_to_be_alone_has_said_that_it_is_there() -> None:
    ((_, outcome),) = decide_in_sync(cluster(state(1, (1, 2))), 1, [wish((1,))], Rules())
    assert outcome == state(1, (1,))


def test_a_wish_makes_members_eligible_and_ends_that() -> None:
    image = cluster(state(1, (1, 2)))
    ((_, outcome),) = decide_in_sync(image, 1, [wish((1,))], Rules(2))
    assert outcome == state(1, (1,), elr=(2,))
    image = cluster(state(1, (1,), elr=(2,)))
    ((_, outcome),) = decide_in_sync(image, 1, [wish((1, 3))], Rules(2))
    assert outcome == state(1, (1, 3))
    ((_, outcome),) = decide_in_sync(image, 1, [wish((1, 3))], Rules(3))
    assert outcome == state(1, (1, 3), elr=(2,))
    ((_, outcome),) = decide_in_sync(image, 1, [wish((1, 2))], Rules(3))
    assert outcome == state(1, (1, 2))


def cluster(partition: PartitionImage, epochs: dict[int, int] | None = None) -> MetadataImage:
    brokers = {
        broker: BrokerImage(broker, epoch, ()) for broker, epoch in (epochs or {1: 10, 2: 20, 3: 30}).items()
    }
    topic = TopicImage("t", TOPIC_ID, (partition,))
    return MetadataImage("c", 1, 1, brokers, {"t": topic}, {TOPIC_ID: topic})


def test_all_partitions_that_must_change_are_named() -> None:
    image = cluster(state(1, (1, 2, 3)), {2: 20, 3: 30})
    ((topic, changed),) = decide_leaders(image, Liveness.of(image), Rules())
    assert (topic.name, changed[0].leader) == ("t", 2)
    settled = image.with_partitions({"t": changed})
    assert list(decide_leaders(settled, Liveness.of(settled), Rules())) == []


def wish(
    isr: Ids, *, leader_epoch: int = EPOCH, partition_epoch: int = 4, broker_epoch: int | None = None
) -> InSyncWish:
    members = [(broker, broker * 10 if broker_epoch is None else broker_epoch) for broker in isr]
    return InSyncWish(TOPIC_ID, 0, leader_epoch, partition_epoch, members)


def test_a_leader_may_change_its_in_sync_set() -> None:
    image = cluster(state(1, (1, 2)))
    ((_, outcome),) = decide_in_sync(image, 1, [wish((3, 1, 2))], Rules())
    assert outcome == replace(state(1, (1, 2)), isr=(1, 2, 3))
    ((_, outcome),) = decide_in_sync(image, 1, [wish((1,))], Rules())
    assert outcome == replace(state(1, (1, 2)), isr=(1,))


def test_a_wish_that_was_granted_before_is_granted_again() -> None:
    image = cluster(replace(state(1, (1, 2)), partition_epoch=5))
    ((_, outcome),) = decide_in_sync(image, 1, [wish((1, 2))], Rules())
    assert outcome is image.topics["t"].partitions[0]


def test_a_wish_for_the_set_as_it_is_takes_a_new_partition_epoch() -> None:
    """So another wish on this state, of which the leader does not know what became, is not granted any more."""
    image = cluster(state(1, (1, 2)))
    ((asked, outcome),) = decide_in_sync(image, 1, [wish((1, 2), broker_epoch=-1)], Rules())
    assert outcome == state(1, (1, 2))
    (change,) = _granted_changes(image, [(asked, outcome)])
    assert isinstance(change, PartitionsChanged)
    assert change.partitions == {0: state(1, (1, 2))}


@pytest.mark.parametrize(
    ("leader", "asked", "code"),
    [
        (2, wish((1, 2)), ErrorCode.FENCED_LEADER_EPOCH),
        (1, wish((1, 2), leader_epoch=EPOCH - 1), ErrorCode.FENCED_LEADER_EPOCH),
        (1, wish((1, 2), leader_epoch=EPOCH + 1), ErrorCode.NOT_CONTROLLER),
        (1, wish((1, 2, 3), partition_epoch=3), ErrorCode.INVALID_UPDATE_VERSION),
        (1, wish((1, 2, 3), partition_epoch=5), ErrorCode.NOT_CONTROLLER),
        (1, wish((2, 3)), ErrorCode.INVALID_REQUEST),
        (1, wish((1, 4)), ErrorCode.INVALID_REQUEST),
        (1, wish((1, 1)), ErrorCode.INVALID_REQUEST),
        (1, wish((1, 3), broker_epoch=29), ErrorCode.INELIGIBLE_REPLICA),
        (1, replace(wish((1,)), partition=1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (1, replace(wish((1,)), topic_id=TopicId(bytes(16))), ErrorCode.UNKNOWN_TOPIC_ID),
    ],
)
def test_wishes_that_are_refused(leader: int, asked: InSyncWish, code: ErrorCode) -> None:
    ((_, outcome),) = decide_in_sync(cluster(state(1, (1, 2))), leader, [asked], Rules())
    assert isinstance(outcome, KafkaError)
    assert outcome.code is code


def test_a_broker_that_is_gone_or_suspect_does_not_join() -> None:
    image = cluster(state(1, (1, 2)), {1: 10, 2: 20})
    ((_, outcome),) = decide_in_sync(image, 1, [wish((1, 2, 3))], Rules())
    assert isinstance(outcome, KafkaError)
    image = cluster(state(1, (1, 2)))
    ((_, outcome),) = decide_in_sync(image, 1, [wish((1, 2, 3))], Rules(), unavailable=[3])
    assert isinstance(outcome, KafkaError)
    assert outcome.code is ErrorCode.INELIGIBLE_REPLICA


def test_the_clusters_own_topics_get_replicas_when_brokers_join() -> None:
    image = cluster(state(1, (1,), (1,)))
    (grown,) = decide_more_replicas(image, {"t": 3, "absent": 3})
    assert sorted(grown.partitions[0].replicas) == [1, 2, 3]
    assert grown.partitions[0].isr == (1,)
    two = cluster(state(1, (1,), (1,)), {1: 10, 2: 20})
    (grown,) = decide_more_replicas(two, {"t": 3})
    assert grown.partitions[0].replicas == (1, 2)
    assert decide_more_replicas(image.with_topics([grown], []), {"t": 2}) == []
    assert decide_more_replicas(cluster(state(1, (1,), (1,)), {1: 10}), {"t": 3}) == []


def test_replicas_are_added_where_the_fewest_are() -> None:
    partitions = tuple(state(1, (1,), (1,)) for _ in range(6))
    topic = TopicImage("t", TOPIC_ID, partitions)
    image = cluster(partitions[0]).with_topics([topic], [])
    (grown,) = decide_more_replicas(image, {"t": 2})
    added = [partition.replicas[1] for partition in grown.partitions]
    assert sorted(added) == [2, 2, 2, 3, 3, 3]


def test_a_failed_directory_is_like_a_dead_broker_for_its_partitions_alone() -> None:
    image = cluster(state(1, (1, 2, 3)))
    failed = replace(image.brokers[1], offline=frozenset({(TOPIC_ID, 0)}))
    image = replace(image, brokers={**image.brokers, 1: failed})
    ((_, changed),) = decide_leaders(image, Liveness.of(image), Rules())
    assert (changed[0].leader, changed[0].isr) == (2, (2, 3))
    elsewhere = replace(failed, offline=frozenset({(TOPIC_ID, 1)}))
    image = replace(image, brokers={**image.brokers, 1: elsewhere})
    assert list(decide_leaders(image, Liveness.of(image), Rules())) == []


def test_a_replica_on_a_failed_directory_does_not_join() -> None:
    """Its leader may not have heard of the failure yet, and would wait for a replica that copies nothing."""
    image = cluster(state(1, (1, 2)))
    failed = replace(image.brokers[3], offline=frozenset({(TOPIC_ID, 0)}))
    image = replace(image, brokers={**image.brokers, 3: failed})
    ((_, outcome),) = decide_in_sync(image, 1, [wish((1, 2, 3))], Rules())
    assert isinstance(outcome, KafkaError)
    assert outcome.code is ErrorCode.INELIGIBLE_REPLICA
    ((_, stays),) = decide_in_sync(image, 1, [wish((1,))], Rules())
    assert isinstance(stays, PartitionImage)


def test_a_broker_that_stops_does_not_hand_over_to_one_that_lacks_records() -> None:
    """One that has just registered, and of which the controller has not taken note in any other way."""
    image = cluster(state(1, (1, 2, 3)))
    lacks = replace(image.brokers[2], suspect=True, lacking=frozenset({(TOPIC_ID, 0)}))
    image = replace(image, brokers={**image.brokers, 2: lacks})
    ((_, _, after),) = decide_without(image, 1, Rules())
    assert (after.leader, after.isr) == (3, (3,))
    elsewhere = replace(lacks, lacking=frozenset({(TOPIC_ID, 1)}))
    image = replace(image, brokers={**image.brokers, 2: elsewhere})
    ((_, _, after),) = decide_without(image, 1, Rules())
    assert (after.leader, after.isr) == (2, (2, 3))
