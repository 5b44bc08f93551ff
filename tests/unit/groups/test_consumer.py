"""The consumer protocol (KIP-848): epochs, reconciliation, static members, patterns, refusals (R-CON-3)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headrace.groups.consumer import ConsumerGroup
from headrace.groups.decision import GroupTimer, TimerKind
from headrace.groups.embedded import Subscription, write_subscription
from headrace.groups.events import (
    Assignment,
    ClassicProtocol,
    ConsumerEpochStored,
    ConsumerPartitionsDeleted,
    ConsumerPartitionsStored,
    RegexDeleted,
    RegexStored,
    SubscribedTopic,
)
from headrace.groups.messages import (
    ClientIdentity,
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
    JoinGroup,
    JoinReply,
    SyncGroup,
    SyncReply,
)
from headrace.groups.settings import GroupSettings
from headrace.groups.states import ConsumerGroupState, MemberState
from headrace.model.errors import ErrorCode
from headrace.testing.group_shell import GroupShell, topic

A, B = topic("a", 4), topic("b", 2)
CLIENT = ClientIdentity("c", "/h")
JOIN = ConsumerHeartbeat("g", "m1", 0, rebalance_timeout_ms=30_000, topics=("a",), owned={}, client=CLIENT)


def owning(*numbers: int) -> Assignment:
    return {A.id: frozenset(numbers)} if numbers else {}


def new_shell(settings: GroupSettings | None = None) -> GroupShell:
    return GroupShell(settings, (A, B))


def group_of(shell: GroupShell) -> ConsumerGroup:
    group = shell.coordinator.group("g")
    assert isinstance(group, ConsumerGroup)
    return group


def beat(shell: GroupShell, request: ConsumerHeartbeat) -> ConsumerHeartbeatReply:
    return shell.ask(request, ConsumerHeartbeatReply)


def stay(member_id: str, epoch: int, owned: Assignment | None = None, **more: Any) -> ConsumerHeartbeat:
    request = ConsumerHeartbeat("g", member_id, epoch, owned=owned, client=CLIENT)
    return replace(request, **more)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"group_id": "  "}, ErrorCode.INVALID_REQUEST),
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"member_id": "", "version": 0}, ErrorCode.NONE),
        ({"member_id": "", "version": 0, "member_epoch": 1}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"owned": None}, ErrorCode.INVALID_REQUEST),
        ({"owned": owning(1)}, ErrorCode.INVALID_REQUEST),
        ({"topics": None}, ErrorCode.INVALID_REQUEST),
        ({"topics": None, "regex": "a"}, ErrorCode.NONE),
        ({"topics": ()}, ErrorCode.NONE),
        ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"assignor": "other"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"assignor": "range"}, ErrorCode.NONE),
        ({"topics": None, "regex": "("}, ErrorCode.INVALID_REGULAR_EXPRESSION),
        ({"member_epoch": 1}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"member_epoch": -1}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"member_epoch": -2, "instance_id": "i"}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({}, ErrorCode.NONE),
    ],
)
def test_a_first_heartbeat(change: dict[str, Any], error: ErrorCode) -> None:
    shell = new_shell()
    reply = beat(shell, replace(JOIN, **change))
    assert reply.error is error
    assert (shell.coordinator.group("g") is None) == (error is not ErrorCode.NONE)
    assert bool(shell.log) == (error is ErrorCode.NONE)


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (stay("nobody", 1), ErrorCode.UNKNOWN_MEMBER_ID),
        (stay("nobody", -1), ErrorCode.UNKNOWN_MEMBER_ID),
        (stay("m1", 2), ErrorCode.FENCED_MEMBER_EPOCH),
        (stay("m1", 1, instance_id="i"), ErrorCode.UNKNOWN_MEMBER_ID),
        (stay("m1", 1), ErrorCode.NONE),
        # The reply to the join got lost: the same join again, which owns nothing.
        (JOIN, ErrorCode.NONE),
    ],
)
def test_a_heartbeat_of_a_member(request_: ConsumerHeartbeat, error: ErrorCode) -> None:
    shell = new_shell()
    beat(shell, JOIN)
    assert beat(shell, request_).error is error


def test_an_epoch_before_the_last_is_fenced_but_the_last_is_taken_for_a_lost_reply() -> None:
    shell = new_shell()
    beat(shell, JOIN)
    beat(shell, stay("m1", 1, topics=("a", "b")))
    member = group_of(shell).members["m1"]
    assert (member.epoch, member.previous_epoch) == (2, 1)
    assert beat(shell, stay("m1", 1, owning(0, 1))).error is ErrorCode.NONE
    assert beat(shell, stay("m1", 1, owning(9))).error is ErrorCode.FENCED_MEMBER_EPOCH
    assert beat(shell, stay("m1", 1)).error is ErrorCode.FENCED_MEMBER_EPOCH
    assert beat(shell, stay("m1", 2, owning(0, 1, 2, 3), topics=("a",))).member_epoch == 3
    assert beat(shell, stay("m1", 1, {})).error is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_fenced_member_joins_again_and_gets_its_partitions() -> None:
    """At any epoch (KAFKA-19233): it was refused as fenced until its session had ended."""
    shell = new_shell()
    beat(shell, JOIN)
    beat(shell, stay("m1", 1, topics=("a", "b")))
    assert beat(shell, stay("m1", 2, owning(0, 1, 2, 3), topics=("a",))).member_epoch == 3
    assert beat(shell, stay("m1", 1)).error is ErrorCode.FENCED_MEMBER_EPOCH
    again = beat(shell, JOIN)
    assert (again.error, again.member_epoch, again.assignment) == (ErrorCode.NONE, 3, owning(0, 1, 2, 3))
    assert group_of(shell).members["m1"].state is MemberState.STABLE


def test_a_member_that_joins_again_has_revoked_everything() -> None:
    shell = new_shell()
    beat(shell, JOIN)
    beat(shell, stay("m1", 1, topics=("a", "b")))
    beat(shell, stay("m1", 2, owning(0, 1, 2, 3), topics=("a",)))
    assert beat(shell, replace(JOIN, member_id="m2")).member_epoch == 4
    kept = beat(shell, stay("m1", 3)).assignment
    assert kept is not None
    assert group_of(shell).members["m1"].state is MemberState.UNREVOKED_PARTITIONS

    again = beat(shell, JOIN)
    assert (again.error, again.member_epoch, again.assignment) == (ErrorCode.NONE, 4, kept)
    assert (TimerKind.REVOKE, "g", "m1") not in shell.timers
    got = beat(shell, replace(JOIN, member_id="m2"))
    assert (got.member_epoch, got.assignment) == (4, owning(*({0, 1, 2, 3} - kept[A.id])))
    assert group_of(shell).state is ConsumerGroupState.STABLE


def test_two_members_revoke_before_they_assign() -> None:
    """The whole dance: nobody gets a partition that another has not given up."""
    shell = new_shell()
    first = beat(shell, JOIN)
    assert (first.member_epoch, first.assignment) == (1, owning(0, 1, 2, 3))
    assert first.heartbeat_interval_ms == 5_000
    assert beat(shell, stay("m1", 1)).assignment is None

    second = beat(shell, replace(JOIN, member_id="m2"))
    assert (second.member_epoch, second.assignment) == (2, {})
    assert group_of(shell).members["m2"].state is MemberState.UNRELEASED_PARTITIONS

    told = beat(shell, stay("m1", 1))
    assert told.member_epoch == 1
    assert told.assignment is not None
    kept = told.assignment
    assert len(kept[A.id]) == 2
    assert group_of(shell).members["m1"].state is MemberState.UNREVOKED_PARTITIONS
    assert beat(shell, stay("m2", 2)).assignment is None

    done = beat(shell, stay("m1", 1, kept))
    assert done.member_epoch == 2
    got = beat(shell, stay("m2", 2))
    assert got.assignment == owning(*({0, 1, 2, 3} - kept[A.id]))
    assert group_of(shell).state is ConsumerGroupState.STABLE


def test_a_member_that_does_not_revoke_in_time_is_removed() -> None:
    shell = new_shell()
    beat(shell, JOIN)
    beat(shell, replace(JOIN, member_id="m2"))
    beat(shell, stay("m1", 1))
    for _ in range(3):
        shell.advance(10_000)
        last = beat(shell, stay("m1", 1)).error
        beat(shell, stay("m2", group_of(shell).members["m2"].epoch))
    assert last is ErrorCode.UNKNOWN_MEMBER_ID
    beat(shell, stay("m2", group_of(shell).members["m2"].epoch))
    assert group_of(shell).members["m2"].assigned == owning(0, 1, 2, 3)


def test_a_timer_of_an_epoch_that_is_over_is_ignored() -> None:
    shell = new_shell()
    beat(shell, JOIN)
    beat(shell, replace(JOIN, member_id="m2"))
    kept = beat(shell, stay("m1", 1)).assignment
    late = shell.timers[TimerKind.REVOKE, "g", "m1"]
    beat(shell, stay("m1", 1, kept))
    assert late.key not in shell.timers
    assert shell.coordinator.timer_fired(late, shell.now_ms).events == ()


def test_a_silent_member_is_removed() -> None:
    shell = new_shell()
    beat(shell, JOIN)
    shell.advance(44_999)
    assert beat(shell, stay("m1", 1)).error is ErrorCode.NONE
    shell.advance(45_000)
    assert beat(shell, stay("m1", 1)).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert group_of(shell).state is ConsumerGroupState.EMPTY
    assert group_of(shell).epoch == 2


def test_sessions_start_anew_under_a_new_coordinator() -> None:
    shell = new_shell()
    beat(shell, JOIN)
    shell.advance(40_000)
    shell.restart()
    shell.advance(40_000)
    assert beat(shell, stay("m1", 1)).error is ErrorCode.NONE
    beat(shell, replace(JOIN, member_id="m2"))
    beat(shell, stay("m1", 1))
    shell.restart()
    shell.advance(30_000)
    assert beat(shell, stay("m1", 1)).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_leaving_gives_everything_back() -> None:
    shell = new_shell()
    beat(shell, JOIN)
    beat(shell, replace(JOIN, member_id="m2"))
    left = beat(shell, stay("m1", -1))
    assert (left.error, left.member_epoch) == (ErrorCode.NONE, -1)
    assert beat(shell, stay("m2", 2)).assignment == owning(0, 1, 2, 3)


def test_a_change_of_topics_is_noticed_with_the_next_heartbeat() -> None:
    shell = new_shell()
    beat(shell, JOIN)
    shell.set_topics((topic("a", 6), B))
    reply = beat(shell, stay("m1", 1))
    assert (reply.member_epoch, reply.assignment) == (2, owning(0, 1, 2, 3, 4, 5))
    shell.set_topics((B,))
    reply = beat(shell, stay("m1", 2))
    assert (reply.member_epoch, reply.assignment) == (2, {})
    assert beat(shell, stay("m1", 2, {})).member_epoch == 3
    shell.set_topics((A, B, topic("unrelated", 1)))
    assert beat(shell, stay("m1", 3)).assignment == owning(0, 1, 2, 3)
    epoch = group_of(shell).epoch
    shell.set_topics((A, B))
    assert beat(shell, stay("m1", 4)).error is ErrorCode.NONE
    assert group_of(shell).epoch == epoch


def test_the_old_record_of_partitions_is_replaced_by_the_hash() -> None:
    """Kafka before 4.1 wrote it; KIP-1101."""
    shell = new_shell()
    beat(shell, JOIN)
    shell.coordinator.apply(ConsumerPartitionsStored("g", (SubscribedTopic(A.id, "a", 4),)))
    beat(shell, replace(JOIN, member_id="m2"))
    assert ConsumerPartitionsDeleted("g") in shell.log
    assert not group_of(shell).has_partition_metadata


def test_a_pattern_follows_the_topics() -> None:
    shell = new_shell()
    reply = beat(shell, replace(JOIN, topics=None, regex="[ab]"))
    assert reply.assignment == {A.id: frozenset(range(4)), B.id: frozenset(range(2))}
    assert RegexStored("g", "[ab]", ("a", "b"), 0, shell.now_ms) in shell.log
    shell.set_topics((A,))
    assert beat(shell, stay("m1", 1)).assignment == owning(0, 1, 2, 3)
    assert beat(shell, stay("m1", 1, owning(0, 1, 2, 3))).member_epoch == 2
    # A pattern matches whole names.
    shell.set_topics((A, topic("aa", 1)))
    assert beat(shell, stay("m1", 2)).assignment is None
    beat(shell, stay("m1", 2, regex="", topics=("a",)))
    assert RegexDeleted("g", "[ab]") in shell.log
    assert group_of(shell).regexes == {}


def test_a_bad_pattern_leaves_the_member_as_it_was() -> None:
    shell = new_shell()
    beat(shell, JOIN)
    log = list(shell.log)
    reply = beat(shell, stay("m1", 1, regex="(?=a)"))
    assert reply.error is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert reply.message == (
        "SubscribedTopicRegex `(?=a)` is not a valid regular expression: invalid perl operator: (?=."
    )
    assert shell.log == log
    assert beat(shell, stay("m1", 1)).error is ErrorCode.NONE


def test_the_group_has_a_maximal_size() -> None:
    shell = new_shell(GroupSettings(consumer_max_size=1))
    beat(shell, JOIN)
    assert beat(shell, replace(JOIN, member_id="m2")).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert beat(shell, stay("m1", 1)).error is ErrorCode.NONE


def test_a_static_member_is_away_and_comes_back_with_the_same_partitions() -> None:
    shell = new_shell()
    beat(shell, replace(JOIN, instance_id="s1"))
    beat(shell, replace(JOIN, member_id="m2"))
    busy = beat(shell, replace(JOIN, member_id="m3", instance_id="s1"))
    assert busy.error is ErrorCode.UNRELEASED_INSTANCE_ID
    kept = beat(shell, stay("m1", 1)).assignment
    beat(shell, stay("m1", 1, kept))
    away = beat(shell, stay("m1", -2, instance_id="s1"))
    assert (away.error, away.member_epoch) == (ErrorCode.NONE, -2)
    beat(shell, stay("m2", 2))
    epoch = group_of(shell).epoch
    shell.restart()
    back = beat(shell, replace(JOIN, member_id="m3", instance_id="s1"))
    assert (back.member_epoch, back.assignment) == (epoch, kept)
    assert group_of(shell).epoch == epoch, "no rebalance"
    assert beat(shell, stay("m1", 2, instance_id="s1")).error is ErrorCode.FENCED_INSTANCE_ID
    assert beat(shell, stay("m1", -1, instance_id="s1")).error is ErrorCode.FENCED_INSTANCE_ID
    assert beat(shell, stay("m3", -1, instance_id="s1")).error is ErrorCode.NONE
    assert beat(shell, stay("m3", -1, instance_id="s1")).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_may_come_back_with_another_subscription() -> None:
    """Found by seed 5121: what the new one leaves out must not be taken from the old one."""
    shell = new_shell()
    beat(shell, replace(JOIN, instance_id="s1", topics=None, regex="[ab]", assignor="range", rack_id="r"))
    beat(shell, stay("m1", -2, instance_id="s1"))
    beat(shell, replace(JOIN, member_id="m2", instance_id="s1"))
    member = group_of(shell).members["m2"]
    assert (member.topics, member.regex, member.assignor, member.rack_id) == (frozenset({"a"}), None, None, None)
    assert group_of(shell).regexes == {}


def test_a_static_member_that_stays_away_loses_its_place() -> None:
    shell = new_shell()
    beat(shell, replace(JOIN, instance_id="s1"))
    beat(shell, stay("m1", -2, instance_id="s1"))
    shell.advance(45_000)
    assert group_of(shell).is_empty


def test_the_assignor_most_members_ask_for_is_used() -> None:
    shell = new_shell()
    beat(shell, replace(JOIN, assignor="range", topics=("a", "b")))
    described = shell.coordinator.describe_consumer_group("g")
    assert described.assignor == "range"
    beat(shell, replace(JOIN, member_id="m2", topics=("a", "b")))
    target = group_of(shell).target
    assert target["m1"] == {A.id: frozenset({0, 1}), B.id: frozenset({0})}


def test_a_failed_write_changes_nothing() -> None:
    shell = new_shell()
    shell.append_failure = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert beat(shell, JOIN).error is ErrorCode.NOT_COORDINATOR
    assert shell.coordinator.group("g") is None
    assert beat(shell, JOIN).member_epoch == 1


def test_a_heartbeat_that_changes_nothing_writes_nothing() -> None:
    shell = new_shell()
    beat(shell, JOIN)
    log = list(shell.log)
    beat(shell, stay("m1", 1))
    beat(shell, stay("m1", 1, owning(0, 1, 2, 3), topics=("a",), rebalance_timeout_ms=30_000))
    assert shell.log == log


def test_the_epoch_goes_on_when_an_empty_group_is_joined_again() -> None:
    shell = new_shell()
    beat(shell, JOIN)
    beat(shell, stay("m1", -1))
    assert beat(shell, replace(JOIN, member_id="m2")).member_epoch == 3
    epochs = [event.epoch for event in shell.log if isinstance(event, ConsumerEpochStored)]
    assert epochs == sorted(epochs)


def test_many_joins_make_few_assignments() -> None:
    """KIP-1263: who comes within the interval waits with nothing; its next heartbeat after it finds a target."""
    shell = new_shell(GroupSettings(consumer_assignment_interval_ms=1_000))
    assert beat(shell, JOIN).assignment == owning(0, 1, 2, 3)
    shell.advance(999)
    second = beat(shell, replace(JOIN, member_id="m2"))
    assert (second.error, second.member_epoch, second.assignment) == (ErrorCode.NONE, 1, {})
    assert group_of(shell).state is ConsumerGroupState.ASSIGNING
    assert (group_of(shell).epoch, group_of(shell).assignment_epoch) == (2, 1)
    shell.restart()
    assert beat(shell, stay("m1", 1)).assignment is None, "a coordinator that takes over waits as long"
    shell.advance(1)
    assert beat(shell, stay("m1", 1)).assignment == owning(0, 1)
    beat(shell, stay("m1", 1, owning(0, 1)))
    assert beat(shell, stay("m2", 1)).assignment == owning(2, 3)
    assert group_of(shell).assignment_epoch == 2


def test_a_clock_that_was_set_back_does_not_stop_assignments() -> None:
    shell = new_shell(GroupSettings(consumer_assignment_interval_ms=1_000))
    beat(shell, JOIN)
    shell.now_ms -= 500_000
    assert beat(shell, replace(JOIN, member_id="m2")).member_epoch == 2


def test_a_classic_member_that_joins_within_the_interval_is_not_sent_round_in_circles() -> None:
    shell = new_shell(GroupSettings(consumer_assignment_interval_ms=1_000))
    beat(shell, JOIN)
    subscription = write_subscription(Subscription(0, ("a",), {}, -1, None))
    join = JoinGroup("g", "m2", "consumer", (ClassicProtocol("range", subscription),), 30_000, 30_000)
    joined = shell.ask(join, JoinReply)
    assert (joined.error, joined.generation) == (ErrorCode.NONE, 1)
    sync = SyncGroup("g", 1, "m2")
    assert shell.ask(sync, SyncReply).error is ErrorCode.NONE, "with nothing"
    shell.advance(1_000)
    assert shell.ask(sync, SyncReply).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert shell.ask(join, JoinReply).generation == 2


def test_groups_can_have_settings_of_their_own() -> None:
    shell = new_shell()
    own = GroupSettings(consumer_session_timeout_ms=50_000, consumer_heartbeat_interval_ms=7_000)
    shell.coordinator.settings_changed({"g": own})
    assert beat(shell, JOIN).heartbeat_interval_ms == 7_000
    assert beat(shell, replace(JOIN, group_id="h")).heartbeat_interval_ms == 5_000
    deadlines = {timer.group_id: _due_in(shell, timer) for timer in shell.timers.values()}
    assert deadlines == {"g": 50_000, "h": 45_000}
    armed = {
        timer.group_id: _due_in(shell, timer) for timer in shell.coordinator.load_finished(shell.now_ms).timers
    }
    assert armed == {"g": 50_000, "h": 45_000}


def _due_in(shell: GroupShell, timer: GroupTimer) -> int:
    assert timer.deadline_ms is not None
    return timer.deadline_ms - shell.now_ms
