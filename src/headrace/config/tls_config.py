"""What settings say about TLS, in Kafka's words and in librdkafka's, of a listener or of a client.

    ssl.keystore.type=PEM                      or PKCS12
    ssl.keystore.location=server.pem           key and chain; or ssl.keystore.key and ...certificate.chain
    ssl.truststore.location=ca.pem             or inline, as ssl.truststore.certificates
    listener.name.NAME.ssl.client.auth=required

A JKS keystore is read if it is a PKCS#12 file in truth, as those of newer keytools are. Clients may also write
ssl.ca.location, ssl.certificate.location and ssl.key.location.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headrace.config.cipher_suites import split_suites
from headrace.config.listeners import LISTENER_PREFIX, ConfiguredListener
from headrace.config.principal_rules import PrincipalRules
from headrace.config.secrets import refuse_in_flags
from headrace.config.setting import ConfigError
from headrace.model.tls import (
    CLIENT_AUTH,
    JKS,
    NO_CLIENT_AUTH,
    PEM,
    PKCS12,
    REQUIRED,
    STORE_TYPES,
    TLS_1_2,
    TLS_1_3,
    TLS_VERSIONS,
    KeyStore,
    TlsMaterial,
    TrustStore,
)

MAPPING_RULES = "ssl.principal.mapping.rules"
SECRETS = ("ssl.keystore.password", "ssl.key.password", "ssl.truststore.password", "ssl.keystore.key")
IDENTIFICATION = "ssl.endpoint.identification.algorithm"
RECONFIGURABLE = frozenset(
    {
        "ssl.keystore.type",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.key",
        "ssl.keystore.certificate.chain",
        "ssl.key.password",
        "ssl.truststore.type",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.certificates",
        "ssl.client.auth",
        "ssl.enabled.protocols",
        "ssl.protocol",
        "ssl.cipher.suites",
        "ssl.endpoint.identification.algorithm",
        "ssl.principal.mapping.rules",
    }
)
"""The TLS settings of a listener that can be changed while the broker runs."""
JAVA_ONLY = (
    "ssl.engine.factory.class",
    "ssl.provider",
    "ssl.keymanager.algorithm",
    "ssl.trustmanager.algorithm",
    "ssl.secure.random.implementation",
    "security.providers",
)
"""Settings that choose Java code: refused unless they are set to Java's default."""
JAVA_DEFAULTS = frozenset({"", "SunX509", "PKIX"})
_VERIFY = {"true": True, "false": False}
Get = Callable[[str], str | None]


@dataclass(frozen=True, slots=True)
class ListenerTls:
    """The TLS settings of one listener."""

    material: TlsMaterial
    rules: PrincipalRules
    names_principals: bool
    """Whether a client's certificate determines its principal: it does without SASL."""


def is_tls_setting(name: str) -> bool:
    """Whether it is a setting of one listener that is about TLS."""
    return name.startswith(LISTENER_PREFIX) and ".ssl." in name


def listener_setting(name: str) -> tuple[str, str]:
    """`listener.name.internal.ssl.keystore.location` as INTERNAL and ssl.keystore.location."""
    listener, _, rest = name.removeprefix(LISTENER_PREFIX).partition(".ssl.")
    return listener.upper(), f"ssl.{rest}"


def is_reconfigurable(name: str) -> bool:
    return is_tls_setting(name) and listener_setting(name)[1] in RECONFIGURABLE


def tls_of(
    listeners: tuple[ConfiguredListener, ...], texts: Mapping[str, str], sources: Mapping[str, str]
) -> dict[str, ListenerTls]:
    """The TLS settings by listener name, for the listeners that have TLS."""
    refuse_in_flags(sources, *SECRETS)
    return {
        listener.name: listener_tls(listener, texts)
        for listener in listeners
        if listener.security_protocol.endswith("SSL")
    }


def listener_tls(listener: ConfiguredListener, texts: Mapping[str, str]) -> ListenerTls:
    prefix = f"{LISTENER_PREFIX}{listener.name.lower()}."

    def get(name: str) -> str | None:
        return texts.get(prefix + name, texts.get(name))

    material = _material(get, client_auth=_client_auth(listener, prefix, texts))
    if material.own is None:
        raise ConfigError(
            f"listener {listener} needs a certificate: write {prefix}ssl.keystore.type=PEM and "
            f"{prefix}ssl.keystore.location=FILE with certificate and key. To try it, `headrace tls dev` makes one"
        )
    if material.client_auth != NO_CLIENT_AUTH and material.trusted is None:
        raise ConfigError(
            f"listener {listener} asks clients for certificates (ssl.client.auth={material.client_auth}) but "
            f"trusts none: write {prefix}ssl.truststore.location=FILE with the certificates of their authorities"
        )
    rules = PrincipalRules.parse(get(MAPPING_RULES) or "DEFAULT")
    return ListenerTls(material, rules, names_principals=listener.security_protocol == "SSL")


def _client_auth(listener: ConfiguredListener, prefix: str, texts: Mapping[str, str]) -> str:
    """As in Kafka: on a listener with SASL only the setting of that listener counts."""
    name = "ssl.client.auth"
    text = texts.get(prefix + name)
    if text is None and listener.security_protocol == "SSL":
        text = texts.get(name)
    text = (text or NO_CLIENT_AUTH).strip().lower()
    if text not in CLIENT_AUTH:
        raise ConfigError(f"{name}: {text!r} is not one of {', '.join(CLIENT_AUTH)}")
    return text


