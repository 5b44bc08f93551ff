"""What each topic's logs are configured with. Topics with the same settings share one value: most have none."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.config.broker_config import BrokerConfig
from headrace.config.setting import Value
from headrace.config.topic_config import DynamicConfigs, topic_defaults, topic_values
from headrace.metadata.image import MetadataImage, TopicImage
from headrace.storage.log_config import LogConfig


class TopicConfigs:
    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._dynamic: Mapping[str, Mapping[str, str]] | None = None
        self._defaults: dict[str, Value] = {}
        self._known: dict[tuple[tuple[str, str], ...], LogConfig] = {}

    def of(self, topic: TopicImage, image: MetadataImage) -> LogConfig:
        if image.broker_configs is not self._dynamic:
            self._dynamic = image.broker_configs
            self._defaults = topic_defaults(
                self._config, DynamicConfigs.of(image.broker_configs, self._config.node_id)
            )
            self._known = {}
        key = tuple(sorted(topic.configs.items()))
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = LogConfig.from_settings(topic_values(topic.configs, self._defaults))
        return known
