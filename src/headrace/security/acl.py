"""Access rules as values: what a rule says, whether it can be kept, and which rules a filter means.

The numbers are Kafka's, as on the wire. A rule allows or denies one operation of one principal, from
one host, on the resources that a pattern names: one by its name, all (`*`), or those whose names begin so.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
from dataclasses import astuple, dataclass
from enum import IntEnum
from typing import TypeVar

from headrace.model.errors import ErrorCode, KafkaError

E = TypeVar("E", bound=IntEnum)
WILDCARD = "*"
ANY_PRINCIPAL = "User:*"
CLUSTER_NAME = "kafka-cluster"
"""The name of the cluster as a resource."""
MAX_NAME_LENGTH = 1024
"""The maximum length of the name of a resource or a principal in a rule."""


class Operation(IntEnum):
    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Resource(IntEnum):
    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class Pattern(IntEnum):
    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    """In filters: every pattern that a resource of this name falls under."""
    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


@dataclass(frozen=True, slots=True, order=True)
class Acl:
    resource: Resource
    name: str
    pattern: Pattern
    principal: str
    host: str
    """An address, a range such as 10.0.0.0/8, or `*`."""
    operation: Operation
    permission: Permission

    @property
    def id(self) -> str:
        """The same for equal rules, so that a rule that is made twice is there once."""
        return hashlib.sha256(json.dumps(astuple(self)).encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class AclFilter:
    resource: Resource
    name: str | None
    pattern: Pattern
    principal: str | None
    host: str | None
    operation: Operation
    permission: Permission

    def matches(self, acl: Acl) -> bool:
        return (
            self.resource in (Resource.ANY, acl.resource)
            and self._matches_name(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def _matches_name(self, acl: Acl) -> bool:
        if self.pattern not in (Pattern.ANY, Pattern.MATCH, acl.pattern):
            return False
        if self.name is None or self.name == acl.name:
            return True
        if self.pattern != Pattern.MATCH:
            return False
        if acl.pattern == Pattern.LITERAL:
            return acl.name == WILDCARD
        return self.name.startswith(acl.name)


def acl_of(
    resource: int, name: str, pattern: int, principal: str, host: str, operation: int, permission: int
) -> Acl:
    """A rule that can be kept, or INVALID_REQUEST with the reason."""
    kinds = _known(Resource, resource), _known(Pattern, pattern), _known(Operation, operation)
    if kinds[0] in (Resource.UNKNOWN, Resource.ANY):
        raise _bad("A rule needs one type of resource.")
    if kinds[1] not in (Pattern.LITERAL, Pattern.PREFIXED):
        raise _bad("The pattern of a rule is literal or prefixed.")
    if kinds[2] in (Operation.UNKNOWN, Operation.ANY):
        raise _bad("A rule needs one operation, or ALL.")
    allows = _known(Permission, permission)
    if allows not in (Permission.ALLOW, Permission.DENY):
        raise _bad("A rule allows or denies.")
    if not name or len(name) > MAX_NAME_LENGTH:
        raise _bad(f"The name of a resource has 1 to {MAX_NAME_LENGTH} characters.")
    if kinds[0] == Resource.CLUSTER and (name, kinds[1]) != (CLUSTER_NAME, Pattern.LITERAL):
        raise _bad(f"The only resource of type CLUSTER is {CLUSTER_NAME}, with the pattern literal.")
    check_principal(principal)
    _check_host(host)
    return Acl(kinds[0], name, kinds[1], principal, host, kinds[2], allows)


def filter_of(
    resource: int,
    name: str | None,
    pattern: int,
    principal: str | None,
    host: str | None,
    operation: int,
    permission: int,
) -> AclFilter:
    """A filter, or INVALID_REQUEST if it has unknown values."""
    members = _known(Resource, resource), _known(Pattern, pattern), _known(Operation, operation)
    wanted = _known(Permission, permission)
    if 0 in members or wanted == Permission.UNKNOWN:
        raise _bad("The filter holds a value that is not known here.")
    return AclFilter(members[0], name, members[1], principal, host, members[2], wanted)


def check_principal(principal: str) -> None:
    kind, colon, name = principal.partition(":")
    if not (kind and colon and name) or len(principal) > MAX_NAME_LENGTH:
        raise _bad(f"A principal is written type:name, as in User:alice; {principal[:80]!r} is not.")


def _check_host(host: str) -> None:
    if host == WILDCARD:
        return
    try:
        ipaddress.ip_network(host)
    except ValueError as error:
        raise _bad(f"A host is an address, a range such as 10.0.0.0/8, or *: {error}") from None


def _known(kind: type[E], number: int) -> E:
    try:
        return kind(number)
    except ValueError:
        return kind(0)


def _bad(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
