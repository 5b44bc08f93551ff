"""Moves of partitions as a table of cases, and what always holds whatever happens in the middle (R-REP-4)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.metadata.eligible import MinInSync, one_is_enough
from headrace.metadata.image import NO_LEADER, BrokerImage, MetadataImage, PartitionImage, TopicImage
from headrace.metadata.partition_decisions import (
    Election,
    InSyncWish,
    Liveness,
    decide_election,
    decide_in_sync,
    decide_leader,
)
from headrace.metadata.reassignments import Reassignment, decide_reassignments, move_to
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicId, TopicPartition

Ids = tuple[int, ...]
EPOCH = 7
TOPIC_ID = TopicId(bytes(range(16)))
T0 = TopicPartition("t", 0)
ALL = (1, 2, 3, 4, 5)


def at_rest(replicas: Ids = (1, 2, 3), isr: Ids | None = None, leader: int = 1) -> PartitionImage:
    members = replicas if isr is None else isr
    return PartitionImage(replicas, leader, EPOCH, members, 4, leader * 10 if leader != NO_LEADER else -1)


def alive(*brokers: int) -> Liveness:
    return Liveness({broker: broker * 10 for broker in brokers})


def cluster(partition: PartitionImage, brokers: Ids = ALL) -> MetadataImage:
    topic = TopicImage("t", TOPIC_ID, (partition,))
    known = {broker: BrokerImage(broker, broker * 10, ()) for broker in brokers}
    return MetadataImage("c", brokers=known, topics={"t": topic}, topics_by_id={TOPIC_ID: topic})


class Rules:
    def __init__(self, needed: int = 1) -> None:
        self._needed = needed

    def allows_unclean(self, topic: TopicImage) -> bool:
        return False

    def min_in_sync(self, topic: TopicImage, partition: PartitionImage) -> int:
        return min(self._needed, len(partition.replicas))


def joined(partition: PartitionImage, isr: Ids, brokers: Ids = ALL, needed: int = 1) -> PartitionImage:
    """After its leader asked for this in-sync set."""
    wish = InSyncWish(TOPIC_ID, 0, partition.leader_epoch, partition.partition_epoch, [(b, b * 10) for b in isr])
    ((_, outcome),) = decide_in_sync(cluster(partition, brokers), partition.leader, [wish], Rules(needed))
    assert isinstance(outcome, PartitionImage), outcome
    return outcome


class TestBeginning:
    @pytest.mark.parametrize(
        ("before", "target", "replicas", "adding", "removing"),
        [
            pytest.param(at_rest(), (4, 5, 3), (4, 5, 3, 1, 2), (4, 5), (1, 2), id="to others"),
            pytest.param(at_rest(), (1, 2, 3, 4), (1, 2, 3, 4), (4,), (), id="one more replica"),
            pytest.param(at_rest((1,)), (1, 2, 3), (1, 2, 3), (2, 3), (), id="from one replica to three"),
            pytest.param(at_rest((1,)), (2,), (2, 1), (2,), (1,), id="an only replica"),
        ],
    )
    def test_new_replicas_are_added_and_none_leaves(
        self, before: PartitionImage, target: Ids, replicas: Ids, adding: Ids, removing: Ids
    ) -> None:
        after = move_to(before, target, alive(*ALL))
        assert (after.replicas, after.adding, after.removing) == (replicas, adding, removing)
        assert (after.leader, after.leader_epoch, set(after.isr)) == (1, EPOCH, set(before.isr))

    def test_what_is_in_sync_already_needs_no_time(self) -> None:
        fewer = move_to(at_rest(), (2, 1), alive(*ALL))
        assert (fewer.replicas, fewer.isr, fewer.leader, fewer.target) == ((2, 1), (2, 1), 1, ())
        assert fewer.leader_epoch == EPOCH + 1, "who left must not be taken for what it was if it comes back"
        without_leader = move_to(at_rest(), (3, 2), alive(*ALL))
        assert (without_leader.replicas, without_leader.leader) == ((3, 2), 3)
        assert (without_leader.leader_epoch, without_leader.leader_incarnation) == (EPOCH + 1, 30)

    def test_another_order_is_no_move(self) -> None:
        after = move_to(at_rest(isr=(1, 2)), (3, 2, 1), alive(*ALL))
        assert (after.replicas, after.isr, after.leader, after.leader_epoch) == ((3, 2, 1), (2, 1), 1, EPOCH)
        assert not after.target

    def test_fewer_replicas_wait_for_those_that_stay(self) -> None:
        """Otherwise one that is behind would be all there is."""
        waits = move_to(at_rest(isr=(1, 2)), (1, 3), alive(*ALL))
        assert (waits.replicas, waits.isr, waits.removing) == ((1, 3, 2), (1, 2), (2,))
        assert joined(waits, (1, 3, 2)).replicas == (1, 3)

    def test_the_same_again_changes_nothing(self) -> None:
        before = at_rest()
        assert move_to(before, before.replicas, alive(*ALL)) is before
        moving = move_to(before, (4, 5), alive(*ALL))
        assert move_to(moving, (4, 5), alive(*ALL)) is moving

    def test_an_only_replica_of_an_earlier_process_gets_an_epoch_of_its_own(self) -> None:
        """It led without one while it was alone; with followers it must not."""
        old = replace(at_rest((1,)), leader_incarnation=3)
        after = move_to(old, (1, 2), alive(*ALL))
        assert (after.leader, after.leader_epoch, after.leader_incarnation) == (1, EPOCH + 1, 10)


class TestEnding:
    def test_it_ends_when_the_target_is_in_sync_and_the_leader_moves(self) -> None:
        moving = move_to(at_rest(), (4, 5), alive(*ALL))
        one = joined(moving, (4, 1, 2, 3))
        assert (one.isr, one.leader, one.leader_epoch, one.target) == ((4, 1, 2, 3), 1, EPOCH, (4, 5))
        done = joined(one, (4, 5, 1, 2, 3))
        assert (done.replicas, done.isr, done.target, done.original) == ((4, 5), (4, 5), (), ())
        assert (done.leader, done.leader_epoch, done.leader_incarnation) == (4, EPOCH + 1, 40)

    def test_a_leader_that_stays_goes_on_in_a_new_epoch(self) -> None:
        done = joined(move_to(at_rest(), (4, 1), alive(*ALL)), (4, 1, 2, 3))
        assert (done.replicas, done.leader, done.leader_epoch) == ((4, 1), 1, EPOCH + 1)

    def test_more_replicas_change_no_epoch(self) -> None:
        done = joined(move_to(at_rest(), (1, 2, 3, 4), alive(*ALL)), (1, 2, 3, 4))
        assert (done.replicas, done.target, done.leader, done.leader_epoch) == ((1, 2, 3, 4), (), 1, EPOCH)

    def test_it_does_not_end_while_one_of_the_target_is_down(self) -> None:
        moving = joined(move_to(at_rest(), (4, 5), alive(*ALL)), (4, 1, 2, 3))
        died = decide_leader(moving, alive(1, 2, 3, 5), lambda: False, one_is_enough)
        assert (died.isr, died.target) == ((1, 2, 3), (4, 5))
        assert joined(died, (5, 1, 2, 3), (1, 2, 3, 5)).target == (4, 5)

    def test_a_broker_that_may_have_lost_records_does_not_end_it(self) -> None:
        moving = joined(move_to(at_rest(), (4, 5), alive(*ALL)), (4, 1, 2, 3))
        image = cluster(moving)
        suspect = replace(image.brokers[4], suspect=True)
        image = replace(image, brokers={**image.brokers, 4: suspect})
        wish = InSyncWish(TOPIC_ID, 0, EPOCH, 4, [(b, b * 10) for b in (4, 5, 1, 2, 3)])
        ((_, outcome),) = decide_in_sync(image, 1, [wish], Rules(), [4])
        assert isinstance(outcome, PartitionImage)
        assert outcome.target == (4, 5)
        after = decide_leader(outcome, Liveness.of(image), lambda: False, one_is_enough)
        assert (after.isr, after.leader, after.target) == ((5, 1, 2, 3), 1, (4, 5))


class TestDeathsInTheMiddle:
    def test_the_leader_dies(self) -> None:
        moving = move_to(at_rest(), (4, 5), alive(*ALL))
        after = decide_leader(moving, alive(2, 3, 4, 5), lambda: False, one_is_enough)
        assert (after.leader, after.leader_epoch, after.isr, after.target) == (2, EPOCH + 1, (2, 3), (4, 5))

    def test_the_leader_dies_and_a_new_replica_is_in_sync(self) -> None:
        moving = joined(move_to(at_rest(), (4, 5), alive(*ALL)), (4, 1, 2, 3))
        after = decide_leader(moving, alive(2, 3, 4, 5), lambda: False, one_is_enough)
        assert (after.leader, after.isr) == (4, (4, 2, 3))

    def test_a_leader_that_will_go_dies_with_everything_else_in_place(self) -> None:
        """The death of the others' last laggard can be what ends a move."""
        moving = joined(move_to(at_rest(), (4, 5), alive(*ALL)), (4, 1, 2, 3))
        both = replace(moving, isr=(4, 5, 1))
        after = decide_leader(both, alive(2, 3, 4, 5), lambda: False, one_is_enough)
        assert (after.replicas, after.leader, after.isr, after.target) == ((4, 5), 4, (4, 5), ())


