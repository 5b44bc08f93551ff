"""LeaveGroup (13): take members out of a group.

v1 throttle time; v3 several members at once, by member id or instance id (KIP-345); v4 flexible; v5 the reason.
"""

from __future__ import annotations

from headrace.wire.primitives import INT16, INT32, STRING
from headrace.wire.schema import Request, Response, Struct, array, field


class MemberIdentity(Struct):
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, nullable=0, default=None)
    reason: str | None = field(STRING, since=5, nullable=0, default=None)


class LeaveGroupRequest(Request, key=13, versions=range(6), flexible=4):
    max_elements = 10_000
    group_id: str = field(STRING)
    member_id: str = field(STRING, until=2, ignorable=False)
    members: list[MemberIdentity] = field(array(MemberIdentity), since=3, ignorable=False)


class MemberResponse(Struct):
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, nullable=0)
    error_code: int = field(INT16)


class LeaveGroupResponse(Response, key=13, versions=range(6), flexible=4):
    throttle_time_ms: int = field(INT32, since=1)
    error_code: int = field(INT16)
    members: list[MemberResponse] = field(array(MemberResponse), since=3, ignorable=False)
