"""Offsets: who may commit, what is fetched, deleted and expired, and transactions (R-CON-4, R-CON-5)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headrace.groups.embedded import Subscription, write_subscription
from headrace.groups.events import ClassicProtocol, GroupDeleted, OffsetCommitted, OffsetDeleted, TransactionEnded
from headrace.groups.messages import (
    CommitOffsets,
    CommitReply,
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
    DeleteGroupReply,
    DeleteOffsets,
    DeleteOffsetsReply,
    FetchedOffset,
    FetchOffsets,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    Leaver,
    LeaveReply,
    OffsetToCommit,
    SyncGroup,
    SyncReply,
)
from headrace.groups.settings import GroupSettings
from headrace.model.errors import ErrorCode
from headrace.model.topics import TopicPartition
from headrace.testing.group_shell import GroupShell, topic

SUBSCRIPTION = write_subscription(Subscription(0, ("a",), {}, -1, None))
JOIN = JoinGroup("g", "", "consumer", (ClassicProtocol("range", SUBSCRIPTION),), 10_000, 30_000, version=3)
NEW = ConsumerHeartbeat("g", "m", 0, rebalance_timeout_ms=30_000, topics=("a",), owned={})
RETENTION_MS = GroupSettings().offsets_retention_ms
A0, B0 = TopicPartition("a", 0), TopicPartition("b", 0)


def commit_of(offset: int = 7, partition: TopicPartition = A0, **more: Any) -> CommitOffsets:
    request = CommitOffsets("g", (OffsetToCommit(*partition, offset),))
    return request._replace(**more)


def commit(shell: GroupShell, request: CommitOffsets) -> ErrorCode:
    (error,) = shell.ask(request, CommitReply).errors
    return error


def fetched(shell: GroupShell, partition: TopicPartition = A0, *, stable: bool = False) -> FetchedOffset:
    request = FetchOffsets("g", (partition,), require_stable=stable)
    return shell.coordinator.fetch_offsets(request).offsets[0]


def joined(shell: GroupShell, *, settle: bool = True, template: JoinGroup = JOIN) -> JoinReply:
    token = shell.send(template)
    shell.advance(3_000)
    reply = shell.answers.pop(token)
    assert isinstance(reply, JoinReply)
    if settle:
        shell.ask(SyncGroup("g", reply.generation, reply.member_id, template.instance_id), SyncReply)
    return reply


def new_shell() -> GroupShell:
    return GroupShell(topics=(topic("a", 1),))


# --- committing ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({}, ErrorCode.NONE),
        ({"member_id": "tool"}, ErrorCode.NONE),
        ({"generation": 0}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"generation": 0, "version": 8}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation": 0, "producer_id": 1}, ErrorCode.ILLEGAL_GENERATION),
        ({"producer_id": 1, "group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"group_id": ""}, ErrorCode.NONE),
    ],
)
def test_commits_to_a_group_that_is_not_there(change: dict[str, Any], error: ErrorCode) -> None:
    assert commit(new_shell(), commit_of(**change)) is error


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation": 1, "member_id": "me"}, ErrorCode.NONE),
        ({"generation": 0, "member_id": "me"}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation": 2, "member_id": "me"}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation": 1, "member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation": -1, "member_id": "me"}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation": 1, "member_id": "me", "instance_id": "s"}, ErrorCode.NONE),
        ({"generation": 1, "member_id": "nobody", "instance_id": "s"}, ErrorCode.FENCED_INSTANCE_ID),
        ({"generation": 1, "member_id": "me", "instance_id": "other"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"producer_id": 5}, ErrorCode.NONE),
        ({"producer_id": 5, "generation": 1, "member_id": "me"}, ErrorCode.NONE),
        ({"producer_id": 5, "generation": 2, "member_id": "me"}, ErrorCode.ILLEGAL_GENERATION),
    ],
)
def test_commits_to_a_stable_classic_group(change: dict[str, Any], error: ErrorCode) -> None:
    shell = new_shell()
    member = joined(shell, template=replace(JOIN, instance_id="s"))
    if change.get("member_id") == "me":
        change = {**change, "member_id": member.member_id}
    assert commit(shell, commit_of(**change)) is error


def test_commits_while_the_leader_assigns_are_refused_unless_transactional() -> None:
    shell = new_shell()
    member = joined(shell, settle=False)
    request = commit_of(generation=1, member_id=member.member_id)
    assert commit(shell, request) is ErrorCode.REBALANCE_IN_PROGRESS
    assert commit(shell, request._replace(producer_id=5)) is ErrorCode.NONE


def test_members_may_commit_while_they_are_asked_to_rejoin() -> None:
    """Otherwise what was read before a rebalance could never be committed."""
    shell = new_shell()
    member = joined(shell)
    shell.send(JOIN)
    assert commit(shell, commit_of(generation=1, member_id=member.member_id)) is ErrorCode.NONE


def test_a_commit_is_a_sign_of_life() -> None:
    shell = new_shell()
    member = joined(shell)
    for _ in range(4):
        shell.advance(6_000)
        assert commit(shell, commit_of(generation=1, member_id=member.member_id)) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"generation": 1, "member_id": "m"}, ErrorCode.NONE),
        ({"generation": 0, "member_id": "m"}, ErrorCode.STALE_MEMBER_EPOCH),
        ({"generation": 2, "member_id": "m"}, ErrorCode.STALE_MEMBER_EPOCH),
        ({"generation": 1, "member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation": 1, "member_id": "m", "version": 8}, ErrorCode.UNSUPPORTED_VERSION),
        ({"generation": 2, "member_id": "m", "producer_id": 5}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation": 1, "member_id": "m", "producer_id": 5, "version": 3}, ErrorCode.NONE),
    ],
)
def test_commits_to_a_consumer_group(change: dict[str, Any], error: ErrorCode) -> None:
    shell = new_shell()
    shell.ask(NEW, ConsumerHeartbeatReply)
    assert commit(shell, commit_of(**change)) is error


def test_tools_may_commit_for_an_empty_group_of_either_kind() -> None:
    shell = new_shell()
    shell.ask(NEW, ConsumerHeartbeatReply)
    shell.ask(ConsumerHeartbeat("g", "m", -1), ConsumerHeartbeatReply)
    assert commit(shell, commit_of(1)) is ErrorCode.NONE
    member = joined(shell)
    shell.ask(LeaveGroup("g", (Leaver(member.member_id),)), LeaveReply)
    assert commit(shell, commit_of(2)) is ErrorCode.NONE
    assert fetched(shell).offset == 2


def test_metadata_has_a_limit_for_each_partition() -> None:
    shell = new_shell()
    offsets = (
        OffsetToCommit("a", 0, 1, metadata="x" * 4096),
        OffsetToCommit("a", 1, 1, metadata="x" * 4097),
        OffsetToCommit("a", 2, 1, metadata=None),
    )
    reply = shell.ask(CommitOffsets("g", offsets), CommitReply)
    assert reply.errors == (ErrorCode.NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.NONE)
    assert [event.partition for event in shell.log if isinstance(event, OffsetCommitted)] == [0, 2]


def test_what_is_acknowledged_survives_and_what_failed_does_not_count() -> None:
    shell = new_shell()
    commit(shell, commit_of()._replace(offsets=(OffsetToCommit("a", 0, 7, 3, "note"),)))
    shell.append_failure = ErrorCode.REQUEST_TIMED_OUT
    assert commit(shell, commit_of(9)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    shell.restart()
    assert fetched(shell) == FetchedOffset("a", 0, 7, 3, "note")
    assert commit(shell, commit_of(3)) is ErrorCode.NONE, "going back on purpose is allowed"
    assert fetched(shell).offset == 3


def test_commits_may_overlap() -> None:
    shell = new_shell()
    decision = shell.coordinator.commit_offsets(commit_of(), "token", 1)
    assert decision.shared
    assert not shell.coordinator.delete_group("g", "token", 1).shared


# --- fetching --------------------------------------------------------------------------------------------------


def test_fetching_some_all_or_none() -> None:
    shell = new_shell()
    assert fetched(shell) == FetchedOffset("a", 0)
    commit(shell, commit_of(4, A0))
    commit(shell, commit_of(5, B0))
    everything = shell.coordinator.fetch_offsets(FetchOffsets("g", None))
    assert [(offset.topic, offset.offset) for offset in everything.offsets] == [("a", 4), ("b", 5)]
    assert shell.coordinator.fetch_offsets(FetchOffsets("none", None)).offsets == ()


@pytest.mark.parametrize(
    ("member_id", "epoch", "error"),
    [
        (None, -1, ErrorCode.NONE),
        ("m", 1, ErrorCode.NONE),
        ("m", 0, ErrorCode.STALE_MEMBER_EPOCH),
        ("nobody", 1, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_consumer_member_fetches_in_its_epoch(member_id: str | None, epoch: int, error: ErrorCode) -> None:
    shell = new_shell()
    shell.ask(NEW, ConsumerHeartbeatReply)
    request = FetchOffsets("g", (A0,), member_id, epoch)
    assert shell.coordinator.fetch_offsets(request).error is error


# --- transactions ----------------------------------------------------------------------------------------------


def test_a_transactional_offset_counts_when_its_transaction_is_committed() -> None:
    shell = new_shell()
    commit(shell, commit_of(1))
    commit(shell, commit_of(5, producer_id=9))
    assert fetched(shell).offset == 1
    assert fetched(shell, stable=True).error is ErrorCode.UNSTABLE_OFFSET_COMMIT
    shell.restart()
    assert fetched(shell, stable=True).error is ErrorCode.UNSTABLE_OFFSET_COMMIT
    shell.coordinator.apply(TransactionEnded(9, committed=True))
    assert fetched(shell, stable=True).offset == 5


def test_an_aborted_transaction_leaves_no_trace() -> None:
    shell = new_shell()
    commit(shell, commit_of(1))
    commit(shell, commit_of(5, producer_id=9))
    shell.coordinator.apply(TransactionEnded(9, committed=False))
    assert fetched(shell, stable=True).offset == 1
    assert not shell.coordinator.offsets.has_pending("g")


def test_a_plain_commit_after_a_transactional_one_is_not_undone_by_its_end() -> None:
    shell = new_shell()
    commit(shell, commit_of(5, producer_id=9))
    commit(shell, commit_of(6))
    shell.coordinator.apply(TransactionEnded(9, committed=True))
    assert fetched(shell).offset == 6


def test_two_transactions_of_one_group() -> None:
    shell = new_shell()
    commit(shell, commit_of(5, A0, producer_id=1))
    commit(shell, commit_of(6, B0, producer_id=2))
    shell.coordinator.apply(TransactionEnded(1, committed=True))
    assert fetched(shell, A0, stable=True).offset == 5
    assert fetched(shell, B0, stable=True).error is ErrorCode.UNSTABLE_OFFSET_COMMIT


# --- deleting --------------------------------------------------------------------------------------------------


def test_deleting_offsets() -> None:
    shell = new_shell()
    commit(shell, commit_of(1, A0))
    commit(shell, commit_of(1, B0))
    commit(shell, commit_of(2, TopicPartition("b", 1), producer_id=3))
    joined(shell)
    partitions = (A0, B0, TopicPartition("b", 1), TopicPartition("c", 0))
    reply = shell.ask(DeleteOffsets("g", partitions), DeleteOffsetsReply)
    none = ErrorCode.NONE
    assert reply.errors == (ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, none, none, none)
    assert fetched(shell, A0).offset == 1
    assert fetched(shell, B0).offset == -1
    assert not shell.coordinator.offsets.has_pending("g")
    assert len([event for event in shell.log if isinstance(event, OffsetDeleted)]) == 2


@pytest.mark.parametrize(
    ("group_id", "protocol_type", "error"),
    [
        ("", "consumer", ErrorCode.INVALID_GROUP_ID),
        ("none", "consumer", ErrorCode.GROUP_ID_NOT_FOUND),
        ("g", "connect", ErrorCode.NON_EMPTY_GROUP),
        ("g", "consumer", ErrorCode.NONE),
    ],
)
def test_deleting_offsets_is_refused(group_id: str, protocol_type: str, error: ErrorCode) -> None:
    shell = new_shell()
    joined(shell, template=replace(JOIN, protocol_type=protocol_type))
    assert shell.ask(DeleteOffsets(group_id, (B0,)), DeleteOffsetsReply).error is error


CUT_SUBSCRIPTION = write_subscription(Subscription(1, ("a",), {}, -1, None))[:-4]
"""Of a client that writes version 1 without the partitions that its member owns."""


@pytest.mark.parametrize("metadata", [SUBSCRIPTION, CUT_SUBSCRIPTION])
def test_only_topics_are_read_of_a_subscription(metadata: bytes) -> None:
    shell = new_shell()
    commit(shell, commit_of(1, B0))
    joined(shell, template=replace(JOIN, protocols=(ClassicProtocol("range", metadata),)))
    reply = shell.ask(DeleteOffsets("g", (A0, B0)), DeleteOffsetsReply)
    assert reply.errors == (ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE)
    assert fetched(shell, B0).offset == -1


def test_a_consumer_group_keeps_the_offsets_of_what_it_reads() -> None:
    shell = new_shell()
    shell.ask(NEW, ConsumerHeartbeatReply)
    reply = shell.ask(DeleteOffsets("g", (A0, B0)), DeleteOffsetsReply)
    assert reply.errors == (ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE)


def test_deleting_groups() -> None:
    shell = new_shell()
    assert shell.ask("g", DeleteGroupReply).error is ErrorCode.GROUP_ID_NOT_FOUND
    member = joined(shell)
    commit(shell, commit_of(1, generation=1, member_id=member.member_id))
    assert shell.ask("g", DeleteGroupReply).error is ErrorCode.NON_EMPTY_GROUP
    shell.ask(LeaveGroup("g", (Leaver(member.member_id),)), LeaveReply)
    assert shell.ask("g", DeleteGroupReply).error is ErrorCode.NONE
    assert shell.coordinator.group("g") is None
    shell.restart()
    assert shell.coordinator.group_ids() == ()
    assert fetched(shell).offset == -1


def test_deleting_a_consumer_group() -> None:
    shell = new_shell()
    shell.ask(NEW, ConsumerHeartbeatReply)
    assert shell.ask("g", DeleteGroupReply).error is ErrorCode.NON_EMPTY_GROUP
    shell.ask(ConsumerHeartbeat("g", "m", -1), ConsumerHeartbeatReply)
    assert shell.ask("g", DeleteGroupReply).error is ErrorCode.NONE
    shell.restart()
    assert shell.coordinator.group_ids() == ()


def test_offsets_of_deleted_partitions_go_too() -> None:
    shell = new_shell()
    commit(shell, commit_of(1, A0))
    commit(shell, commit_of(1, B0, group_id="other"))
    shell.carry_out(shell.coordinator.partitions_deleted({B0, TopicPartition("c", 0)}, shell.now_ms))
    assert shell.log[-1] == OffsetDeleted("other", "b", 0)
    assert fetched(shell, A0).offset == 1


# --- expiry ----------------------------------------------------------------------------------------------------


def expire(shell: GroupShell) -> None:
    shell.carry_out(shell.coordinator.expire("g", shell.now_ms))


def test_a_simple_groups_offsets_expire_by_their_commit() -> None:
    shell = new_shell()
    commit(shell, commit_of(1, A0))
    shell.advance(1_000)
    commit(shell, commit_of(1, B0))
    shell.advance(RETENTION_MS - 1_000)
    expire(shell)
    assert fetched(shell, A0).offset == -1
    assert fetched(shell, B0).offset == 1
    shell.advance(1_000)
    expire(shell)
    assert shell.log[-1] == GroupDeleted("g")
    assert shell.coordinator.group_ids() == ()


def test_a_groups_offsets_expire_after_its_members_left() -> None:
    shell = new_shell()
    member = joined(shell)
    commit(shell, commit_of(1, generation=1, member_id=member.member_id))
    shell.advance(5_000)
    shell.ask(LeaveGroup("g", (Leaver(member.member_id),)), LeaveReply)
    shell.advance(RETENTION_MS - 1)
    expire(shell)
    assert fetched(shell).offset == 1
    shell.restart()
    shell.advance(1)
    expire(shell)
    assert shell.coordinator.group_ids() == ()


def test_a_living_group_loses_only_what_it_no_longer_reads() -> None:
    shell = new_shell()
    member = joined(shell)
    for partition in (A0, B0):
        commit(shell, commit_of(1, partition, generation=1, member_id=member.member_id))
    shell.now_ms += RETENTION_MS
    expire(shell)
    assert fetched(shell, A0).offset == 1
    assert fetched(shell, B0).offset == -1


def test_a_consumer_group_loses_only_what_it_does_not_read() -> None:
    shell = new_shell()
    for partition in (A0, B0):
        commit(shell, commit_of(1, partition))
    shell.ask(NEW, ConsumerHeartbeatReply)
    shell.now_ms += RETENTION_MS
    expire(shell)
    assert fetched(shell, A0).offset == 1
    assert fetched(shell, B0).offset == -1
    assert shell.coordinator.group("g") is not None


def test_nothing_expires_while_a_rebalance_or_a_transaction_is_under_way() -> None:
    shell = new_shell()
    commit(shell, commit_of(1, B0))
    commit(shell, commit_of(2, B0, producer_id=4))
    shell.now_ms += RETENTION_MS
    expire(shell)
    assert fetched(shell, B0).offset == 1
    shell.coordinator.apply(TransactionEnded(4, committed=False))
    shell.send(JOIN)
    expire(shell)
    assert fetched(shell, B0).offset == 1


def test_an_old_commit_with_its_own_retention() -> None:
    shell = new_shell()
    commit(shell, commit_of(1, retention_ms=500))
    shell.advance(499)
    expire(shell)
    assert fetched(shell).offset == 1
    shell.advance(1)
    expire(shell)
    assert fetched(shell).offset == -1


def test_a_group_someone_is_about_to_join_is_not_deleted() -> None:
    shell = new_shell()
    shell.ask(replace(JOIN, version=9), JoinReply)
    expire(shell)
    assert shell.coordinator.group_ids() == ("g",)
    assert shell.coordinator.expire("none", 0).events == ()
