"""Quotas as values and meters: for whom there is one, which one counts, and how long somebody over it has to wait.

A quota is a limit for an entity: a user, a client id, both together, or an address, each by its name or as the
default for all that have none of their own. Which one counts goes by Kafka's order (`ClientQuotas`): the most
specific, and only that one. Whoever falls under the same name shares an allowance: a user's quota holds for all of
its connections together, a default one for each user by itself.

An `Allowance` keeps the moment from which on its holder is within its rate again: what is used moves it further by
the time that this should take. What was not used in the last `burst_seconds` is still there, and no more.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import quote, unquote

from headrace.model.errors import ErrorCode, KafkaError

USER, CLIENT_ID, IP = "user", "client-id", "ip"
ENTITY_TYPES = (USER, CLIENT_ID, IP)
PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"
CLIENT_KEYS = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)
IP_KEYS = (CONNECTION_CREATION_RATE,)
_WHOLE_NUMBERS = frozenset((PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, CONNECTION_CREATION_RATE))
MAX_NAME_LENGTH = 255
"""The maximum length of a user or client id that has a quota."""

QuotaEntity = tuple[tuple[str, str | None], ...]
"""Types and names, in the order of `ENTITY_TYPES`; None is the default of its type."""
QuotaTable = Mapping[QuotaEntity, Mapping[str, float]]
Sharing = tuple[str | None, str | None]
"""User and client id that share an allowance; None for one that does not matter."""


def entity_of(parts: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """An entity that can have quotas, or INVALID_REQUEST with the reason."""
    given = list(parts)
    types = [kind for kind, _ in given]
    for kind in types:
        if kind not in ENTITY_TYPES:
            raise _bad(f"There is no entity type '{kind[:80]}'.")
    if len(set(types)) < len(types):
        raise _bad("An entity type is named more than once.")
    if not types or (IP in types and len(types) > 1):
        raise _bad("A quota is for a user, a client id, both of them, or an address.")
    return in_order(_named(kind, name) for kind, name in given)


def in_order(parts: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    return tuple(sorted(parts, key=lambda part: ENTITY_TYPES.index(part[0])))


def _named(kind: str, name: str | None) -> tuple[str, str | None]:
    if name is None:
        return kind, None
    if len(name) > MAX_NAME_LENGTH:
        raise _bad(f"The name of a {kind} with a quota has at most {MAX_NAME_LENGTH} characters.")
    if kind != IP:
        return kind, name
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        raise _bad(f"'{name[:80]}' is not an IP address.") from None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return kind, str(mapped or address)  # clients with an address of IPv4 have the short form


def keys_of(entity: QuotaEntity) -> tuple[str, ...]:
    """The quotas that an entity can have."""
    return IP_KEYS if entity[0][0] == IP else CLIENT_KEYS


def check_value(entity: QuotaEntity, key: str, value: float) -> None:
    if key not in keys_of(entity):
        raise _bad(f"There is no quota '{key[:80]}' for this entity.")
    if not 0 < value < float("inf"):
        raise _bad(f"The quota {key} must be greater than 0.")
    if key in _WHOLE_NUMBERS and value % 1:
        raise _bad(f"The quota {key} must be a whole number.")


def entity_text(entity: QuotaEntity) -> str:
    """One word for it that can be a node's name: user=alice,client-id for all clients of alice by themselves."""
    return ",".join(kind if name is None else f"{kind}={quote(name, safe='')}" for kind, name in entity)


def entity_of_text(text: str) -> QuotaEntity:
    parts = (part.partition("=") for part in text.split(","))
    return tuple((kind, unquote(name) if equals else None) for kind, equals, name in parts)


class Limit(NamedTuple):
    rate: float
    shared_by: Sharing


class ClientQuotas:
    """The limits of one kind for users and client ids."""

    def __init__(self, quotas: QuotaTable, key: str) -> None:
        self._rates = {entity: values[key] for entity, values in quotas.items() if key in values}

    def __bool__(self) -> bool:
        return bool(self._rates)

    def limit_of(self, user: str, client_id: str) -> Limit | None:
        for entity, shared_by in _candidates(user, client_id):
            rate = self._rates.get(entity)
            if rate is not None:
                return Limit(rate, shared_by)
        return None


def _candidates(user: str, client_id: str) -> Iterator[tuple[QuotaEntity, Sharing]]:
    """Kafka's order: whose limit counts if several have one."""
    for named_user in (user, None):
        for named_client in (client_id, None):
            yield ((USER, named_user), (CLIENT_ID, named_client)), (user, client_id)
        yield ((USER, named_user),), (user, None)
    for named_client in (client_id, None):
        yield ((CLIENT_ID, named_client),), (None, client_id)


def applying(quotas: QuotaTable, names: Mapping[str, str | None]) -> dict[str, tuple[float, QuotaEntity]]:
    """The quotas that hold for a client of these names, by type: the value of each, and whose it is."""
    if IP in names:
        candidates: list[QuotaEntity] = [((IP, names[IP]),), ((IP, None),)]
    else:
        ordered = _candidates(names.get(USER) or "ANONYMOUS", names.get(CLIENT_ID) or "")
        candidates = [entity for entity, _ in ordered]
    found: dict[str, tuple[float, QuotaEntity]] = {}
    for entity in candidates:
        for key, value in quotas.get(entity, {}).items():
            found.setdefault(key, (value, entity))
    return found


class AddressQuotas:
    """How many connections per second an address may open."""

    def __init__(self, quotas: QuotaTable) -> None:
        key = CONNECTION_CREATION_RATE
        self._rates = {entity[0][1]: values[key] for entity, values in quotas.items() if key in values}

    def __bool__(self) -> bool:
        return bool(self._rates)

    def rate_of(self, address: str) -> float | None:
        return self._rates.get(address, self._rates.get(None))


class Allowance:
    """What its holder may use per second, kept by the clock that the caller reads."""

    __slots__ = ("_burst_seconds", "_free_at", "rate")

    def __init__(self, rate: float, burst_seconds: float) -> None:
        assert rate > 0
        self.rate = rate
        self._burst_seconds = burst_seconds
        self._free_at = float("-inf")

    def use(self, amount: float, now: float) -> float:
        """Something was used; the seconds that its holder is now ahead of its rate, 0 if it is not."""
        free_at = max(self._free_at, now - self._burst_seconds) + amount / self.rate
        self._free_at = free_at
        return free_at - now if free_at > now else 0.0

    def ahead(self, now: float) -> float:
        """The seconds until its holder is within its rate again."""
        return max(self._free_at - now, 0.0)

    def is_full(self, now: float) -> bool:
        """Whether nothing is remembered: a new one would be the same."""
        return self._free_at <= now - self._burst_seconds


class QuotaFilter(NamedTuple):
    """One condition of a search: entities that have this type, with this name."""

    kind: str
    any_name: bool
    """Whatever it is, the default too."""
    name: str | None = None
    """None for the default."""

    def fits(self, entity: QuotaEntity) -> bool:
        return any(kind == self.kind and (self.any_name or name == self.name) for kind, name in entity)


def matching(quotas: QuotaTable, filters: Sequence[QuotaFilter], strict: bool) -> list[QuotaEntity]:
    """The entities that all filters fit; if `strict`, those that have no other type either."""
    return [
        entity
        for entity in quotas
        if all(one.fits(entity) for one in filters) and not (strict and len(entity) != len(filters))
    ]


def _bad(detail: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, detail)
