"""Large requests in parts give the same answer as whole."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.handlers import load_all
from headrace.handlers.registry import APIS
from headrace.server.dividing import DIVISIONS, ELEMENTS, Division, join, parts
from headrace.wire.api_keys import ApiKey
from headrace.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from headrace.wire.schema import Array, Struct

SIZES = [
    [0],
    [1],
    [ELEMENTS - 2],
    [ELEMENTS - 1],
    [ELEMENTS],
    [ELEMENTS + 1],
    [3 * ELEMENTS],
    [3, 0, ELEMENTS, 0, 2 * ELEMENTS + 7, 1],
    [1] * (2 * ELEMENTS),
    [0] * (2 * ELEMENTS + 1),
]


def answered(request: ListOffsetsRequest) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(partition_index=asked.partition_index)
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def elements(request: ListOffsetsRequest) -> int:
    return sum(1 + len(topic.partitions) for topic in request.topics)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_parts_are_small_and_joined_they_are_the_whole(sizes: list[int]) -> None:
    request = ListOffsetsRequest(
        topics=[
            ListOffsetsTopic(
                name=f"t{n}", partitions=[ListOffsetsPartition(partition_index=i) for i in range(size)]
            )
            for n, size in enumerate(sizes)
        ]
    )
    before = request.encode(7)
    division = DIVISIONS[ApiKey.LIST_OFFSETS]
    whole: Any = None
    for part, goes_on in parts(request, division):
        assert isinstance(part, ListOffsetsRequest)
        assert elements(part) <= ELEMENTS + 1
        if whole is None:
            whole = answered(part)
        else:
            join(whole, answered(part), division, goes_on)
    assert whole == answered(request)
    assert request.encode(7) == before


GIVE_WAY = {
    ApiKey.OFFSET_FETCH,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.WRITE_TXN_MARKERS,
    ApiKey.ALTER_REPLICA_LOG_DIRS,
    ApiKey.DESCRIBE_LOG_DIRS,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
}
"""Their handlers let others go first: `ctx.each`."""
CHEAP = {ApiKey.DESCRIBE_CLIENT_QUOTAS, ApiKey.LIST_TRANSACTIONS, ApiKey.LIST_CONFIG_RESOURCES}
"""Filters: a whole request of them takes less than a slice. `python -m bench.stalls` measures it."""
FEW = 50_000


def test_no_large_request_is_handled_at_one_go() -> None:
    """Divided, or let others go first, or limited to few elements."""
    load_all()
    for key, api in APIS.items():
        if api.request is not None and arrays_of(api.request) and api.request.max_elements > FEW:
            assert key in DIVISIONS.keys() | GIVE_WAY | CHEAP, api.name


def arrays_of(kind: type[Struct]) -> dict[str, Any]:
    return {name: spec.type.element for name, spec in kind._fields.items() if isinstance(spec.type, Array)}


@pytest.mark.parametrize(("key", "division"), DIVISIONS.items(), ids=lambda value: getattr(value, "name", ""))
def test_divisions_name_what_there_is(key: int, division: Division) -> None:
    load_all()
    api = APIS[key]
    assert api.request is not None
    assert api.response is not None
    asked, answers = arrays_of(api.request)[division.asked], arrays_of(api.response)[division.answered]
    if division.asked_inside:
        assert division.asked_inside in arrays_of(asked)
        assert division.answered_inside in arrays_of(answers)
