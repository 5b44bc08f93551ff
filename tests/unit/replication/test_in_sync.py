"""What a leader makes of the controller's answer to its wish for another in-sync set."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.metadata.image import BrokerImage, PartitionImage
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.few_lines import FewLines
from headrace.model.topics import TopicId, TopicPartition
from headrace.replication.in_sync import InSyncKeeper, LagLimits, _changed, _topics_of
from headrace.replication.leadership import InSyncChange, Leadership, SingleFetch
from headrace.wire.messages.alter_partition import AlterPartitionResponse, PartitionDataResult

T0 = TopicPartition("t", 0)
BEFORE = PartitionImage((1, 2, 3), 1, 5, (1, 2), 7)


def test_who_left_may_be_eligible_until_the_image_tells() -> None:
    """Or the leader would commit what the controller believes is not."""
    answer = PartitionDataResult(leader_id=1, leader_epoch=5, isr=[1], partition_epoch=8)
    assert _changed(BEFORE, answer) == replace(BEFORE, isr=(1,), elr=(2,), partition_epoch=8)


def test_who_was_eligible_stays_so_until_the_image_tells() -> None:
    before = replace(BEFORE, isr=(1,), elr=(2,))
    answer = PartitionDataResult(leader_id=1, leader_epoch=5, isr=[1, 3], partition_epoch=8)
    assert _changed(before, answer) == replace(BEFORE, isr=(1, 3), elr=(2,), partition_epoch=8)


WISH = InSyncChange((1, 2, 3), (7, 7, 7), BEFORE.partition_epoch)


def concluded(
    result: PartitionDataResult | None, wish: InSyncChange = WISH
) -> tuple[InSyncChange | None, list[PartitionImage]]:
    """What is left of a wish for broker 3 to join, and the states that the leader was told."""
    leadership = Leadership(1, BEFORE, 0)
    leadership.pending = wish
    told: list[PartitionImage] = []

    def end_wish() -> None:
        leadership.pending = None

    partition: Any = SimpleNamespace(
        leadership=leadership,
        image=BEFORE,
        topic_partition="t-0",
        become_leader=told.append,
        end_wish=end_wish,
        high_watermark=0,
        log=SimpleNamespace(start_offset=0),
    )
    later = SimpleNamespace(clock=SimpleNamespace(call_later=lambda seconds, callback: None))
    keeper: Any = SimpleNamespace(_env=later, ask=lambda partition: None)
    InSyncKeeper._conclude(
        keeper, partition, result, FewLines(logging.getLogger(), logging.INFO, "are left alone")
    )
    return leadership.pending, told


@pytest.mark.parametrize(
    "result",
    [
        PartitionDataResult(leader_id=1, leader_epoch=6, isr=[1, 3], partition_epoch=8),
        PartitionDataResult(error_code=ErrorCode.INVALID_UPDATE_VERSION),
        PartitionDataResult(error_code=ErrorCode.FENCED_LEADER_EPOCH),
        PartitionDataResult(error_code=ErrorCode.NOT_CONTROLLER),
        None,
    ],
    ids=["granted with a new epoch", "repeated", "fenced", "not the controller", "no answer"],
)
def test_who_may_have_joined_is_waited_for_until_the_state_is_seen(result: PartitionDataResult | None) -> None:
    """Found by the simulation: the end of a move let a replica in, and the leader committed without it."""
    pending, told = concluded(result)
    assert pending is not None
    assert not told
    leadership = Leadership(1, BEFORE, 0)
    leadership.pending = pending
    leadership.follow(BEFORE)
    assert leadership.pending is pending
    leadership.follow(replace(BEFORE, partition_epoch=8))
    assert leadership.pending is None


def test_a_wish_whose_outcome_is_known_is_over() -> None:
    granted = PartitionDataResult(leader_id=1, leader_epoch=5, isr=[1, 2, 3], partition_epoch=8)
    assert concluded(granted) == (None, [replace(BEFORE, isr=(1, 2, 3), partition_epoch=8)])
    as_before = PartitionDataResult(leader_id=1, leader_epoch=5, isr=[1, 2], partition_epoch=7)
    assert concluded(as_before) == (None, [])
    refused = PartitionDataResult(error_code=ErrorCode.INELIGIBLE_REPLICA)
    assert concluded(refused) == (None, [])


@pytest.mark.parametrize("code", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.INVALID_REQUEST])
def test_a_refusal_after_an_attempt_without_an_answer_is_not_believed(code: ErrorCode) -> None:
    """Found by the simulation: the controller had granted it, did not know, and refused it when asked again."""
    unsure = replace(WISH, unsure=True)
    pending, told = concluded(PartitionDataResult(error_code=code), unsure)
    assert pending == replace(unsure, withdrawn=True)
    assert not told
    leadership = Leadership(1, BEFORE, 0)
    leadership.pending = pending
    leadership.fetched(2, 20, 7, SingleFetch())
    leadership.fetched(3, 15, 7, SingleFetch())
    assert leadership.committed_end(20, 1) == 15, "broker 3 is waited for"
    assert concluded(PartitionDataResult(error_code=code), pending)[0] is pending


@dataclass(eq=False)
class Led:
    """As much of a partition as a question to the controller takes."""

    leadership: Leadership
    image: PartitionImage = BEFORE
    leader_epoch: int = 5
    topic_id: bytes = b"t" * 16
    topic_partition: TopicPartition = T0


def led_by(leadership: Leadership) -> Any:
    return Led(leadership)


def test_a_wish_is_withdrawn_by_asking_for_the_set_as_it_is() -> None:
    """Which takes a new partition epoch: the first attempt is granted before that, or never."""
    leadership = Leadership(1, BEFORE, 0)
    leadership.pending = replace(WISH, unsure=True, withdrawn=True)
    partition = led_by(leadership)
    ((asked,),) = (topic.partitions for topic in _topics_of([partition]))
    assert [(one.broker_id, one.broker_epoch) for one in asked.new_isr_with_epochs] == [(1, -1), (2, -1)]
    assert asked.partition_epoch == BEFORE.partition_epoch
    as_before = PartitionDataResult(leader_id=1, leader_epoch=5, isr=[1, 2], partition_epoch=8)
    assert concluded(as_before, leadership.pending) == (None, [replace(BEFORE, partition_epoch=8)])


def keeper_of(ask: Callable[..., Awaitable[AlterPartitionResponse]], clock: Any = None) -> InSyncKeeper:
    """Of broker 1, whose questions to the controller `ask` answers."""
    image: Any = SimpleNamespace(brokers={1: BrokerImage(1, 7, ()), 3: BrokerImage(3, 7, ())})
    link: Any = SimpleNamespace(ask=ask)
    replicas: Any = SimpleNamespace(broker_id=1)
    env: Any = SimpleNamespace(clock=clock)
    return InSyncKeeper(env, link, lambda: image, replicas, LagLimits(30.0))


async def test_an_attempt_without_an_answer_leaves_a_doubt() -> None:
    """Lost on the way, or answered by a controller that does not know what became of its write."""
    for answer in (ErrorCode.REQUEST_TIMED_OUT, None):
        leadership = Leadership(1, BEFORE, 0)
        leadership.pending = WISH
        partition = led_by(leadership)

        async def ask(*_: object, answer: ErrorCode | None = answer, **__: object) -> AlterPartitionResponse:
            if answer is None:
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
            return AlterPartitionResponse(error_code=answer)

        assert not await keeper_of(ask)._ask_controller([partition])
        assert leadership.pending == replace(WISH, unsure=True)


async def test_a_refused_broker_asks_ever_more_rarely_and_explains_it_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Access rules took the right from it: the same line was logged ten times a second."""
    leadership = Leadership(1, BEFORE, 0)
    leadership.pending = WISH
    pauses: list[float] = []
    asked = 0

    async def ask(*_: object, **__: object) -> AlterPartitionResponse:
        nonlocal asked
        asked += 1
        if asked <= 9:
            return AlterPartitionResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        leadership.pending = None  # the image was faster
        return AlterPartitionResponse()

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    keeper = keeper_of(ask, SimpleNamespace(sleep=sleep))
    keeper._wish = lambda partition: leadership.pending is not None  # type: ignore[method-assign]
    keeper._due = dict.fromkeys([led_by(leadership)])
    with caplog.at_level(logging.INFO, "headrace.replication.in_sync"):
        await keeper._send()
    assert pauses == [0, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0, 1.0, 1.0]
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 3, "after 1, 4 and 8 attempts"
    assert "CLUSTER_AUTHORIZATION_FAILED. " in said[0]
    assert "`headrace acl add -u USER --cluster -o cluster-action`" in said[0]


def test_a_replica_on_a_failed_directory_is_not_asked_in() -> None:
    """Its last fetch had everything; in sync, it would be waited for, and with it all that may join besides."""
    topic_id = TopicId(bytes(range(16)))
    leadership = Leadership(1, replace(BEFORE, isr=(1,)), 0)
    for follower in (2, 3):
        leadership.fetched(follower, 5, 7, SingleFetch())
    brokers = {broker: BrokerImage(broker, 7, ()) for broker in (1, 2, 3)}
    brokers[3] = replace(brokers[3], offline=frozenset({(topic_id, 0)}))
    keeper: Any = SimpleNamespace(_image=lambda: SimpleNamespace(brokers=brokers), _broker_id=1, _laggards={})
    partition: Any = SimpleNamespace(
        leadership=leadership,
        image=BEFORE,
        topic_id=topic_id,
        topic_partition=T0,
        high_watermark=5,
        log=SimpleNamespace(start_offset=0),
        min_in_sync=1,
    )
    assert InSyncKeeper._wish(keeper, partition)
    assert leadership.pending is not None
    assert leadership.pending.isr == (1, 2)
