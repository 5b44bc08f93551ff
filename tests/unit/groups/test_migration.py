"""A living group changes its protocol, up and down, without two readers of a partition (R-CON-3)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headrace.groups.classic import ClassicGroup
from headrace.groups.consumer import ConsumerGroup
from headrace.groups.embedded import Subscription, read_assignment, write_assignment, write_subscription
from headrace.groups.events import ClassicProtocol, ConsumerEpochDeleted, GroupDeleted, GroupStored
from headrace.groups.messages import (
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
    Heartbeat,
    HeartbeatReply,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    Leaver,
    LeaveReply,
    SyncGroup,
    SyncReply,
)
from headrace.groups.settings import GroupSettings, MigrationPolicy
from headrace.groups.states import ConsumerGroupState, GroupState, MemberState
from headrace.model.errors import ErrorCode
from headrace.testing.group_shell import GroupShell, topic

A = topic("a", 4)
ALL = frozenset(range(4))
NEW = ConsumerHeartbeat("g", "new", 0, rebalance_timeout_ms=30_000, topics=("a",), owned={})


def subscription(owned: frozenset[int] = frozenset(), generation: int = -1) -> bytes:
    return write_subscription(Subscription(3, ("a",), {"a": owned} if owned else {}, generation, None))


JOIN = JoinGroup("g", "", "consumer", (ClassicProtocol("range", subscription()),), 10_000, 30_000)


def classic_group(shell: GroupShell, instance_id: str | None = None) -> str:
    """A stable classic group of one member that owns all of `a`; its id."""
    request = replace(JOIN, instance_id=instance_id, version=3)
    token = shell.send(request)
    shell.advance(3_000)
    reply = shell.answers.pop(token)
    assert isinstance(reply, JoinReply)
    plan = ((reply.member_id, write_assignment({"a": ALL}, 3)),)
    shell.ask(SyncGroup("g", 1, reply.member_id, instance_id, assignments=plan), SyncReply)
    return reply.member_id


def new_shell(policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL) -> GroupShell:
    return GroupShell(GroupSettings(migration_policy=policy), (A,))


def consumer(shell: GroupShell) -> ConsumerGroup:
    group = shell.coordinator.group("g")
    assert isinstance(group, ConsumerGroup)
    return group


def rejoin(shell: GroupShell, member_id: str, owned: frozenset[int], generation: int) -> JoinReply:
    protocols = (ClassicProtocol("range", subscription(owned, generation)),)
    return shell.ask(replace(JOIN, member_id=member_id, protocols=protocols), JoinReply)


def sync(shell: GroupShell, reply: JoinReply) -> frozenset[int]:
    synced = shell.ask(SyncGroup("g", reply.generation, reply.member_id), SyncReply)
    assert synced.error is ErrorCode.NONE
    return read_assignment(synced.assignment).get("a", frozenset())


def test_up_and_down_again() -> None:
    shell = new_shell()
    old = classic_group(shell)
    joined = shell.ask(NEW, ConsumerHeartbeatReply)
    assert (joined.error, joined.assignment) == (ErrorCode.NONE, {})
    assert GroupDeleted("g") in shell.log
    group = consumer(shell)
    assert group.members[old].assigned == {A.id: ALL}
    assert group.members["new"].state is MemberState.UNRELEASED_PARTITIONS

    # The classic member is told to rejoin, gives up half, and rejoins without it.
    beat = shell.ask(Heartbeat("g", 1, old), HeartbeatReply)
    assert beat.error is ErrorCode.REBALANCE_IN_PROGRESS
    reply = rejoin(shell, old, ALL, 1)
    assert (reply.error, reply.protocol, reply.leader, reply.members) == (ErrorCode.NONE, "range", "", ())
    kept = sync(shell, reply)
    assert len(kept) == 2
    beat = shell.ask(Heartbeat("g", reply.generation, old), HeartbeatReply)
    assert beat.error is ErrorCode.REBALANCE_IN_PROGRESS
    reply = rejoin(shell, old, kept, reply.generation)
    assert sync(shell, reply) == kept
    assert shell.ask(Heartbeat("g", reply.generation, old), HeartbeatReply).error is ErrorCode.NONE
    got = shell.ask(replace(NEW, member_epoch=joined.member_epoch), ConsumerHeartbeatReply)
    assert got.assignment == {A.id: ALL - kept}
    assert consumer(shell).state is ConsumerGroupState.STABLE

    # The last consumer member leaves: a classic group again, which rebalances.
    epoch = consumer(shell).epoch
    shell.ask(ConsumerHeartbeat("g", "new", -1), ConsumerHeartbeatReply)
    assert ConsumerEpochDeleted("g") in shell.log
    classic = shell.coordinator.group("g")
    assert isinstance(classic, ClassicGroup)
    assert (classic.generation, classic.state) == (epoch, GroupState.PREPARING_REBALANCE)
    token = shell.send(replace(JOIN, member_id=old))
    leader = shell.answers[token]
    assert isinstance(leader, JoinReply)
    assert (leader.generation, leader.leader) == (epoch + 1, old)


def test_a_new_coordinator_in_the_middle_of_the_way_down_makes_everyone_rejoin() -> None:
    shell = new_shell()
    old = classic_group(shell)
    shell.ask(NEW, ConsumerHeartbeatReply)
    reply = rejoin(shell, old, frozenset(), 1)
    group = consumer(shell)
    assert group.members[old].epoch == group.epoch == reply.generation
    epoch = group.epoch
    shell.ask(ConsumerHeartbeat("g", "new", -1), ConsumerHeartbeatReply)
    shell.restart()
    beat = shell.ask(Heartbeat("g", epoch, old), HeartbeatReply)
    assert beat.error is ErrorCode.ILLEGAL_GENERATION
    token = shell.send(replace(JOIN, member_id=old))
    leader = shell.answers[token]
    assert isinstance(leader, JoinReply)
    assert (leader.error, leader.generation) == (ErrorCode.NONE, epoch + 2)


def test_what_a_cooperative_member_has_not_given_up_is_kept_for_it() -> None:
    """The leader took partitions from it, and nobody knows whether it heard of that."""
    shell = new_shell()
    protocols = (ClassicProtocol("range", subscription(ALL, 0)),)
    token = shell.send(replace(JOIN, version=3, protocols=protocols))
    shell.advance(3_000)
    reply = shell.answers.pop(token)
    assert isinstance(reply, JoinReply)
    plan = ((reply.member_id, write_assignment({"a": frozenset({0})}, 3)),)
    shell.ask(SyncGroup("g", 1, reply.member_id, assignments=plan), SyncReply)
    joined = shell.ask(NEW, ConsumerHeartbeatReply)
    assert joined.assignment == {}
    assert consumer(shell).members[reply.member_id].assigned == {A.id: ALL}


def test_the_tombstone_of_the_classic_group_does_not_touch_the_consumer_group() -> None:
    shell = new_shell()
    shell.ask(NEW, ConsumerHeartbeatReply)
    shell.coordinator.apply(GroupDeleted("g"))
    assert consumer(shell).members.keys() == {"new"}


@pytest.mark.parametrize(
    ("policy", "error"),
    [
        (MigrationPolicy.DISABLED, ErrorCode.GROUP_ID_NOT_FOUND),
        (MigrationPolicy.DOWNGRADE, ErrorCode.GROUP_ID_NOT_FOUND),
        (MigrationPolicy.UPGRADE, ErrorCode.NONE),
        (MigrationPolicy.BIDIRECTIONAL, ErrorCode.NONE),
    ],
)
def test_the_policy_decides_about_the_way_up(policy: MigrationPolicy, error: ErrorCode) -> None:
    shell = new_shell(policy)
    classic_group(shell)
    assert shell.ask(NEW, ConsumerHeartbeatReply).error is error


def test_the_policy_decides_about_the_way_down() -> None:
    shell = new_shell(MigrationPolicy.UPGRADE)
    classic_group(shell)
    shell.ask(NEW, ConsumerHeartbeatReply)
    shell.ask(ConsumerHeartbeat("g", "new", -1), ConsumerHeartbeatReply)
    assert isinstance(shell.coordinator.group("g"), ConsumerGroup)


@pytest.mark.parametrize("metadata", [b"", b"\x00", b"\x00\x01\x7f\xff\xff\xff", b"\xff\xff\x00\x00"])
def test_a_group_with_a_broken_subscription_stays_classic(metadata: bytes) -> None:
    shell = new_shell()
    request = replace(JOIN, version=3, protocols=(ClassicProtocol("range", metadata),))
    token = shell.send(request)
    shell.advance(3_000)
    assert token in shell.answers
    assert shell.ask(NEW, ConsumerHeartbeatReply).error is ErrorCode.GROUP_ID_NOT_FOUND
    assert isinstance(shell.coordinator.group("g"), ClassicGroup)


def test_a_group_of_another_protocol_type_stays_classic() -> None:
    shell = new_shell()
    shell.send(replace(JOIN, version=3, protocol_type="connect"))
    assert shell.ask(NEW, ConsumerHeartbeatReply).error is ErrorCode.GROUP_ID_NOT_FOUND


def test_who_waits_in_a_classic_rebalance_is_sent_to_join_again() -> None:
    shell = new_shell()
    token = shell.send(replace(JOIN, version=3))
    assert shell.ask(NEW, ConsumerHeartbeatReply).error is ErrorCode.NONE
    reply = shell.answers[token]
    assert isinstance(reply, JoinReply)
    assert reply.error is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_rebalance_that_everyone_left_is_taken_over() -> None:
    """Found by seed 1667: the group waits for its initial delay although nobody is left in it."""
    shell = new_shell()
    token = shell.send(replace(JOIN, instance_id="s"))
    shell.ask(LeaveGroup("g", (Leaver("", "s"),)), LeaveReply)
    assert token in shell.answers
    reply = shell.ask(NEW, ConsumerHeartbeatReply)
    assert (reply.error, reply.assignment) == (ErrorCode.NONE, {A.id: ALL})
    shell.advance(3_000)
    assert consumer(shell).state is ConsumerGroupState.STABLE


def mixed(shell: GroupShell) -> str:
    old = classic_group(shell)
    shell.ask(NEW, ConsumerHeartbeatReply)
    return old


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": (ClassicProtocol("other", subscription()),)}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": (ClassicProtocol("range", b"broken"),)}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"instance_id": "i", "member_id": "x"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocols": (ClassicProtocol("range", subscription(ALL, 1)),)}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({}, ErrorCode.MEMBER_ID_REQUIRED),
    ],
)
def test_a_classic_member_is_refused_by_a_consumer_group(change: dict[str, Any], error: ErrorCode) -> None:
    shell = new_shell()
    mixed(shell)
    request = replace(JOIN, **{"member_id": "", **change})
    if error is not ErrorCode.MEMBER_ID_REQUIRED:
        request = replace(request, member_id=request.member_id or "given")
    assert shell.ask(request, JoinReply).error is error


@pytest.mark.parametrize(
    ("member_id", "generation", "error"),
    [
        ("old", 2, ErrorCode.ILLEGAL_GENERATION),
        ("new", 3, ErrorCode.UNKNOWN_MEMBER_ID),
        ("nobody", 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("old", 1, ErrorCode.REBALANCE_IN_PROGRESS),
    ],
)
def test_classic_requests_to_a_consumer_group(member_id: str, generation: int, error: ErrorCode) -> None:
    shell = new_shell()
    old = mixed(shell)
    who = old if member_id == "old" else member_id
    assert shell.ask(Heartbeat("g", generation, who), HeartbeatReply).error is error
    assert shell.ask(SyncGroup("g", generation, who), SyncReply).error is error


def test_sync_checks_the_protocol() -> None:
    shell = new_shell()
    old = mixed(shell)
    reply = rejoin(shell, old, ALL, 1)
    request = SyncGroup("g", reply.generation, old, protocol_type="consumer", protocol="other")
    assert shell.ask(request, SyncReply).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    request = replace(request, protocol_type="connect", protocol="range")
    assert shell.ask(request, SyncReply).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    request = replace(request, protocol_type="consumer")
    assert shell.ask(request, SyncReply).error is ErrorCode.NONE


def test_a_classic_member_that_does_not_rejoin_or_sync_is_removed() -> None:
    for joins in (False, True):
        shell = new_shell()
        old = mixed(shell)
        epoch = 1
        shell.ask(Heartbeat("g", 1, old), HeartbeatReply)
        if joins:
            epoch = rejoin(shell, old, ALL, 1).generation
        for _ in range(4):
            shell.advance(7_500)
            shell.ask(Heartbeat("g", epoch, old), HeartbeatReply)
            member = consumer(shell).members["new"]
            shell.ask(replace(NEW, member_epoch=member.epoch), ConsumerHeartbeatReply)
        assert old not in consumer(shell).members


def test_a_classic_member_of_a_consumer_group_expires_by_its_own_session() -> None:
    shell = new_shell()
    old = mixed(shell)
    shell.advance(10_000)
    assert old not in consumer(shell).members
    assert "new" in consumer(shell).members


def test_members_of_either_protocol_are_taken_out_of_a_consumer_group() -> None:
    shell = new_shell()
    old = mixed(shell)
    shell.ask(replace(NEW, member_id="third", instance_id="s"), ConsumerHeartbeatReply)
    unknown, fenced = ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID
    strangers = (Leaver("nobody"), Leaver(""), Leaver("", "i"), Leaver("new", "i"), Leaver("new", "s"))
    reply = shell.ask(LeaveGroup("g", strangers), LeaveReply)
    assert [left.error for left in reply.members] == [unknown, unknown, unknown, unknown, fenced]
    assert consumer(shell).members.keys() == {old, "new", "third"}
    reply = shell.ask(LeaveGroup("g", (Leaver(old), Leaver(old), Leaver("", "s"))), LeaveReply)
    assert [left.error for left in reply.members] == [ErrorCode.NONE] * 3
    assert consumer(shell).members.keys() == {"new"}
    reply = shell.ask(LeaveGroup("g", (Leaver("new"),)), LeaveReply)
    assert [left.error for left in reply.members] == [ErrorCode.NONE]
    assert consumer(shell).members == {}
    assert shell.ask(replace(NEW, member_epoch=1), ConsumerHeartbeatReply).error is unknown


def test_a_static_member_comes_back_as_a_classic_one_and_the_group_goes_down_without_a_rebalance() -> None:
    shell = new_shell()
    shell.ask(replace(NEW, instance_id="s"), ConsumerHeartbeatReply)
    reply = shell.ask(replace(JOIN, instance_id="s"), JoinReply)
    assert reply.error is ErrorCode.NONE
    classic = shell.coordinator.group("g")
    assert isinstance(classic, ClassicGroup)
    assert (classic.state, classic.generation) == (GroupState.STABLE, reply.generation)
    synced = shell.ask(SyncGroup("g", reply.generation, reply.member_id, "s"), SyncReply)
    assert read_assignment(synced.assignment) == {"a": ALL}
    stored = shell.log[-1]
    assert isinstance(stored, GroupStored)
    assert stored.generation == reply.generation
    shell.restart()
    beat = shell.ask(Heartbeat("g", reply.generation, reply.member_id, "s"), HeartbeatReply)
    assert beat.error is ErrorCode.NONE


def test_a_static_classic_member_comes_back_as_a_consumer_member() -> None:
    shell = new_shell()
    classic_group(shell, "s")
    reply = shell.ask(replace(NEW, instance_id="s"), ConsumerHeartbeatReply)
    assert (reply.error, reply.assignment) == (ErrorCode.NONE, {A.id: ALL})
    assert consumer(shell).members.keys() == {"new"}


def test_empty_groups_change_their_kind_and_the_generation_goes_on() -> None:
    shell = new_shell()
    old = classic_group(shell)
    shell.ask(LeaveGroup("g", (Leaver(old),)), LeaveReply)
    joined = shell.ask(NEW, ConsumerHeartbeatReply)
    assert joined.member_epoch == 3
    shell.ask(ConsumerHeartbeat("g", "new", -1), ConsumerHeartbeatReply)
    assert consumer(shell).epoch == 4
    token = shell.send(replace(JOIN, version=3))
    shell.advance(3_000)
    reply = shell.answers[token]
    assert isinstance(reply, JoinReply)
    assert reply.generation == 5
    shell.restart()
    assert isinstance(shell.coordinator.group("g"), ClassicGroup)


def test_a_partition_two_classic_members_claim_goes_to_one() -> None:
    """A leader may assign what it likes; a consumer group may not have two owners."""
    shell = new_shell()
    tokens = [shell.send(replace(JOIN, version=3)) for _ in range(2)]
    shell.advance(6_000)
    first, second = (reply for token in tokens if isinstance(reply := shell.answers.pop(token), JoinReply))
    plan = tuple((reply.member_id, write_assignment({"a": ALL}, 3)) for reply in (first, second))
    shell.ask(SyncGroup("g", 1, first.member_id, assignments=plan), SyncReply)
    shell.ask(SyncGroup("g", 1, second.member_id), SyncReply)
    shell.ask(NEW, ConsumerHeartbeatReply)
    held = [member.assigned.get(A.id, frozenset()) for member in consumer(shell).members.values()]
    assert sorted(map(len, held)) == [0, 0, 4]
