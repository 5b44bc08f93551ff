"""May this principal do this, from this host, on this resource? As Kafka's StandardAuthorizer decides it.

Super users may do everything. Otherwise the rules count whose pattern the resource falls under: one that denies
wins over all that allow; without any that fits, the answer is no; where there are no rules at all for a
resource, the answer is `allow.everyone.if.no.acl.found`. Reading, writing, deleting and altering include
describing, and altering settings includes describing them; denying one of them denies no other.

An `Authorizer` is made from one set of rules and never changes: with other rules there is another. `Rights` are
what one principal may do from one host, and remember what they were asked.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from headrace.security.acl import (
    ANY_PRINCIPAL,
    CLUSTER_NAME,
    WILDCARD,
    Acl,
    Operation,
    Pattern,
    Permission,
    Resource,
)

MAX_REMEMBERED = 10_000
"""Decisions of one principal from one host; then they are forgotten and decided again."""
MAX_REMEMBERED_NAME = 255
"""Characters of a resource's name: about a longer one it is decided each time."""
MAX_RIGHTS = 10_000
"""Pairs of principal and host that are remembered."""

MAPPED_BITS = 96
"""The bits before the IPv4 address in an IPv6 address that stands for it."""

_INCLUDED_IN: dict[Operation, frozenset[Operation]] = {
    Operation.DESCRIBE: frozenset(
        (Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER, Operation.ALL)
    ),
    Operation.DESCRIBE_CONFIGS: frozenset(
        (Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS, Operation.ALL),
    ),
}
"""Which permitted operations include another."""


class _Rules:
    """The rules for one type of resource, by the names they are about."""

    def __init__(self) -> None:
        self.literal: dict[str, list[Acl]] = {}
        self.prefixed: dict[str, list[Acl]] = {}
        self._lengths: list[int] = []

    def add(self, acl: Acl) -> None:
        by_name = self.literal if acl.pattern == Pattern.LITERAL else self.prefixed
        by_name.setdefault(acl.name, []).append(acl)
        self._lengths = sorted({len(prefix) for prefix in self.prefixed})

    def about(self, name: str) -> list[Acl]:
        found = [*self.literal.get(name, ()), *self.literal.get(WILDCARD, ())]
        for length in self._lengths:
            if length > len(name):
                break
            found += self.prefixed.get(name[:length], ())
        return found

    def all(self) -> Iterable[Acl]:
        for by_name in (self.literal, self.prefixed):
            for acls in by_name.values():
                yield from acls


class Rights:
    """What one principal may do from one host."""

    __slots__ = ("_authorizer", "_decided", "host", "is_super", "principal")

    def __init__(self, authorizer: Authorizer, principal: str, host: str) -> None:
        self._authorizer = authorizer
        self._decided: dict[tuple[int, int, str], bool] = {}
        self.principal = principal
        self.host = host
        self.is_super = principal in authorizer.super_users

    def may(self, operation: Operation, resource: Resource, name: str) -> bool:
        if self.is_super:
            return True
        key = (operation, resource, name)
        decision = self._decided.get(key)
        if decision is None:
            decision = self._authorizer.decide(self, operation, resource, name)
            if len(self._decided) >= MAX_REMEMBERED:
                self._decided.clear()
            if len(name) <= MAX_REMEMBERED_NAME:
                self._decided[key] = decision
        return decision

    def on_cluster(self, operation: Operation) -> bool:
        return self.may(operation, Resource.CLUSTER, CLUSTER_NAME)

    def may_somewhere(self, operation: Operation, resource: Resource) -> bool:
        """Whether there can be a resource of this type on which it is allowed (KIP-679)."""
        return self.is_super or self._authorizer.decide_somewhere(self, operation, resource)

    def fits(self, acl: Acl) -> bool:
        """Whether the rule is about this principal and this host."""
        return acl.principal in (self.principal, ANY_PRINCIPAL) and _host_fits(acl.host, self.host)


class Authorizer:
    def __init__(self, acls: Iterable[Acl], super_users: frozenset[str], allow_without_acls: bool) -> None:
        self.super_users = super_users
        self._allow_without_acls = allow_without_acls
        self._rules = {resource: _Rules() for resource in Resource}
        for acl in acls:
            self._rules[acl.resource].add(acl)
        self._rights: dict[tuple[str, str], Rights] = {}

    def rights(self, principal: str, host: str) -> Rights:
        known = self._rights.get((principal, host))
        if known is None:
            if len(self._rights) >= MAX_RIGHTS:
                self._rights.clear()
            known = self._rights[principal, host] = Rights(self, principal, host)
        return known

    def decide(self, rights: Rights, operation: Operation, resource: Resource, name: str) -> bool:
        about = self._rules[resource].about(name)
        if not about:
            return self._allow_without_acls
        fitting = [acl for acl in about if rights.fits(acl)]
        if any(acl.permission == Permission.DENY and _names(acl, operation) for acl in fitting):
            return False
        return any(acl.permission == Permission.ALLOW and _includes(acl, operation) for acl in fitting)

    def decide_somewhere(self, rights: Rights, operation: Operation, resource: Resource) -> bool:
        rules = self._rules[resource]
        fitting = [acl for acl in rules.all() if rights.fits(acl)]
        denied = [acl for acl in fitting if acl.permission == Permission.DENY and _names(acl, operation)]
        allowed = [acl for acl in fitting if acl.permission == Permission.ALLOW and _includes(acl, operation)]
        if any(not any(_covers(no, yes) for no in denied) for yes in allowed):
            return True
        return self._allow_without_acls and not any(
            acl.name == WILDCARD and acl.pattern == Pattern.LITERAL for acl in denied
        )


def _names(acl: Acl, operation: Operation) -> bool:
    return acl.operation in (operation, Operation.ALL)


def _includes(acl: Acl, operation: Operation) -> bool:
    included = _INCLUDED_IN.get(operation)
    return acl.operation in included if included is not None else _names(acl, operation)


def _covers(denied: Acl, allowed: Acl) -> bool:
    """Whether everything that one rule allows is denied by the other."""
    if denied.pattern == Pattern.LITERAL:
        return denied.name == WILDCARD or (allowed.pattern == Pattern.LITERAL and denied.name == allowed.name)
    if allowed.pattern == Pattern.LITERAL and allowed.name == WILDCARD:
        return False
    return allowed.name.startswith(denied.name)


def _host_fits(pattern: str, host: str) -> bool:
    if pattern in (WILDCARD, host):
        return True
    if "/" not in pattern and ":" not in pattern:
        return False
    try:
        return ipaddress.ip_address(host) in _network(pattern)
    except ValueError:
        return False


def _network(pattern: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    """Addresses of IPv4 may be written as IPv6 (`::ffff:10.0.0.0/104`); their clients have the short form."""
    network = ipaddress.ip_network(pattern)
    if isinstance(network, ipaddress.IPv6Network) and network.prefixlen >= MAPPED_BITS:
        mapped = network.network_address.ipv4_mapped
        if mapped is not None:
            return ipaddress.IPv4Network((mapped, network.prefixlen - MAPPED_BITS))
    return network
