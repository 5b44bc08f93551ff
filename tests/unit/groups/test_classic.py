"""The classic protocol: who may join, how a generation comes about, and every refusal (R-CON-1, R-CON-2)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headrace.groups.classic import ClassicGroup
from headrace.groups.events import ClassicProtocol, GroupStored
from headrace.groups.messages import (
    ClientIdentity,
    Heartbeat,
    HeartbeatReply,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    Leaver,
    LeaveReply,
    LeftMember,
    SyncGroup,
    SyncReply,
)
from headrace.groups.settings import GroupSettings
from headrace.groups.states import GroupState
from headrace.model.errors import ErrorCode
from headrace.testing.group_shell import GroupShell

DELAY_MS = 3_000
JOIN = JoinGroup(
    "g", "", "consumer", (ClassicProtocol("range", b"r"),), 10_000, 30_000, client=ClientIdentity("c", "/h")
)


def shell_with(**settings: Any) -> GroupShell:
    return GroupShell(GroupSettings(**settings))


def group_of(shell: GroupShell, group_id: str = "g") -> ClassicGroup:
    group = shell.coordinator.group(group_id)
    assert isinstance(group, ClassicGroup)
    return group


def member_id(shell: GroupShell, join: JoinGroup = JOIN) -> str:
    """An id from the coordinator (KIP-394)."""
    reply = shell.ask(join, JoinReply)
    assert reply.error is ErrorCode.MEMBER_ID_REQUIRED
    return reply.member_id


def join(shell: GroupShell, count: int = 1, *, settle: bool = True, template: JoinGroup = JOIN) -> list[JoinReply]:
    """That many new members through a first rebalance; the replies, the leader's first."""
    ids = [member_id(shell, template) for _ in range(count)]
    tokens = [shell.send(replace(template, member_id=id)) for id in ids]
    shell.advance(2 * DELAY_MS)
    replies = [shell.answers.pop(token) for token in tokens]
    joined = [reply for reply in replies if isinstance(reply, JoinReply)]
    if settle:
        sync_all(shell, joined)
    return joined


def sync_all(shell: GroupShell, joined: list[JoinReply]) -> dict[str, SyncReply]:
    plan = tuple((reply.member_id, reply.member_id.encode()) for reply in joined)
    followers = [reply for reply in joined if not reply.members]
    leader = next(reply for reply in joined if reply.members)
    tokens = {
        reply.member_id: shell.send(
            SyncGroup("g", reply.generation, reply.member_id, assignments=plan if reply is leader else ())
        )
        for reply in (*followers, leader)
    }
    replies = {id: shell.answers.pop(token) for id, token in tokens.items()}
    return {id: reply for id, reply in replies.items() if isinstance(reply, SyncReply)}


def beat(shell: GroupShell, reply: JoinReply) -> ErrorCode:
    return shell.ask(Heartbeat("g", reply.generation, reply.member_id), HeartbeatReply).error


# --- joining -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"session_timeout_ms": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({}, ErrorCode.MEMBER_ID_REQUIRED),
    ],
)
def test_a_first_join_is_refused(change: dict[str, Any], error: ErrorCode) -> None:
    shell = GroupShell()
    reply = shell.ask(replace(JOIN, **change), JoinReply)
    assert reply.error is error
    assert (shell.coordinator.group("g") is None) == (error is not ErrorCode.MEMBER_ID_REQUIRED)


def test_a_newcomer_joins_although_the_last_member_left_after_it_was_given_its_id() -> None:
    shell = GroupShell()
    (first,) = join(shell)
    newcomer = member_id(shell)
    shell.ask(LeaveGroup("g", (Leaver(first.member_id),)), LeaveReply)
    assert (group_of(shell).members, group_of(shell).state) == ({}, GroupState.PREPARING_REBALANCE)
    for change in ({"protocol_type": "connect"}, {"protocols": ()}):
        refused = shell.ask(replace(JOIN, member_id=newcomer, **change), JoinReply)
        assert refused.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert shell.ask(JOIN, JoinReply).error is ErrorCode.MEMBER_ID_REQUIRED
    token = shell.send(replace(JOIN, member_id=newcomer))
    shell.advance(JOIN.rebalance_timeout_ms)
    reply = shell.answers.pop(token)
    assert isinstance(reply, JoinReply)
    assert (reply.error, reply.generation) == (ErrorCode.NONE, first.generation + 1)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": (ClassicProtocol("other", b""),)}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"member_id": "nobody", "instance_id": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "nobody", "instance_id": "s"}, ErrorCode.FENCED_INSTANCE_ID),
    ],
)
def test_a_join_to_a_living_group_is_refused(change: dict[str, Any], error: ErrorCode) -> None:
    shell = GroupShell()
    shell.send(replace(JOIN, instance_id="s"))
    shell.advance(DELAY_MS)
    reply = shell.ask(replace(JOIN, **change), JoinReply)
    assert reply.error is error


