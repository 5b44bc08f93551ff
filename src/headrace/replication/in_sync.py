"""Leaders' wishes for other in-sync sets, collected: one message to the controller at a time (R-REP-2).

A follower that has caught up is asked in at once; one that lags is found by a look at all led partitions every
half of `replica.lag.time.max.ms`. A wish stays pending until its outcome is known: an answer that never comes is
asked for again with the same partition epoch. An answer or a new image, whichever is first, is the end of it. One
that is refused after such an attempt is withdrawn: in a new partition epoch it cannot be granted any more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from headrace.env import Env
from headrace.metadata.image import BrokerImage, MetadataImage, PartitionImage
from headrace.model.backoff import backoff_seconds, worth_telling
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.few_lines import FewLines
from headrace.replication.cluster_rights import with_advice
from headrace.replication.controller_link import ControllerLink
from headrace.replication.leadership import UNKNOWN_EPOCH
from headrace.replication.partition import Partition
from headrace.replication.replica_set import ReplicaSet
from headrace.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionData,
    PartitionDataResult,
    TopicData,
)

ATTEMPT_SECONDS = 5.0
RETRY_SECONDS = 0.1
"""The pause after a first attempt without an outcome; each later one is twice as long, up to `REFUSED_SECONDS`."""
REFUSED_SECONDS = 1.0
"""The pause before checking whether a wish that was refused still holds."""

_NOT_GRANTED = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.INVALID_REQUEST})
"""Refusals of a wish on the state that the controller knows. Any other refusal may be of a repetition whose first
attempt was granted: the high watermark waits for the replica that was to join until a newer state is seen. The
same holds for these errors after an attempt without an answer: the controller may not have seen its own write."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LagLimits:
    seconds: float
    records: int | None = None


class InSyncKeeper:
    def __init__(
        self,
        env: Env,
        link: ControllerLink,
        image: Callable[[], MetadataImage],
        replicas: ReplicaSet,
        limits: LagLimits,
    ) -> None:
        self._env = env
        self._broker_id = replicas.broker_id
        self._link = link
        self._image = image
        self._replicas = replicas
        self._limits = limits
        self._due: dict[Partition, None] = {}
        self._laggards: dict[Partition, list[int]] = {}
        self._sending: asyncio.Task[None] | None = None
        self._failures = 0
        """Attempts without an outcome, in a row."""

    def ask(self, partition: Partition) -> None:
        """Look at this partition's in-sync set soon."""
        self._due[partition] = None
        if self._sending is None or self._sending.done():
            self._sending = self._env.background.start("Asking for in-sync sets", self._send())

    def follow(self, old: MetadataImage, new: MetadataImage) -> None:
        """Called when brokers came or went: one that caught up before its registration was known may join now."""
        if old.brokers is not new.brokers:
            for partition in self._replicas.all():
                leadership = partition.leadership
                if leadership is not None and leadership.any_may_join(
                    partition.high_watermark, partition.log.start_offset
                ):
                    self.ask(partition)

    async def run(self) -> None:
        """Look for members that lag, until cancelled."""
        while True:
            await self._env.clock.sleep(self._limits.seconds / 2)
            now = self._env.clock.monotonic()
            for partition in list(self._replicas.all()):
                self._look_for_laggards(partition, now)

    def _look_for_laggards(self, partition: Partition, now: float) -> None:
        leadership = partition.leadership
        if leadership is None:
            return
        oldest = now - self._limits.seconds
        leadership.mark(now, partition.end_offset, oldest)
        laggards = leadership.laggards(oldest, partition.end_offset, self._limits.records)
        if (laggards or leadership.names_eligible) and leadership.pending is None:
            self._laggards[partition] = laggards
            leadership.heard = False
            self.ask(partition)

    async def _send(self) -> None:
        await self._env.clock.sleep(0)  # what else is found in this turn of the loop is sent with it
        while self._due:
            due, self._due = self._due, {}
            asked = [partition for partition in due if self._wish(partition)]
            if asked and not await self._ask_controller(asked):
                self._due = {**dict.fromkeys(asked), **self._due}
                await self._env.clock.sleep(backoff_seconds(RETRY_SECONDS, REFUSED_SECONDS, self._failures - 1))

    def _wish(self, partition: Partition) -> bool:
        """Whether there is something to ask for; a wish under way is repeated unchanged."""
        leadership, image = partition.leadership, partition.image
        laggards = self._laggards.pop(partition, [])
        if leadership is None or image is None:
            return False
        brokers = _holders(self._image().brokers, partition)
        if self._broker_id not in brokers:
            return False  # not registered at the moment: nobody would grant it
        if leadership.pending is None:
            leadership.pending = leadership.wanted(
                partition.high_watermark,
                partition.log.start_offset,
                laggards,
                brokers,
                image.partition_epoch,
                partition.min_in_sync,
            )
        return leadership.pending is not None

    async def _ask_controller(self, partitions: list[Partition]) -> bool:
        """Send the wishes; False if the outcome is unknown."""
        broker = self._image().brokers.get(self._broker_id)
        if broker is None:
            return False
        request = AlterPartitionRequest(
            broker_id=self._broker_id, broker_epoch=broker.epoch, topics=_topics_of(partitions)
        )
        in_doubt = partial(_doubt, partitions)
        try:
            response = await self._link.ask(request, AlterPartitionResponse, ATTEMPT_SECONDS, on_doubt=in_doubt)
            if response.error_code:
                raise KafkaError(ErrorCode(response.error_code))
        except KafkaError as error:
            self._failures += 1
            if self._failures == 1 or worth_telling(self._failures):
                text = "The controller did not change %d in-sync sets: %s"
                logger.warning(text, len(partitions), with_advice(error))
            in_doubt()
            return False
        self._failures = 0
        results = {
            (topic.topic_id, part.partition_index): part for topic in response.topics for part in topic.partitions
        }
        refused = FewLines(logger, logging.INFO, "keep their in-sync sets")
        for partition in partitions:
            result = results.get((partition.topic_id, partition.topic_partition.partition))
            self._conclude(partition, result, refused)
        refused.end()
        return True

    def _conclude(self, partition: Partition, result: PartitionDataResult | None, refused: FewLines) -> None:
        leadership, image = partition.leadership, partition.image
        if leadership is None or image is None or leadership.pending is None:
            return  # a new epoch, or the image was faster
        if result is None or result.error_code:
            code = ErrorCode(result.error_code) if result is not None else ErrorCode.UNKNOWN_SERVER_ERROR
            refused.add(partition.topic_partition, "%s keeps its in-sync set %s: %s", list(image.isr), code.name)
            if code in _NOT_GRANTED and not leadership.pending.unsure:
                partition.end_wish()
            elif code in _NOT_GRANTED and not leadership.pending.withdrawn:
                leadership.pending = replace(leadership.pending, withdrawn=True)
                self.ask(partition)
                return
            self._env.clock.call_later(REFUSED_SECONDS, lambda: self.ask(partition))
        elif result.leader_epoch == image.leader_epoch:
            if result.partition_epoch > image.partition_epoch:
                leadership.pending = None
                partition.become_leader(_changed(image, result))
            else:
                partition.end_wish()
            leadership.heard = True
            if leadership.may_ask(partition.high_watermark, partition.log.start_offset):
                self.ask(partition)
        # Else a new epoch ended a move: the new members count until the image contains the rest.


