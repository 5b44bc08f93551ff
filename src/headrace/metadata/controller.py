"""The one writer of the cluster's metadata: elected through the store, fenced by the controller epoch (D5).

Every broker has a `Controller`; it acts only while it holds `/controller`, and otherwise answers NOT_CONTROLLER. A
change is decided by a pure function on the current image, and written in a way that fences a controller that was
replaced (`change_writer`). A success that is returned is durable in the store and in this broker's image.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

from headrace.config.broker_config import BrokerConfig
from headrace.config.dynamic import current_text
from headrace.config.group_config import GroupLimits
from headrace.config.settings import Value
from headrace.config.topic_config import DynamicConfigs, topic_defaults
from headrace.coordination.contract import (
    BadVersion,
    Check,
    Create,
    Delete,
    NodeExists,
    Put,
    SessionLost,
    Store,
    StoreError,
    Unknown,
)
from headrace.env import Env
from headrace.metadata.acl_decisions import decide_create_acls, decide_delete_acls
from headrace.metadata.change_writer import ChangeWriter, Deposed, Term, unknown_result
from headrace.metadata.changes import (
    BrokerForgotten,
    Change,
    PartitionsAdded,
    PartitionsChanged,
    TopicCreated,
    TopicDeleted,
)
from headrace.metadata.cluster import ClusterMetadata
from headrace.metadata.config_decisions import (
    ConfigAlteration,
    ConfigEdit,
    decide_alter_configs,
)
from headrace.metadata.image import NO_CONTROLLER, BrokerImage, MetadataImage, PartitionImage, TopicImage
from headrace.metadata.layout import (
    BROKER_IDS,
    CHANGES,
    CONTROLLER,
    CONTROLLER_EPOCH,
    DIRECTORIES,
    broker_config_path,
    decode_json,
    directories_path,
    encode_json,
    suspect_path,
)
from headrace.metadata.partition_decisions import (
    Election,
    InSyncOutcome,
    InSyncWish,
    Liveness,
    check_forgettable,
    decide_election,
    decide_in_sync,
    decide_without,
    may_wait,
)
from headrace.metadata.quota_decisions import QuotaAlteration, decide_alter_quotas
from headrace.metadata.reassignments import Reassignment, ReassignmentOutcome, decide_reassignments
from headrace.metadata.registration import allocate_producer_id_block, register
from headrace.metadata.topic_decisions import (
    NewPartitions,
    TopicCreation,
    TopicDefaults,
    TopicOutcome,
    decide_create_partitions,
    decide_create_topics,
    decide_delete_topics,
    short_of_brokers,
)
from headrace.metadata.topic_rules import TopicRules
from headrace.metadata.user_decisions import UserAlteration, decide_alter_users
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicId, TopicPartition
from headrace.security.acl import Acl, AclFilter

__all__ = [
    "ConfigAlteration",
    "ConfigEdit",
    "Controller",
    "NewPartitions",
    "TopicCreation",
    "TopicOutcome",
]

VACATED_AT_ONCE = 500
"""Partitions that a stopping broker hands over with one request, which should be answered soon."""
MAX_ATTEMPTS = 5
"""How often a change is decided and written again when the image turned out to be behind the store."""
ELECTION_RETRY_SECONDS = 0.2
HAND_OVER_SECONDS = 2.0

T = TypeVar("T")
_logger = logging.getLogger(__name__)


class Controller:
    def __init__(
        self, env: Env, store: Store, metadata: ClusterMetadata, broker_id: int, config: BrokerConfig
    ) -> None:
        self._env = env
        self._store = store
        self._metadata = metadata
        self._broker_id = broker_id
        self._config = config
        self._term: Term | None = None
        self._writing = asyncio.Lock()
        self._writer = ChangeWriter(store, metadata)
        self._election: asyncio.Task[None] | None = None
        self._unsubscribe: Callable[[], None] | None = None
        self.may_stand: Callable[[], bool] = lambda: True
        """Whether this broker may stand for election: not while it is cut off from most others."""
        self._stopping: dict[int, int] = {}
        """Brokers that are about to stop, with their epochs: they join no in-sync set."""

    @property
    def active(self) -> bool:
        """Whether this broker is the controller, as far as it knows."""
        return self._term is not None

    async def start(self) -> None:
        """Stand for election now, and again whenever there is no controller. Follow `metadata.start()`."""
        self._unsubscribe = self._metadata.subscribe(self._on_image)
        self._store.session.on_lost(lambda: self._resign("its session was lost"))
        await self.stand()

    async def stand(self) -> None:
        """Stand for election now if there is no controller; a new session may have missed a watch."""
        election = self._election
        if election is None or election.done():
            election = self._election = self._env.background.start("Electing a controller", self._elect())
        await asyncio.wait([election])  # meanwhile a later one may have started
        if not election.cancelled():
            election.result()

    async def close(self) -> None:
        """Stop standing for election. The role is free when the store is closed."""
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        if self._election is not None:
            self._election.cancel()
            await asyncio.wait([self._election])
        self._term = None

    async def hand_over(self) -> None:
        """Stop standing, and give up the role at once: it may take long until the store of a broker is closed."""
        term = self._term
        await self.close()
        if term is None:
            return
        try:
            async with asyncio.timeout(HAND_OVER_SECONDS):
                node = await self._store.get(CONTROLLER)
                if node is not None and decode_json(node)["epoch"] == term.epoch:
                    in_charge = Check(CONTROLLER_EPOCH, term.epoch_version)
                    await self._store.multi([in_charge, Delete(CONTROLLER, node.version)])
        except (StoreError, TimeoutError) as error:
            _logger.info("The controller role becomes free when the session ends: %s", error)

    # What any broker may do

    async def register_broker(self, broker: BrokerImage) -> BrokerImage:
        """Register this broker; returns it with its epoch. DUPLICATE_BROKER_REGISTRATION if the id is in use."""
        registered = await register(self._store, broker, self._env.clock)
        await self._metadata.catch_up(BROKER_IDS)
        return registered

    async def allocate_producer_id_block(self) -> range:
        """Producer ids that no other producer will ever get."""
        return await allocate_producer_id_block(self._store, self._broker_id)

    # What only the controller may do; each raises NOT_CONTROLLER elsewhere

    async def create_topics(
        self, topics: Sequence[TopicCreation], validate_only: bool = False
    ) -> list[TopicOutcome]:
        """Create topics; for each the new topic or its error."""

        def decide(image: MetadataImage) -> tuple[list[TopicOutcome], list[Change]]:
            outcomes = decide_create_topics(image, topics, self._defaults(image), self._new_topic_id, known)
            return outcomes, [TopicCreated(topic) for topic in _successes(outcomes)]

        known = await self._see_all_brokers_for(topics)
        return await self.change(decide, validate_only)

    async def delete_topics(self, topics: Sequence[str | TopicId]) -> list[TopicOutcome]:
        """Delete topics by name or id; for each the topic that was deleted or its error."""

        def decide(image: MetadataImage) -> tuple[list[TopicOutcome], list[Change]]:
            outcomes = decide_delete_topics(image, topics)
            return outcomes, [TopicDeleted(topic) for topic in _successes(outcomes)]

        return await self.change(decide)

    async def create_partitions(
        self, requests: Sequence[NewPartitions], validate_only: bool = False
    ) -> list[TopicOutcome]:
        """Add partitions; for each the topic as it is then or its error."""

        def decide(image: MetadataImage) -> tuple[list[TopicOutcome], list[Change]]:
            outcomes = decide_create_partitions(image, requests, known)
            grown = _successes(outcomes)
            return outcomes, [PartitionsAdded(topic, len(image.topics[topic.name].partitions)) for topic in grown]

        known = await self._see_all_brokers_for(requests)
        return await self.change(decide, validate_only)

    async def alter_configs(
        self, alterations: Sequence[ConfigAlteration], validate_only: bool = False
    ) -> list[KafkaError | None]:
        """Alter settings, legacy (`replace_all`) or incremental; for each its error or None."""

        def decide(image: MetadataImage) -> tuple[list[KafkaError | None], list[Change]]:
            outcomes = decide_alter_configs(
                image, alterations, self._topic_configs(image), GroupLimits(self._config)
            )
            changes: list[Change] = [outcome for outcome in outcomes if not isinstance(outcome, KafkaError)]
            return [outcome if isinstance(outcome, KafkaError) else None for outcome in outcomes], changes

        return await self.change(decide, validate_only)

    async def create_acls(self, wanted: Sequence[Acl | KafkaError]) -> list[KafkaError | None]:
        """Create access rules; for each its error or None. A rule that exists already is a success."""
        return await self.change(lambda image: decide_create_acls(image, wanted))

    async def alter_users(self, alterations: Sequence[UserAlteration]) -> dict[str, KafkaError | None]:
        """Alter SCRAM credentials; for each user its error or None."""
        return await self.change(lambda image: decide_alter_users(image, alterations))

    async def alter_quotas(
        self, alterations: Sequence[QuotaAlteration], validate_only: bool
    ) -> list[KafkaError | None]:
        """Alter quotas; for each entity its error or None."""
        return await self.change(lambda image: decide_alter_quotas(image, alterations), validate_only)

    async def delete_acls(self, filters: Sequence[AclFilter | KafkaError]) -> list[list[Acl] | KafkaError]:
        """Delete access rules; for each filter the deleted rules, or its error."""
        return await self.change(lambda image: decide_delete_acls(image, filters))

    async def alter_in_sync(
        self, leader: int, broker_epoch: int, wishes: Sequence[InSyncWish]
    ) -> list[tuple[InSyncWish, InSyncOutcome]]:
        """Change in-sync sets at their leaders' request; for each the partition as it is then, or why not."""

        def decide(image: MetadataImage) -> tuple[list[tuple[InSyncWish, InSyncOutcome]], list[Change]]:
            known = image.brokers.get(leader)
            if known is None or known.epoch != broker_epoch:
                raise KafkaError(ErrorCode.STALE_BROKER_EPOCH)
            rules, unavailable = TopicRules(self._config, image), self._unavailable(image)
            outcomes = decide_in_sync(image, leader, wishes, rules, unavailable)
            return outcomes, _granted_changes(image, outcomes)

        await self._see_all_brokers()
        outcomes = await self.change(decide)
        return [(wish, self._as_written(wish, outcome)) for wish, outcome in outcomes]

    def _unavailable(self, image: MetadataImage) -> list[int]:
        return [
            broker.id
            for broker in image.brokers.values()
            if broker.suspect or self._stopping.get(broker.id) == broker.epoch
        ]

    async def vacate(self, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
        """Let others lead before a broker stops, and wait for it no longer.

        Returns the partitions that others may still take over. Some partitions at a time, the ones that it leads
        first: the caller repeats the request for the next ones.
        """

        def decide(image: MetadataImage) -> tuple[list[TopicPartition], list[Change]]:
            known = image.brokers.get(broker_id)
            if known is None or known.epoch != broker_epoch:
                raise KafkaError(ErrorCode.STALE_BROKER_EPOCH)
            self._stopping[broker_id] = broker_epoch
            rows = list(decide_without(image, broker_id, TopicRules(self._config, image)))
            rows.sort(key=lambda row: (row[1].leader != broker_id, row[0]))
            left = [name for name, before, after in rows if after is before and may_wait(image, before, broker_id)]
            moving = [(name, after) for name, before, after in rows if after is not before]
            later = [name for name, _ in moving[VACATED_AT_ONCE:]]
            return left + later, _changes_of(image, moving[:VACATED_AT_ONCE])

        await self._see_all_brokers()
        return await self.change(decide)

    async def unregister_broker(self, broker_id: int) -> None:
        """Forget a broker that is stopped, holds nothing and will not come back."""
        paths = (directories_path(broker_id), suspect_path(broker_id), broker_config_path(str(broker_id)))
        await self._see_all_brokers()
        try:
            nodes = await self._store.get_many(paths)
        except StoreError as error:
            raise unknown_result() from error
        present = tuple(path for path, node in zip(paths, nodes, strict=True) if node is not None)

        def decide(image: MetadataImage) -> tuple[None, list[Change]]:
            check_forgettable(image, broker_id)
            if not present:
                detail = f"Broker {broker_id} is not registered."
                raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, detail)
            return None, [BrokerForgotten(broker_id, present)]

        await self.change(decide)

    async def reassign(
        self, requests: Sequence[Reassignment], may_change_factor: bool = True
    ) -> list[ReassignmentOutcome]:
        """Begin, redirect or cancel moves of partitions; for each the partition as it is then, or why not."""

        def decide(image: MetadataImage) -> tuple[list[ReassignmentOutcome], list[Change]]:
            outcomes = decide_reassignments(image, requests, may_change_factor, TopicRules(self._config, image))
            decided = [
                (request.partition, outcome)
                for request, outcome in zip(requests, outcomes, strict=True)
                if isinstance(outcome, PartitionImage)
            ]
            return outcomes, _changes_of(image, decided)

        await self._see_all_brokers()
        return await self.change(decide)

    async def elect_leaders(
        self, partitions: Sequence[TopicPartition], election: Election
    ) -> list[KafkaError | None]:
        """Elect leaders for an operator; for each None, or why its leader stays (ELECTION_NOT_NEEDED too)."""

        def decide(image: MetadataImage) -> tuple[list[KafkaError | None], list[Change]]:
            liveness, rules = Liveness.of(image), TopicRules(self._config, image)
            outcomes: list[KafkaError | None] = []
            decided: list[tuple[TopicPartition, PartitionImage]] = []
            for name in partitions:
                try:
                    decided.append((name, _elected(image, name, election, liveness, rules)))
                    outcomes.append(None)
                except KafkaError as error:
                    outcomes.append(error)
            return outcomes, _changes_of(image, decided)

        await self._see_all_brokers()
        return await self.change(decide)

    def _as_written(self, wish: InSyncWish, outcome: InSyncOutcome) -> InSyncOutcome:
        topic = self._metadata.image.topics_by_id.get(wish.topic_id)
        if isinstance(outcome, KafkaError) or topic is None:
            return outcome
        return topic.partitions[wish.partition]

    async def _see_all_brokers(self) -> None:
        """Read the brokers again: one that has just registered counts. On an error the known ones count."""
        if self._term is not None:
            with suppress(StoreError):
                await self._metadata.catch_up(BROKER_IDS)

    async def _see_all_brokers_for(self, wanted: Sequence[TopicCreation | NewPartitions]) -> list[int]:
        """The ids of all brokers that registered and were not removed, if too few are running; else none."""
        await self._see_all_brokers()
        if self._term is not None and short_of_brokers(
            self._metadata.image, wanted, self._config.integer("default.replication.factor")
        ):
            with suppress(StoreError):
                return [int(name) for name in await self._store.children(DIRECTORIES)]
        return []

    def _defaults(self, image: MetadataImage) -> TopicDefaults:
        return TopicDefaults(
            self._config.integer("num.partitions"),
            self._config.integer("default.replication.factor"),
            self._topic_configs(image),
            current_text(self._config, image.broker_configs, "headrace.topic.name.pattern"),
        )

    def _topic_configs(self, image: MetadataImage) -> dict[str, Value]:
        return topic_defaults(self._config, DynamicConfigs.of(image.broker_configs, self._broker_id))

    def _new_topic_id(self) -> TopicId:
        return TopicId(self._env.rng.bytes(16))

    # Writing

    async def change(
        self, decide: Callable[[MetadataImage], tuple[T, list[Change]]], validate_only: bool = False
    ) -> T:
        """Decide on the latest image and write; returns the outcomes once they are durable and in the image."""
        async with self._writing:
            for _ in range(MAX_ATTEMPTS):
                term = self._require_term()
                outcomes, changes = decide(self._metadata.image)
                if validate_only or not changes:
                    return outcomes
                try:
                    if await self._writer.write(term, changes):
                        return outcomes
                except Deposed as error:
                    self._resign("another broker was elected")
                    raise KafkaError(ErrorCode.NOT_CONTROLLER) from error
                except SessionLost as error:
                    raise KafkaError(ErrorCode.NOT_CONTROLLER, "This broker's session was lost.") from error
                except Unknown as error:
                    raise unknown_result() from error
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "The metadata kept changing under the request.")

    def _require_term(self) -> Term:
        if self._term is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "This broker is not the controller.")
        return self._term

    # Election

    def _on_image(self, _: MetadataImage, new: MetadataImage) -> None:
        if self._term is not None and new.controller_epoch > self._term.epoch:
            self._resign(f"broker {new.controller_id} was elected")
        if new.controller_id == NO_CONTROLLER and (self._election is None or self._election.done()):
            self._resign("it no longer holds the controller node")
            self._election = self._env.background.start("Electing a controller", self._elect())

    async def _elect(self) -> None:
        """Wait until there is a controller, on any broker."""
        while self._term is None:
            if not self.may_stand():
                await self._env.clock.sleep(ELECTION_RETRY_SECONDS)
                if self._metadata.image.controller_id != NO_CONTROLLER:
                    return
                continue
            try:
                self._term = await self._stand()
                await self._metadata.catch_up(CHANGES, CONTROLLER)
            except SessionLost:
                return
            except Unknown:
                await self._env.clock.sleep(ELECTION_RETRY_SECONDS)
                continue
            if self._term is None and self._metadata.image.controller_id != NO_CONTROLLER:
                return
        _logger.info("Broker %d is the controller, epoch %d", self._broker_id, self._term.epoch)

    async def _stand(self) -> Term | None:
        """Stand for election once; None if another broker was faster."""
        controller, epoch = await self._store.get_many([CONTROLLER, CONTROLLER_EPOCH])
        assert epoch is not None, "the store is not laid out"
        if controller is not None:
            fields = decode_json(controller)
            # The two are not read at one moment: the epoch may be that of a broker elected between.
            is_current = fields["epoch"] == int(epoch.value)
            won_unknowingly = is_current and fields["session"] == self._store.session.id
            return Term(fields["epoch"], epoch.version) if won_unknowingly else None
        number = int(epoch.value) + 1
        value = encode_json(brokerid=self._broker_id, epoch=number, session=self._store.session.id)
        take_role = Create(CONTROLLER, value, ephemeral=True)
        begin_epoch = Put(CONTROLLER_EPOCH, str(number).encode(), epoch.version)
        try:
            _, version = await self._store.multi([take_role, begin_epoch])
        except (NodeExists, BadVersion):
            return None
        return Term(number, version)

    def _resign(self, reason: str) -> None:
        if self._term is not None:
            _logger.warning("Broker %d lost the controller role: %s", self._broker_id, reason)
            self._term = None


