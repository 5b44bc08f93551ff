"""What a node reaches beyond its own process: store, other brokers, listeners. Replaced whole in a simulation."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from headrace.client.address import Address
from headrace.client.connection import ClientSettings, open_connection
from headrace.client.errors import CannotReach, Reason
from headrace.client.login import ClientLogin
from headrace.client.tokens import KeptTokens, TokenSource
from headrace.config.broker_config import BrokerConfig
from headrace.coordination.contract import Store
from headrace.env import Env
from headrace.env.real import real_env
from headrace.metadata.image import Endpoint
from headrace.metadata.stores import open_store
from headrace.model.errors import KafkaError
from headrace.replication.controller_link import BROKER_CLIENT_ID
from headrace.replication.peers import Connect, Peer
from headrace.server.connections import ConnectionLimits
from headrace.server.listener import Listener, SocketOptions
from headrace.server.tls.identity import TlsIdentities
from headrace.server.tls.listener import TlsListener
from headrace.services.cleaner import StartWorker

log = logging.getLogger(__name__)

CONNECT_SECONDS = 2.0
"""Brokers are near each other; one that does not answer by then is probably dead."""

MakeListener = Callable[[Env, str, ConnectionLimits, SocketOptions], Listener]


@dataclass(frozen=True, slots=True)
class Outside:
    open_store: Callable[[Env, BrokerConfig], Awaitable[Store]]
    connect: Connect
    """To another broker's listener."""
    make_listener: MakeListener
    tls: TlsIdentities | None = None
    """The certificates of the listeners, where some have TLS."""
    serves_admin: bool = True
    """Whether metrics and health are served over HTTP."""
    start_worker: StartWorker | None = None
    """For compaction; else it is a process of its own."""


def real_outside(config: BrokerConfig) -> Outside:
    own, env = config.own_login, real_env()
    login = tokens = None
    if own is not None:
        tokens = None if own.tokens is None else KeptTokens(TokenSource(own.tokens), env.clock.boottime)
        login = ClientLogin(own.mechanism, own.user, own.password, env.rng.bytes, tokens)
    identities = TlsIdentities(config)
    shown = identities.of(config.inter_broker_listener.name)
    settings = ClientSettings(
        client_id=f"{BROKER_CLIENT_ID}{config.node_id}",
        connect_timeout_s=CONNECT_SECONDS,
        login=login,
        tls=None if shown is None else lambda: shown.contexts.client,
    )

    async def connect(endpoint: Endpoint) -> Peer:
        address = Address(endpoint.host, endpoint.port)
        try:
            return await open_connection(address, settings)
        except KafkaError as error:
            if tokens is not None:
                tokens.forget()
            detail = f"it refuses this broker's login: {error.message}"
            log.warning("Cannot talk to the broker at %s: %s", address, detail)
            raise CannotReach(address, Reason.OTHER, detail) from error

    def make_listener(env: Env, name: str, limits: ConnectionLimits, options: SocketOptions) -> Listener:
        identity = identities.of(name)
        if identity is None:
            return Listener(env, name, limits, options)
        listener = TlsListener(env, name, limits, options, identity)
        listener.handshake_seconds = config.integer("headrace.tls.handshake.timeout.ms") / 1000
        return listener

    return Outside(open_store, connect, make_listener, identities if config.tls else None)
