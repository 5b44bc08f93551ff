"""FindCoordinator (10): which broker coordinates a group or a transactional id.

v1 key type and throttle time; v3 flexible; v4 many keys in one request (KIP-699); v5 TRANSACTION_ABORTABLE may
appear (KIP-890); v6 share groups as a key type.
"""

from __future__ import annotations

from headrace.wire.primitives import INT8, INT16, INT32, STRING
from headrace.wire.schema import Request, Response, Struct, array, field


class FindCoordinatorRequest(Request, key=10, versions=range(7), flexible=3):
    key: str = field(STRING, until=3, ignorable=False)
    key_type: int = field(INT8, since=1, ignorable=False)
    coordinator_keys: list[str] = field(array(STRING), since=4, ignorable=False)


class Coordinator(Struct):
    key: str = field(STRING)
    node_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0)


class FindCoordinatorResponse(Response, key=10, versions=range(7), flexible=3):
    throttle_time_ms: int = field(INT32, since=1)
    error_code: int = field(INT16, until=3, ignorable=False)
    error_message: str | None = field(STRING, since=1, until=3, nullable=0)
    node_id: int = field(INT32, until=3, ignorable=False)
    host: str = field(STRING, until=3, ignorable=False)
    port: int = field(INT32, until=3, ignorable=False)
    coordinators: list[Coordinator] = field(array(Coordinator), since=4, ignorable=False)
