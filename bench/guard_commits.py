"""A member of a group whose commits come on many connections at once, for the guard."""

from __future__ import annotations

import time
from typing import TypeVar

from bench.group_members import MEMBER_ID_REQUIRED, assignment, commit_error, decoded, encoded, subscription
from bench.hand_driven import PATIENCE_S, Client, HandDrivenBroker
from headrace.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from headrace.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from headrace.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from headrace.wire.schema import Request, Response

GROUP = "guard"
SESSION_TIMEOUT_MS = 300_000

R = TypeVar("R", bound=Response)


def commits(broker: HandDrivenBroker, topic: str, count: int) -> dict[Client, bytes]:
    """By connection, a commit of one position, of a member that has joined."""
    clients = [broker.connect() for _ in range(count)]
    _wait_for_coordinator(broker, clients[0])
    member_id, generation = _joined(broker, clients[0], topic)
    place = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    request = OffsetCommitRequest(
        group_id=GROUP,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[place])],
    )
    assert commit_error(broker.answer(clients[0], encoded(request))) == 0
    return dict.fromkeys(clients, encoded(request))


def _joined(broker: HandDrivenBroker, client: Client, topic: str) -> tuple[str, int]:
    member_id = ""
    while True:
        join = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=SESSION_TIMEOUT_MS,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription(topic))],
        )
        joined = _ask(broker, client, join, JoinGroupResponse)
        member_id = joined.member_id
        if joined.error_code != MEMBER_ID_REQUIRED:
            break
    own = SyncGroupRequestAssignment(member_id=member_id, assignment=assignment(topic, [0]))
    sync = SyncGroupRequest(
        group_id=GROUP,
        generation_id=joined.generation_id,
        member_id=member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[own],
    )
    assert _ask(broker, client, sync, SyncGroupResponse).error_code == 0
    return member_id, joined.generation_id


def _wait_for_coordinator(broker: HandDrivenBroker, client: Client) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while _ask(broker, client, FindCoordinatorRequest(key=GROUP), FindCoordinatorResponse).error_code:
        assert time.monotonic() < deadline, "no coordinator"


def _ask(broker: HandDrivenBroker, client: Client, request: Request, kind: type[R]) -> R:
    return decoded(kind, type(request), broker.answer(client, encoded(request)))
