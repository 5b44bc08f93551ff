"""DescribeConfigs (32), v1-4. The settings of topics, brokers and groups, with where each value comes from.

v1 sources and synonyms (KIP-226); v3 types and documentation (KIP-569). Settings of broker loggers and client
metrics do not exist here (yet): INVALID_REQUEST. A broker knows only its own file, so it answers for
itself, and with an empty name for what was set for all brokers.
"""

from __future__ import annotations

from headrace.config.describe import (
    DescribedSetting,
    describe_broker,
    describe_every_broker,
    describe_group,
    describe_topic,
)
from headrace.config.topic_config import DynamicConfigs
from headrace.handlers.context import Context, configs_describe, each_once
from headrace.handlers.registry import api
from headrace.model.config_resources import ResourceType
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import check_topic_name
from headrace.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)


@api(DescribeConfigsRequest, DescribeConfigsResponse, versions=range(1, 5), authorize=configs_describe)
async def describe_configs(ctx: Context, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    """Returns the settings of topics, brokers and consumer groups."""
    asked = each_once(request.resources, _name_of)
    return DescribeConfigsResponse(
        results=[_describe(ctx, request, resource) async for resource in ctx.each(asked)]
    )


def _name_of(resource: DescribeConfigsResource) -> tuple[int, str, frozenset[str]]:
    return resource.resource_type, resource.resource_name, frozenset(resource.configuration_keys or ())


def _describe(
    ctx: Context, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(resource_type=resource.resource_type, resource_name=resource.resource_name)
    try:
        entries = _entries(ctx, resource)
    except KafkaError as error:
        result.error_code, result.error_message = error.code, error.message
        return result
    wanted = set(resource.configuration_keys or ())
    result.configs = [_config(request, entry) for entry in entries if not wanted or entry.name in wanted]
    return result


def _entries(ctx: Context, resource: DescribeConfigsResource) -> list[DescribedSetting]:
    match resource.resource_type:
        case ResourceType.TOPIC:
            return _topic(ctx, resource.resource_name)
        case ResourceType.BROKER:
            return _broker(ctx, resource.resource_name)
        case ResourceType.GROUP:
            return _group(ctx, resource.resource_name)
        case unknown:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Headrace has no settings for resources of type {unknown}"
            )


def _topic(ctx: Context, name: str) -> list[DescribedSetting]:
    check_topic_name(name)
    topic = ctx.broker.metadata.image.topics.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return describe_topic(topic.configs, ctx.broker.config, _dynamic(ctx))


def _group(ctx: Context, name: str) -> list[DescribedSetting]:
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A group's settings need the group's id")
    return describe_group(ctx.broker.metadata.image.group_configs.get(name, {}), ctx.broker.config, _dynamic(ctx))


def _broker(ctx: Context, name: str) -> list[DescribedSetting]:
    if not name:
        return describe_every_broker(_dynamic(ctx))
    if name != str(ctx.broker.id):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"This is broker {ctx.broker.id}; it cannot answer for broker {name!r}"
        )
    return describe_broker(ctx.broker.config, _dynamic(ctx))


def _dynamic(ctx: Context) -> DynamicConfigs:
    return DynamicConfigs.of(ctx.broker.metadata.image.broker_configs, ctx.broker.id)


def _config(request: DescribeConfigsRequest, entry: DescribedSetting) -> DescribeConfigsResourceResult:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
            for synonym in synonyms
        ],
        config_type=entry.setting.type,
        documentation=entry.setting.doc if request.include_documentation else None,
    )
