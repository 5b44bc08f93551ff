"""AlterClientQuotas (49), v0-1. Sets or removes quotas of users, clients and addresses (KIP-546).

There are no quotas yet. An entry is checked as Kafka checks it; then a removal is a success, since nothing is
there, and a quota to be set is refused: it would not be kept to.
"""

from __future__ import annotations

from headrace.handlers.context import Context, configs_alter
from headrace.handlers.describe_client_quotas import CLIENT_ID, ENTITY_TYPES, IP, USER
from headrace.handlers.registry import api
from headrace.model.errors import ErrorCode, KafkaError
from headrace.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntityDataResult,
    EntryData,
    EntryDataResult,
    OpData,
)

CLIENT_KEYS = frozenset(
    ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
)
IP_KEYS = frozenset(("connection_creation_rate",))


@api(AlterClientQuotasRequest, AlterClientQuotasResponse, versions=range(2), authorize=configs_alter)
def alter_client_quotas(ctx: Context, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    """Sets quotas of users, clients and addresses: not yet, and says so."""
    return AlterClientQuotasResponse(entries=[_result(entry) for entry in request.entries])


def _result(entry: EntryData) -> EntryDataResult:
    entity = [
        EntityDataResult(entity_type=part.entity_type, entity_name=part.entity_name) for part in entry.entity
    ]
    try:
        _alter(entry)
    except KafkaError as error:
        return EntryDataResult(error_code=error.code, error_message=error.message, entity=entity)
    return EntryDataResult(error_message=None, entity=entity)


def _alter(entry: EntryData) -> None:
    keys = _allowed_keys(entry.entity)
    names = [operation.key for operation in entry.ops]
    if len(set(names)) < len(names):
        raise _bad("A quota is named more than once for the same entity.")
    for operation in entry.ops:
        if not operation.remove:
            _check_value(operation, keys)
    if not all(operation.remove for operation in entry.ops):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "This broker has no quotas yet.")


def _allowed_keys(entity: list[EntityData]) -> frozenset[str]:
    types = [part.entity_type for part in entity]
    unknown = [name for name in types if name not in ENTITY_TYPES]
    if unknown:
        raise _bad(f"There is no entity type '{unknown[0]}'.")
    if len(set(types)) < len(types):
        raise _bad("An entity type is named more than once.")
    if types == [IP]:
        return IP_KEYS
    if not types or not set(types) <= {USER, CLIENT_ID}:
        raise _bad("A quota is for a user, a client id, both of them, or an address.")
    return CLIENT_KEYS


def _check_value(operation: OpData, keys: frozenset[str]) -> None:
    if operation.key not in keys:
        raise _bad(f"There is no quota '{operation.key}' for this entity.")
    if not operation.value > 0:
        raise _bad(f"The quota {operation.key} must be greater than 0.")


def _bad(detail: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, detail)