def test_an_id_must_be_asked_for_only_since_version_4() -> None:
    shell = GroupShell()
    token = shell.send(replace(JOIN, version=3))
    shell.advance(DELAY_MS)
    reply = shell.answers[token]
    assert isinstance(reply, JoinReply)
    assert (reply.error, reply.generation, reply.leader) == (ErrorCode.NONE, 1, reply.member_id)


def test_the_first_generation() -> None:
    """The leader is told of all members, followers are not, and everyone gets its own assignment."""
    shell = GroupShell()
    leader, follower = join(shell, 2, settle=False)
    assert leader.generation == follower.generation == 1
    assert leader.leader == follower.leader == leader.member_id
    assert [member.member_id for member in leader.members] == [leader.member_id, follower.member_id]
    assert follower.members == ()
    assert group_of(shell).state is GroupState.COMPLETING_REBALANCE
    synced = sync_all(shell, [leader, follower])
    assert {id: reply.assignment for id, reply in synced.items()} == {
        id: id.encode() for id in (leader.member_id, follower.member_id)
    }
    assert group_of(shell).state is GroupState.STABLE
    stored = shell.log[-1]
    assert isinstance(stored, GroupStored)
    assert (stored.generation, stored.protocol, len(stored.members)) == (1, "range", 2)


def test_the_initial_delay_is_prolonged_while_members_come_but_not_past_the_rebalance_timeout() -> None:
    shell = GroupShell()
    template = replace(JOIN, rebalance_timeout_ms=8_000)
    tokens = []
    for _ in range(4):
        tokens.append(shell.send(replace(template, member_id=member_id(shell))))
        shell.advance(2_500)
    # Three seconds, then three more because someone came, then the two that are left of eight.
    assert shell.now_ms - 1_000_000 == 10_000
    assert all(token in shell.answers for token in tokens)
    assert group_of(shell).generation == 1


def test_the_initial_delay_ends_at_once_when_nobody_else_comes() -> None:
    shell = GroupShell()
    token = shell.send(replace(JOIN, member_id=member_id(shell)))
    shell.advance(DELAY_MS - 1)
    assert token not in shell.answers
    shell.advance(1)
    assert token in shell.answers


def test_the_protocol_with_most_votes_wins() -> None:
    shell = GroupShell()
    offers = [("a", "b", "c"), ("b", "c"), ("c", "b"), ("b", "a", "c")]
    tokens = []
    for names in offers:
        protocols = tuple(ClassicProtocol(name, name.encode()) for name in names)
        request = replace(JOIN, protocols=protocols)
        tokens.append(shell.send(replace(request, member_id=member_id(shell, request))))
    shell.advance(2 * DELAY_MS)
    reply = shell.answers[tokens[0]]
    assert isinstance(reply, JoinReply)
    assert reply.protocol == "b"
    assert [member.metadata for member in reply.members] == [b"b"] * 4


def test_the_group_has_a_maximal_size() -> None:
    shell = shell_with(max_size=2)
    first, second = join(shell, 2)
    assert shell.ask(JOIN, JoinReply).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    # Those who are in may rejoin, and during a rebalance only those who wait take a place.
    leader = shell.send(replace(JOIN, member_id=first.member_id))
    assert leader not in shell.answers
    third = replace(JOIN, member_id=member_id(shell))
    shell.send(third)
    late = shell.ask(replace(JOIN, member_id=second.member_id), JoinReply)
    assert late.error is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_group_loaded_over_its_size_rebalances() -> None:
    shell = GroupShell()
    members = join(shell, 3)
    shell.settings = GroupSettings(max_size=2)
    shell.restart()
    assert group_of(shell).state is GroupState.PREPARING_REBALANCE
    assert beat(shell, members[0]) is ErrorCode.REBALANCE_IN_PROGRESS


def test_an_id_that_is_never_used_is_forgotten() -> None:
    shell = GroupShell()
    unused = member_id(shell)
    shell.advance(JOIN.session_timeout_ms)
    assert shell.ask(replace(JOIN, member_id=unused), JoinReply).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert group_of(shell).pending == frozenset()


