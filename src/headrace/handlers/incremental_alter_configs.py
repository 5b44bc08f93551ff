"""IncrementalAlterConfigs (44), v0-1. Sets, deletes, appends to or subtracts from single settings (KIP-339)."""

from __future__ import annotations

from headrace.handlers.certificate_check import certificates_checked
from headrace.handlers.config_alterations import alter
from headrace.handlers.context import Context, configs_alter
from headrace.handlers.forwarding import on_controller
from headrace.handlers.registry import api
from headrace.metadata.config_decisions import MAX_EDITS, ConfigAlteration, ConfigEdit
from headrace.wire.messages.incremental_alter_configs import (
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


@api(
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    versions=range(2),
    authorize=configs_alter,
)
@certificates_checked
@on_controller(IncrementalAlterConfigsResponse)
async def incremental_alter_configs(
    ctx: Context, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """Changes single settings of topics, brokers and consumer groups."""
    alterations = [_alteration(resource) for resource in request.resources]
    return IncrementalAlterConfigsResponse(responses=await alter(ctx, alterations, request.validate_only))


def _alteration(resource: AlterConfigsResource) -> ConfigAlteration:
    edits = [
        ConfigEdit(config.name, config.config_operation, config.value)
        for config in resource.configs[: MAX_EDITS + 1]
    ]
    return ConfigAlteration(resource.resource_type, resource.resource_name, edits)
