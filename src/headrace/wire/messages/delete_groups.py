"""DeleteGroups (42): remove empty groups with their offsets.

v2 flexible.
"""

from __future__ import annotations

from headrace.wire.primitives import INT16, INT32, STRING
from headrace.wire.schema import Request, Response, Struct, array, field


class DeleteGroupsRequest(Request, key=42, versions=range(3), flexible=2):
    groups_names: list[str] = field(array(STRING))


class DeletableGroupResult(Struct):
    group_id: str = field(STRING)
    error_code: int = field(INT16)


class DeleteGroupsResponse(Response, key=42, versions=range(3), flexible=2):
    throttle_time_ms: int = field(INT32)
    results: list[DeletableGroupResult] = field(array(DeletableGroupResult))
