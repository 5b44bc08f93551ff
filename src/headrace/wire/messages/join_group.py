"""JoinGroup (11): enter a classic consumer group, or its next generation.

v1 rebalance timeout; v4 the broker hands out the member id first (KIP-394); v5 static members (KIP-345); v6
flexible; v7 protocol type in the answer (KIP-559); v8 the reason for joining; v9 the leader may skip the
assignment.
"""

from __future__ import annotations

from headrace.wire.primitives import BOOL, BYTES, INT16, INT32, STRING
from headrace.wire.schema import Request, Response, Struct, array, field


class JoinGroupRequestProtocol(Struct):
    name: str = field(STRING)
    metadata: bytes = field(BYTES)


class JoinGroupRequest(Request, key=11, versions=range(10), flexible=6):
    max_elements = 10_000
    group_id: str = field(STRING)
    session_timeout_ms: int = field(INT32)
    rebalance_timeout_ms: int = field(INT32, since=1, default=-1)
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, since=5, nullable=0, default=None, ignorable=False)
    protocol_type: str = field(STRING)
    protocols: list[JoinGroupRequestProtocol] = field(array(JoinGroupRequestProtocol))
    reason: str | None = field(STRING, since=8, nullable=0, default=None)


class JoinGroupResponseMember(Struct):
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, since=5, nullable=0, default=None)
    metadata: bytes = field(BYTES)


class JoinGroupResponse(Response, key=11, versions=range(10), flexible=6):
    throttle_time_ms: int = field(INT32, since=2)
    error_code: int = field(INT16)
    generation_id: int = field(INT32, default=-1)
    protocol_type: str | None = field(STRING, since=7, nullable=0, default=None)
    protocol_name: str | None = field(STRING, nullable=7)
    leader: str = field(STRING)
    skip_assignment: bool = field(BOOL, since=9, ignorable=False)
    member_id: str = field(STRING)
    members: list[JoinGroupResponseMember] = field(array(JoinGroupResponseMember))
