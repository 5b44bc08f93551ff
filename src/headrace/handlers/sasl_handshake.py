"""SaslHandshake (17), v0-1. Names a SASL mechanism to log in with (KIP-43).

v1 what follows comes as SaslAuthenticate requests (KIP-152); the bare tokens that followed v0 end the connection.
On a listener without SASL it is ILLEGAL_SASL_STATE and no mechanism, so that a client with SASL settings says at
once what is wrong.
"""

from __future__ import annotations

from headrace.handlers.context import Context, anyone
from headrace.handlers.registry import api
from headrace.model.errors import ErrorCode
from headrace.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


@api(SaslHandshakeRequest, SaslHandshakeResponse, versions=range(2), authorize=anyone)
def sasl_handshake(ctx: Context, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    """Agrees on a SASL mechanism."""
    if ctx.login is None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    error, mechanisms = ctx.login.handshake(request.mechanism)
    return SaslHandshakeResponse(error_code=error, mechanisms=list(mechanisms))