class TestCancelling:
    def test_back_to_where_it_was_in_that_order(self) -> None:
        moving = move_to(at_rest(isr=(1, 2)), (4, 3), alive(*ALL))
        (back,) = decide_reassignments(cluster(moving), [Reassignment(T0, None)])
        assert isinstance(back, PartitionImage)
        assert (back.replicas, back.isr, back.leader, back.target) == ((1, 2, 3), (1, 2), 1, ())
        assert back.leader_epoch == EPOCH + 1

    def test_a_new_replica_that_leads_hands_over(self) -> None:
        moving = joined(move_to(at_rest(), (4, 5), alive(*ALL)), (4, 1, 2, 3))
        led = decide_leader(moving, alive(2, 3, 4, 5), lambda: False, one_is_enough)
        back = move_to(led, led.original, alive(2, 3, 4, 5))
        assert (back.replicas, back.leader, back.isr) == ((1, 2, 3), 2, (2, 3))
        assert back.leader_epoch > led.leader_epoch

    def test_not_if_the_new_replicas_alone_are_in_sync(self) -> None:
        moving = joined(move_to(at_rest((1,)), (4, 5), alive(*ALL)), (4, 1))
        led = decide_leader(moving, alive(4, 5), lambda: False, one_is_enough)
        assert led.isr == (4,)
        (outcome,) = decide_reassignments(cluster(led, (4, 5)), [Reassignment(T0, None)])
        assert isinstance(outcome, KafkaError)
        assert outcome.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT

    def test_no_dead_member_of_the_in_sync_set_is_dropped_while_none_of_them_lives(self) -> None:
        """The one that returns first may have lost its log: then the other one has the only copy (seed 991057)."""
        moving = replace(at_rest((2, 3, 1), (2, 1), NO_LEADER), target=(2, 3), original=(1, 3))
        with pytest.raises(KafkaError, match=r"None of the in-sync replicas \[2, 1\] is alive") as refused:
            move_to(moving, (1, 3), alive(3, 4))
        assert refused.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert move_to(moving, (1, 3), alive(1, 3, 4)).isr == (1,)

    def test_nothing_to_cancel(self) -> None:
        (outcome,) = decide_reassignments(cluster(at_rest()), [Reassignment(T0, None)])
        assert isinstance(outcome, KafkaError)
        assert outcome.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


