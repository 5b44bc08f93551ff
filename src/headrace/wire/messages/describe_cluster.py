"""DescribeCluster (60): brokers and controller, without topics (KIP-700).

v1 the kind of endpoint (KIP-919); v2 fenced brokers on demand (KIP-1073).
"""

from __future__ import annotations

from headrace.wire.primitives import BOOL, INT8, INT16, INT32, STRING
from headrace.wire.schema import Request, Response, Struct, array, field


class DescribeClusterRequest(Request, key=60, versions=range(3), flexible=0):
    include_cluster_authorized_operations: bool = field(BOOL)
    endpoint_type: int = field(INT8, since=1, default=1, ignorable=False)
    include_fenced_brokers: bool = field(BOOL, since=2, ignorable=False)


class DescribeClusterBroker(Struct):
    broker_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    rack: str | None = field(STRING, nullable=0, default=None)
    is_fenced: bool = field(BOOL, since=2, ignorable=False)


class DescribeClusterResponse(Response, key=60, versions=range(3), flexible=0):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0, default=None)
    endpoint_type: int = field(INT8, since=1, default=1, ignorable=False)
    cluster_id: str = field(STRING)
    controller_id: int = field(INT32, default=-1)
    brokers: list[DescribeClusterBroker] = field(array(DescribeClusterBroker))
    cluster_authorized_operations: int = field(INT32, default=-(1 << 31))
