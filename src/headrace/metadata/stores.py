"""Which coordination store a broker's settings name, and how a session with it is opened."""

from __future__ import annotations

import os.path

from headrace.config.broker_config import BrokerConfig
from headrace.config.coordination_settings import ZooKeeperAddress, parse_zookeeper_connect
from headrace.coordination.contract import Store
from headrace.coordination.lease import RENEWALS_PER_TIMEOUT
from headrace.coordination.sqlite import open_sqlite_store
from headrace.coordination.zookeeper_login import ZooKeeperAccess
from headrace.env import Env

STORE_FILE = "cluster.db"


def zookeeper_address(config: BrokerConfig) -> ZooKeeperAddress | None:
    """None if the store is the embedded one."""
    text = config.text("zookeeper.connect")
    return parse_zookeeper_connect(text) if text else None


def store_path(config: BrokerConfig) -> str | None:
    """The embedded store's file; None if there is none."""
    return os.path.join(config.log_dirs[0], STORE_FILE) if zookeeper_address(config) is None else None


def session_timeout(config: BrokerConfig) -> float:
    """Seconds."""
    own = config.value("zookeeper.session.timeout.ms") if zookeeper_address(config) is not None else None
    return (own if isinstance(own, int) else config.integer("broker.session.timeout.ms")) / 1000


def silence_limit(config: BrokerConfig) -> float:
    """Seconds: a follower that has not asked for so long may lead by now, if this broker has no lease.

    Others are elected a session's timeout after the last renewal at the earliest, and that may have been a third
    of the timeout before the last fetch. So it is less than the rest, and more than two polls of a follower take.
    """
    session, poll = session_timeout(config), config.integer("replica.fetch.wait.max.ms") / 1000
    return min(max(session / RENEWALS_PER_TIMEOUT, 3 * poll), session)


def renewal_interval(config: BrokerConfig) -> float:
    """Seconds."""
    return config.integer("broker.heartbeat.interval.ms") / 1000


async def open_store(env: Env, config: BrokerConfig) -> Store:
    """A new session. `StoreError` or `OSError` if the store cannot be reached."""
    timeout = session_timeout(config)
    address = zookeeper_address(config)
    if address is None:
        return await open_sqlite_store(env, os.path.join(config.log_dirs[0], STORE_FILE), timeout)
    given = config.value("zookeeper.connection.timeout.ms")
    connect_timeout = given / 1000 if isinstance(given, int) else timeout
    return await _open_zookeeper(env, address, timeout, connect_timeout, zookeeper_access(config))


def zookeeper_access(config: BrokerConfig) -> ZooKeeperAccess:
    return ZooKeeperAccess(
        digest=config.text("headrace.zookeeper.digest"),
        own_nodes_only=config.boolean("zookeeper.set.acl"),
        tls=config.boolean("zookeeper.ssl.client.enable"),
        ca=config.text("zookeeper.ssl.truststore.location"),
        certificate=config.text("zookeeper.ssl.keystore.location"),
        certificate_password=config.text("zookeeper.ssl.keystore.password"),
        check_host_name=bool(config.text("zookeeper.ssl.endpoint.identification.algorithm")),
    )


async def _open_zookeeper(
    env: Env, address: ZooKeeperAddress, timeout: float, connect_timeout: float, access: ZooKeeperAccess
) -> Store:
    try:
        from headrace.coordination.zookeeper import open_zookeeper_store  # Only who uses it needs its library.
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "kazoo":
            raise
        detail = "zookeeper.connect is set, which needs the package kazoo: pip install 'headrace[zookeeper]'"
        raise OSError(detail) from error
    return await open_zookeeper_store(env, address.servers, address.chroot, timeout, connect_timeout, access)
