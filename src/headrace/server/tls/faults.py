"""Why a handshake failed, in words for an operator who reads one line of it."""

from __future__ import annotations

import ssl

_REASONS = {
    "HTTP_REQUEST": "it uses plain HTTP, but listener {listener} requires TLS",
    "HTTPS_PROXY_REQUEST": "it uses plain HTTP, but listener {listener} requires TLS",
    "WRONG_VERSION_NUMBER": "it does not use TLS, but listener {listener} requires it",
    "UNSUPPORTED_PROTOCOL": "it offers only versions of TLS that are not enabled on listener {listener}",
    "VERSION_TOO_LOW": "it offers only versions of TLS that are not enabled on listener {listener}",
    "NO_SHARED_CIPHER": "it has no cipher suite in common with listener {listener}",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it has no certificate, but listener {listener} requires one",
    "TLSV1_ALERT_UNKNOWN_CA": "it does not trust the issuer of the certificate of listener {listener}",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "it does not accept the certificate of listener {listener}",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it does not accept the certificate of listener {listener}",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "it finds the certificate of listener {listener} expired",
}


def handshake_problem(error: OSError | ValueError, listener: str) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted on listener {listener}: {error.verify_message}"
    if isinstance(error, ssl.SSLEOFError | ConnectionError) or not isinstance(error, ssl.SSLError):
        return f"it ended in the middle of the TLS handshake with listener {listener}"
    reason = error.reason or ""
    if reason in _REASONS:
        return _REASONS[reason].format(listener=listener)
    return f"its TLS handshake with listener {listener} failed: {reason.lower().replace('_', ' ') or error}"
