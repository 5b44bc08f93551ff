"""Quotas of users, client ids and addresses, as a client asks for them and sets them (KIP-546)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from headrace.client.cluster import Cluster
from headrace.client.errors import Outcome, kafka_error
from headrace.security.quota import QuotaEntity, QuotaFilter, in_order
from headrace.wire.messages import alter_client_quotas as altering
from headrace.wire.messages import describe_client_quotas as describing

EXACT, DEFAULT, ANY = 0, 1, 2


class QuotaRow(NamedTuple):
    entity: QuotaEntity
    values: dict[str, float]


async def describe_quotas(
    cluster: Cluster, filters: Sequence[QuotaFilter] = (), strict: bool = False
) -> list[QuotaRow]:
    """The quotas that match all filters; without filters, all quotas."""
    request = describing.DescribeClientQuotasRequest(
        components=[
            describing.ComponentData(entity_type=one.kind, match_type=_match_type(one), match=one.name)
            for one in filters
        ],
        strict=strict,
    )
    response = await (await cluster.entry()).request(request, describing.DescribeClientQuotasResponse)
    if response.error_code:
        raise kafka_error(response.error_code, response.error_message)
    return [
        QuotaRow(
            in_order((part.entity_type, part.entity_name) for part in entry.entity),
            {value.key: value.value for value in entry.values},
        )
        for entry in response.entries or ()
    ]


def _match_type(wanted: QuotaFilter) -> int:
    if wanted.any_name:
        return ANY
    return DEFAULT if wanted.name is None else EXACT


async def alter_quotas(cluster: Cluster, entity: QuotaEntity, values: Mapping[str, float | None]) -> Outcome:
    """Set quotas of an entity, or with None remove them; its error or None."""
    entry = altering.EntryData(
        entity=[altering.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        ops=[altering.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()],
    )
    request = altering.AlterClientQuotasRequest(entries=[entry])
    response = await (await cluster.entry()).request(request, altering.AlterClientQuotasResponse)
    (result,) = response.entries
    return kafka_error(result.error_code, result.error_message) if result.error_code else None
