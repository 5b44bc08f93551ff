"""DescribeClientQuotas (48), v0-1. The quotas of users, clients and addresses that match a filter (KIP-546).

Without a filter, all. A strict filter means entities of exactly the types that it names.
"""

from __future__ import annotations

from headrace.handlers.context import Context, configs_describe
from headrace.handlers.registry import api
from headrace.model.errors import ErrorCode, KafkaError
from headrace.security.quota import ENTITY_TYPES, IP, QuotaFilter, entity_text, matching
from headrace.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

MATCH_EXACT, MATCH_DEFAULT, MATCH_SPECIFIED = 0, 1, 2


@api(DescribeClientQuotasRequest, DescribeClientQuotasResponse, versions=range(2), authorize=configs_describe)
def describe_client_quotas(ctx: Context, request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
    """Returns the quotas of users, clients and addresses."""
    try:
        _check_filter(request.components)
    except KafkaError as error:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)
    quotas = ctx.broker.metadata.image.quotas
    filters = [
        QuotaFilter(one.entity_type, one.match_type == MATCH_SPECIFIED, one.match) for one in request.components
    ]
    return DescribeClientQuotasResponse(
        error_message=None,
        entries=[
            EntryData(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in reversed(entity)],
                values=[ValueData(key=key, value=value) for key, value in sorted(quotas[entity].items())],
            )
            for entity in sorted(matching(quotas, filters, request.strict), key=entity_text)
        ],
    )


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
