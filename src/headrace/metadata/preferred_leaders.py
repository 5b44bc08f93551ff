"""Partitions go back to their preferred leaders by themselves (`auto.leader.rebalance.enable`).

While a broker is away others lead its partitions, and they keep doing so when it returns. So every
`leader.imbalance.check.interval.seconds` the controller elects the first replica of each partition that another
leads, if it is in sync. Each such change ends a leader epoch, so one look changes a limited number.
"""

from __future__ import annotations

import logging
from itertools import islice

from headrace.config.broker_config import BrokerConfig
from headrace.env import Env
from headrace.metadata.cluster import ClusterMetadata
from headrace.metadata.controller import Controller
from headrace.metadata.image import MetadataImage
from headrace.metadata.partition_decisions import Election, Liveness, decide_election
from headrace.model.errors import KafkaError
from headrace.model.topics import TopicPartition

MAX_ELECTIONS = 1000
"""The limit of elections per check."""

logger = logging.getLogger(__name__)


class PreferredLeaders:
    def __init__(self, env: Env, metadata: ClusterMetadata, controller: Controller, config: BrokerConfig) -> None:
        self._env = env
        self._metadata = metadata
        self._controller = controller
        self._enabled = bool(config.value("auto.leader.rebalance.enable"))
        self._interval = config.integer("leader.imbalance.check.interval.seconds")

    async def run(self) -> None:
        """Check regularly, until cancelled."""
        while True:
            await self._env.clock.sleep(self._interval)
            if self._enabled and self._controller.active:
                await self._look()

    async def _look(self) -> None:
        names = find_misled(self._metadata.image)
        if not names:
            return
        try:
            outcomes = await self._controller.elect_leaders(names, Election.PREFERRED)
        except KafkaError as error:
            logger.info("Preferred leaders could not be elected: %s", error)
            return
        elected = sum(outcome is None for outcome in outcomes)
        logger.info("%d partitions are led by their preferred leaders again", elected)


def find_misled(image: MetadataImage) -> list[TopicPartition]:
    """Partitions that their preferred leader could lead and does not, as many as one check may change."""
    liveness = Liveness.of(image)

    def can_be_elected(name: TopicPartition) -> bool:
        topic = image.topics[name.topic]
        own = liveness.for_partition(topic.id, name.partition)
        try:
            decide_election(topic.partitions[name.partition], Election.PREFERRED, own)
        except KafkaError:
            return False
        return True

    names = (
        TopicPartition(topic.name, index)
        for topic in image.topics.values()
        for index, partition in enumerate(topic.partitions)
        if partition.leader != partition.replicas[0]
    )
    return list(islice(filter(can_be_elected, names), MAX_ELECTIONS))
