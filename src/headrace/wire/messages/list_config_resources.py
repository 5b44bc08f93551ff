"""ListConfigResources (74): the resources that can have settings (KIP-1142).

v0 client metrics resources only; v1 the types asked for.
"""

from __future__ import annotations

from headrace.wire.primitives import INT8, INT16, INT32, STRING
from headrace.wire.schema import Request, Response, Struct, array, field


class ListConfigResourcesRequest(Request, key=74, versions=range(2), flexible=0):
    resource_types: list[int] = field(array(INT8), since=1, ignorable=False)


class ConfigResource(Struct):
    resource_name: str = field(STRING)
    resource_type: int = field(INT8, since=1, default=16)


class ListConfigResourcesResponse(Response, key=74, versions=range(2), flexible=0):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    config_resources: list[ConfigResource] = field(array(ConfigResource))
