"""IncrementalAlterConfigs (44), v0-1. Sets, deletes, appends to or subtracts from single settings (KIP-339)."""

from __future__ import annotations

from headrace.handlers.certificate_check import certificates_checked
from headrace.handlers.context import Context, configs_alter
from headrace.handlers.forwarding import on_controller
from headrace.handlers.registry import api
from headrace.metadata.config_decisions import ConfigAlteration, ConfigEdit
from headrace.model.errors import ErrorCode, KafkaError
from headrace.wire.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
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
    try:
        errors = await ctx.broker.controller.alter_configs(alterations, request.validate_only)
    except KafkaError as error:
        errors = [error for _ in alterations]
    return IncrementalAlterConfigsResponse(
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
    edits = [ConfigEdit(config.name, config.config_operation, config.value) for config in resource.configs]
    return ConfigAlteration(resource.resource_type, resource.resource_name, edits)
