"""Which guard the settings ask for: a login where a listener has SASL, rights where there is an authorizer."""

from __future__ import annotations

from headrace.handlers.broker import Broker
from headrace.server.authentication import LoginGuard
from headrace.server.authorization.guard import AclGuard
from headrace.server.gate import Guard


def guard_of(broker: Broker) -> Guard | None:
    """None where everybody may do everything."""
    rights = AclGuard(broker) if broker.config.text("authorizer.class.name") else None
    return LoginGuard(broker, rights) if broker.config.sasl else rights
