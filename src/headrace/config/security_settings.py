"""The broker settings of security: who may do what."""

from __future__ import annotations

from headrace.config.oauth_settings import OAUTH_SETTINGS
from headrace.config.setting import ConfigType, Importance, Setting

AUTHORIZERS = (
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "kafka.security.authorizer.AclAuthorizer",
    "headrace",
)
"""All mean the same here: access rules that are kept with the cluster's metadata."""


def _authorizer_problem(text: str) -> str | None:
    if not text or text in AUTHORIZERS:
        return None
    return f"Java classes cannot be loaded here. For Kafka's access rules write {AUTHORIZERS[0]}"


def _super_users_problem(text: str) -> str | None:
    for entry in filter(None, (part.strip() for part in text.split(";"))):
        kind, colon, name = entry.partition(":")
        if not (kind and colon and name):
            return f"{entry!r} is not a principal such as User:alice; several are separated by semicolons"
    return None


def super_users(text: str) -> frozenset[str]:
    return frozenset(part.strip() for part in text.split(";") if part.strip())


SECURITY_PROTOCOL = "security.inter.broker.protocol"


def _tls_row(
    name: str,
    doc: str,
    default: str | None = None,
    kind: ConfigType = ConfigType.STRING,
    importance: Importance = Importance.MEDIUM,
) -> Setting:
    return Setting(name, kind, default, importance, doc)


_SECRET = ConfigType.PASSWORD
TLS_SETTINGS: tuple[Setting, ...] = (
    _tls_row(
        "ssl.keystore.type",
        "Format of the key store: PEM or PKCS12. Like all TLS settings it can be set for one listener, with the "
        "prefix listener.name.NAME.",
    ),
    _tls_row("ssl.keystore.location", "A file with the broker's certificate, its chain and its key."),
    _tls_row("ssl.keystore.password", "Password of a PKCS#12 key store.", kind=_SECRET),
    _tls_row("ssl.key.password", "Password of an encrypted PEM key.", kind=_SECRET),
    _tls_row("ssl.keystore.certificate.chain", "Certificate and chain in PEM, instead of a file.", kind=_SECRET),
    _tls_row("ssl.keystore.key", "The key in PEM, instead of a file.", kind=_SECRET),
    _tls_row("ssl.truststore.type", "Format of the trust store: PEM or PKCS12."),
    _tls_row(
        "ssl.truststore.location",
        "A file with the certificates of the authorities that may sign those of clients and brokers, and what "
        "they revoked (in PEM, X509 CRL).",
    ),
    _tls_row("ssl.truststore.password", "Password of a PKCS#12 trust store.", kind=_SECRET),
    _tls_row("ssl.truststore.certificates", "Trusted certificates in PEM, instead of a file.", kind=_SECRET),
    _tls_row(
        "ssl.client.auth",
        "Whether clients must present a certificate: none, requested or required. On listeners with "
        "SASL only with the prefix listener.name.NAME.",
        "none",
    ),
    _tls_row(
        "ssl.principal.mapping.rules",
        "How a client certificate's name is mapped to a user: RULE:pattern/replacement/ and L or U, DEFAULT.",
        "DEFAULT",
        importance=Importance.LOW,
    ),
    _tls_row(
        "ssl.enabled.protocols", "The versions of TLS: TLSv1.2, TLSv1.3.", "TLSv1.2,TLSv1.3", ConfigType.LIST
    ),
    _tls_row("ssl.protocol", "TLSv1.2 leaves out TLSv1.3 where ssl.enabled.protocols is not set.", "TLSv1.3"),
    _tls_row(
        "ssl.cipher.suites",
        "The cipher suites, by Java's names or OpenSSL's; those of TLS 1.3 all or none. Empty: OpenSSL's choice.",
        "",
        ConfigType.LIST,
        Importance.LOW,
    ),
    _tls_row(
        "ssl.endpoint.identification.algorithm",
        "With https, another broker's certificate must be for its host name; empty accepts any name.",
        "https",
        importance=Importance.LOW,
    ),
    Setting(
        SECURITY_PROTOCOL,
        ConfigType.STRING,
        None,
        Importance.MEDIUM,
        "Which listener brokers use among themselves, by its protocol; inter.broker.listener.name names one.",
        allowed=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    ),
    Setting(
        "headrace.tls.handshake.timeout.ms",
        ConfigType.INT,
        "30000",
        Importance.LOW,
        "How long a client may take for its TLS handshake.",
        minimum=1,
    ),
    Setting(
        "headrace.tls.reload.interval.ms",
        ConfigType.INT,
        "10000",
        Importance.LOW,
        "How often key and trust stores are checked for changes, and reloaded if they changed; 0 for never.",
        minimum=0,
    ),
)

SECURITY_SETTINGS: tuple[Setting, ...] = (
    Setting(
        "sasl.enabled.mechanisms",
        ConfigType.LIST,
        "",
        Importance.MEDIUM,
        "How clients of SASL listeners log in: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER. "
        "With the prefix listener.name.NAME. it applies to one listener.",
    ),
    Setting(
        "sasl.jaas.config",
        ConfigType.PASSWORD,
        None,
        Importance.MEDIUM,
        "Users of PLAIN, and the broker's own name and password, as Kafka writes them. Usually with "
        "the prefix listener.name.NAME.MECHANISM.",
    ),
    Setting(
        "sasl.mechanism.inter.broker.protocol",
        ConfigType.STRING,
        None,
        Importance.MEDIUM,
        "SASL mechanism between brokers; the first one with a password or token of the broker if it is not set.",
        allowed=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"),
    ),
    Setting(
        "connections.max.reauth.ms",
        ConfigType.LONG,
        "0",
        Importance.MEDIUM,
        "After how long a client must log in again; 0 for never.",
        minimum=0,
    ),
    Setting(
        "sasl.server.max.receive.size",
        ConfigType.INT,
        "524288",
        Importance.LOW,
        "The largest request, in bytes, that a client may send before its login.",
        minimum=1,
    ),
    Setting(
        "connection.failed.authentication.delay.ms",
        ConfigType.INT,
        "100",
        Importance.LOW,
        "How long the response to a failed login is delayed.",
        minimum=0,
        maximum=10_000,
    ),
    Setting(
        "authorizer.class.name",
        ConfigType.STRING,
        "",
        Importance.LOW,
        "Kafka's StandardAuthorizer turns access rules on; if empty, everybody may do everything.",
        check=_authorizer_problem,
    ),
    Setting(
        "super.users",
        ConfigType.STRING,
        "",
        Importance.MEDIUM,
        (
            "Principals that may do everything regardless of access rules, as User:alice;User:bob. List "
            "the brokers here."
        ),
        check=_super_users_problem,
    ),
    Setting(
        "allow.everyone.if.no.acl.found",
        ConfigType.BOOLEAN,
        "false",
        Importance.MEDIUM,
        "Whether everybody may access resources without any access rule.",
    ),
    *OAUTH_SETTINGS,
)
