"""Controlled shutdown without a refused Produce: producers move to the next leader while the old one still leads.

A broker that is about to stop tells the other brokers. For a short time it keeps leading and names the next leader
in its successful Produce responses, in the field of KIP-951 (CurrentLeader), which clients accept in any response.
A client that follows it, such as librdkafka, finishes what it has in flight here and sends its next batches there.
Requests that arrive there before the election wait for it (`handlers/early_produce`). Without this the client
would be refused and pause for `retry.backoff.ms`, 100 ms by default.

The next leader is computed with the controller's own rule. If another one is elected after all, the client is
refused and asks for metadata, as it would have done anyway. With thousands of partitions, next leaders are named
only for those that the controller moves with its next answer.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from headrace.client.errors import ClientError
from headrace.config.broker_config import BrokerConfig
from headrace.env import Env, Timer
from headrace.metadata.cluster import ClusterMetadata
from headrace.metadata.controller import VACATED_AT_ONCE
from headrace.metadata.image import NO_LEADER, MetadataImage
from headrace.metadata.partition_decisions import Liveness, decide_partition_without
from headrace.metadata.topic_rules import TopicRules
from headrace.model.errors import KafkaError
from headrace.model.topics import TopicId
from headrace.replication.broker_link import BrokerLink
from headrace.replication.partition import Partition
from headrace.wire.leader_hints import LeaderHint
from headrace.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse

TELLING_SECONDS = 0.2
"""The longest wait for the answers of the other brokers."""
EXPECTED_SECONDS = 1.0
"""How long an announcement counts."""

_Place = tuple[TopicId, int]


class Departing:
    def __init__(
        self, env: Env, config: BrokerConfig, broker_id: int, metadata: ClusterMetadata, link: BrokerLink
    ) -> None:
        self._env = env
        self._config = config
        self._broker_id = broker_id
        self._metadata = metadata
        self._link = link
        self.names_successors = False
        """Whether this broker is about to stop and Produce responses name next leaders."""
        self._leaving: frozenset[_Place] = frozenset()
        """The partitions that the controller moves next."""
        self._told: frozenset[int] = frozenset()
        """The brokers that know it and let early producers wait."""
        self._successors: dict[_Place, int] = {}
        self._rules: tuple[MetadataImage, Liveness, TopicRules] | None = None
        self._expected: dict[int, tuple[int, Timer]] = {}
        """Other brokers that are about to stop: their broker epochs, and when their announcements expire."""
        self.held_bytes = 0
        """The size of all requests that wait here for an election."""

    # -- where the broker stops

    async def announce(self) -> bool:
        """Tell the other brokers, and from now on name the next leaders of what the controller moves next.

        Returns whether there is any such partition. Never raises.
        """
        self._leaving = frozenset(self._moved_next())
        if self._leaving:
            others = [broker for broker in self._metadata.image.brokers if broker != self._broker_id]
            answered = await asyncio.gather(*(self._tell(broker) for broker in others))
            self._told = frozenset(broker for broker, knows in zip(others, answered, strict=True) if knows)
        self.names_successors = bool(self._leaving and self._told)
        return self.names_successors

    def stay(self) -> None:
        """Stop naming next leaders."""
        self.names_successors = False

    def _moved_next(self) -> list[_Place]:
        """In the controller's order; for the others, early producers would wait too long for the election."""
        movable = [
            (topic.name, index, topic.id)
            for topic in self._metadata.image.topics.values()
            for index, partition in enumerate(topic.partitions)
            if partition.leader == self._broker_id and len(partition.isr) > 1
        ]
        return [(topic_id, index) for _, index, topic_id in sorted(movable)[:VACATED_AT_ONCE]]

    async def _tell(self, broker: int) -> bool:
        own = self._metadata.image.brokers.get(self._broker_id)
        if own is None:
            return False
        request = BrokerHeartbeatRequest(broker_id=own.id, broker_epoch=own.epoch, want_fence=True)
        try:
            answer = await self._link.ask(broker, request, BrokerHeartbeatResponse, TELLING_SECONDS)
        except (ClientError, KafkaError):
            return False
        return answer.error_code == 0

    def successor(self, listener: str, topic_id: TopicId, index: int) -> LeaderHint | None:
        """The next leader of the partition, or None if nobody can take over or it lacks the client's listener.

        The hint has the current epoch: clients accept it because it is not older than theirs, and accept metadata
        with the same epoch again if the election turns out differently.
        """
        image, place = self._metadata.image, (topic_id, index)
        topic = image.topics_by_id.get(topic_id)
        if place not in self._leaving or topic is None or index >= len(topic.partitions):
            return None
        partition = topic.partitions[index]
        if partition.leader != self._broker_id:
            return None
        decided_by = self._decided_by()
        if place not in self._successors:
            self._successors[place] = self._next_leader(place, *decided_by)
        successor = image.brokers.get(self._successors[place])
        if successor is None or (endpoint := successor.endpoint(listener)) is None:
            return None
        return LeaderHint(successor.id, partition.leader_epoch, endpoint.host, endpoint.port, successor.rack)

    def _next_leader(self, place: _Place, image: MetadataImage, without: Liveness, rules: TopicRules) -> int:
        """NO_LEADER if nobody else can lead, or if that broker does not know that this one is about to stop."""
        topic = image.topics_by_id[place[0]]
        after = decide_partition_without(topic, place[1], without, self._broker_id, rules)
        return after.leader if after.leader in self._told else NO_LEADER

    def _decided_by(self) -> tuple[MetadataImage, Liveness, TopicRules]:
        """The arguments of the decision; they and the decisions are rebuilt for each image."""
        image = self._metadata.image
        if self._rules is None or self._rules[0] is not image:
            without = Liveness.of(image).without(self._broker_id)
            self._rules = image, without, TopicRules(self._config, image)
            self._successors.clear()
        return self._rules

    # -- where others lead next

    @property
    def expects_any(self) -> bool:
        """Whether any other broker is about to stop."""
        return bool(self._expected)

    def expect(self, broker_id: int, broker_epoch: int) -> None:
        """Note that another broker is about to stop."""
        if broker_id in self._expected:
            self._expected[broker_id][1].cancel()
        expiry = self._env.clock.call_later(EXPECTED_SECONDS, lambda: self._expected.pop(broker_id))
        self._expected[broker_id] = broker_epoch, expiry

    def may_lead_next(self, partition: Partition) -> bool:
        """Whether the leader of this replica is about to stop, and this broker is in sync with it."""
        state = partition.image
        if state is None or not partition.follows or self._broker_id not in state.isr:
            return False
        leader = self._metadata.image.brokers.get(state.leader)
        return leader is not None and leader.id in self._expected and self._expected[leader.id][0] == leader.epoch


class NamesSuccessors(Protocol):
    """The part of `Departing` that Produce responses need."""

    @property
    def names_successors(self) -> bool: ...

    def successor(self, listener: str, topic_id: TopicId, index: int) -> LeaderHint | None: ...
