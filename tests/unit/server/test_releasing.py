"""Long requests let others go first in all that is done for them, also in telling of it and in freeing them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.env.real import real_env
from headrace.handlers import load_all
from headrace.handlers.context import Context
from headrace.handlers.create_topics import create_topics
from headrace.handlers.describe_configs import describe_configs
from headrace.handlers.registry import APIS, Api
from headrace.model.errors import ErrorCode, KafkaError
from headrace.server.audit import MAX_LINES, AuditTrail
from headrace.server.dispatch import Dispatcher, _handle_large
from headrace.server.releasing import RELEASED_AT_ONCE, elements_of
from headrace.wire.api_keys import ApiKey
from headrace.wire.messages import alter_replica_log_dirs as moves
from headrace.wire.messages import describe_producers
from headrace.wire.messages import write_txn_markers as markers
from headrace.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from headrace.wire.primitives import Cursor
from headrace.wire.schema import Struct
from headrace.wire.stepwise import decode_in_steps

MANY = 2_000


class AlwaysDue:
    """Gives way whenever it is asked, and notes then how much was done since the last time."""

    def __init__(self, done: Callable[[], int] = lambda: 0) -> None:
        self.looks = 0
        self.steps: list[int] = []
        self._done = done
        self._before = 0

    def due(self) -> bool:
        self.looks += 1
        return True

    async def give_way(self) -> None:
        now = self._done()
        self.steps.append(now - self._before)
        self._before = now


def context(slices: AlwaysDue, broker: Any = None, version: int = 1) -> Context:
    return Context(broker, version, "c", "User:a", "h", "l", slices)


class Freed:
    """How many objects of some classes are gone."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *classes: type[Struct]) -> None:
        self.count = 0
        for kind in classes:
            monkeypatch.setattr(kind, "__del__", lambda _: self._note(), raising=False)

    def _note(self) -> None:
        self.count += 1


@pytest.mark.parametrize("shape", [(MANY, 1, 1), (1, MANY, 1), (1, 1, MANY)], ids=str)
async def test_a_large_request_and_its_answer_are_freed_in_slices(
    shape: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All at once, a hundred thousand of each held up everybody for 60 ms."""
    load_all()
    outer, middle, inner = shape
    asked = markers.WriteTxnMarkersRequest(
        markers=[
            markers.WritableTxnMarker(
                topics=[
                    markers.WritableTxnMarkerTopic(name="t", partition_indexes=list(range(inner)))
                    for _ in range(middle)
                ]
            )
            for _ in range(outer)
        ]
    )
    frame = asked.encode(1)
    del asked
    classes = (
        markers.WritableTxnMarker,
        markers.WritableTxnMarkerTopic,
        markers.WritableTxnMarkerResult,
        markers.WritableTxnMarkerTopicResult,
        markers.WritableTxnMarkerPartitionResult,
    )
    freed = Freed(monkeypatch, *classes)
    slices = AlwaysDue(lambda: freed.count)
    body = await respond(frame, echo_api(), context(slices))
    answered = markers.WriteTxnMarkersResponse.decode(body, 1)
    assert len(answered.markers) == outer
    assert sum(slices.steps) >= MANY
    assert max(slices.steps) <= RELEASED_AT_ONCE + 2


async def test_finding_what_is_to_be_freed_leaves_room_for_others() -> None:
    """Elements without any of their own were gone through at once: 100,000 took 60 ms."""
    slices = AlwaysDue()
    topics = [describe_producers.PartitionResponse(partition_index=number) for number in range(MANY)]
    answer = describe_producers.DescribeProducersResponse(
        topics=[describe_producers.TopicResponse(name="t", partitions=topics)]
    )
    assert len(await elements_of(answer, slices)) == MANY + 1
    assert slices.looks >= MANY // 64


def echo_api() -> Api:
    """WriteTxnMarkers that answers and does nothing."""

    async def echo(ctx: Context, request: markers.WriteTxnMarkersRequest) -> markers.WriteTxnMarkersResponse:
        return markers.WriteTxnMarkersResponse(
            markers=[
                markers.WritableTxnMarkerResult(
                    topics=[
                        markers.WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=[
                                markers.WritableTxnMarkerPartitionResult(partition_index=index)
                                for index in topic.partition_indexes
                            ],
                        )
                        for topic in asked.topics
                    ]
                )
                for asked in request.markers
            ]
        )

    return replace(APIS[ApiKey.WRITE_TXN_MARKERS], cold=echo)


async def respond(frame: bytes, api: Api, ctx: Context) -> bytes:
    assert api.request is not None
    cursor = Cursor(memoryview(frame), 0, api.request.max_elements)
    work = _handle_large(api, ctx, decode_in_steps(api.request, cursor, 1), cursor)
    return await Dispatcher._respond(SimpleNamespace(), api, ctx, work)  # type: ignore[arg-type]


async def test_telling_of_a_large_change_leaves_room_for_others(caplog: pytest.LogCaptureFixture) -> None:
    """The lines of 100,000 moves held up everybody for 125 ms."""
    load_all()
    answer = moves.AlterReplicaLogDirsResponse(
        results=[
            moves.AlterReplicaLogDirTopicResult(
                topic_name="t",
                partitions=[
                    moves.AlterReplicaLogDirPartitionResult(partition_index=n, error_code=n % 2)
                    for n in range(MANY)
                ],
            )
        ]
    )
    topic = moves.AlterReplicaLogDirTopic(name="t", partitions=list(range(MANY)))
    request = moves.AlterReplicaLogDirsRequest(dirs=[moves.AlterReplicaLogDir(path="/d", topics=[topic])])
    slices = AlwaysDue()
    trail = AuditTrail(real_env().clock, lambda *_: False)
    handle = trail.cold(APIS[ApiKey.ALTER_REPLICA_LOG_DIRS], lambda ctx, request: answer)
    with caplog.at_level(logging.INFO, "headrace.audit"):
        work: Any = handle(context(slices), request)
        assert await work is answer
    assert slices.looks >= 2 * MANY
    lines = [record.getMessage() for record in caplog.records if record.name == "headrace.audit"]
    changed = [line for line in lines if "event=changed" in line]
    assert len(changed) == MAX_LINES // 2 + 1
    assert changed[-1].endswith(f"more={MANY - MAX_LINES}")


async def test_answering_many_created_topics_leaves_room_for_others() -> None:
    """500 new topics with their settings held up everybody for 120 ms."""

    async def create(topics: list[Any], validate_only: bool) -> list[KafkaError]:
        return [KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS)] * len(topics)

    async def settled() -> None: ...

    slices = AlwaysDue()
    broker = SimpleNamespace(
        controller=SimpleNamespace(active=True, create_topics=create), replicas=SimpleNamespace(settled=settled)
    )
    request = CreateTopicsRequest(topics=[CreatableTopic(name=f"t{n}") for n in range(MANY)])
    work: Any = create_topics(context(slices, broker, 7), request)
    assert len((await work).topics) == MANY
    assert slices.looks >= 2 * MANY


async def test_settings_of_many_topics_leave_room_for_others() -> None:
    slices = AlwaysDue()
    request = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=0, resource_name=f"t{n}") for n in range(MANY)]
    )
    work: Any = describe_configs(context(slices, version=4), request)
    assert len((await work).results) == MANY
    assert slices.looks >= MANY
