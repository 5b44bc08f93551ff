"""BrokerHeartbeat (63): a broker tells the controller that it lives, or that it wants to stop (KIP-631)."""

from __future__ import annotations

from headrace.wire.primitives import BOOL, INT16, INT32, INT64
from headrace.wire.schema import Request, Response, field


class BrokerHeartbeatRequest(Request, key=63, versions=range(1), flexible=0):
    broker_id: int = field(INT32)
    broker_epoch: int = field(INT64, default=-1)
    current_metadata_offset: int = field(INT64)
    want_fence: bool = field(BOOL)
    want_shut_down: bool = field(BOOL)


class BrokerHeartbeatResponse(Response, key=63, versions=range(1), flexible=0):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    is_caught_up: bool = field(BOOL)
    is_fenced: bool = field(BOOL, default=True)
    should_shut_down: bool = field(BOOL)