def test_a_rebalance_waits_for_ids_that_were_handed_out() -> None:
    shell = GroupShell()
    (leader,) = join(shell)
    pending = member_id(shell)
    token = shell.send(replace(JOIN, member_id=leader.member_id))
    assert token not in shell.answers
    shell.ask(LeaveGroup("g", (Leaver(pending),)), LeaveReply)
    reply = shell.answers[token]
    assert isinstance(reply, JoinReply)
    assert reply.generation == 2


def test_who_does_not_rejoin_in_time_is_left_behind() -> None:
    shell = shell_with()
    template = replace(JOIN, session_timeout_ms=60_000)
    leader, lost = join(shell, 2, template=template)
    token = shell.send(replace(template, member_id=leader.member_id))
    shell.advance(JOIN.rebalance_timeout_ms - 1)
    assert token not in shell.answers
    shell.advance(1)
    reply = shell.answers[token]
    assert isinstance(reply, JoinReply)
    assert [member.member_id for member in reply.members] == [leader.member_id]
    assert beat(shell, lost) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_leader_that_does_not_rejoin_is_replaced() -> None:
    shell = GroupShell()
    template = replace(JOIN, session_timeout_ms=60_000)
    _, follower = join(shell, 2, template=template)
    changed = replace(template, member_id=follower.member_id, protocols=(ClassicProtocol("range", b"new"),))
    token = shell.send(changed)
    shell.advance(JOIN.rebalance_timeout_ms)
    reply = shell.answers[token]
    assert isinstance(reply, JoinReply)
    assert reply.leader == follower.member_id
    assert [member.metadata for member in reply.members] == [b"new"]


@pytest.mark.parametrize("state", [GroupState.COMPLETING_REBALANCE, GroupState.STABLE])
def test_a_join_that_changes_nothing_is_answered_again(state: GroupState) -> None:
    shell = GroupShell()
    leader, follower = join(shell, 2, settle=state is GroupState.STABLE)
    again = shell.ask(replace(JOIN, member_id=follower.member_id), JoinReply)
    assert (again.generation, again.leader) == (1, leader.member_id)
    assert group_of(shell).state is state
    if state is GroupState.COMPLETING_REBALANCE:
        again = shell.ask(replace(JOIN, member_id=leader.member_id), JoinReply)
        assert len(again.members) == 2


def test_a_leader_that_rejoins_a_stable_group_asks_for_a_rebalance() -> None:
    shell = GroupShell()
    leader, follower = join(shell, 2)
    token = shell.send(replace(JOIN, member_id=leader.member_id))
    assert beat(shell, follower) is ErrorCode.REBALANCE_IN_PROGRESS
    other = shell.send(replace(JOIN, member_id=follower.member_id))
    replies = shell.answers[token], shell.answers[other]
    assert [reply.generation for reply in replies if isinstance(reply, JoinReply)] == [2, 2]


def test_a_change_while_the_leader_assigns_starts_over() -> None:
    shell = GroupShell()
    leader, follower = join(shell, 2, settle=False)
    waiting = shell.send(SyncGroup("g", 1, follower.member_id))
    shell.send(replace(JOIN, member_id=leader.member_id, protocols=(ClassicProtocol("range", b"x"),)))
    assert shell.answers[waiting] == SyncReply(ErrorCode.REBALANCE_IN_PROGRESS)
    assert group_of(shell).state is GroupState.PREPARING_REBALANCE


# --- syncing, heartbeats, leaving --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"group_id": "none"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation": 0}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation": 2}, ErrorCode.ILLEGAL_GENERATION),
        ({"instance_id": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol": "other"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": "consumer", "protocol": "range"}, ErrorCode.NONE),
        ({}, ErrorCode.NONE),
    ],
)
def test_sync_refusals(change: dict[str, Any], error: ErrorCode) -> None:
    shell = GroupShell()
    (leader,) = join(shell)
    request = replace(SyncGroup("g", 1, leader.member_id), **change)
    assert shell.ask(request, SyncReply).error is error


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"group_id": "none"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation": 0}, ErrorCode.ILLEGAL_GENERATION),
        ({"instance_id": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({}, ErrorCode.NONE),
    ],
)
def test_heartbeat_refusals(change: dict[str, Any], error: ErrorCode) -> None:
    shell = GroupShell()
    (leader,) = join(shell)
    request = Heartbeat("g", 1, leader.member_id)._replace(**change)
    assert shell.ask(request, HeartbeatReply).error is error


