"""What the broker's settings mean to transactions."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.config.broker_config import BrokerConfig
from headrace.services.groups.settings import ShellSettings
from headrace.transactions.starting import StartRules

APPEND_TIMEOUT_MS = 30_000
"""How long until a request is told that the outcome of its decision is unknown: Kafka's request timeout."""


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    rules: StartRules
    shell: ShellSettings
    max_prepared: int
    expiration_ms: int


def transaction_settings(config: BrokerConfig) -> TransactionSettings:
    return TransactionSettings(
        rules=StartRules(
            max_timeout_ms=config.integer("transaction.max.timeout.ms"),
            two_phase_enabled=config.boolean("transaction.two.phase.commit.enable"),
        ),
        shell=ShellSettings(
            codec=0,
            commit_timeout_ms=APPEND_TIMEOUT_MS,
            load_buffer_bytes=config.integer("transaction.state.log.load.buffer.size"),
        ),
        max_prepared=config.integer("headrace.transaction.max.prepared"),
        expiration_ms=config.integer("transactional.id.expiration.ms"),
    )
