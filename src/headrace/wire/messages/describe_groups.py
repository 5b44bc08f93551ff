"""DescribeGroups (15): state and members of classic groups.

v1 throttle time; v3 authorized operations; v4 static members; v5 flexible; v6 an unknown group is an error
instead of a dead group (KIP-1043).
"""

from __future__ import annotations

from headrace.wire.primitives import BOOL, BYTES, INT16, INT32, STRING
from headrace.wire.schema import Request, Response, Struct, array, field


class DescribeGroupsRequest(Request, key=15, versions=range(7), flexible=5):
    groups: list[str] = field(array(STRING))
    include_authorized_operations: bool = field(BOOL, since=3, ignorable=False)


class DescribedGroupMember(Struct):
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, since=4, nullable=0, default=None)
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    member_metadata: bytes = field(BYTES)
    member_assignment: bytes = field(BYTES)


class DescribedGroup(Struct):
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, since=6, nullable=0, default=None, ignorable=False)
    group_id: str = field(STRING)
    group_state: str = field(STRING)
    protocol_type: str = field(STRING)
    protocol_data: str = field(STRING)
    members: list[DescribedGroupMember] = field(array(DescribedGroupMember))
    authorized_operations: int = field(INT32, since=3, default=-(1 << 31), ignorable=False)


class DescribeGroupsResponse(Response, key=15, versions=range(7), flexible=5):
    throttle_time_ms: int = field(INT32, since=1)
    groups: list[DescribedGroup] = field(array(DescribedGroup))
