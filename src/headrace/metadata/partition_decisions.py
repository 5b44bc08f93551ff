"""Who leads and who is in sync: pure functions from the image to changed partitions (R-REP-2, R-REP-3).

- A leader is elected from the in-sync replicas that live, in the order of the assignment. It gets a new leader
  epoch even if it is the same broker as before: one that was away must not continue in its old epoch.
- If none of them lives, those that are eligible because nothing was committed since they left (`eligible`) are in
  sync in their place, as far as they live.
- Who is gone leaves the in-sync set, but the last member never does: nobody else is known to have every committed
  record. While it is away nobody leads, unless unclean election is allowed for the topic; then the first replica
  that lives leads with what it has.
- A broker that may have lost records (another boot without a clean stop, a replaced disk) leaves every set that
  has another member, before it can be elected.
- A leader's wish for another in-sync set is granted if it still leads in that epoch, if it knows the partition's
  latest state (partition epoch), and if all whom it names are alive as it knows them (broker epoch).
- A move (`reassignments`) ends in the write by which its whole target is in sync: the others leave, and another
  leads if the leader is one of them. Who leaves `replicas` ends the leader epoch: a leader that missed this and
  sees the broker come back must not believe that it has what it had.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import partial
from typing import Protocol

from headrace.metadata.cordons import open_brokers
from headrace.metadata.eligible import MinInSync, one_is_enough, with_eligible, without_suspects
from headrace.metadata.image import NO_LEADER, MetadataImage, PartitionImage, TopicImage
from headrace.metadata.placement import Load, add_replicas
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicId, TopicPartition

UNKNOWN_EPOCH = -1


@dataclass(frozen=True, slots=True)
class Liveness:
    """The state of the brokers on which a controller decides."""

    epochs: Mapping[int, int]
    """The live brokers, with the epochs of their registrations."""
    suspects: frozenset[int] = frozenset()
    """The live brokers that may have lost records of any partition."""
    offline: Mapping[tuple[TopicId, int], frozenset[int]] = field(default_factory=dict)
    """Partitions that some live brokers cannot serve, because a data directory failed."""
    lacking: Mapping[tuple[TopicId, int], frozenset[int]] = field(default_factory=dict)
    """Partitions of which some other live brokers may have lost records."""

    @staticmethod
    def of(image: MetadataImage) -> Liveness:
        brokers = image.brokers.values()
        return Liveness(
            {broker.id: broker.epoch for broker in brokers},
            frozenset(broker.id for broker in brokers if broker.suspect and not broker.lacking),
            _by_partition((broker.id, broker.offline) for broker in brokers),
            _by_partition((broker.id, broker.lacking) for broker in brokers if broker.suspect),
        )

    def without(self, broker_id: int) -> Liveness:
        """The state after a broker has gone."""
        return replace(self, epochs={id: epoch for id, epoch in self.epochs.items() if id != broker_id})

    def for_partition(self, topic_id: TopicId, index: int) -> Liveness:
        """The state for one partition."""
        if not self.offline and not self.lacking:
            return self
        gone, lacking = self.offline.get((topic_id, index)), self.lacking.get((topic_id, index))
        if gone is None and lacking is None:
            return self
        epochs = {id: epoch for id, epoch in self.epochs.items() if gone is None or id not in gone}
        return Liveness(epochs, self.suspects | (lacking or frozenset()))


def _by_partition(
    brokers: Iterable[tuple[int, Iterable[tuple[TopicId, int]]]],
) -> dict[tuple[TopicId, int], frozenset[int]]:
    found: dict[tuple[TopicId, int], frozenset[int]] = {}
    for broker_id, partitions in brokers:
        for partition in partitions:
            found[partition] = found.get(partition, frozenset()) | {broker_id}
    return found


class Rules(Protocol):
    """The settings of topics that matter here."""

    def allows_unclean(self, topic: TopicImage) -> bool: ...

    def min_in_sync(self, topic: TopicImage, partition: PartitionImage) -> int: ...


def decide_leaders(
    image: MetadataImage, liveness: Liveness, rules: Rules
) -> Iterator[tuple[TopicImage, dict[int, PartitionImage]]]:
    """The partitions that must change, by topic."""
    for topic in image.topics.values():
        changed: dict[int, PartitionImage] = {}
        allows_unclean, min_in_sync = partial(rules.allows_unclean, topic), partial(rules.min_in_sync, topic)
        for index, partition in enumerate(topic.partitions):
            own = liveness.for_partition(topic.id, index)
            decided = decide_leader(partition, own, allows_unclean, min_in_sync)
            if decided is not partition:
                changed[index] = decided
        if changed:
            yield topic, changed


def decide_leader(
    partition: PartitionImage, liveness: Liveness, allows_unclean: Callable[[], bool], min_in_sync: MinInSync
) -> PartitionImage:
    """The partition as it must be now; itself if nothing has to change."""
    after = end_move(_elect(without_suspects(partition, liveness.suspects), liveness, allows_unclean), liveness)
    return with_eligible(partition, after, min_in_sync, liveness.suspects)


def _elect(partition: PartitionImage, liveness: Liveness, allows_unclean: Callable[[], bool]) -> PartitionImage:
    live = liveness.epochs
    isr = tuple(replica for replica in partition.isr if replica in live) or partition.isr
    if partition.leader in isr and _still_leads(partition, liveness):
        return partition if isr == partition.isr else replace(partition, isr=isr)
    candidates = [replica for replica in partition.replicas if replica in isr and replica in live]
    if not candidates:
        candidates = [replica for replica in partition.replicas if replica in partition.elr and replica in live]
        isr = tuple(candidates) or isr
    if not candidates and allows_unclean():
        candidates = [replica for replica in partition.replicas if replica in live][:1]
        isr = tuple(candidates) or isr
    if candidates:
        return led_by(partition, candidates[0], isr, live[candidates[0]])
    if partition.leader == NO_LEADER:
        return partition if isr == partition.isr else replace(partition, isr=isr)
    return led_by(partition, NO_LEADER, isr, UNKNOWN_EPOCH)


def _still_leads(partition: PartitionImage, liveness: Liveness) -> bool:
    leader = partition.leader
    if liveness.epochs.get(leader) == partition.leader_incarnation:
        return True
    # A replica that is the only one and kept its log has no other to disagree with.
    return leader in liveness.epochs and partition.replicas == (leader,) and leader not in liveness.suspects


def led_by(partition: PartitionImage, leader: int, isr: tuple[int, ...], incarnation: int) -> PartitionImage:
    """The partition with a new leader, in a new epoch."""
    epoch = partition.leader_epoch + 1
    return replace(partition, leader=leader, leader_epoch=epoch, isr=isr, leader_incarnation=incarnation)


def decide_without(
    image: MetadataImage, broker_id: int, rules: Rules
) -> Iterator[tuple[TopicPartition, PartitionImage, PartitionImage]]:
    """The partitions that a broker that is about to stop leads or is in sync for, before and after it has left.

    It stays where nobody else is in sync: those partitions are the same before and after.
    """
    without = Liveness.of(image).without(broker_id)
    for topic in image.topics.values():
        for index, partition in enumerate(topic.partitions):
            if broker_id in partition.isr:
                after = decide_partition_without(topic, index, without, broker_id, rules)
                yield TopicPartition(topic.name, index), partition, after


def decide_partition_without(
    topic: TopicImage, index: int, without: Liveness, broker_id: int, rules: Rules
) -> PartitionImage:
    """Like `decide_without`, for one partition; `without` is the liveness of the others."""
    partition = topic.partitions[index]
    own = without.for_partition(topic.id, index)
    after = decide_leader(partition, own, lambda: False, partial(rules.min_in_sync, topic))
    stays = after.leader == NO_LEADER or broker_id in after.isr
    return partition if stays else after


def may_wait(image: MetadataImage, partition: PartitionImage, broker_id: int) -> bool:
    """Whether a leader that is about to stop can hope for another replica that lives to get in sync."""
    return partition.leader == broker_id and any(
        replica != broker_id and replica in image.brokers for replica in partition.replicas
    )


def check_forgettable(image: MetadataImage, broker_id: int) -> None:
    """INVALID_REQUEST for a broker that runs, or that partitions still name: it may have the only copy."""
    if broker_id in image.brokers:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker {broker_id} is running: stop it first.")
    held = sum(
        broker_id in partition.replicas for topic in image.topics.values() for partition in topic.partitions
    )
    if held:
        detail = f"Broker {broker_id} has replicas of {held} partitions: move them to other brokers first."
        raise KafkaError(ErrorCode.INVALID_REQUEST, detail)


def end_move(partition: PartitionImage, liveness: Liveness) -> PartitionImage:
    """The partition on its target alone, if it moves and the whole target is alive and in sync; else unchanged."""
    target, live = partition.target, liveness.epochs
    if not target:
        return partition
    is_there = set(target) <= (set(partition.isr) & live.keys()) - liveness.suspects
    if (partition.adding or partition.removing) and not is_there:
        return partition
    isr = tuple(replica for replica in target if replica in partition.isr)
    if not partition.removing:
        return replace(partition, replicas=target, isr=isr, target=(), original=())
    leader = partition.leader if partition.leader in target else target[0]
    return replace(
        partition,
        replicas=target,
        leader=leader,
        leader_epoch=partition.leader_epoch + 1,
        leader_incarnation=live[leader],
        isr=isr,
        target=(),
        original=(),
    )


def decide_more_replicas(image: MetadataImage, wanted: Mapping[str, int]) -> list[TopicImage]:
    """Topics with fewer replicas than wanted, with more where brokers joined since they were created (D14).

    For the cluster's own topics: they are created by the first broker that needs them.
    """
    grown: list[TopicImage] = []
    brokers = open_brokers(image)
    for name, factor in wanted.items():
        topic = image.topics.get(name)
        reachable = min(factor, len(brokers))
        if topic is None or all(len(partition.replicas) >= reachable for partition in topic.partitions):
            continue
        load = Load.of(topic.partitions)
        cluster = Load.of(partition for other in image.topics.values() for partition in other.partitions)
        partitions = []
        for partition in topic.partitions:
            lacking = 0 if partition.target else max(reachable - len(partition.replicas), 0)
            replicas = add_replicas(brokers, partition.replicas, lacking, load, cluster)
            partitions.append(
                partition if replicas == partition.replicas else replace(partition, replicas=replicas)
            )
        if partitions != list(topic.partitions):
            grown.append(replace(topic, partitions=tuple(partitions)))
    return grown


class Election(IntEnum):
    """The kinds of election, numbered as on the wire (ElectLeaders)."""

    PREFERRED = 0
    UNCLEAN = 1


def decide_election(
    partition: PartitionImage, election: Election, liveness: Liveness, min_in_sync: MinInSync = one_is_enough
) -> PartitionImage:
    """The partition with the leader that an operator wants; a KafkaError says why not (KIP-183, KIP-460)."""
    if election is Election.PREFERRED:
        return with_eligible(partition, _preferred(partition, liveness), min_in_sync)
    if partition.leader != NO_LEADER:
        raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED, "The partition has a leader.")
    elected = decide_leader(partition, liveness, lambda: True, min_in_sync)
    if elected.leader == NO_LEADER:
        raise KafkaError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "No replica of the partition is alive.")
    return elected


def _preferred(partition: PartitionImage, liveness: Liveness) -> PartitionImage:
    preferred = partition.replicas[0]
    if partition.leader == preferred:
        raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED, "The preferred replica leads the partition.")
    if preferred not in partition.isr or preferred not in liveness.epochs or preferred in liveness.suspects:
        detail = f"The preferred leader, broker {preferred}, is not alive and in sync."
        raise KafkaError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, detail)
    return led_by(partition, preferred, partition.isr, liveness.epochs[preferred])


@dataclass(frozen=True, slots=True)
class InSyncWish:
    """A leader's request for another in-sync set of a partition."""

    topic_id: TopicId
    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: Sequence[tuple[int, int]]
    """Pairs of a broker and its epoch as the leader knows it, or -1."""


