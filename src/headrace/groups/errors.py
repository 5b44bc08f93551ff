"""How a refusal looks in each kind of reply, and what a failed write means to the client."""

from __future__ import annotations

from typing import TypeAlias

from headrace.groups.messages import (
    CommitOffsets,
    CommitReply,
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
    DeleteGroupReply,
    DeleteOffsets,
    DeleteOffsetsReply,
    GroupReply,
    Heartbeat,
    HeartbeatReply,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    LeaveReply,
    LeftMember,
    SyncGroup,
    SyncReply,
)
from headrace.model.errors import ErrorCode

GroupRequest: TypeAlias = (
    JoinGroup | SyncGroup | Heartbeat | LeaveGroup | ConsumerHeartbeat | CommitOffsets | DeleteOffsets | str
)
"""A plain string is the group id of DeleteGroups."""

_APPEND_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def append_error(error: ErrorCode) -> ErrorCode:
    """What the client hears when its records could not be stored."""
    return _APPEND_ERRORS.get(error, error)


def error_reply(request: GroupRequest, error: ErrorCode, message: str | None = None) -> GroupReply:
    match request:
        case JoinGroup():
            return JoinReply(error, request.member_id)
        case SyncGroup():
            return SyncReply(error)
        case Heartbeat():
            return HeartbeatReply(error)
        case LeaveGroup():
            return _nobody_left(request) if error is ErrorCode.UNKNOWN_MEMBER_ID else LeaveReply(error)
        case ConsumerHeartbeat():
            return ConsumerHeartbeatReply(error, message)
        case CommitOffsets():
            return CommitReply(tuple(error for _ in request.offsets))
        case DeleteOffsets():
            return DeleteOffsetsReply(error, ())
        case str():
            return DeleteGroupReply(error)


def _nobody_left(request: LeaveGroup) -> LeaveReply:
    """There is no such group: as in Kafka, each member is unknown, and the request as a whole succeeds."""
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    members = tuple(LeftMember(one.member_id, one.instance_id, unknown) for one in request.members)
    return LeaveReply(members=members)


def undone(reply: GroupReply, error: ErrorCode) -> GroupReply:
    """What is said to one who waited instead of a reply that did not come true."""
    match reply:
        case JoinReply():
            return JoinReply(error, reply.member_id)
        case CommitReply():
            return CommitReply(tuple(error for _ in reply.errors))
        case DeleteOffsetsReply():
            return DeleteOffsetsReply(error, ())
        case _:
            return type(reply)(error)
