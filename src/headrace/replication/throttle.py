"""How fast replicas that are not in sync are copied: a limit on sending and one on fetching (KIP-73).

Kafka's settings, changed while the broker runs: `leader.replication.throttled.rate` and
`follower.replication.throttled.rate` of the broker, for the partitions that the topics' settings of the same names
with `replicas` in the end give with this broker's id, or with `*`. Replicas that are in sync are never limited:
producers wait for them.

Each side keeps the time from which it may continue: what is copied moves that time on by how long it
should have taken. So a large answer is paid for after it was sent.
"""

from __future__ import annotations

from headrace.config.broker_config import BrokerConfig
from headrace.config.dynamic import current_integer
from headrace.config.setting import LONG_MAX
from headrace.env import Clock
from headrace.metadata.image import MetadataImage
from headrace.replication.partition import Partition

LONGEST_DELAY_SECONDS = 1.0
"""Then it is looked again: the limit may be another by then."""
ALL = "*"


class Side:
    """One of both: what is sent, or what is fetched."""

    def __init__(self, clock: Clock, broker_id: int, name: str) -> None:
        self._clock = clock
        self._broker_id = broker_id
        self._rate_name = f"{name}.replication.throttled.rate"
        self._replicas_name = f"{name}.replication.throttled.replicas"
        self._rate = LONG_MAX
        self._free_at = 0.0
        self._limited: dict[bytes, frozenset[int] | None] = {}
        """The partitions of each topic that are limited, by the topic's id; None: all."""
        self.active = False
        """Whether anything is limited here."""

    def follow(self, config: BrokerConfig, image: MetadataImage) -> None:
        rate = current_integer(config, image.broker_configs, self._rate_name)
        if rate != self._rate:
            self._rate, self._free_at = rate, 0.0
        self._limited = {}
        if rate < LONG_MAX:
            for topic in image.topics.values():
                text = topic.configs.get(self._replicas_name)
                if text:
                    self._limited[topic.id] = self._partitions(text)
        self.active = bool(self._limited)

    def _partitions(self, text: str) -> frozenset[int] | None:
        if text.strip() == ALL:
            return None
        pairs = (pair.strip().split(":") for pair in text.split(","))
        return frozenset(int(partition) for partition, broker in pairs if int(broker) == self._broker_id)

    def limits(self, partition: Partition, replica: int) -> bool:
        """Whether the copy that this replica gets counts."""
        if partition.topic_id not in self._limited or partition.image is None or replica in partition.image.isr:
            return False
        own = self._limited[partition.topic_id]
        return own is None or partition.topic_partition.partition in own

    def copied(self, size: int) -> None:
        now = self._clock.monotonic()
        self._free_at = max(self._free_at, now) + size / self._rate

    def delay(self) -> float:
        """Seconds until more may be copied, as far as that is known; 0: now."""
        return min(max(self._free_at - self._clock.monotonic(), 0.0), LONGEST_DELAY_SECONDS)


class ReplicationThrottle:
    def __init__(self, clock: Clock, config: BrokerConfig) -> None:
        self._config = config
        self.sending = Side(clock, config.node_id, "leader")
        self.fetching = Side(clock, config.node_id, "follower")

    def follow(self, old: MetadataImage, new: MetadataImage) -> None:
        """Called with a new image."""
        if old.broker_configs is not new.broker_configs or old.topics is not new.topics:
            for side in (self.sending, self.fetching):
                side.follow(self._config, new)