InSyncOutcome = PartitionImage | KafkaError


def decide_in_sync(
    image: MetadataImage,
    leader: int,
    wishes: Iterable[InSyncWish],
    rules: Rules,
    unavailable: Collection[int] = (),
) -> list[tuple[InSyncWish, InSyncOutcome]]:
    """For each wish the partition as it will be, or why not. `unavailable` are live brokers that may not join."""
    outcomes: list[tuple[InSyncWish, InSyncOutcome]] = []
    for wish in wishes:
        try:
            outcomes.append((wish, _granted(image, leader, wish, rules, unavailable)))
        except KafkaError as error:
            outcomes.append((wish, error))
    return outcomes


def _granted(
    image: MetadataImage, leader: int, wish: InSyncWish, rules: Rules, unavailable: Collection[int]
) -> PartitionImage:
    topic = image.topics_by_id.get(wish.topic_id)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    if not 0 <= wish.partition < len(topic.partitions):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    partition = topic.partitions[wish.partition]
    if wish.leader_epoch > partition.leader_epoch or wish.partition_epoch > partition.partition_epoch:
        raise KafkaError(ErrorCode.NOT_CONTROLLER, "The leader knows a newer state than this controller.")
    if wish.leader_epoch < partition.leader_epoch or partition.leader != leader:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
    isr = tuple(broker for broker, _ in wish.isr)
    if isr == partition.isr and wish.partition_epoch == partition.partition_epoch - 1:
        return partition  # It was granted before, and the response was lost.
    if wish.partition_epoch != partition.partition_epoch:
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION)
    if leader not in isr or len(set(isr)) < len(isr) or not set(isr) <= set(partition.replicas):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{list(isr)} is not an in-sync set of this partition.")
    for broker, epoch in wish.isr:
        known = image.brokers.get(broker)
        joins = broker not in partition.isr
        if (
            known is None
            or (epoch != UNKNOWN_EPOCH and epoch != known.epoch)
            or (joins and (broker in unavailable or (topic.id, wish.partition) in known.offline))
        ):
            raise KafkaError(ErrorCode.INELIGIBLE_REPLICA, f"Broker {broker} is not eligible.")
    ordered = tuple(replica for replica in partition.replicas if replica in isr)
    granted = replace(partition, isr=ordered)
    if partition.target:
        granted = end_move(granted, Liveness.of(image).for_partition(topic.id, wish.partition))
    after = with_eligible(partition, granted, partial(rules.min_in_sync, topic), at_leaders_wish=True)
    if after is partition and (leader, UNKNOWN_EPOCH) in wish.isr:
        # The set as it is: another wish is withdrawn, and must not be granted late. A new object is written.
        return replace(partition)
    return after
