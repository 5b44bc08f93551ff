"""DescribeClientQuotas (48): the quotas that match a filter over users, clients and addresses (KIP-546).

v1 flexible.
"""

from __future__ import annotations

from headrace.wire.primitives import BOOL, FLOAT64, INT8, INT16, INT32, STRING
from headrace.wire.schema import Request, Response, Struct, array, field


class ComponentData(Struct):
    entity_type: str = field(STRING)
    match_type: int = field(INT8)
    match: str | None = field(STRING, nullable=0)


class DescribeClientQuotasRequest(Request, key=48, versions=range(2), flexible=1):
    components: list[ComponentData] = field(array(ComponentData))
    strict: bool = field(BOOL)


class EntityData(Struct):
    entity_type: str = field(STRING)
    entity_name: str | None = field(STRING, nullable=0)


class ValueData(Struct):
    key: str = field(STRING)
    value: float = field(FLOAT64)


class EntryData(Struct):
    entity: list[EntityData] = field(array(EntityData))
    values: list[ValueData] = field(array(ValueData))


class DescribeClientQuotasResponse(Response, key=48, versions=range(2), flexible=1):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0)
    entries: list[EntryData] | None = field(array(EntryData), nullable=0)
