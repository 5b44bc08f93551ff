"""UnregisterBroker (64): forget a broker that will not come back."""

from __future__ import annotations

from headrace.wire.primitives import INT16, INT32, STRING
from headrace.wire.schema import Request, Response, field


class UnregisterBrokerRequest(Request, key=64, versions=range(1), flexible=0):
    broker_id: int = field(INT32)


class UnregisterBrokerResponse(Response, key=64, versions=range(1), flexible=0):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0)
