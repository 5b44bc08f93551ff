"""How a client logs in and verifies the brokers, from options with Kafka's names or librdkafka's.

security.protocol=SASL_SSL                       PLAINTEXT, SSL, SASL_PLAINTEXT
sasl.mechanism=SCRAM-SHA-512
sasl.username=alice                              or sasl.jaas.config=...ScramLoginModule required username=...
sasl.password=...
sasl.oauthbearer.token.endpoint.url=...          with OAUTHBEARER: `client.tokens`
ssl.ca.location=ca.pem                           or ssl.truststore.location, with its type and password
ssl.certificate.location, ssl.key.location       or ssl.keystore.location
ssl.endpoint.identification.algorithm=https      empty: any host name is accepted
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.client.login import ClientLogin
from headrace.client.tokens import TokenSource
from headrace.config.listeners import SECURITY_PROTOCOLS
from headrace.config.oauth_settings import (
    CLIENT_ID,
    CLIENT_SCOPE,
    CLIENT_SECRET,
    ENCODE,
    LIBRDKAFKA_CA,
    OAUTHBEARER,
    TOKEN_URL,
    token_endpoint,
)
from headrace.config.sasl_config import SERVED_MECHANISMS, parse_jaas
from headrace.config.setting import ConfigError
from headrace.config.tls_config import Get, client_material
from headrace.model.tls import TlsMaterial

if TYPE_CHECKING:
    import ssl

OPTIONS = (
    "security.protocol",
    "sasl.mechanism",
    "sasl.username",
    "sasl.password",
    "sasl.jaas.config",
    "ssl.ca.location",
    "ssl.ca.pem",
    "ssl.certificate.location",
    "ssl.certificate.pem",
    "ssl.key.location",
    "ssl.key.pem",
    "ssl.key.password",
    "ssl.keystore.type",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.key",
    "ssl.keystore.certificate.chain",
    "ssl.truststore.type",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.certificates",
    "ssl.enabled.protocols",
    "ssl.protocol",
    "ssl.cipher.suites",
    "ssl.endpoint.identification.algorithm",
    "enable.ssl.certificate.verification",
    TOKEN_URL,
    CLIENT_ID,
    CLIENT_SECRET,
    CLIENT_SCOPE,
    ENCODE,
    LIBRDKAFKA_CA,
)
"""What a client can be told; `sasl.mechanisms` is librdkafka's other word for the second."""
Random = Callable[[int], bytes]
NEAR = 0.85
"""How alike two names are, of 1, when one is taken for a misspelling of the other."""


def misspelt_options(given: Iterable[str]) -> list[tuple[str, str]]:
    """Names that nothing reads and that are almost one of `OPTIONS`, with that one.

    A client's file has other settings too, which are not our business; a misspelt `security.protocol` would
    silently mean plain text.
    """
    import difflib  # imported only for a login

    known = {*OPTIONS, "sasl.mechanisms"}
    others = [name for name in given if name not in known and not name.startswith("sasl.oauthbearer.")]
    near = [(name, difflib.get_close_matches(name, OPTIONS, n=1, cutoff=NEAR)) for name in others]
    return [(name, meant[0]) for name, meant in near if meant]


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    login: ClientLogin | None = None
    tls: TlsMaterial | None = None

    @property
    def context(self) -> TlsContext | None:
        return None if self.tls is None else functools.partial(tls_context, self.tls)


TlsContext = Callable[[], "ssl.SSLContext"]


@functools.lru_cache(maxsize=8)
def tls_context(material: TlsMaterial) -> ssl.SSLContext:
    """Made once for all connections of a process; `TlsFault` if it cannot be made."""
    from headrace.env.tls import client_context

    return client_context(material)


def client_security(get: Get, random: Random) -> ClientSecurity:
    """From a client's options; `ConfigError` for what is wrong with them."""
    protocol = (get("security.protocol") or "PLAINTEXT").strip().upper()
    if protocol not in SECURITY_PROTOCOLS:
        raise ConfigError(f"security.protocol: {protocol} is not one of {', '.join(SECURITY_PROTOCOLS)}")
    return ClientSecurity(
        _login(get, random) if protocol.startswith("SASL_") else None,
        client_material(get) if protocol.endswith("SSL") else None,
    )


def _login(get: Get, random: Random) -> ClientLogin:
    mechanism = (get("sasl.mechanism") or get("sasl.mechanisms") or "").strip().upper()
    if mechanism not in SERVED_MECHANISMS:
        raise ConfigError(f"sasl.mechanism is one of {', '.join(SERVED_MECHANISMS)}")
    if mechanism == OAUTHBEARER:
        given = get("sasl.jaas.config")
        jaas = parse_jaas("sasl.jaas.config", given, mechanism) if given else {}
        return ClientLogin(mechanism, "", "", random, TokenSource(token_endpoint(get, jaas)))
    user, password = get("sasl.username"), get("sasl.password")
    if text := get("sasl.jaas.config"):
        options = parse_jaas("sasl.jaas.config", text, mechanism)
        user, password = options.get("username"), options.get("password")
    if not user or password is None:
        raise ConfigError("sasl.username and sasl.password are missing")
    return ClientLogin(mechanism, user, password, random)
