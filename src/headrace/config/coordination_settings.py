"""The broker settings of coordination: which store the brokers share, how long a session lives without renewal."""

from __future__ import annotations

from typing import NamedTuple

from headrace.config.setting import INT_MAX, ConfigType, Importance, Setting
from headrace.config.zookeeper_settings import ZOOKEEPER_SECURITY

HIGH, MEDIUM = Importance.HIGH, Importance.MEDIUM
INT, STRING = ConfigType.INT, ConfigType.STRING
DEFAULT_PORT = 2181


class ZooKeeperAddress(NamedTuple):
    """What `zookeeper.connect` says."""

    servers: tuple[str, ...]
    """Each host:port."""
    chroot: str
    """The node below which everything of this cluster lies, as /a/b; empty for the root."""

    def __str__(self) -> str:
        return ",".join(self.servers) + self.chroot


def parse_zookeeper_connect(text: str) -> ZooKeeperAddress:
    """From `host:port,host:port/chroot`; ValueError with what is wrong."""
    position = text.find("/")
    listed, chroot = (text, "") if position < 0 else (text[:position], text[position:].rstrip("/"))
    servers = []
    for part in (part.strip() for part in listed.split(",")):
        host, colon, port = part.rpartition(":")
        if not colon or part.endswith("]"):
            host, port = part, str(DEFAULT_PORT)
        if not host or not port.isdigit() or not 0 < int(port) < 2**16:
            raise ValueError(f"{part!r} is not a server such as host:{DEFAULT_PORT}")
        servers.append(f"{host}:{port}")
    if "//" in chroot or any(part in (".", "..") for part in chroot.split("/")):
        raise ValueError(f"{chroot!r} is not a path such as /clusters/one")
    return ZooKeeperAddress(tuple(servers), chroot)


def _check_connect(text: str) -> str | None:
    try:
        parse_zookeeper_connect(text)
    except ValueError as error:
        return str(error)
    return None


COORDINATION: tuple[Setting, ...] = (
    Setting(
        "zookeeper.connect",
        STRING,
        None,
        HIGH,
        "The ZooKeeper servers that the brokers of many machines share, as host:port separated by commas, with an "
        "optional /path for this cluster; without it a SQLite file in the first data directory is used.",
        check=_check_connect,
    ),
    Setting(
        "broker.session.timeout.ms",
        INT,
        "6000",
        MEDIUM,
        "How long a broker stays part of the cluster without renewing its lease; a dead process on the same "
        "machine is seen at once. Kafka's default is 9000.",
        500,
        INT_MAX,
    ),
    Setting(
        "broker.heartbeat.interval.ms",
        INT,
        "2000",
        MEDIUM,
        "How often a broker renews its lease; at least three times per session timeout.",
        50,
    ),
    Setting(
        "zookeeper.session.timeout.ms",
        INT,
        None,
        HIGH,
        "With ZooKeeper, in place of broker.session.timeout.ms if it is set; the servers may allow less or more. "
        "Kafka's default was 18000.",
        500,
        INT_MAX,
    ),
    Setting(
        "zookeeper.connection.timeout.ms",
        INT,
        None,
        HIGH,
        "How long startup waits for the first connection to ZooKeeper; the session's timeout if it is not set.",
        1,
    ),
    *ZOOKEEPER_SECURITY,
)
