"""AlterConfigs (33): replace all dynamic settings of a resource; what is not named goes back to its default.

v2 flexible. IncrementalAlterConfigs is the better call.
"""

from __future__ import annotations

from headrace.wire.primitives import BOOL, INT8, INT16, INT32, STRING
from headrace.wire.schema import Request, Response, Struct, array, field


class AlterableConfig(Struct):
    name: str = field(STRING)
    value: str | None = field(STRING, nullable=0)


class AlterConfigsResource(Struct):
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    configs: list[AlterableConfig] = field(array(AlterableConfig))


class AlterConfigsRequest(Request, key=33, versions=range(3), flexible=2):
    max_elements = 40_000
    resources: list[AlterConfigsResource] = field(array(AlterConfigsResource))
    validate_only: bool = field(BOOL)


class AlterConfigsResourceResponse(Struct):
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0)
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)


class AlterConfigsResponse(Response, key=33, versions=range(3), flexible=2):
    throttle_time_ms: int = field(INT32)
    responses: list[AlterConfigsResourceResponse] = field(array(AlterConfigsResourceResponse))
