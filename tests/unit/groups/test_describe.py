"""DescribeGroups, ConsumerGroupDescribe, ListGroups."""

from __future__ import annotations

import pytest

from headrace.groups.describe import DescribedTopic, ListedGroup
from headrace.groups.events import ClassicProtocol
from headrace.groups.messages import (
    ClientIdentity,
    CommitOffsets,
    CommitReply,
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
    JoinGroup,
    JoinReply,
    OffsetToCommit,
    SyncGroup,
    SyncReply,
)
from headrace.model.errors import ErrorCode
from headrace.testing.group_shell import GroupShell, topic

A = topic("a", 2)
CLIENT = ClientIdentity("client", "/host")


@pytest.fixture
def shell() -> GroupShell:
    """One classic group, one consumer group, one that only keeps offsets."""
    shell = GroupShell(topics=(A,))
    protocols = (ClassicProtocol("range", b"wants"),)
    token = shell.send(JoinGroup("old", "", "consumer", protocols, 10_000, 30_000, client=CLIENT, version=3))
    shell.advance(3_000)
    reply = shell.answers[token]
    assert isinstance(reply, JoinReply)
    shell.ask(SyncGroup("old", 1, reply.member_id, assignments=((reply.member_id, b"gets"),)), SyncReply)
    heartbeat = ConsumerHeartbeat(
        "new", "m", 0, rebalance_timeout_ms=1, topics=("a", "missing"), owned={}, client=CLIENT
    )
    shell.ask(heartbeat, ConsumerHeartbeatReply)
    shell.ask(CommitOffsets("simple", (OffsetToCommit("a", 0, 1),)), CommitReply)
    return shell


def test_a_classic_group(shell: GroupShell) -> None:
    group = shell.coordinator.describe_group("old", 6)
    assert (group.error, group.state, group.protocol_type, group.protocol) == (
        ErrorCode.NONE,
        "Stable",
        "consumer",
        "range",
    )
    (member,) = group.members
    assert (member.client_id, member.client_host) == ("client", "/host")
    assert (member.metadata, member.assignment) == (b"wants", b"gets")


def test_a_classic_group_in_a_rebalance_shows_no_assignment(shell: GroupShell) -> None:
    shell.send(JoinGroup("old", "", "consumer", (ClassicProtocol("range", b""),), 10_000, 30_000, version=3))
    group = shell.coordinator.describe_group("old", 6)
    assert (group.state, group.protocol, len(group.members)) == ("PreparingRebalance", "", 2)
    assert all(not member.metadata and not member.assignment for member in group.members)


@pytest.mark.parametrize("group_id", ["none", "new"])
def test_a_group_that_is_no_classic_one(shell: GroupShell, group_id: str) -> None:
    old = shell.coordinator.describe_group(group_id, 5)
    assert (old.error, old.state) == (ErrorCode.NONE, "Dead")
    new = shell.coordinator.describe_group(group_id, 6)
    assert (new.error, new.state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    assert new.message


def test_a_consumer_group(shell: GroupShell) -> None:
    group = shell.coordinator.describe_consumer_group("new")
    assert (group.state, group.epoch, group.assignment_epoch, group.assignor) == ("Stable", 1, 1, "uniform")
    (member,) = group.members
    assert (member.member_id, member.epoch, member.member_type) == ("m", 1, 1)
    assert member.topics == ("a", "missing")
    assert member.assignment == member.target == (DescribedTopic(A.id, "a", (0, 1)),)


@pytest.mark.parametrize(
    ("group_id", "error"),
    [
        ("", ErrorCode.INVALID_GROUP_ID),
        ("none", ErrorCode.GROUP_ID_NOT_FOUND),
        ("old", ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_a_group_that_is_no_consumer_group(shell: GroupShell, group_id: str, error: ErrorCode) -> None:
    described = shell.coordinator.describe_consumer_group(group_id)
    assert (described.error, described.state) == (error, "")


@pytest.mark.parametrize(
    ("states", "types", "expected"),
    [
        ((), (), {"old", "new", "simple"}),
        (("Stable",), (), {"old", "new"}),
        (("stable", " EMPTY "), ("classic",), {"old", "simple"}),
        ((), ("Consumer",), {"new"}),
        ((), ("CLASSIC",), {"old", "simple"}),
        (("Assigning",), (), set()),
        (("nonsense",), (), set()),
        ((), ("share",), set()),
    ],
)
def test_listing(shell: GroupShell, states: tuple[str, ...], types: tuple[str, ...], expected: set[str]) -> None:
    assert {group.group_id for group in shell.coordinator.list_groups(states, types)} == expected


def test_what_is_listed(shell: GroupShell) -> None:
    assert set(shell.coordinator.list_groups()) == {
        ListedGroup("old", "consumer", "Stable", "classic"),
        ListedGroup("new", "consumer", "Stable", "consumer"),
        ListedGroup("simple", "", "Empty", "classic"),
    }
