"""How the transactions that this broker coordinates stand, for `/metrics`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from headrace.metrics.exposition import Family, gauge
from headrace.services.transactions.markers import MarkerSender
from headrace.services.transactions.service import TransactionService
from headrace.transactions.states import TransactionState

_SHOWN = tuple(
    state
    for state in TransactionState
    if state not in (TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE)
)


class TransactionFigures:
    def __init__(self, transactions: TransactionService, markers: MarkerSender) -> None:
        self._transactions = transactions
        self._markers = markers

    def families(self) -> Iterator[Family]:
        known = list(self._transactions.loaded())
        states = Counter(transaction.state for transaction in known)
        yield Family(
            "headrace_transactions",
            "gauge",
            "Transactional ids that this broker coordinates, by state.",
            [((("state", state.title),), states[state]) for state in _SHOWN],
        )
        yield gauge(
            "headrace_transactions_prepared",
            "Prepared transactions that this broker coordinates: open until they are ended by name.",
            sum(transaction.prepared for transaction in known),
        )
        yield gauge(
            "headrace_transaction_markers_waiting",
            "Markers of ended transactions that are not written yet.",
            self._markers.lacking,
        )
