"""SaslAuthenticate (36), v0-2. One step of a SASL exchange (KIP-152).

v1 how long the session lasts (KIP-368). No listener has SASL yet: ILLEGAL_SASL_STATE.
"""

from __future__ import annotations

from headrace.handlers.context import Context, anyone
from headrace.handlers.registry import api
from headrace.model.errors import ErrorCode
from headrace.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse


@api(SaslAuthenticateRequest, SaslAuthenticateResponse, versions=range(3), authorize=anyone)
def sasl_authenticate(ctx: Context, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    """Takes one step of a SASL exchange; no listener has SASL yet, and it says so."""
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message="This listener has no SASL authentication."
    )
