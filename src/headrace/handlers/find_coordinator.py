"""FindCoordinator (10), v0-6. Which broker coordinates a group or a transactional id.

v1 key type; v4 many keys in one request (KIP-699); v6 share groups. The topic that groups are kept in is made by
the first question for one, before we answer (Kafka answers COORDINATOR_NOT_AVAILABLE first, and the client asks
again). The API is also there because librdkafka uses lz4 only with a broker that has it.

There are no transactions yet. Of all codes CLUSTER_AUTHORIZATION_FAILED alone ends both the Java client and
librdkafka at once with our message: librdkafka asks again and again after any code but this and
TRANSACTIONAL_ID_AUTHORIZATION_FAILED, and the Java client drops the message of that one.
"""

from __future__ import annotations

from headrace.handlers.context import Context, group_describe
from headrace.handlers.listener_view import ListenerView
from headrace.handlers.registry import api
from headrace.metadata.image import Endpoint
from headrace.model.errors import ErrorCode, KafkaError
from headrace.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

BATCHED_SINCE = 4
GROUP, TRANSACTION = 0, 1
NO_NODE = -1
NO_TRANSACTIONS = "This broker has no transactions yet: produce without a transactional.id."


@api(FindCoordinatorRequest, FindCoordinatorResponse, versions=range(7), authorize=group_describe)
async def find_coordinator(ctx: Context, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    """Tells which broker coordinates a group or a transactional id."""
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
        if key_type == TRANSACTION:
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, NO_TRANSACTIONS)
        await _ensure_topic(ctx)
    except KafkaError as error:
        return [_failed(key, error) for key in keys]
    view = ListenerView(ctx.broker.metadata.image, ctx.listener)
    return [_group_coordinator(ctx, view, key) for key in keys]


async def _ensure_topic(ctx: Context) -> None:
    try:
        await ctx.broker.groups.ensure_topic()
    except KafkaError as error:
        raise _unavailable() from error


def _group_coordinator(ctx: Context, view: ListenerView, group_id: str) -> Coordinator:
    partition = ctx.broker.groups.coordinator_partition(group_id)
    endpoint = None if partition is None else _endpoint(view, partition.leader)
    if partition is None or endpoint is None:
        return _failed(group_id, _unavailable())
    return Coordinator(
        key=group_id,
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
