"""New certificates for a listener of this broker are tried before they are accepted: their files are on its disk.

A client sends a broker's settings to that broker. What cannot be used is refused there, as in Kafka, and nothing
is changed; everything else is forwarded to the controller.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial, wraps

from headrace.config.setting import ConfigError
from headrace.config.tls_config import is_tls_setting, listener_setting, listener_tls
from headrace.config.topic_config import DynamicConfigs
from headrace.env.tls import client_context, server_context
from headrace.handlers.context import Context
from headrace.model.config_resources import ConfigOperation, ResourceType
from headrace.model.errors import ErrorCode
from headrace.model.tls import TlsFault
from headrace.wire.messages.alter_configs import AlterConfigsResourceResponse
from headrace.wire.messages.incremental_alter_configs import (
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

Handle = Callable[[Context, IncrementalAlterConfigsRequest], Awaitable[IncrementalAlterConfigsResponse]]


def certificates_checked(handle: Handle) -> Handle:
    @wraps(handle)
    async def checked(ctx: Context, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
        refused: dict[int, str] = {}
        for index, resource in enumerate(request.resources):
            if _is_about_our_certificates(ctx, resource):
                problem = await _problem(ctx, resource)
                if problem is not None:
                    refused[index] = problem
        if not refused:
            return await handle(ctx, request)
        kept = [resource for index, resource in enumerate(request.resources) if index not in refused]
        answers = []
        if kept:
            rest = IncrementalAlterConfigsRequest(resources=kept, validate_only=request.validate_only)
            answers = list((await handle(ctx, rest)).responses)
        for index, problem in refused.items():
            answers.insert(index, _refusal(request.resources[index], problem))
        return IncrementalAlterConfigsResponse(responses=answers)

    return checked


def _is_about_our_certificates(ctx: Context, resource: AlterConfigsResource) -> bool:
    ours = resource.resource_type == ResourceType.BROKER and resource.resource_name == str(ctx.broker.id)
    return ours and any(is_tls_setting(config.name) for config in resource.configs)


async def _problem(ctx: Context, resource: AlterConfigsResource) -> str | None:
    """What is wrong with the certificates that result from these settings."""
    broker = ctx.broker
    dynamic = dict(DynamicConfigs.of(broker.metadata.image.broker_configs, broker.id).broker)
    for config in resource.configs:
        if config.config_operation == ConfigOperation.SET:
            dynamic[config.name] = config.value or ""
        else:
            dynamic.pop(config.name, None)
    names = {listener_setting(config.name)[0] for config in resource.configs if is_tls_setting(config.name)}
    try:
        for name in names:
            await broker.env.run_blocking(partial(_try, ctx, name, dynamic))
    except (ConfigError, TlsFault) as error:
        return str(error)
    return None


def _try(ctx: Context, name: str, dynamic: Mapping[str, str]) -> None:
    config = ctx.broker.config
    listener = next((each for each in config.listeners if each.name == name), None)
    if listener is None or name not in config.tls:
        raise ConfigError(f"This broker has no listener {name} with TLS")
    settings = listener_tls(listener, {**config.tls_texts, **dynamic})
    config.check_closed(listener, settings)
    material = settings.material
    server_context(material)
    client_context(material)


def _refusal(resource: AlterConfigsResource, problem: str) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=ErrorCode.INVALID_REQUEST,
        error_message=problem,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
