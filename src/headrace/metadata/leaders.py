"""The controller's standing work: every partition has a live leader, if possible (R-REP-3).

Whenever brokers come or go, or this broker becomes the controller, all partitions are looked at by one pure
decision (`partition_decisions`) and the changed ones are written. Brokers that may have lost records are trusted
again in the write that takes them out of the in-sync sets, or the last of several.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator

from headrace.config.broker_config import BrokerConfig
from headrace.coordination.contract import SessionLost, Unknown
from headrace.env import Env
from headrace.metadata.changes import Change, PartitionsChanged, SuspectCleared
from headrace.metadata.cluster import ClusterMetadata
from headrace.metadata.controller import Controller
from headrace.metadata.image import NO_LEADER, MetadataImage, PartitionImage, TopicImage
from headrace.metadata.layout import BROKER_IDS
from headrace.metadata.partition_decisions import Liveness, decide_leaders, decide_more_replicas
from headrace.metadata.topic_rules import UNCLEAN, TopicRules
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.few_lines import FewLines
from headrace.model.topics import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition

RETRY_SECONDS = 0.2

logger = logging.getLogger(__name__)


class Leaders:
    def __init__(
        self, env: Env, metadata: ClusterMetadata, controller: Controller, broker_id: int, config: BrokerConfig
    ) -> None:
        self._env = env
        self._metadata = metadata
        self._controller = controller
        self._broker_id = broker_id
        self._config = config
        self._work: asyncio.Task[None] | None = None
        self._due = False
        self._own_topics = {
            CONSUMER_OFFSETS_TOPIC: config.integer("offsets.topic.replication.factor"),
            TRANSACTION_STATE_TOPIC: config.integer("transaction.state.log.replication.factor"),
        }
        """How many replicas the cluster's own topics should have."""

    def start(self) -> Callable[[], None]:
        """Look now and after every change; returns how to stop it."""
        self._look()
        return self._metadata.subscribe(self._follow)

    def _follow(self, old: MetadataImage, new: MetadataImage) -> None:
        if new.controller_id != self._broker_id:
            return
        took_over = old.controller_epoch != new.controller_epoch
        if took_over or old.brokers is not new.brokers or any(map(_waits_for_settings, _set_anew(old, new))):
            self._look()

    def _look(self) -> None:
        self._due = True
        if self._work is None or self._work.done():
            self._work = self._env.background.start("Electing leaders", self._settle())

    async def _settle(self) -> None:
        while self._due and self._controller.active:
            self._due = False
            try:
                await self._controller.change(self._decide)
            except KafkaError as error:
                if error.code is ErrorCode.NOT_CONTROLLER:
                    return  # Whoever is the controller now does it.
                logger.warning("Leaders could not be elected; retrying: %s", error)
                self._due = True
                await self._env.clock.sleep(RETRY_SECONDS)
                continue
            if any(broker.suspect for broker in self._metadata.image.brokers.values()):
                try:
                    await self._metadata.catch_up(BROKER_IDS)
                except SessionLost:
                    return
                except Unknown as error:
                    logger.warning("Could not check suspected brokers; retrying: %s", error)
                    self._due = True
                    await self._env.clock.sleep(RETRY_SECONDS)

    def _decide(self, image: MetadataImage) -> tuple[None, list[Change]]:
        rules = TopicRules(self._config, image)
        liveness = Liveness.of(image)
        decided: dict[str, dict[int, PartitionImage]] = {}
        told = _ElectionLog()
        for grown in decide_more_replicas(image, self._own_topics):
            before = image.topics[grown.name].partitions
            decided[grown.name] = {n: now for n, now in enumerate(grown.partitions) if now is not before[n]}
        for topic, partitions in decide_leaders(image.with_partitions(decided), liveness, rules):
            decided.setdefault(topic.name, {}).update(partitions)
            for index, after in partitions.items():
                told.note(topic, index, after)
        told.end()
        changes: list[Change] = [PartitionsChanged(name, partitions) for name, partitions in decided.items()]
        suspects = [broker for broker in image.brokers.values() if broker.suspect]
        changes += [SuspectCleared(broker.id, broker.suspicion_version) for broker in suspects]
        return None, changes


def _set_anew(old: MetadataImage, new: MetadataImage) -> Iterator[TopicImage]:
    """The topics that have other settings now."""
    all_of_them = old.broker_configs is not new.broker_configs
    if all_of_them or old.topics is not new.topics:
        before = old.topics
        for name, now in new.topics.items():
            if all_of_them or name not in before or before[name].configs is not now.configs:
                yield now


def _waits_for_settings(topic: TopicImage) -> bool:
    """Whether another setting might give a partition a leader, or let one commit again."""
    return any(partition.leader == NO_LEADER or partition.elr for partition in topic.partitions)


class _ElectionLog:
    """What an operator wants to find in the log: who leads, and what may be lost."""

    def __init__(self) -> None:
        self._leaderless = FewLines(logger, logging.ERROR, "have no leader")
        self._eligible = FewLines(
            logger, logging.WARNING, "are led by a broker that was not in sync but has everything"
        )
        self._elected = FewLines(logger, logging.INFO, "have a new leader")

    def note(self, topic: TopicImage, index: int, after: PartitionImage) -> None:
        before = topic.partitions[index]
        name = TopicPartition(topic.name, index)
        if after.leader == NO_LEADER:
            why = "%s has no leader: none of its in-sync replicas %s and eligible leaders %s is alive"
            self._leaderless.add(name, why, list(after.isr), list(after.elr))
        elif after.leader not in before.isr and after.leader not in before.elr:
            logger.error(
                "%s: broker %d was elected although it was not in sync (%s=true): records may be lost",
                *(name, after.leader, UNCLEAN),
            )
        elif after.leader != before.leader and after.leader not in before.isr:
            self._eligible.add(
                name,
                "%s: broker %d leads in epoch %d: it has every committed record, as it left the in-sync set after "
                "the last one; %s is not alive, or may have lost records",
                *(after.leader, after.leader_epoch, list(before.isr)),
            )
        elif after.leader != before.leader:
            self._elected.add(name, "%s: broker %d leads in epoch %d", after.leader, after.leader_epoch)

    def end(self) -> None:
        for lines in (self._leaderless, self._eligible, self._elected):
            lines.end()