class TestAnotherTarget:
    def test_what_neither_needs_leaves_at_once(self) -> None:
        moving = joined(move_to(at_rest(), (4, 3), alive(*ALL)), (3, 1, 2))
        other = move_to(moving, (5, 3), alive(*ALL))
        assert (other.replicas, other.original, other.adding) == ((5, 3, 1, 2), (1, 2, 3), (5,))
        assert other.leader_epoch == EPOCH + 1

    def test_cancelled_later_it_is_where_it_was_first(self) -> None:
        other = move_to(move_to(at_rest(), (4, 3), alive(*ALL)), (5, 3), alive(*ALL))
        assert move_to(other, other.original, alive(*ALL)).replicas == (1, 2, 3)


class TestRefusals:
    @pytest.mark.parametrize(
        ("partition", "replicas", "code"),
        [
            (T0, (), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            (T0, (1, 9), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            (T0, (1, 1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            (T0, (1, 2), ErrorCode.INVALID_REPLICATION_FACTOR),
            (TopicPartition("t", 1), (1, 2, 3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (TopicPartition("u", 0), (1, 2, 3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ],
    )
    def test_as_kafka_answers(self, partition: TopicPartition, replicas: Ids, code: ErrorCode) -> None:
        request = Reassignment(partition, replicas)
        (outcome,) = decide_reassignments(cluster(at_rest()), [request], may_change_factor=False)
        assert isinstance(outcome, KafkaError)
        assert outcome.code is code

    def test_a_replica_that_is_down_may_stay_and_not_come(self) -> None:
        image = cluster(at_rest(isr=(1, 2)), (1, 2, 4))
        stays, comes = decide_reassignments(image, [Reassignment(T0, (1, 3, 4)), Reassignment(T0, (1, 5))])
        assert isinstance(stays, PartitionImage)
        assert isinstance(comes, KafkaError)


class TestElections:
    def test_the_preferred_replica(self) -> None:
        after = decide_election(at_rest(leader=2), Election.PREFERRED, alive(*ALL))
        assert (after.leader, after.leader_epoch, after.leader_incarnation) == (1, EPOCH + 1, 10)

    @pytest.mark.parametrize(
        ("partition", "election", "live", "code"),
        [
            (at_rest(), Election.PREFERRED, ALL, ErrorCode.ELECTION_NOT_NEEDED),
            (at_rest(leader=2, isr=(2, 3)), Election.PREFERRED, ALL, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
            (at_rest(leader=2), Election.PREFERRED, (2, 3), ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
            (at_rest(), Election.UNCLEAN, ALL, ErrorCode.ELECTION_NOT_NEEDED),
            (at_rest(leader=NO_LEADER, isr=(1,)), Election.UNCLEAN, (), ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
        ],
    )
    def test_refused(self, partition: PartitionImage, election: Election, live: Ids, code: ErrorCode) -> None:
        with pytest.raises(KafkaError) as refused:
            decide_election(partition, election, alive(*live))
        assert refused.value.code is code

    def test_anybody_who_lives_if_an_operator_says_so(self) -> None:
        after = decide_election(at_rest(leader=NO_LEADER, isr=(1,)), Election.UNCLEAN, alive(2, 3))
        assert (after.leader, after.isr) == (2, (2,))


@given(st.data())
def test_whatever_happens_no_committed_record_is_given_up(data: st.DataObject) -> None:
    """Each step is a death, a return, a move, or a join: the in-sync set never loses its last live member."""
    partition = at_rest()
    live = set(ALL)
    needed = data.draw(st.integers(1, 3))

    def min_in_sync(partition: PartitionImage) -> int:
        return min(needed, len(partition.replicas))

    for _ in range(data.draw(st.integers(1, 12))):
        step = data.draw(st.sampled_from(["dies", "returns", "moves", "joins", "cancels"]))
        liveness = alive(*live)
        before, had_all = partition, {*partition.isr, *partition.elr}
        if step == "dies" and live:
            live.discard(data.draw(st.sampled_from(sorted(live))))
            partition = decide_leader(partition, alive(*live), lambda: False, min_in_sync)
        elif step == "returns":
            live.add(data.draw(st.sampled_from(ALL)))
            partition = decide_leader(partition, alive(*live), lambda: False, min_in_sync)
        elif step == "moves":
            target = tuple(data.draw(st.lists(st.sampled_from(ALL), min_size=1, max_size=3, unique=True)))
            partition = _unless_refused(partition, target, liveness, min_in_sync)
        elif step == "cancels" and partition.target:
            partition = _unless_refused(partition, partition.original, liveness, min_in_sync)
        elif step == "joins" and partition.leader != NO_LEADER:
            isr = tuple(replica for replica in partition.replicas if replica in live)
            partition = joined(partition, isr, tuple(live), needed)
            had_all |= set(isr)
        assert set(partition.isr) & had_all, "somebody has everything"
        if had_all & live:
            assert set(partition.isr) & had_all & live, "and lives, if one did"
            assert partition.leader in live
        assert set(partition.elr) <= had_all & set(partition.replicas) - set(partition.isr)
        assert partition.leader_epoch >= before.leader_epoch
        left = set(before.replicas) - set(partition.replicas)
        if partition.leader != before.leader or (left and partition.leader != NO_LEADER):
            assert partition.leader_epoch > before.leader_epoch


def _unless_refused(
    partition: PartitionImage, target: Ids, liveness: Liveness, needed: MinInSync
) -> PartitionImage:
    try:
        return move_to(partition, target, liveness, needed)
    except KafkaError:
        return partition
