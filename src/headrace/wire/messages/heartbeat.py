"""Heartbeat (12): a member of a classic group says that it is alive.

v1 throttle time; v3 static members (KIP-345); v4 flexible.
"""

from __future__ import annotations

from headrace.wire.primitives import INT16, INT32, STRING
from headrace.wire.schema import Request, Response, field


class HeartbeatRequest(Request, key=12, versions=range(5), flexible=4):
    group_id: str = field(STRING)
    generation_id: int = field(INT32)
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, since=3, nullable=0, default=None, ignorable=False)


class HeartbeatResponse(Response, key=12, versions=range(5), flexible=4):
    throttle_time_ms: int = field(INT32, since=1)
    error_code: int = field(INT16)
