"""AlterClientQuotas (49), v0-1. Sets or removes quotas of users, clients and addresses (KIP-546).

One result for each entity: all of its changes are made, or none.
"""

from __future__ import annotations

from headrace.handlers.context import Context, configs_alter
from headrace.handlers.forwarding import on_controller
from headrace.handlers.registry import api
from headrace.metadata.quota_decisions import QuotaAlteration
from headrace.model.errors import ErrorCode, KafkaError
from headrace.security.quota import check_value, entity_of
from headrace.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityDataResult,
    EntryData,
    EntryDataResult,
)


@api(AlterClientQuotasRequest, AlterClientQuotasResponse, versions=range(2), authorize=configs_alter)
@on_controller(AlterClientQuotasResponse)
async def alter_client_quotas(ctx: Context, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    """Sets and removes quotas of users, clients and addresses."""
    read = [_read(entry) for entry in request.entries]
    wanted = [one for one in read if isinstance(one, QuotaAlteration)]
    made: list[KafkaError | None] = []
    if wanted:
        try:
            made = await ctx.broker.controller.alter_quotas(wanted, request.validate_only)
        except KafkaError as error:
            made = [error] * len(wanted)
    outcomes = iter(made)
    return AlterClientQuotasResponse(
        entries=[
            _result(entry, next(outcomes) if isinstance(one, QuotaAlteration) else one)
            for entry, one in zip(request.entries, read, strict=True)
        ]
    )


def _result(entry: EntryData, error: KafkaError | None) -> EntryDataResult:
    parts = sorted(entry.entity, key=lambda part: part.entity_type)  # as Kafka's map happens to hold them
    entity = [EntityDataResult(entity_type=part.entity_type, entity_name=part.entity_name) for part in parts]
    if error is None:
        return EntryDataResult(error_message=None, entity=entity)
    return EntryDataResult(error_code=error.code, error_message=error.message, entity=entity)


def _read(entry: EntryData) -> QuotaAlteration | KafkaError:
    try:
        entity = entity_of((part.entity_type, part.entity_name) for part in entry.entity)
        names = [operation.key for operation in entry.ops]
        if len(set(names)) < len(names):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "A quota is named more than once for the same entity.")
        for operation in entry.ops:
            if not operation.remove:
                check_value(entity, operation.key, operation.value)
    except KafkaError as error:
        return error
    values = {operation.key: None if operation.remove else operation.value for operation in entry.ops}
    return QuotaAlteration(entity, values)
