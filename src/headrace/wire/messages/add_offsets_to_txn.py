"""AddOffsetsToTxn (25): enter a group's offsets partition into a transaction.

v2 PRODUCER_FENCED; v3 flexible; v4 TRANSACTION_ABORTABLE (KIP-890).
"""

from __future__ import annotations

from headrace.wire.primitives import INT16, INT32, INT64, STRING
from headrace.wire.schema import Request, Response, field


class AddOffsetsToTxnRequest(Request, key=25, versions=range(5), flexible=3):
    transactional_id: str = field(STRING)
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    group_id: str = field(STRING)


class AddOffsetsToTxnResponse(Response, key=25, versions=range(5), flexible=3):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
