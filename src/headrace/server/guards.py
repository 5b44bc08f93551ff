"""Which guard stands at the gate: a login where a listener has SASL, quotas while there are any, rights where
there is an authorizer. Without any of these there is none.
"""

from __future__ import annotations

from headrace.handlers.broker import Broker
from headrace.metadata.image import MetadataImage
from headrace.server.admin import AdminCheck
from headrace.server.admin_login import AdminLogin
from headrace.server.audit import AuditTrail
from headrace.server.authentication import LoginGuard
from headrace.server.authorization.guard import AclGuard
from headrace.server.broker_proof import BrokerProof
from headrace.server.dispatch import Dispatcher
from headrace.server.gate import Guard
from headrace.server.quotas import QuotaGuard


class GateKeeper:
    """Puts the guard in and, when quotas come or go, another one."""

    def __init__(self, broker: Broker, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._broker = broker
        self._background = broker.env.background
        self._rights = AclGuard(broker) if broker.config.text("authorizer.class.name") else None
        proof = BrokerProof(broker, self._rights)
        self.quotas = QuotaGuard(broker, self._rights, dispatcher, proof)
        dispatcher.audit = AuditTrail(broker.env.clock, proof.is_broker).cold
        most = min(broker.config.integer("sasl.server.max.receive.size"), dispatcher.max_request_bytes)
        dispatcher.unproven_bytes = dict.fromkeys(broker.config.sasl, most)
        self._login = LoginGuard(broker, self.quotas) if broker.config.sasl else None
        self._take(broker.metadata.image)
        broker.metadata.subscribe(self._follow)

    async def open_token_keys(self) -> None:
        """What logins with tokens are checked by; `KeysUnusable` if that cannot be."""
        for keys in self._login.keys.values() if self._login is not None else ():
            await keys.open()
            self._background.run("Reading keys for tokens", keys.run())

    def admin_login(self) -> AdminCheck | None:
        """The login of the admin port; None if everybody may see it."""
        ways = self._broker.config.value("headrace.admin.auth")
        return AdminLogin(self._broker, self._rights, ways).allows if isinstance(ways, tuple) and ways else None

    def _follow(self, old: MetadataImage, new: MetadataImage) -> None:
        if old.quotas is not new.quotas:
            self._take(new)

    def _take(self, image: MetadataImage) -> None:
        self.quotas.follow(image)
        self._dispatcher.set_guard(self._guard())

    def _guard(self) -> Guard | None:
        inner = self.quotas if self.quotas.book else self._rights
        if self._login is None:
            return inner
        self._login.inner = inner
        return self._login