def _granted_changes(image: MetadataImage, outcomes: Sequence[tuple[InSyncWish, InSyncOutcome]]) -> list[Change]:
    decided = [
        (TopicPartition(image.topics_by_id[wish.topic_id].name, wish.partition), outcome)
        for wish, outcome in outcomes
        if isinstance(outcome, PartitionImage)
    ]
    return _changes_of(image, decided)


def _changes_of(image: MetadataImage, decided: Sequence[tuple[TopicPartition, PartitionImage]]) -> list[Change]:
    """The changes of the partitions that are not as they were."""
    by_topic: dict[str, dict[int, PartitionImage]] = {}
    for name, after in decided:
        before = image.topics[name.topic].partitions[name.partition]
        if after is not before:
            by_topic.setdefault(name.topic, {})[name.partition] = after
            if before.target and not after.target:
                _logger.info("%s has moved to %s", name, list(after.replicas))
    return [PartitionsChanged(name, partitions) for name, partitions in by_topic.items()]


def _elected(
    image: MetadataImage, name: TopicPartition, election: Election, liveness: Liveness, rules: TopicRules
) -> PartitionImage:
    partition = image.partition(name)
    if partition is None:
        what = f"partition {name}" if name.topic in image.topics else f"topic '{name.topic}'"
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no {what}.")
    topic = image.topics[name.topic]
    own = liveness.for_partition(topic.id, name.partition)
    return decide_election(partition, election, own, partial(rules.min_in_sync, topic))


def _successes(outcomes: Sequence[TopicOutcome]) -> list[TopicImage]:
    return [outcome for outcome in outcomes if isinstance(outcome, TopicImage)]