def test_sync_and_heartbeat_say_that_a_rebalance_is_under_way() -> None:
    shell = GroupShell()
    leader, follower = join(shell, 2)
    shell.send(replace(JOIN, member_id=leader.member_id))
    reply = shell.ask(SyncGroup("g", 1, follower.member_id), SyncReply)
    assert reply.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert beat(shell, follower) is ErrorCode.REBALANCE_IN_PROGRESS


def test_leaving_in_a_batch() -> None:
    shell = GroupShell()
    members = join(shell, 3)
    request = LeaveGroup("g", (Leaver(members[1].member_id), Leaver("nobody"), Leaver(members[2].member_id)))
    reply = shell.ask(request, LeaveReply)
    assert [left.error for left in reply.members] == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE]
    assert beat(shell, members[0]) is ErrorCode.REBALANCE_IN_PROGRESS
    assert shell.ask(LeaveGroup("", ()), LeaveReply).error is ErrorCode.INVALID_GROUP_ID


def test_leaving_a_group_that_does_not_exist() -> None:
    shell = GroupShell()
    left = shell.ask(LeaveGroup("none", (Leaver("m"), Leaver("", "i"))), LeaveReply)
    assert left.error is ErrorCode.NONE
    assert left.members == (
        LeftMember("m", None, ErrorCode.UNKNOWN_MEMBER_ID),
        LeftMember("", "i", ErrorCode.UNKNOWN_MEMBER_ID),
    )
    assert shell.ask(LeaveGroup("none", ()), LeaveReply) == LeaveReply()


def test_static_members_leave_by_their_instance_id() -> None:
    shell = GroupShell()
    token = shell.send(replace(JOIN, instance_id="s"))
    shell.advance(DELAY_MS)
    reply = shell.answers[token]
    assert isinstance(reply, JoinReply)
    leavers = (Leaver("other", "s"), Leaver("", "unknown"), Leaver("", "s"))
    left = shell.ask(LeaveGroup("g", leavers), LeaveReply)
    assert [member.error for member in left.members] == [
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
    ]
    assert group_of(shell).is_empty


def test_the_last_member_leaves_the_group_empty_and_that_is_stored() -> None:
    shell = GroupShell()
    (leader,) = join(shell)
    shell.ask(LeaveGroup("g", (Leaver(leader.member_id),)), LeaveReply)
    stored = shell.log[-1]
    assert isinstance(stored, GroupStored)
    assert (stored.generation, stored.members, stored.protocol, stored.leader) == (2, (), None, None)
    shell.restart()
    assert group_of(shell).is_empty
    assert group_of(shell).generation == 2


def test_a_silent_member_is_removed_and_the_others_rebalance() -> None:
    shell = GroupShell()
    leader, lost = join(shell, 2)
    for _ in range(4):
        assert beat(shell, leader) is ErrorCode.NONE
        shell.advance(2_000)
    assert beat(shell, leader) is ErrorCode.NONE
    shell.advance(2_000)
    assert beat(shell, leader) is ErrorCode.REBALANCE_IN_PROGRESS
    assert beat(shell, lost) is ErrorCode.UNKNOWN_MEMBER_ID


def test_members_that_never_ask_for_their_assignment_are_removed() -> None:
    shell = GroupShell()
    template = replace(JOIN, session_timeout_ms=60_000)
    leader, lost = join(shell, 2, settle=False, template=template)
    plan = ((leader.member_id, b"1"), (lost.member_id, b"2"))
    shell.ask(SyncGroup("g", 1, leader.member_id, assignments=plan), SyncReply)
    shell.advance(JOIN.rebalance_timeout_ms)
    assert beat(shell, lost) is ErrorCode.UNKNOWN_MEMBER_ID
    assert beat(shell, leader) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_member_that_waits_does_not_expire_unless_it_is_new() -> None:
    shell = shell_with(new_member_join_timeout_ms=15_000)
    template = replace(JOIN, rebalance_timeout_ms=100_000)
    leader, lost = join(shell, 2, template=template)
    waiting = shell.send(replace(template, member_id=leader.member_id))
    new = shell.send(replace(template, member_id=member_id(shell, template)))
    for _ in range(10):
        shell.ask(Heartbeat("g", 1, lost.member_id), HeartbeatReply)
        shell.advance(2_000)
    assert waiting not in shell.answers
    assert shell.answers[new] == JoinReply(ErrorCode.UNKNOWN_MEMBER_ID)


# --- static members ----------------------------------------------------------------------------------------------


def static_pair(shell: GroupShell) -> list[JoinReply]:
    tokens = [shell.send(replace(JOIN, instance_id=instance)) for instance in ("one", "two")]
    shell.advance(2 * DELAY_MS)
    replies = [shell.answers.pop(token) for token in tokens]
    joined = [reply for reply in replies if isinstance(reply, JoinReply)]
    sync_all(shell, joined)
    return joined


