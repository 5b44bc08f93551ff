"""What a node reaches beyond its own process: store, other brokers, listeners. Replaced whole in a simulation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from headrace.client.address import Address
from headrace.client.connection import ClientSettings, open_connection
from headrace.config.broker_config import BrokerConfig
from headrace.coordination.contract import Store
from headrace.env import Env
from headrace.metadata.image import Endpoint
from headrace.metadata.stores import open_store
from headrace.replication.controller_link import BROKER_CLIENT_ID
from headrace.replication.peers import Connect, Peer
from headrace.server.connections import ConnectionLimits
from headrace.server.listener import Listener, SocketOptions

CONNECT_SECONDS = 2.0
"""Brokers are near each other; one that does not answer by then is probably dead."""

MakeListener = Callable[[Env, str, ConnectionLimits, SocketOptions], Listener]


@dataclass(frozen=True, slots=True)
class Outside:
    open_store: Callable[[Env, BrokerConfig], Awaitable[Store]]
    connect: Connect
    """To another broker's listener."""
    make_listener: MakeListener
    serves_admin: bool = True
    """Whether metrics and health are served over HTTP."""


def real_outside(config: BrokerConfig) -> Outside:
    settings = ClientSettings(client_id=f"{BROKER_CLIENT_ID}{config.node_id}", connect_timeout_s=CONNECT_SECONDS)

    async def connect(endpoint: Endpoint) -> Peer:
        return await open_connection(Address(endpoint.host, endpoint.port), settings)

    return Outside(open_store, connect, Listener)