def authenticates(tls: ListenerTls | None) -> bool:
    """Whether every client must have a certificate."""
    return tls is not None and tls.names_principals and tls.material.client_auth == REQUIRED


def client_material(get: Get) -> TlsMaterial:
    """The TLS configuration of a client, which may also use the names of librdkafka."""
    return _material(get)


def _material(get: Get, client_auth: str = NO_CLIENT_AUTH) -> TlsMaterial:
    for name in JAVA_ONLY:
        if (get(name) or "").strip() not in JAVA_DEFAULTS:
            raise ConfigError(f"{name}: Java classes and providers cannot be used here; remove it")
    minimum, maximum = _versions(get)
    suites = tuple(part.strip() for part in (get("ssl.cipher.suites") or "").replace(":", ",").split(","))
    suites = tuple(filter(None, suites))
    ciphers = ""
    if suites:
        ciphers, newer = split_suites("ssl.cipher.suites", suites)
        minimum, maximum = (minimum if ciphers else TLS_1_3), (maximum if newer else TLS_1_2)
        if TLS_VERSIONS.index(minimum) > TLS_VERSIONS.index(maximum):
            raise ConfigError("ssl.cipher.suites and ssl.enabled.protocols have no TLS version in common")
    verify = _flag(get, "enable.ssl.certificate.verification")
    return TlsMaterial(
        own=_key_store(get),
        trusted=_trust_store(get),
        minimum=minimum,
        maximum=maximum,
        ciphers=ciphers,
        verify=verify,
        verify_host=verify and _identification(get),
        client_auth=client_auth,
    )


def _flag(get: Get, name: str) -> bool:
    text = (get(name) or "true").strip().lower()
    if text not in _VERIFY:
        raise ConfigError(f"{name}: {text!r} is neither true nor false")
    return _VERIFY[text]


def _identification(get: Get) -> bool:
    text = get(IDENTIFICATION)
    text = "https" if text is None else text.strip().lower()
    if text not in ("https", "", "none"):
        raise ConfigError(f"{IDENTIFICATION}: {text!r} is not https; leave it empty to accept any host name")
    return text == "https"


def _versions(get: Get) -> tuple[str, str]:
    protocol = (get("ssl.protocol") or "TLSv1.3").strip()
    if protocol not in (*TLS_VERSIONS, "TLS"):
        raise ConfigError(f"ssl.protocol: {protocol} is not one of {', '.join(TLS_VERSIONS)}")
    named = [part.strip() for part in (get("ssl.enabled.protocols") or ",".join(TLS_VERSIONS)).split(",")]
    for name in filter(None, named):
        if name not in TLS_VERSIONS:
            raise ConfigError(
                f"ssl.enabled.protocols: {name} is not secure, and not served; use {' and '.join(TLS_VERSIONS)}"
            )
    enabled = [version for version in TLS_VERSIONS if version in named]
    if not enabled:
        raise ConfigError(f"ssl.enabled.protocols is empty; use {' and '.join(TLS_VERSIONS)}")
    if protocol == TLS_1_2 and get("ssl.protocol") and TLS_1_2 in enabled and not get("ssl.enabled.protocols"):
        enabled = [TLS_1_2]
    return enabled[0], enabled[-1]


def _store_type(get: Get, name: str, location: str) -> str:
    text = (get(name) or "").strip().upper().replace("PKCS#12", PKCS12)
    if text in STORE_TYPES:
        return text
    if text in ("", JKS):
        # Kafka's default is JKS, and what such a file truly is, is seen when it is read.
        return JKS if location else PEM
    raise ConfigError(f"{name}: {text} is not one of {', '.join(STORE_TYPES)}")


def _key_store(get: Get) -> KeyStore | None:
    location = get("ssl.keystore.location") or ""
    chain = get("ssl.keystore.certificate.chain") or get("ssl.certificate.pem") or ""
    key = get("ssl.keystore.key") or get("ssl.key.pem") or ""
    key_password = get("ssl.key.password") or ""
    if separate := get("ssl.certificate.location") or "":
        key_location = get("ssl.key.location") or ""
        return KeyStore(PEM, separate, key_location, "", key_password)
    if location and (chain or key):
        raise ConfigError("ssl.keystore.location and ssl.keystore.key cannot be combined: give one of them")
    if bool(chain) != bool(key):
        raise ConfigError("ssl.keystore.certificate.chain and ssl.keystore.key belong together: one is missing")
    if not location and not chain:
        return None
    kind = _store_type(get, "ssl.keystore.type", location)
    if chain and kind != PEM:
        raise ConfigError("ssl.keystore.certificate.chain needs ssl.keystore.type=PEM")
    return KeyStore(kind, location, "", get("ssl.keystore.password") or "", key_password, chain, key)


def _trust_store(get: Get) -> TrustStore | None:
    if authority := get("ssl.ca.location") or "":
        return TrustStore(PEM, authority)
    location = get("ssl.truststore.location") or ""
    certificates = get("ssl.truststore.certificates") or get("ssl.ca.pem") or ""
    if not location and not certificates:
        return None
    if location and certificates:
        raise ConfigError("ssl.truststore.location and ssl.truststore.certificates cannot be combined: give one")
    kind = _store_type(get, "ssl.truststore.type", location)
    if certificates and kind != PEM:
        raise ConfigError("ssl.truststore.certificates needs ssl.truststore.type=PEM")
    return TrustStore(kind, location, get("ssl.truststore.password") or "", certificates)