@pytest.mark.parametrize(("version", "skips"), [(9, True), (8, False)])
def test_a_static_leader_comes_back_without_a_rebalance(version: int, skips: bool) -> None:
    """KIP-345 and KIP-814; survives a change of coordinator."""
    shell = GroupShell()
    old, other = static_pair(shell)
    new = shell.ask(replace(JOIN, instance_id="one", version=version), JoinReply)
    assert (new.error, new.generation, new.skip_assignment) == (ErrorCode.NONE, 1, skips)
    assert new.leader == (new.member_id if skips else old.member_id)
    assert bool(new.members) is skips
    assert beat(shell, other) is ErrorCode.NONE
    shell.restart()
    synced = shell.ask(SyncGroup("g", 1, new.member_id, "one"), SyncReply)
    assert synced.assignment == old.member_id.encode()
    stale = shell.ask(Heartbeat("g", 1, old.member_id, "one"), HeartbeatReply)
    assert stale.error is ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_that_changes_the_protocol_does_rebalance() -> None:
    shell = GroupShell()
    both = (ClassicProtocol("a", b""), ClassicProtocol("b", b""))
    tokens = [
        shell.send(replace(JOIN, instance_id=instance, protocols=protocols))
        for instance, protocols in (("one", both), ("two", both))
    ]
    shell.advance(2 * DELAY_MS)
    joined = [reply for token in tokens if isinstance(reply := shell.answers.pop(token), JoinReply)]
    sync_all(shell, joined)
    token = shell.send(replace(JOIN, instance_id="one", protocols=both[1:]))
    assert token not in shell.answers
    assert group_of(shell).state is GroupState.PREPARING_REBALANCE


def test_a_fenced_static_member_that_waits_is_told() -> None:
    shell = GroupShell()
    waiting = shell.send(replace(JOIN, instance_id="one"))
    shell.send(replace(JOIN, instance_id="one"))
    reply = shell.answers[waiting]
    assert isinstance(reply, JoinReply)
    assert reply.error is ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_keeps_its_place_through_a_rebalance_it_misses() -> None:
    shell = GroupShell()
    template = replace(JOIN, session_timeout_ms=120_000)
    tokens = [shell.send(replace(template, instance_id=instance)) for instance in ("one", "two")]
    shell.advance(2 * DELAY_MS)
    leader, away = (reply for token in tokens if isinstance(reply := shell.answers.pop(token), JoinReply))
    sync_all(shell, [leader, away])
    token = shell.send(replace(template, member_id=leader.member_id, instance_id="one"))
    shell.advance(JOIN.rebalance_timeout_ms)
    reply = shell.answers[token]
    assert isinstance(reply, JoinReply)
    assert {member.instance_id for member in reply.members} == {"one", "two"}


# --- durability --------------------------------------------------------------------------------------------------


def test_a_failed_write_changes_nothing_and_the_leader_may_try_again() -> None:
    shell = GroupShell()
    leader, follower = join(shell, 2, settle=False)
    waiting = shell.send(SyncGroup("g", 1, follower.member_id))
    shell.append_failure = ErrorCode.NOT_ENOUGH_REPLICAS
    sync = SyncGroup("g", 1, leader.member_id, assignments=((follower.member_id, b"x"),))
    assert shell.ask(sync, SyncReply).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert waiting not in shell.answers
    assert group_of(shell).state is GroupState.COMPLETING_REBALANCE
    assert shell.ask(sync, SyncReply).error is ErrorCode.NONE
    assert shell.answers[waiting] == SyncReply(ErrorCode.NONE, "consumer", "range", b"x")


def test_resigning_sends_everyone_who_waits_away() -> None:
    shell = GroupShell()
    token = shell.send(replace(JOIN, member_id=member_id(shell)))
    replies = dict(shell.coordinator.resign().replies)
    reply = replies[token]
    assert isinstance(reply, JoinReply)
    assert reply.error is ErrorCode.NOT_COORDINATOR


def test_a_stable_group_goes_on_under_a_new_coordinator() -> None:
    shell = GroupShell()
    leader, follower = join(shell, 2)
    shell.restart()
    assert beat(shell, leader) is ErrorCode.NONE
    assert beat(shell, follower) is ErrorCode.NONE
    shell.advance(JOIN.session_timeout_ms)
    assert beat(shell, follower) is not ErrorCode.NONE
