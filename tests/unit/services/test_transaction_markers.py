"""Markers: to the leaders as the metadata names them, together where they can be, until all are written."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from headrace.client.errors import ClientError
from headrace.env.real import real_env
from headrace.metadata.image import NO_LEADER, MetadataImage, PartitionImage, TopicImage
from headrace.model.errors import ErrorCode
from headrace.model.topics import TopicId, TopicPartition
from headrace.records.markers import EndMarker
from headrace.services.transactions.markers import MOST_AT_ONCE, MarkerSender
from headrace.transactions.states import TransactionState
from headrace.transactions.transaction import BUMPS_EPOCH, Transaction
from headrace.wire.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tests.unit.services.fakes import FakeClock

TURNS = 20


def topic(name: str, *leaders: int) -> TopicImage:
    partitions = tuple(PartitionImage((1, 2, 3), leader, 4, (1, 2, 3)) for leader in leaders)
    return TopicImage(name, TopicId(name.encode().ljust(16, b"-")), partitions)


class Owner:
    leader_epoch = 9

    def __init__(self) -> None:
        self.in_charge = True
        self.done: list[Transaction] = []
        self.forgotten: list[Transaction] = []

    def awaits_markers(self, ending: Transaction) -> bool:
        return self.in_charge and ending not in self.forgotten

    def markers_written(self, ending: Transaction) -> None:
        self.done.append(ending)


class Rig:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.image = MetadataImage("c", topics={"a": topic("a", 1, 2), "b": topic("b", 2)})
        self.asked: list[tuple[int, WriteTxnMarkersRequest]] = []
        self.answers: list[ErrorCode | ClientError] = []
        """What the next requests are answered; NONE once there is no more."""
        self.held: asyncio.Event | None = None
        self.here: dict[TopicPartition, ErrorCode | Exception] = {}
        """The partitions into which this broker writes markers at once, and what comes of it."""
        self.written: list[tuple[TopicPartition, EndMarker]] = []
        env = replace(real_env(), clock=self.clock)
        self.sender = MarkerSender(env, lambda: self.image, self._write_here, self._ask)
        self.owner = Owner()

    def _write_here(self, partition: TopicPartition, marker: EndMarker) -> ErrorCode | None:
        code = self.here.get(partition)
        if isinstance(code, Exception):
            raise code
        if code is not None:
            self.written.append((partition, marker))
        return code

    async def _ask(self, broker_id: int, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        self.asked.append((broker_id, request))
        if self.held is not None:
            await self.held.wait()
        answer = self.answers.pop(0) if self.answers else ErrorCode.NONE
        if isinstance(answer, ClientError):
            raise answer
        return WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=[
                        WritableTxnMarkerTopicResult(
                            name=named.name,
                            partitions=[
                                WritableTxnMarkerPartitionResult(partition_index=index, error_code=answer)
                                for index in named.partition_indexes
                            ],
                        )
                        for named in marker.topics
                    ],
                )
                for marker in request.markers
            ]
        )

    def send(self, *partitions: tuple[str, int], producer_id: int = 7) -> Transaction:
        ending = Transaction(
            f"id{producer_id}",
            producer_id,
            3,
            TransactionState.PREPARE_COMMIT,
            60_000,
            updated_ms=1,
            partitions=frozenset(TopicPartition(*partition) for partition in partitions),
            client_version=BUMPS_EPOCH,
        )
        self.sender.send(self.owner, ending)
        return ending

    async def settle(self) -> None:
        for _ in range(TURNS):
            await asyncio.sleep(0)

    @property
    def told(self) -> list[tuple[int, list[tuple[str, list[int]]]]]:
        return [
            (
                broker_id,
                [(named.name, named.partition_indexes) for marker in request.markers for named in marker.topics],
            )
            for broker_id, request in self.asked
        ]


@pytest.fixture
async def rig() -> Rig:
    return Rig()


async def test_each_leader_is_told_once_about_all_of_its_partitions(rig: Rig) -> None:
    ending = rig.send(("a", 0), ("a", 1), ("b", 0))
    await rig.settle()
    assert rig.told == [(1, [("a", [0])]), (2, [("a", [1]), ("b", [0])])]
    assert rig.owner.done == [ending]
    marker = rig.asked[0][1].markers[0]
    assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (7, 3, 9)
    assert (marker.transaction_result, marker.transaction_version) == (True, 2)


async def test_markers_that_can_be_written_at_once_are_asked_of_nobody(rig: Rig) -> None:
    rig.here = {TopicPartition("a", 0): ErrorCode.NONE, TopicPartition("b", 0): ErrorCode.INVALID_PRODUCER_EPOCH}
    ending = rig.send(("a", 0), ("b", 0))
    assert rig.owner.done == [ending], "without a turn of the loop"
    assert rig.written == [(place, EndMarker(7, 3, True, 9, 2)) for place in sorted(rig.here)]
    await rig.settle()
    assert rig.asked == []


async def test_the_rest_is_asked_of_its_leaders(rig: Rig) -> None:
    rig.here = {TopicPartition("a", 0): ErrorCode.NONE, TopicPartition("b", 0): ErrorCode.NOT_ENOUGH_REPLICAS}
    ending = rig.send(("a", 0), ("a", 1), ("b", 0))
    assert rig.sender.lacking == 2
    await rig.settle()
    assert rig.told == [(2, [("a", [1]), ("b", [0])])]
    assert rig.owner.done == [ending]


async def test_many_markers_at_once_would_keep_others_waiting(rig: Rig) -> None:
    partitions = [TopicPartition("a", index) for index in range(MOST_AT_ONCE + 1)]
    rig.image = replace(rig.image, topics={"a": topic("a", *[2] * len(partitions))})
    rig.here = dict.fromkeys(partitions, ErrorCode.NONE)
    rig.send(*partitions[1:])
    assert len(rig.written) == MOST_AT_ONCE
    ending = rig.send(*partitions)
    assert len(rig.written) == MOST_AT_ONCE
    await rig.settle()
    assert rig.told == [(2, [("a", [index for _, index in partitions])])]
    assert rig.owner.done[-1] == ending


async def test_a_fault_of_ours_ends_the_broker_and_no_other_transaction(rig: Rig) -> None:
    reasons: list[str] = []
    rig.sender._env.background.on_failure = reasons.append
    rig.here = {TopicPartition("b", 0): ValueError("a bug")}
    rig.send(("b", 0))
    assert reasons == ["Writing a marker into b-0 failed: ValueError: a bug"]
    assert rig.sender.lacking == 1


async def test_what_comes_while_a_request_is_under_way_goes_together_in_the_next(rig: Rig) -> None:
    rig.held = asyncio.Event()
    rig.send(("b", 0))
    await rig.settle()
    assert rig.sender.lacking == 1
    for producer_id in (8, 9, 10):
        rig.send(("b", 0), producer_id=producer_id)
    await rig.settle()
    rig.held.set()
    await rig.settle()
    assert [[marker.producer_id for marker in request.markers] for _, request in rig.asked] == [[7], [8, 9, 10]]
    assert len(rig.owner.done) == 4
    assert rig.sender.lacking == 0


async def test_an_empty_transaction_is_complete_at_once(rig: Rig) -> None:
    assert rig.owner.done == [rig.send()]


@pytest.mark.parametrize(
    "answer",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ClientError("cut off"),
    ],
)
async def test_what_failed_is_sent_again_to_who_leads_then(rig: Rig, answer: Any) -> None:
    rig.answers = [answer]
    ending = rig.send(("b", 0))
    await rig.settle()
    assert rig.owner.done == []
    rig.image = replace(rig.image, topics={"b": topic("b", 3)})
    rig.clock.advance(1)
    await rig.settle()
    assert [broker_id for broker_id, _ in rig.asked] == [2, 3]
    assert rig.owner.done == [ending]


async def test_without_a_leader_it_waits_for_one(rig: Rig) -> None:
    rig.image = replace(rig.image, topics={"b": topic("b", NO_LEADER)})
    ending = rig.send(("b", 0))
    rig.clock.advance(1)
    await rig.settle()
    assert (rig.asked, rig.owner.done) == ([], [])
    rig.image = replace(rig.image, topics={"b": topic("b", 1)})
    rig.clock.advance(1)
    await rig.settle()
    assert rig.owner.done == [ending]


async def test_a_deleted_partition_needs_no_marker(rig: Rig) -> None:
    rig.answers = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    ending = rig.send(("gone", 0), ("b", 0))
    await rig.settle()
    assert rig.owner.done == []
    rig.image = replace(rig.image, topics={})
    rig.clock.advance(1)
    await rig.settle()
    assert rig.owner.done == [ending]
    assert len(rig.asked) == 1


async def test_a_partition_that_has_seen_a_later_epoch_needs_no_marker(rig: Rig) -> None:
    rig.answers = [ErrorCode.INVALID_PRODUCER_EPOCH]
    ending = rig.send(("b", 0))
    await rig.settle()
    assert rig.owner.done == [ending]


async def test_a_coordinator_that_is_no_longer_in_charge_sends_nothing_more(rig: Rig) -> None:
    rig.answers = [ErrorCode.NOT_ENOUGH_REPLICAS]
    rig.send(("b", 0))
    await rig.settle()
    assert rig.sender.lacking == 1
    rig.owner.in_charge = False
    rig.clock.advance(10)
    await rig.settle()
    assert len(rig.asked) == 1
    assert rig.owner.done == []
    assert rig.sender.lacking == 0


async def test_an_end_that_another_one_took_the_place_of_is_sent_no_more(rig: Rig) -> None:
    """Its coordinator is in charge, and has read its log again: a late marker would end the next transaction."""
    rig.answers = [ErrorCode.NOT_ENOUGH_REPLICAS]
    stale = rig.send(("b", 0))
    await rig.settle()
    rig.owner.forgotten.append(stale)
    rig.clock.advance(10)
    await rig.settle()
    assert len(rig.asked) == 1
    assert rig.owner.done == []
    assert rig.sender.lacking == 0
