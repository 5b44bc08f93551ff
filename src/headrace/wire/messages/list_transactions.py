"""ListTransactions (66): the transactions this broker coordinates (KIP-664).

v1 filter by how long they have run (KIP-994); v2 filter by a pattern of transactional ids (KIP-1152).
"""

from __future__ import annotations

from headrace.wire.primitives import INT16, INT32, INT64, STRING
from headrace.wire.schema import Request, Response, Struct, array, field


class ListTransactionsRequest(Request, key=66, versions=range(3), flexible=0):
    state_filters: list[str] = field(array(STRING))
    producer_id_filters: list[int] = field(array(INT64))
    duration_filter: int = field(INT64, since=1, default=-1, ignorable=False)
    transactional_id_pattern: str | None = field(STRING, since=2, nullable=0, default=None, ignorable=False)


class TransactionState(Struct):
    transactional_id: str = field(STRING)
    producer_id: int = field(INT64)
    transaction_state: str = field(STRING)


class ListTransactionsResponse(Response, key=66, versions=range(3), flexible=0):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    unknown_state_filters: list[str] = field(array(STRING))
    transaction_states: list[TransactionState] = field(array(TransactionState))
