"""AlterConfigs (33), v0-2. Replaces all dynamic settings of a topic or broker; the others go back to defaults."""

from __future__ import annotations

from headrace.handlers.config_alterations import alter
from headrace.handlers.context import Context, configs_alter
from headrace.handlers.forwarding import on_controller
from headrace.handlers.registry import api
from headrace.metadata.config_decisions import MAX_EDITS, ConfigAlteration, ConfigEdit
from headrace.model.config_resources import ConfigOperation
from headrace.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
)


@api(AlterConfigsRequest, AlterConfigsResponse, versions=range(3), authorize=configs_alter)
@on_controller(AlterConfigsResponse)
async def alter_configs(ctx: Context, request: AlterConfigsRequest) -> AlterConfigsResponse:
    """Replaces the dynamic settings of topics, brokers and consumer groups."""
    alterations = [_alteration(resource) for resource in request.resources]
    return AlterConfigsResponse(responses=await alter(ctx, alterations, request.validate_only))


def _alteration(resource: AlterConfigsResource) -> ConfigAlteration:
    edits = [
        ConfigEdit(config.name, ConfigOperation.SET, config.value) for config in resource.configs[: MAX_EDITS + 1]
    ]
    return ConfigAlteration(resource.resource_type, resource.resource_name, edits, replace_all=True)
