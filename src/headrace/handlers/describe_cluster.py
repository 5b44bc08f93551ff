"""DescribeCluster (60), v0-2. Brokers and controller, without topics (KIP-700).

v1 the kind of endpoint (KIP-919): we have brokers only; v2 fenced brokers on demand (KIP-1073): a broker is in
the image or it is not, so none is ever reported as fenced.
"""

from __future__ import annotations

from headrace.handlers.context import Context, cluster_describe
from headrace.handlers.listener_view import CLUSTER_OPERATIONS, NOT_REQUESTED, ListenerView
from headrace.handlers.registry import api
from headrace.model.errors import ErrorCode, KafkaError
from headrace.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKER_ENDPOINTS, CONTROLLER_ENDPOINTS = 1, 2


@api(DescribeClusterRequest, DescribeClusterResponse, versions=range(3), authorize=cluster_describe)
async def describe_cluster(ctx: Context, request: DescribeClusterRequest) -> DescribeClusterResponse:
    """Returns the brokers of the cluster and its controller."""
    if request.endpoint_type == CONTROLLER_ENDPOINTS:
        raise KafkaError(ErrorCode.MISMATCHED_ENDPOINT_TYPE, "This is a broker's endpoint, not a controller's")
    if request.endpoint_type != BROKER_ENDPOINTS:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"There are no endpoints of type {request.endpoint_type}"
        )
    view = ListenerView(ctx.broker.metadata.image, ctx.listener)
    wants_operations = request.include_cluster_authorized_operations
    return DescribeClusterResponse(
        cluster_id=view.image.cluster_id,
        controller_id=view.image.controller_id,
        brokers=[
            DescribeClusterBroker(broker_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
            for broker, endpoint in view.brokers()
        ],
        cluster_authorized_operations=CLUSTER_OPERATIONS if wants_operations else NOT_REQUESTED,
    )
