"""SaslHandshake (17): choose a SASL mechanism.

v1 the exchange that follows is wrapped in SaslAuthenticate requests; v0 sends it raw. Never flexible.
"""

from __future__ import annotations

from headrace.wire.primitives import INT16, STRING
from headrace.wire.schema import Request, Response, array, field


class SaslHandshakeRequest(Request, key=17, versions=range(2)):
    mechanism: str = field(STRING)


class SaslHandshakeResponse(Response, key=17, versions=range(2)):
    error_code: int = field(INT16)
    mechanisms: list[str] = field(array(STRING))
