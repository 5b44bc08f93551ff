"""Names of cipher suites: Java's, which Kafka's settings use, and OpenSSL's.

TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384    ECDHE-RSA-AES256-GCM-SHA384
TLS_AES_256_GCM_SHA384                   the same; of TLS 1.3, which has only these
"""

from __future__ import annotations

import re

from headrace.config.setting import ConfigError

OF_TLS_1_3 = frozenset(
    {
        "TLS_AES_128_GCM_SHA256",
        "TLS_AES_256_GCM_SHA384",
        "TLS_CHACHA20_POLY1305_SHA256",
        "TLS_AES_128_CCM_SHA256",
        "TLS_AES_128_CCM_8_SHA256",
    }
)
_OPENSSL = re.compile(r"[A-Z0-9]+(-[A-Z0-9]+)+")
_NUMBERED = re.compile(r"(AES|CAMELLIA|ARIA)_(\d+)")


def openssl_name(key: str, suite: str) -> str:
    """OpenSSL's name of a cipher suite of TLS 1.2."""
    name = suite.strip().upper()
    if name.startswith(("TLS_", "SSL_")) and "_WITH_" in name:
        exchange, _, cipher = name[4:].partition("_WITH_")
        cipher = _NUMBERED.sub(r"\1\2", cipher).replace("_CBC_", "_")
        if cipher.startswith("CHACHA20"):
            cipher = "CHACHA20_POLY1305"
        parts = [cipher] if exchange == "RSA" else [exchange, cipher]
        return "-".join(parts).replace("_", "-")
    if _OPENSSL.fullmatch(name):
        return name
    raise ConfigError(f"{key}: {suite!r} is not a cipher suite; one is TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384")


def split_suites(key: str, suites: tuple[str, ...]) -> tuple[str, bool]:
    """OpenSSL's list of the suites for TLS 1.2, and whether there is any for TLS 1.3."""
    older = [openssl_name(key, suite) for suite in suites if suite.upper() not in OF_TLS_1_3]
    return ":".join(older), len(older) < len(suites)
