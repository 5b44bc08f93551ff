"""DescribeClientQuotas (48), v0-1. The quotas of users, clients and addresses that match a filter (KIP-546).

There are no quotas yet, so that nothing matches; a filter that makes no sense is refused as by Kafka.
"""

from __future__ import annotations

from headrace.handlers.context import Context, configs_describe
from headrace.handlers.registry import api
from headrace.model.errors import ErrorCode, KafkaError
from headrace.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

USER, CLIENT_ID, IP = "user", "client-id", "ip"
ENTITY_TYPES = frozenset((USER, CLIENT_ID, IP))
MATCH_EXACT, MATCH_DEFAULT, MATCH_SPECIFIED = 0, 1, 2


@api(DescribeClientQuotasRequest, DescribeClientQuotasResponse, versions=range(2), authorize=configs_describe)
def describe_client_quotas(ctx: Context, request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
    """Tells the quotas of users, clients and addresses: none yet."""
    try:
        _check_filter(request.components)
    except KafkaError as error:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)
    return DescribeClientQuotasResponse(entries=[])


def _check_filter(components: list[ComponentData]) -> None:
    seen: set[str] = set()
    for component in components:
        if component.entity_type in seen:
            raise _bad(f"The entity type '{component.entity_type}' is in the filter more than once.")
        _check_component(component)
        seen.add(component.entity_type)
    if IP in seen and len(seen) > 1:
        raise _bad("An address cannot be combined with a user or a client id.")


def _check_component(component: ComponentData) -> None:
    if not component.entity_type:
        raise _bad("An entity type is empty.")
    if component.entity_type not in ENTITY_TYPES:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"There is no entity type '{component.entity_type}'.")
    if component.match_type not in (MATCH_EXACT, MATCH_DEFAULT, MATCH_SPECIFIED):
        raise _bad(f"There is no match type {component.match_type}.")
    if (component.match_type == MATCH_EXACT) != (component.match is not None):
        raise _bad("An exact match, and no other, needs a name to match.")


def _bad(detail: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, detail)
