"""The settings of topics that the controller's decisions depend on, as they hold for a partition's leader.

A topic's own setting wins; else it is what the leader's broker has: set for it while it runs, set for all brokers,
or in its file. A broker tells what its file says when it registers; of one that did not, the controller assumes
what its own says.
"""

from __future__ import annotations

from headrace.config.broker_config import BrokerConfig
from headrace.config.settings import Value
from headrace.config.topic_config import DynamicConfigs, topic_defaults
from headrace.metadata.image import MetadataImage, PartitionImage, TopicImage

UNCLEAN = "unclean.leader.election.enable"
MIN_IN_SYNC = "min.insync.replicas"


class TopicRules:
    def __init__(self, config: BrokerConfig, image: MetadataImage) -> None:
        self._config = config
        self._image = image
        self._defaults: dict[str, Value] | None = None

    def allows_unclean(self, topic: TopicImage) -> bool:
        own = topic.configs.get(UNCLEAN)
        if own is not None:
            return own.lower() == "true"
        if self._defaults is None:
            dynamic = DynamicConfigs.of(self._image.broker_configs, self._config.node_id)
            self._defaults = topic_defaults(self._config, dynamic)
        return bool(self._defaults[UNCLEAN])

    def min_in_sync(self, topic: TopicImage, partition: PartitionImage) -> int:
        """Never more than there are replicas, or were before a move."""
        replicas = partition.original or partition.replicas
        return min(self._min_in_sync(topic, partition.leader), len(replicas))

    def _min_in_sync(self, topic: TopicImage, leader: int) -> int:
        dynamic = DynamicConfigs.of(self._image.broker_configs, leader)
        for configs in (topic.configs, dynamic.broker, dynamic.default):
            if text := configs.get(MIN_IN_SYNC):
                return int(text)
        broker = self._image.brokers.get(leader)
        in_file = broker.min_in_sync if broker is not None else None
        return self._config.integer(MIN_IN_SYNC) if in_file is None else in_file
