"""Brokers that left the cluster a moment ago and are still listed in metadata.

librdkafka drops a broker that metadata does not name any more, and with it, in a race inside the client, where its
partitions have gone: they then wait for its next metadata request, up to a second. A broker that stays named until
the clients know the new leaders is dropped later, when it has no partitions.
"""

from __future__ import annotations

from headrace.env import Clock
from headrace.metadata.image import BrokerImage, MetadataImage

KEPT_SECONDS = 3.0


class Departed:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._left: dict[int, tuple[BrokerImage, float]] = {}

    def follow(self, old: MetadataImage, new: MetadataImage) -> None:
        """Called with a new image."""
        if old.brokers is new.brokers:
            return
        now = self._clock.monotonic()
        for broker in old.brokers.values():
            if broker.id not in new.brokers:
                self._left[broker.id] = broker, now
        for broker_id in new.brokers:
            self._left.pop(broker_id, None)

    def recent(self) -> list[BrokerImage]:
        oldest = self._clock.monotonic() - KEPT_SECONDS
        self._left = {broker.id: (broker, since) for broker, since in self._left.values() if since > oldest}
        return [broker for broker, _ in self._left.values()]
