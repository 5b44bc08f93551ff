"""IncrementalAlterConfigs (44): set, delete, append to or subtract from single settings (KIP-339).

v1 flexible.
"""

from __future__ import annotations

from headrace.wire.messages.alter_configs import AlterConfigsResourceResponse
from headrace.wire.primitives import BOOL, INT8, INT32, STRING
from headrace.wire.schema import Request, Response, Struct, array, field


class AlterableConfig(Struct):
    name: str = field(STRING)
    config_operation: int = field(INT8)
    value: str | None = field(STRING, nullable=0)


class AlterConfigsResource(Struct):
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    configs: list[AlterableConfig] = field(array(AlterableConfig))


class IncrementalAlterConfigsRequest(Request, key=44, versions=range(2), flexible=1):
    max_elements = 40_000
    resources: list[AlterConfigsResource] = field(array(AlterConfigsResource))
    validate_only: bool = field(BOOL)


class IncrementalAlterConfigsResponse(Response, key=44, versions=range(2), flexible=1):
    throttle_time_ms: int = field(INT32)
    responses: list[AlterConfigsResourceResponse] = field(array(AlterConfigsResourceResponse))
