"""ListGroups (16): the groups this broker coordinates.

v1 throttle time; v3 flexible; v4 filter by state and the state in the answer (KIP-518); v5 the same for types
(KIP-848).
"""

from __future__ import annotations

from headrace.wire.primitives import INT16, INT32, STRING
from headrace.wire.schema import Request, Response, Struct, array, field


class ListGroupsRequest(Request, key=16, versions=range(6), flexible=3):
    max_elements = 1_000
    states_filter: list[str] = field(array(STRING), since=4, ignorable=False)
    types_filter: list[str] = field(array(STRING), since=5, ignorable=False)


class ListedGroup(Struct):
    group_id: str = field(STRING)
    protocol_type: str = field(STRING)
    group_state: str = field(STRING, since=4)
    group_type: str = field(STRING, since=5)


class ListGroupsResponse(Response, key=16, versions=range(6), flexible=3):
    throttle_time_ms: int = field(INT32, since=1)
    error_code: int = field(INT16)
    groups: list[ListedGroup] = field(array(ListedGroup))