def _holders(brokers: Mapping[int, BrokerImage], partition: Partition) -> Mapping[int, BrokerImage]:
    """Brokers whose data directory with this partition works: others had everything, but confirm nothing."""
    name = partition.topic_id, partition.topic_partition.partition
    return {id: broker for id, broker in brokers.items() if name not in broker.offline}


def _doubt(partitions: list[Partition]) -> None:
    for partition in partitions:
        leadership = partition.leadership
        if leadership is not None and leadership.pending is not None:
            leadership.pending = replace(leadership.pending, unsure=True)


def _changed(image: PartitionImage, result: PartitionDataResult) -> PartitionImage:
    """The partition after a response, which does not list eligible replicas: until the image does, all stay."""
    complete = {*image.isr, *image.elr}.difference(result.isr)
    elr = tuple(replica for replica in image.replicas if replica in complete)
    return replace(image, isr=tuple(result.isr), elr=elr, partition_epoch=result.partition_epoch)


def _topics_of(partitions: list[Partition]) -> list[TopicData]:
    topics: dict[bytes, TopicData] = {}
    for partition in partitions:
        leadership = partition.leadership
        assert leadership is not None
        assert leadership.pending is not None
        assert partition.image is not None
        change = leadership.pending
        isr, epochs = change.isr, change.epochs
        if change.withdrawn:
            isr = partition.image.isr
            epochs = (UNKNOWN_EPOCH,) * len(isr)
        members = [
            BrokerState(broker_id=broker, broker_epoch=epoch) for broker, epoch in zip(isr, epochs, strict=True)
        ]
        topic = topics.setdefault(partition.topic_id, TopicData(topic_id=partition.topic_id, partitions=[]))
        topic.partitions.append(
            PartitionData(
                partition_index=partition.topic_partition.partition,
                leader_epoch=partition.leader_epoch,
                new_isr_with_epochs=members,
                partition_epoch=change.partition_epoch,
            )
        )
    return list(topics.values())
