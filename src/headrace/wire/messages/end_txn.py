"""EndTxn (26): commit or abort a transaction.

v2 PRODUCER_FENCED; v3 flexible; v4 TRANSACTION_ABORTABLE; v5 every end bumps the epoch, and the answer carries
it (KIP-890).
"""

from __future__ import annotations

from headrace.wire.primitives import BOOL, INT16, INT32, INT64, STRING
from headrace.wire.schema import Request, Response, field


class EndTxnRequest(Request, key=26, versions=range(6), flexible=3):
    transactional_id: str = field(STRING)
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    committed: bool = field(BOOL)


class EndTxnResponse(Response, key=26, versions=range(6), flexible=3):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    producer_id: int = field(INT64, since=5, default=-1)
    producer_epoch: int = field(INT16, since=5, default=-1)
