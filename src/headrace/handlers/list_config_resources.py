"""ListConfigResources (74), v0-1. The resources that can have settings (KIP-1142).

v0 asks for client metrics only, of which there are none; v1 for any types, none named meaning all. Groups are
listed that have settings of their own. Broker loggers are a type we know but have no settings for (yet).
"""

from __future__ import annotations

from headrace.handlers.context import Context, configs_describe
from headrace.handlers.registry import api
from headrace.model.config_resources import ResourceType
from headrace.model.errors import ErrorCode, KafkaError
from headrace.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

BROKER_LOGGER, CLIENT_METRICS = 8, 16
KNOWN_TYPES = frozenset((*ResourceType, BROKER_LOGGER, CLIENT_METRICS))
ANY_TYPE_SINCE = 1


@api(ListConfigResourcesRequest, ListConfigResourcesResponse, versions=range(2), authorize=configs_describe)
async def list_config_resources(ctx: Context, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    """Lists the topics and brokers that can have settings, and the groups that have some."""
    wanted = set(request.resource_types) or (KNOWN_TYPES if ctx.version >= ANY_TYPE_SINCE else {CLIENT_METRICS})
    unknown = wanted - KNOWN_TYPES
    if unknown:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unknown resource types: {sorted(unknown)}")
    image = ctx.broker.metadata.image
    names: dict[ResourceType, list[str]] = {
        ResourceType.TOPIC: list(image.topics),
        ResourceType.BROKER: [str(broker_id) for broker_id in image.brokers],
        ResourceType.GROUP: list(image.group_configs),
    }
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind, of_kind in names.items()
            if kind in wanted
            for name in of_kind
        ]
    )
