"""Large requests in parts: those that name many things, each of which is done and answered by itself.

The handler is called for some hundreds of them at a time, and the parts of the response are joined; others are
served between. What a handler checks across a whole request (a name that is listed twice) it checks within a part.
Requests whose handlers take care of slices themselves are not here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeVar

from headrace.wire.api_keys import ApiKey
from headrace.wire.schema import Request, Response, Struct

ELEMENTS = 500
"""The number of elements in one part: the slowest take some 20 µs each."""
FEWER = 75
"""The number of elements in one part where each takes longer."""

S = TypeVar("S", bound=Struct)


class Division(NamedTuple):
    """The array of a request that is divided, and its counterpart in the response; then the inner arrays, if
    any."""

    asked: str
    answered: str
    asked_inside: str = ""
    answered_inside: str = ""
    most: int = ELEMENTS
    """The number of elements in one part."""


_PARTITIONS = Division("topics", "topics", "partitions", "partitions")

DIVISIONS = {
    ApiKey.METADATA: Division("topics", "topics"),
    ApiKey.LIST_OFFSETS: _PARTITIONS,
    ApiKey.OFFSET_COMMIT: _PARTITIONS,
    ApiKey.FIND_COORDINATOR: Division("coordinator_keys", "coordinators"),
    ApiKey.DESCRIBE_GROUPS: Division("groups", "groups"),
    ApiKey.CREATE_TOPICS: Division("topics", "topics", most=FEWER),
    ApiKey.DELETE_TOPICS: Division("topics", "responses"),
    ApiKey.DELETE_RECORDS: _PARTITIONS,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _PARTITIONS,
    ApiKey.TXN_OFFSET_COMMIT: _PARTITIONS,
    ApiKey.CREATE_ACLS: Division("creations", "results"),
    ApiKey.DELETE_ACLS: Division("filters", "filter_results"),
    ApiKey.DESCRIBE_CONFIGS: Division("resources", "results"),
    ApiKey.ALTER_CONFIGS: Division("resources", "responses", most=FEWER),
    ApiKey.CREATE_PARTITIONS: Division("topics", "results"),
    ApiKey.DELETE_GROUPS: Division("groups_names", "results"),
    ApiKey.ELECT_LEADERS: Division(
        "topic_partitions", "replica_election_results", "partitions", "partition_result"
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Division("resources", "responses", most=FEWER),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Division("topics", "responses", "partitions", "partitions"),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Division("topics", "topics"),
    ApiKey.OFFSET_DELETE: _PARTITIONS,
    ApiKey.ALTER_CLIENT_QUOTAS: Division("entries", "entries"),
    ApiKey.ALTER_PARTITION: _PARTITIONS,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Division("users", "results"),
    ApiKey.DESCRIBE_PRODUCERS: Division("topics", "topics", "partition_indexes", "partitions"),
    ApiKey.DESCRIBE_TRANSACTIONS: Division("transactional_ids", "transaction_states"),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Division("group_ids", "groups"),
}


def parts(request: Request, division: Division) -> Iterator[tuple[Request, bool]]:
    """The request in parts, and for each whether its first element continues the last one of the part before."""
    elements: list[Struct] = getattr(request, division.asked)
    if not division.asked_inside:
        for start in range(0, len(elements), division.most):
            yield _with(request, division.asked, elements[start : start + division.most]), False
        return
    together: list[Struct] = []
    room = division.most
    goes_on = False
    for element in elements:
        inside = getattr(element, division.asked_inside)
        start = 0
        while True:
            taken = inside[start : start + room]
            together.append(_with(element, division.asked_inside, taken))
            start += len(taken)
            room -= len(taken) + 1
            if start >= len(inside) and room > 0:
                break
            yield _with(request, division.asked, together), goes_on
            together, room, goes_on = [], division.most, start < len(inside)
            if not goes_on:
                break
    if together:
        yield _with(request, division.asked, together), goes_on


def join(whole: Response, part: Response, division: Division, goes_on: bool) -> None:
    answers: list[Struct] = getattr(part, division.answered)
    if goes_on and answers:
        last = getattr(whole, division.answered)[-1]
        getattr(last, division.answered_inside).extend(getattr(answers[0], division.answered_inside))
        answers = answers[1:]
    getattr(whole, division.answered).extend(answers)


def _with(struct: S, name: str, values: object) -> S:
    """A copy with one field replaced."""
    copy = object.__new__(type(struct))
    copy.__dict__.update(struct.__dict__)
    copy.__dict__[name] = values
    return copy
