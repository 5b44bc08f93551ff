"""SaslHandshake (17), v0-1. Names a SASL mechanism to authenticate with (KIP-43).

v1 what follows comes as SaslAuthenticate requests (KIP-152). No listener has SASL yet: ILLEGAL_SASL_STATE and no
mechanism, as on a plaintext listener of Kafka, so that a client with SASL settings says at once what is wrong.
"""

from __future__ import annotations

from headrace.handlers.context import Context, anyone
from headrace.handlers.registry import api
from headrace.model.errors import ErrorCode
from headrace.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


@api(SaslHandshakeRequest, SaslHandshakeResponse, versions=range(2), authorize=anyone)
def sasl_handshake(ctx: Context, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    """Agrees on a SASL mechanism; no listener has SASL yet, and it says so."""
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
