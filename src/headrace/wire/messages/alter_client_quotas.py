"""AlterClientQuotas (49): set or remove quotas of users, clients and addresses (KIP-546).

v1 flexible.
"""

from __future__ import annotations

from headrace.wire.primitives import BOOL, FLOAT64, INT16, INT32, STRING
from headrace.wire.schema import Request, Response, Struct, array, field


class EntityData(Struct):
    entity_type: str = field(STRING)
    entity_name: str | None = field(STRING, nullable=0)


class OpData(Struct):
    key: str = field(STRING)
    value: float = field(FLOAT64)
    remove: bool = field(BOOL)


class EntryData(Struct):
    entity: list[EntityData] = field(array(EntityData))
    ops: list[OpData] = field(array(OpData))


class AlterClientQuotasRequest(Request, key=49, versions=range(2), flexible=1):
    max_elements = 10_000
    entries: list[EntryData] = field(array(EntryData))
    validate_only: bool = field(BOOL)


class EntityDataResult(Struct):
    entity_type: str = field(STRING)
    entity_name: str | None = field(STRING, nullable=0)


class EntryDataResult(Struct):
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0)
    entity: list[EntityDataResult] = field(array(EntityDataResult))


class AlterClientQuotasResponse(Response, key=49, versions=range(2), flexible=1):
    throttle_time_ms: int = field(INT32)
    entries: list[EntryDataResult] = field(array(EntryDataResult))
