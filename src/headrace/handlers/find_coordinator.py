"""FindCoordinator (10), v0-6. Which broker coordinates a group or a transactional id.

v1 key type; v4 many keys in one request (KIP-699); v6 share groups. The topic that groups, or transactions, are
kept in is made by the first question for one, before we answer (Kafka answers COORDINATOR_NOT_AVAILABLE first, and
the client asks again). The API is also there because librdkafka uses lz4 only with a broker that has it.
"""

from __future__ import annotations

from typing import Protocol

from headrace.handlers.context import Context, group_describe
from headrace.handlers.listener_view import ListenerView
from headrace.handlers.registry import api
from headrace.metadata.image import Endpoint, PartitionImage
from headrace.model.errors import ErrorCode, KafkaError
from headrace.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

BATCHED_SINCE = 4
GROUP, TRANSACTION = 0, 1
NO_NODE = -1


class CoordinatingService(Protocol):
    def coordinator_partition(self, key: str, /) -> PartitionImage | None: ...

    async def ensure_topic(self) -> None: ...


@api(FindCoordinatorRequest, FindCoordinatorResponse, versions=range(7), authorize=group_describe)
async def find_coordinator(ctx: Context, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    """Returns the broker that coordinates a group or a transactional id."""
    keys = request.coordinator_keys if ctx.version >= BATCHED_SINCE else [request.key]
    found = await _find(ctx, request.key_type, keys)
    if ctx.version >= BATCHED_SINCE:
        return FindCoordinatorResponse(coordinators=found)
    (one,) = found
    return FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=one.error_message,
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


async def _find(ctx: Context, key_type: int, keys: list[str]) -> list[Coordinator]:
    try:
        if key_type not in (GROUP, TRANSACTION):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"There is no coordinator for keys of type {key_type}")
        service: CoordinatingService = ctx.broker.groups if key_type == GROUP else ctx.broker.transactions
        await _ensure_topic(service)
    except KafkaError as error:
        return [_failed(key, error) for key in keys]
    view = ListenerView(ctx.broker.metadata.image, ctx.listener)
    return [_coordinator(service, view, key) for key in keys]


async def _ensure_topic(service: CoordinatingService) -> None:
    try:
        await service.ensure_topic()
    except KafkaError as error:
        raise _unavailable() from error


def _coordinator(service: CoordinatingService, view: ListenerView, key: str) -> Coordinator:
    partition = service.coordinator_partition(key)
    endpoint = None if partition is None else _endpoint(view, partition.leader)
    if partition is None or endpoint is None:
        return _failed(key, _unavailable())
    return Coordinator(
        key=key,
        node_id=partition.leader,
        host=endpoint.host,
        port=endpoint.port,
        error_code=ErrorCode.NONE,
        error_message="",
    )


def _endpoint(view: ListenerView, broker_id: int) -> Endpoint | None:
    return next((endpoint for broker, endpoint in view.brokers() if broker.id == broker_id), None)


def _unavailable() -> KafkaError:
    return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "No broker leads the partition of this key yet.")


def _failed(key: str, error: KafkaError) -> Coordinator:
    return Coordinator(key=key, node_id=NO_NODE, port=NO_NODE, error_code=error.code, error_message=error.message)
