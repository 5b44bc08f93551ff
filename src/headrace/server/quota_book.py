"""The use of quotas on this broker: an allowance for each kind of quota and the clients that share it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from headrace.metrics.exposition import Family, Labels
from headrace.security.quota import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    MAX_NAME_LENGTH,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    Allowance,
    ClientQuotas,
    QuotaTable,
    Sharing,
)

MAX_CLIENTS = 10_000
"""Pairs of principal and client id whose limits are remembered; beyond that they are looked up again."""
MAX_REMEMBERED_BYTES = 4 * MAX_NAME_LENGTH
"""The longest client id that is kept. A longer one cannot have its own quota, and is stored as its hash."""
MAX_SHOWN = 100
"""How many clients over a quota the metrics show by name; the others are counted together."""
PERCENT = 100.0
OTHERS: Sharing = ("", "")


class ClientAllowances:
    """The allowances of one client, shared with others that fall under the same quota."""

    __slots__ = ("fetch", "mutations", "produce", "request")

    def __init__(
        self,
        produce: Allowance | None,
        fetch: Allowance | None,
        request: Allowance | None,
        mutations: Allowance | None,
    ) -> None:
        self.produce = produce
        self.fetch = fetch
        self.request = request
        """An allowance of seconds on the event loop."""
        self.mutations = mutations


@dataclass(frozen=True, slots=True)
class BurstSeconds:
    """For how many seconds unused quota can be saved up."""

    rates: float
    mutations: float


@dataclass(slots=True)
class Throttled:
    requests: int = 0
    seconds: float = 0.0


class QuotaBook:
    def __init__(self, bursts: BurstSeconds) -> None:
        self.bursts = bursts
        self._allowances: dict[tuple[str, Sharing], Allowance] = {}
        self._clients: dict[tuple[str, bytes], ClientAllowances | None] = {}
        self._throttled: dict[tuple[str, Sharing], Throttled] = {}
        self.take({})

    def take(self, quotas: QuotaTable) -> None:
        """Use new quotas. Clients whose limit did not change keep their allowance."""
        self.produce = ClientQuotas(quotas, PRODUCER_BYTE_RATE)
        self.fetch = ClientQuotas(quotas, CONSUMER_BYTE_RATE)
        self.request = ClientQuotas(quotas, REQUEST_PERCENTAGE)
        self.mutations = ClientQuotas(quotas, CONTROLLER_MUTATION_RATE)
        self._clients = {}

    def __bool__(self) -> bool:
        return bool(self.produce or self.fetch or self.request or self.mutations)

    def client(self, principal: str, client_id: bytes, now: float) -> ClientAllowances | None:
        """The allowances of a client; None if it has no limit."""
        if len(client_id) > MAX_REMEMBERED_BYTES:
            client_id = _short(client_id)
        try:
            return self._clients[principal, client_id]
        except KeyError:
            return self._look_up(principal, client_id, now)

    def _look_up(self, principal: str, client_id: bytes, now: float) -> ClientAllowances | None:
        if len(self._clients) >= MAX_CLIENTS:
            self._clients.clear()
            self._allowances = {key: one for key, one in self._allowances.items() if not one.is_full(now)}
        user, name = principal.partition(":")[2], client_id.decode(errors="replace")
        produce = self._allowance(self.produce, PRODUCER_BYTE_RATE, user, name)
        fetch = self._allowance(self.fetch, CONSUMER_BYTE_RATE, user, name)
        request = self._allowance(self.request, REQUEST_PERCENTAGE, user, name)
        mutations = self._allowance(self.mutations, CONTROLLER_MUTATION_RATE, user, name)
        limited = any(one is not None for one in (produce, fetch, request, mutations))
        found = ClientAllowances(produce, fetch, request, mutations) if limited else None
        self._clients[principal, client_id] = found
        return found

    def _allowance(self, quotas: ClientQuotas, kind: str, user: str, client_id: str) -> Allowance | None:
        limit = quotas.limit_of(user, client_id)
        if limit is None:
            return None
        rate = limit.rate / PERCENT if kind == REQUEST_PERCENTAGE else limit.rate
        burst = self.bursts.mutations if kind == CONTROLLER_MUTATION_RATE else self.bursts.rates
        known = self._allowances.get((kind, limit.shared_by))
        if known is None or known.rate != rate:
            known = self._allowances[kind, limit.shared_by] = Allowance(rate, burst)
        return known

    def throttled(self, kind: str, principal: str, client_id: bytes, seconds: float) -> None:
        """Count for the metrics that a client has to wait."""
        quotas = {
            PRODUCER_BYTE_RATE: self.produce,
            CONSUMER_BYTE_RATE: self.fetch,
            REQUEST_PERCENTAGE: self.request,
            CONTROLLER_MUTATION_RATE: self.mutations,
        }[kind]
        name = _short(client_id).decode(errors="replace")
        limit = quotas.limit_of(principal.partition(":")[2], name)
        key = (kind, OTHERS if limit is None else limit.shared_by)
        if key not in self._throttled and len(self._throttled) >= MAX_SHOWN:
            key = (kind, OTHERS)
        figures = self._throttled.setdefault(key, Throttled())
        figures.requests += 1
        figures.seconds += seconds

    def families(self) -> Iterator[Family]:
        rows = [(_labels(kind, shared_by), figures) for (kind, shared_by), figures in self._throttled.items()]
        yield Family(
            "headrace_quota_throttled_requests_total",
            "counter",
            "Requests after which a client had to wait, by quota and who shares it.",
            [(labels, figures.requests) for labels, figures in rows],
        )
        yield Family(
            "headrace_quota_throttle_seconds_total",
            "counter",
            "Seconds that clients had to wait, by quota and who shares it.",
            [(labels, figures.seconds) for labels, figures in rows],
        )


def _short(client_id: bytes) -> bytes:
    if len(client_id) <= MAX_REMEMBERED_BYTES:
        return client_id
    return hashlib.sha256(client_id).hexdigest().encode()


def _labels(kind: str, shared_by: Sharing) -> Labels:
    user, client_id = shared_by
    return (("quota", kind), ("user", user or ""), ("client_id", client_id or ""))
