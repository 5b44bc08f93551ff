"""SyncGroup (14): the group's leader hands in the assignment, every member gets its own part.

v1 throttle time; v3 static members (KIP-345); v4 flexible; v5 protocol type and name are checked (KIP-559).
"""

from __future__ import annotations

from headrace.wire.primitives import BYTES, INT16, INT32, STRING
from headrace.wire.schema import Request, Response, Struct, array, field


class SyncGroupRequestAssignment(Struct):
    member_id: str = field(STRING)
    assignment: bytes = field(BYTES)


class SyncGroupRequest(Request, key=14, versions=range(6), flexible=4):
    max_elements = 50_000
    group_id: str = field(STRING)
    generation_id: int = field(INT32)
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, since=3, nullable=0, default=None, ignorable=False)
    protocol_type: str | None = field(STRING, since=5, nullable=0, default=None)
    protocol_name: str | None = field(STRING, since=5, nullable=0, default=None)
    assignments: list[SyncGroupRequestAssignment] = field(array(SyncGroupRequestAssignment))


class SyncGroupResponse(Response, key=14, versions=range(6), flexible=4):
    throttle_time_ms: int = field(INT32, since=1)
    error_code: int = field(INT16)
    protocol_type: str | None = field(STRING, since=5, nullable=0, default=None)
    protocol_name: str | None = field(STRING, since=5, nullable=0, default=None)
    assignment: bytes = field(BYTES)
