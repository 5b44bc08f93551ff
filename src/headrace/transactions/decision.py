"""What is decided about a request: what to store, and what to answer once it is stored."""

from __future__ import annotations

from typing import NamedTuple

from headrace.model.errors import ErrorCode
from headrace.transactions.transaction import NOBODY, ProducerIdentity, Transaction


class TransactionDecision(NamedTuple):
    error: ErrorCode = ErrorCode.NONE
    changed: Transaction | None = None
    """To be stored before the answer; None if nothing changes."""
    producer: ProducerIdentity = NOBODY
    """Who the client is from now on, where the answer says so."""
    ongoing: ProducerIdentity = NOBODY
    """Whose transaction was left open (KIP-939)."""
    needs_producer_id: bool = False
    """It cannot be decided without a new producer id: ask again with one."""


NEEDS_PRODUCER_ID = TransactionDecision(needs_producer_id=True)


def refuse(error: ErrorCode) -> TransactionDecision:
    return TransactionDecision(error)
