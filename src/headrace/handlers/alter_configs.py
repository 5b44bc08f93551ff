"""AlterConfigs (33), v0-2. Replaces all dynamic settings of a topic or broker; the others go back to defaults."""

from __future__ import annotations

from headrace.handlers.context import Context, configs_alter
from headrace.handlers.forwarding import on_controller
from headrace.handlers.registry import api
from headrace.metadata.config_decisions import ConfigAlteration, ConfigEdit
from headrace.model.config_resources import ConfigOperation
from headrace.model.errors import ErrorCode, KafkaError
from headrace.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


@api(AlterConfigsRequest, AlterConfigsResponse, versions=range(3), authorize=configs_alter)
@on_controller(AlterConfigsResponse)
async def alter_configs(ctx: Context, request: AlterConfigsRequest) -> AlterConfigsResponse:
    """Replaces the dynamic settings of topics, brokers and consumer groups."""
    alterations = [_alteration(resource) for resource in request.resources]
    try:
        errors = await ctx.broker.controller.alter_configs(alterations, request.validate_only)
    except KafkaError as error:
        errors = [error for _ in alterations]
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=error.code if error else ErrorCode.NONE,
                error_message=error.message if error else None,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource, error in zip(request.resources, errors, strict=True)
        ]
    )


def _alteration(resource: AlterConfigsResource) -> ConfigAlteration:
    edits = [ConfigEdit(config.name, ConfigOperation.SET, config.value) for config in resource.configs]
    return ConfigAlteration(resource.resource_type, resource.resource_name, edits, replace_all=True)
