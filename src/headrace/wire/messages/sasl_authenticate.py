"""SaslAuthenticate (36): one step of a SASL exchange.

v1 how long the session lasts before the client must authenticate again (KIP-368); v2 flexible.
"""

from __future__ import annotations

from headrace.wire.primitives import BYTES, INT16, INT64, STRING
from headrace.wire.schema import Request, Response, field


class SaslAuthenticateRequest(Request, key=36, versions=range(3), flexible=2):
    auth_bytes: bytes = field(BYTES)


class SaslAuthenticateResponse(Response, key=36, versions=range(3), flexible=2):
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0)
    auth_bytes: bytes = field(BYTES)
    session_lifetime_ms: int = field(INT64, since=1)
