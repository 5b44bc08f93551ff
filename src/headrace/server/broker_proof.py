"""Whether a client is a broker of the cluster: its client id says so, and it proves that if it can."""

from __future__ import annotations

from headrace.handlers.broker import Broker
from headrace.replication.controller_link import BROKER_CLIENT_ID
from headrace.security.acl import Operation
from headrace.server.authorization.guard import AclGuard

_PREFIX = BROKER_CLIENT_ID.encode()


class BrokerProof:
    def __init__(self, broker: Broker, rights: AclGuard | None) -> None:
        """The proof is the right to act for the cluster, without access rules the brokers' own user, if any."""
        self._rights = rights
        own = broker.config.own_login
        self._own_user = None if own is None else f"User:{own.user}"

    def is_broker(self, principal: str, client_id: bytes, host: str) -> bool:
        if not client_id.startswith(_PREFIX):
            return False
        if self._rights is not None:
            return self._rights.rights(principal, host).on_cluster(Operation.CLUSTER_ACTION)
        return self._own_user is None or principal == self._own_user
