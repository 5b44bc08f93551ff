"""SaslAuthenticate (36), v0-2. One step of a SASL login (KIP-152).

v1 how long the session lasts (KIP-368). A failure is answered after a pause, and the connection ends.
"""

from __future__ import annotations

from headrace.handlers.context import Context, anyone
from headrace.handlers.registry import api
from headrace.model.errors import ErrorCode
from headrace.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse


@api(SaslAuthenticateRequest, SaslAuthenticateResponse, versions=range(3), authorize=anyone)
async def sasl_authenticate(ctx: Context, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    """Takes one step of a SASL login."""
    if ctx.login is None:
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message="This listener has no SASL authentication."
        )
    step = await ctx.login.authenticate(request.auth_bytes)
    return SaslAuthenticateResponse(
        error_code=step.error,
        error_message=step.message,
        auth_bytes=step.answer,
        session_lifetime_ms=step.session_ms,
    )
