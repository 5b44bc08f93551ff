"""The broker settings of how ZooKeeper is reached safely: a login, access lists on our nodes, TLS."""

from __future__ import annotations

from headrace.config.setting import ConfigType, Importance, Setting


def _digest_problem(text: str) -> str | None:
    user, colon, password = text.partition(":")
    return None if user and colon and password else "it must be user:password"


def _pem_only(text: str) -> str | None:
    if text.upper() in ("", "PEM"):
        return None
    return (
        "only PEM files can be read here; openssl pkcs12 -in store.p12 -out store.pem makes one of a PKCS#12 file"
    )


ZOOKEEPER_SECURITY: tuple[Setting, ...] = (
    Setting(
        "headrace.zookeeper.digest",
        ConfigType.PASSWORD,
        None,
        Importance.MEDIUM,
        "User and password, as user:password, with which the brokers log in at ZooKeeper (its digest scheme); the "
        "same for all brokers of a cluster.",
        check=_digest_problem,
    ),
    Setting(
        "zookeeper.set.acl",
        ConfigType.BOOLEAN,
        "false",
        Importance.HIGH,
        "Whether only the brokers' own ZooKeeper login may read and change what the cluster keeps there.",
    ),
    Setting(
        "zookeeper.ssl.client.enable",
        ConfigType.BOOLEAN,
        "false",
        Importance.MEDIUM,
        "Whether connections to ZooKeeper use TLS.",
    ),
    Setting(
        "zookeeper.ssl.truststore.location",
        ConfigType.STRING,
        None,
        Importance.MEDIUM,
        "The file (PEM) of the authorities that ZooKeeper's certificate must come from; without it the system's.",
    ),
    Setting(
        "zookeeper.ssl.truststore.type",
        ConfigType.STRING,
        None,
        Importance.MEDIUM,
        "The type of that file: PEM.",
        check=_pem_only,
    ),
    Setting(
        "zookeeper.ssl.keystore.location",
        ConfigType.STRING,
        None,
        Importance.MEDIUM,
        "The file (PEM) with this broker's private key and certificate for ZooKeeper.",
    ),
    Setting(
        "zookeeper.ssl.keystore.password",
        ConfigType.PASSWORD,
        None,
        Importance.MEDIUM,
        "The password of the private key in it.",
    ),
    Setting(
        "zookeeper.ssl.keystore.type",
        ConfigType.STRING,
        None,
        Importance.MEDIUM,
        "The type of that file: PEM.",
        check=_pem_only,
    ),
    Setting(
        "zookeeper.ssl.endpoint.identification.algorithm",
        ConfigType.STRING,
        "HTTPS",
        Importance.LOW,
        "With HTTPS, ZooKeeper's certificate must be for its host name; empty accepts any name.",
    ),
)
