"""The transactions that this broker coordinates: one shard per partition of `__transaction_state` that it leads.

A transactional id belongs to the partition that its hash names, and the broker that leads the partition is its
coordinator. The topic is made when somebody first asks for a coordinator.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator

from headrace.config.broker_config import BrokerConfig
from headrace.env import Env
from headrace.metadata.cluster import ClusterMetadata
from headrace.metadata.image import MetadataImage, PartitionImage
from headrace.metadata.topic_decisions import TopicCreation
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TRANSACTION_STATE_TOPIC, TopicPartition
from headrace.replication.partition import Partition
from headrace.replication.replica_set import ReplicaSet
from headrace.services.shards import Shards, TopicCreator, segment_bytes
from headrace.services.transactions.markers import MarkerSender
from headrace.services.transactions.settings import transaction_settings
from headrace.services.transactions.shard import Decider, DecisionTold, TransactionShard
from headrace.transactions.adding import decide_add, verify
from headrace.transactions.decision import TransactionDecision, refuse
from headrace.transactions.ending import EndTransaction, decide_end
from headrace.transactions.starting import InitProducer, check_init, decide_init, timeout_of
from headrace.transactions.transaction import ProducerIdentity, Transaction

log = logging.getLogger(__name__)

CONCURRENT_LOADS = 2


class TransactionService:
    def __init__(
        self,
        env: Env,
        config: BrokerConfig,
        metadata: ClusterMetadata,
        topics: TopicCreator,
        replicas: ReplicaSet,
        allocate_producer_id: Callable[[], Awaitable[int]],
        markers: MarkerSender,
    ) -> None:
        self._env = env
        self._config = config
        self._metadata = metadata
        self._allocate_producer_id = allocate_producer_id
        self._markers = markers
        self._settings = transaction_settings(config)
        self._load_slots = asyncio.Semaphore(CONCURRENT_LOADS)
        self._shards = Shards(TRANSACTION_STATE_TOPIC, metadata, topics, replicas, self._new_shard)

    # -- following the image

    def follow(self, old: MetadataImage, new: MetadataImage) -> None:
        """Load and unload shards, as this broker's partitions agree with `new`."""
        self._shards.follow(new)

    def _new_shard(self, partition: Partition) -> TransactionShard:
        return TransactionShard(
            self._env, partition, self._settings, self._allocate_producer_id, self._markers, self._load_slots
        )

    async def abort_overdue(self) -> None:
        """Abort transactions that are past their timeout, until cancelled."""
        interval = self._config.integer("transaction.abort.timed.out.transaction.cleanup.interval.ms") / 1000
        while True:
            await self._env.clock.sleep(interval)
            for shard in self._shards:
                shard.abort_overdue()

    async def expire(self) -> None:
        """Remove ids that had no transaction for long, until cancelled."""
        interval = self._config.integer("transaction.remove.expired.transaction.cleanup.interval.ms") / 1000
        while True:
            await self._env.clock.sleep(interval)
            for shard in self._shards:
                await shard.expire()

    def close(self) -> None:
        """Stop with the broker: all waiting clients are told to look for another coordinator."""
        self._shards.close()

    # -- finding

    def coordinator_partition(self, transactional_id: str) -> PartitionImage | None:
        """The partition that coordinates the id; None while the topic does not exist."""
        return self._shards.partition(transactional_id)

    async def ensure_topic(self) -> None:
        """Create `__transaction_state` if it does not exist. KafkaError if that is impossible now."""
        await self._shards.ensure_topic(self.state_topic)

    def state_topic(self) -> TopicCreation:
        """`__transaction_state` as it should be created."""
        brokers = max(len(self._metadata.image.brokers), 1)
        return TopicCreation(
            TRANSACTION_STATE_TOPIC,
            self._config.integer("transaction.state.log.num.partitions"),
            min(self._config.integer("transaction.state.log.replication.factor"), brokers),
            configs={
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": str(self._config.integer("transaction.state.log.min.isr")),
                "segment.bytes": segment_bytes(self._config, "transaction.state.log.segment.bytes"),
                "unclean.leader.election.enable": "false",
            },
        )

    def shard(self, transactional_id: str) -> TransactionShard:
        """The shard of an id; NOT_COORDINATOR if another broker has it."""
        return self._shards.of(transactional_id)

    def transaction(self, transactional_id: str) -> Transaction | None:
        """The transaction of an id; None if it has none. KafkaError if this broker does not know it (yet)."""
        return self.shard(transactional_id).transaction(transactional_id)

    def transactions(self) -> Iterator[Transaction]:
        """All transactions of this broker; KafkaError if some are not loaded yet."""
        for shard in self._shards:
            yield from shard.transactions()

    def loaded(self) -> Iterator[Transaction]:
        """The transactions of the shards that are in charge: for displaying them."""
        for shard in self._shards:
            if shard.in_charge:
                yield from shard.transactions()

    @property
    def markers(self) -> MarkerSender:
        return self._markers

    # -- requests: each answers with its refusal, or raises it as a KafkaError

    async def init_producer(self, request: InitProducer) -> TransactionDecision:
        rules = self._settings.rules
        error = check_init(request, rules)
        if error is not ErrorCode.NONE:
            return refuse(error)
        timeout_ms = timeout_of(request, rules)

        def decider(current: Transaction | None, new_id: int | None, now_ms: int) -> TransactionDecision:
            decision = decide_init(current, request, timeout_ms, new_id, now_ms)
            prepares = decision.changed is not None and decision.changed.prepared
            if prepares and not (current is not None and current.prepared) and self._prepared_are_too_many():
                return refuse(ErrorCode.POLICY_VIOLATION)
            return decision

        return await self._decide(request.transactional_id, decider, patient=False)

    def _prepared_are_too_many(self) -> bool:
        return sum(shard.prepared_count() for shard in self._shards) >= self._settings.max_prepared

    async def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: frozenset[TopicPartition],
        client_version: int,
    ) -> ErrorCode:
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST

        def decider(current: Transaction | None, new_id: int | None, now_ms: int) -> TransactionDecision:
            return decide_add(current, producer, partitions, client_version, now_ms)

        return (await self._decide(transactional_id, decider, patient=True)).error

    def verify_partitions(
        self, transactional_id: str, producer: ProducerIdentity, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        if not transactional_id:
            return dict.fromkeys(partitions, ErrorCode.INVALID_REQUEST)
        try:
            current = self.transaction(transactional_id)
        except KafkaError as error:
            return dict.fromkeys(partitions, error.code)
        return verify(current, producer, partitions)

    async def end(self, transactional_id: str, request: EndTransaction) -> TransactionDecision:
        if not transactional_id:
            return refuse(ErrorCode.INVALID_REQUEST)

        def decider(current: Transaction | None, new_id: int | None, now_ms: int) -> TransactionDecision:
            return decide_end(current, request, new_id, now_ms)

        return await self._decide(transactional_id, decider, patient=False)

    # -- the same without waiting: None, with nothing done, if something has to be waited for or is refused

    def quick_add(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: frozenset[TopicPartition],
        client_version: int,
        told: DecisionTold,
    ) -> TransactionDecision | None:
        def decider(current: Transaction | None, new_id: int | None, now_ms: int) -> TransactionDecision:
            return decide_add(current, producer, partitions, client_version, now_ms)

        return self._quickly(transactional_id, decider, told)

    def quick_end(
        self, transactional_id: str, request: EndTransaction, told: DecisionTold
    ) -> TransactionDecision | None:
        def decider(current: Transaction | None, new_id: int | None, now_ms: int) -> TransactionDecision:
            return decide_end(current, request, new_id, now_ms)

        return self._quickly(transactional_id, decider, told)

    def _quickly(self, transactional_id: str, decider: Decider, told: DecisionTold) -> TransactionDecision | None:
        shard = self._shards.find(transactional_id)
        if shard is None or not transactional_id:
            return None
        try:
            return shard.quick_decide(transactional_id, decider, told)
        except KafkaError:
            return None  # a request that may wait gets the same answer

    async def _decide(self, transactional_id: str, decider: Decider, patient: bool) -> TransactionDecision:
        try:
            return await self.shard(transactional_id).decide(transactional_id, decider, patient)
        except KafkaError as error:
            return refuse(error.code)
