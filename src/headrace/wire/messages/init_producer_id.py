"""InitProducerId (22): get a producer id, or the next epoch of a transactional one.

v2 flexible; v3 the producer may name its present id and epoch to have it bumped (KIP-360); v4 PRODUCER_FENCED;
v5 TRANSACTION_ABORTABLE (KIP-890); v6 two-phase commit (KIP-939).
"""

from __future__ import annotations

from headrace.wire.primitives import BOOL, INT16, INT32, INT64, STRING
from headrace.wire.schema import Request, Response, field


class InitProducerIdRequest(Request, key=22, versions=range(7), flexible=2):
    transactional_id: str | None = field(STRING, nullable=0)
    transaction_timeout_ms: int = field(INT32)
    producer_id: int = field(INT64, since=3, default=-1, ignorable=False)
    producer_epoch: int = field(INT16, since=3, default=-1, ignorable=False)
    enable2_pc: bool = field(BOOL, since=6, ignorable=False)
    keep_prepared_txn: bool = field(BOOL, since=6, ignorable=False)


class InitProducerIdResponse(Response, key=22, versions=range(7), flexible=2):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    producer_id: int = field(INT64, default=-1)
    producer_epoch: int = field(INT16)
    ongoing_txn_producer_id: int = field(INT64, since=6, default=-1, ignorable=False)
    ongoing_txn_producer_epoch: int = field(INT16, since=6, default=-1, ignorable=False)
