"""The broker settings of security: who may do what."""

from __future__ import annotations

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


SECURITY_SETTINGS: tuple[Setting, ...] = (
    Setting(
        "sasl.enabled.mechanisms",
        ConfigType.LIST,
        "",
        Importance.MEDIUM,
        "How clients of SASL listeners log in: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512. listener.name.NAME. before it "
        "is for one listener.",
    ),
    Setting(
        "sasl.jaas.config",
        ConfigType.PASSWORD,
        None,
        Importance.MEDIUM,
        "Users of PLAIN, and the broker's own name and password, as Kafka writes them. Usually with "
        "listener.name.NAME.MECHANISM. before it.",
    ),
    Setting(
        "sasl.mechanism.inter.broker.protocol",
        ConfigType.STRING,
        None,
        Importance.MEDIUM,
        "SASL mechanism between brokers; the first enabled one if it is not set.",
        allowed=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
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
)
