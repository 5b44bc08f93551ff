"""How quickly connections may be opened: on the broker, on a listener, from an address (KIP-612).

One that comes too early on the broker or a listener waits for its turn before anything of it is read. One that
comes too early from its address waits as well, and is closed then; it does not count, so that who keeps to its
rate again is served again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from headrace.config.broker_config import BrokerConfig
from headrace.config.dynamic import current_integer
from headrace.config.quota_settings import CONNECTION_RATE
from headrace.config.setting import INT_MAX
from headrace.env import Clock
from headrace.metadata.image import MetadataImage
from headrace.metrics.exposition import Family
from headrace.security.quota import AddressQuotas, Allowance, QuotaTable

LONGEST_WAIT_SECONDS = 10.0
"""For a turn on the broker or a listener; who would wait longer is refused."""
MAX_ADDRESSES = 10_000
"""Whose connections are counted; those within their rate are forgotten then."""
BURST_SECONDS = 1.0


class Turn(NamedTuple):
    """When a new connection may begin."""

    wait: float = 0.0
    refused: bool = False
    """It is over when it has waited."""


AT_ONCE = Turn()


class ConnectionRates:
    def __init__(self, clock: Clock, per_listener: Mapping[str, int], exempt_from_broker: str | None) -> None:
        """Connections between brokers do not wait for those of clients, if they have a listener of their own."""
        self._clock = clock
        self._exempt = exempt_from_broker
        self._listeners = {name: _allowance(rate) for name, rate in per_listener.items()}
        self._broker: Allowance | None = None
        self._broker_rate = INT_MAX
        self._addresses = AddressQuotas({})
        self._by_address: dict[str, Allowance] = {}
        self.delayed = 0
        self.refused = 0

    def follow(self, broker_rate: int, quotas: QuotaTable) -> None:
        """The limits that hold from now on."""
        if broker_rate != self._broker_rate:
            self._broker_rate = broker_rate
            self._broker = _allowance(broker_rate)
        self._addresses = AddressQuotas(quotas)
        self._by_address = {}

    def follow_image(self, config: BrokerConfig, old: MetadataImage, new: MetadataImage) -> None:
        """The same image twice is the first one."""
        if old is new or old.broker_configs is not new.broker_configs or old.quotas is not new.quotas:
            self.follow(current_integer(config, new.broker_configs, CONNECTION_RATE), new.quotas)

    def opened(self, listener: str, address: str) -> Turn:
        now = self._clock.monotonic()
        own = self._of_address(address, now)
        if own is not None and (wait := own.ahead(now)) > 0:
            self.refused += 1
            return Turn(wait, True)
        shared = [self._listeners.get(listener), self._broker if listener != self._exempt else None]
        limits = [one for one in shared if one is not None]
        if any(one.ahead(now) > LONGEST_WAIT_SECONDS for one in limits):
            self.refused += 1
            return Turn(0.0, True)
        if own is not None:
            own.use(1, now)
        wait = max((_before(one, now) for one in limits), default=0.0)
        if not wait:
            return AT_ONCE
        self.delayed += 1
        return Turn(wait)

    def _of_address(self, address: str, now: float) -> Allowance | None:
        if not self._addresses:
            return None
        known = self._by_address.get(address)
        if known is None:
            rate = self._addresses.rate_of(address)
            if rate is None:
                return None
            if len(self._by_address) >= MAX_ADDRESSES:
                self._by_address = {key: one for key, one in self._by_address.items() if not one.is_full(now)}
            known = self._by_address[address] = Allowance(rate, BURST_SECONDS)
        return known

    def families(self) -> list[Family]:
        return [
            Family(
                "headrace_connection_rate_limited_total",
                "counter",
                "Connections above a rate limit, by what happened to them.",
                [((("outcome", "delayed"),), self.delayed), ((("outcome", "refused"),), self.refused)],
            )
        ]


def rates_of(config: BrokerConfig, clock: Clock) -> ConnectionRates:
    names = [listener.name for listener in config.listeners]
    given = {name: config.connection_rate(name) for name in names}
    between_brokers = config.inter_broker_listener.name if len(names) > 1 else None
    return ConnectionRates(
        clock, {name: rate for name, rate in given.items() if rate is not None}, between_brokers
    )


def _before(allowance: Allowance, now: float) -> float:
    """Count one more; how long it waits for its turn."""
    wait = allowance.ahead(now)
    allowance.use(1, now)
    return wait


def _allowance(rate: int) -> Allowance | None:
    return None if rate >= INT_MAX else Allowance(max(rate, 1e-9), BURST_SECONDS)
