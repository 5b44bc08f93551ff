"""What a controller does about topics: pure functions from the image and a request to outcomes, one per item.

An outcome is the topic as it will be (or was, for a deletion) or the `KafkaError` that the item gets; one item's
error does not touch the others. Rules and codes are Kafka's, but that of two names that collide ('a.b', 'a_b') in
one request the second is refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from headrace.config.naming import is_allowed
from headrace.config.settings import Value
from headrace.config.topic_config import check_topic_overrides
from headrace.metadata.cordons import open_brokers, stopped_brokers
from headrace.metadata.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from headrace.metadata.placement import Load, place
from headrace.metadata.writes import MAX_TOPIC_NODE_BYTES, listed_bytes
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.limits import MAX_PARTITIONS_PER_REQUEST, MAX_PARTITIONS_PER_TOPIC
from headrace.model.topics import INTERNAL_TOPICS, TopicId, check_topic_name, collision_key

DEFAULT = -1
"""For a number of partitions or a replication factor: what the broker is configured with."""

TopicOutcome = TopicImage | KafkaError
ReplicaAssignment = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicCreation:
    name: str
    num_partitions: int = DEFAULT
    replication_factor: int = DEFAULT
    assignments: Sequence[tuple[int, ReplicaAssignment]] = ()
    """(partition, brokers) pairs as the client sent them; with any, both numbers must be -1."""
    configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NewPartitions:
    name: str
    count: int
    """How many the topic will have."""
    assignments: Sequence[ReplicaAssignment] | None = None
    """For each of the new ones."""


@dataclass(frozen=True, slots=True)
class TopicDefaults:
    num_partitions: int
    replication_factor: int
    configs: Mapping[str, Value]
    """The settings of a topic that has none of its own, to check combinations against."""
    name_pattern: str = ""
    """What the name of a new topic must match."""


def short_of_brokers(
    image: MetadataImage, requests: Iterable[TopicCreation | NewPartitions], default_factor: int
) -> bool:
    """Whether there is something for brokers that are stopped: more replicas than others, or their very names."""
    live = open_brokers(image)
    for request in requests:
        if isinstance(request, NewPartitions):
            topic = image.topics.get(request.name)
            factor = len(topic.partitions[0].replicas) if topic is not None else 0
            named = [broker_id for replicas in request.assignments or () for broker_id in replicas]
        else:
            factor = default_factor if request.replication_factor == DEFAULT else request.replication_factor
            named = [broker_id for _, replicas in request.assignments for broker_id in replicas]
        if factor > len(live) or any(broker_id not in live for broker_id in named):
            return True
    return False


def decide_create_topics(
    image: MetadataImage,
    requests: Sequence[TopicCreation],
    defaults: TopicDefaults,
    new_id: Callable[[], TopicId],
    stopped: Collection[int] = (),
) -> list[TopicOutcome]:
    """`stopped` are brokers that were not running, for replicas that the others cannot take; some may be back."""
    wanted = sum(len(request.assignments) or max(request.num_partitions, 0) for request in requests)
    if wanted > MAX_PARTITIONS_PER_REQUEST:
        return [_too_many(wanted) for _ in requests]
    counts = Counter(request.name for request in requests)
    creation = _Creation(image, defaults, new_id, stopped_brokers(image, stopped))
    outcomes: list[TopicOutcome] = []
    for request in requests:
        try:
            _check_once(request.name, counts)
            outcomes.append(creation.decide(request))
        except KafkaError as error:
            outcomes.append(error)
    return outcomes


def decide_delete_topics(image: MetadataImage, topics: Sequence[str | TopicId]) -> list[TopicOutcome]:
    """By name or by id; a topic named twice, also once by each, is deleted for neither."""
    counts = Counter(found.name for found in (_find(image, topic) for topic in topics) if found)
    outcomes: list[TopicOutcome] = []
    for topic in topics:
        found = _find(image, topic)
        if found is not None and counts[found.name] > 1:
            outcomes.append(KafkaError(ErrorCode.INVALID_REQUEST, "The request names this topic more than once."))
        elif found is not None:
            outcomes.append(found)
        elif isinstance(topic, str):
            outcomes.append(_no_topic())
        else:
            outcomes.append(KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "There is no topic with this id."))
    return outcomes


def decide_create_partitions(
    image: MetadataImage, requests: Sequence[NewPartitions], stopped: Collection[int] = ()
) -> list[TopicOutcome]:
    counts = Counter(request.name for request in requests)
    cluster, stopped = _cluster_load(image), stopped_brokers(image, stopped)
    outcomes: list[TopicOutcome] = []
    for request in requests:
        try:
            _check_once(request.name, counts)
            outcomes.append(_grown(image, request, cluster, stopped))
        except KafkaError as error:
            outcomes.append(error)
    return outcomes


class _Creation:
    """One request's topics: each sees the load and the names of those before it."""

    def __init__(
        self,
        image: MetadataImage,
        defaults: TopicDefaults,
        new_id: Callable[[], TopicId],
        stopped: Collection[int],
    ) -> None:
        self._image = image
        self._stopped = stopped
        self._defaults = defaults
        self._new_id = new_id
        self._load = _cluster_load(image)
        self._taken: dict[str, str] | None = None

    def decide(self, request: TopicCreation) -> TopicImage:
        check_topic_name(request.name)
        self._check_policy(request.name)
        if request.name in self._image.topics:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"There is already a topic '{request.name}'.")
        self._check_collision(request.name)
        configs = _checked_configs(request.configs, self._defaults.configs)
        partitions = tuple(_new_partition(self._image, replicas) for replicas in self._replicas(request))
        topic = _checked_size(TopicImage(request.name, self._new_id(), partitions, configs))
        self._remember(request.name)
        return topic

    def _check_policy(self, name: str) -> None:
        pattern = self._defaults.name_pattern
        if name not in INTERNAL_TOPICS and not is_allowed(pattern, name):
            detail = f"The topic name '{name}' does not match headrace.topic.name.pattern={pattern}"
            raise KafkaError(ErrorCode.POLICY_VIOLATION, detail)

    def _check_collision(self, name: str) -> None:
        other = self._collisions().get(collision_key(name)) if _may_collide(name) else None
        if other is not None:
            detail = f"'{name}' differs from the topic '{other}' only in '.' and '_'."
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, detail)

    def _remember(self, name: str) -> None:
        if _may_collide(name):
            self._collisions()[collision_key(name)] = name

    def _collisions(self) -> dict[str, str]:
        if self._taken is None:
            self._taken = {collision_key(name): name for name in self._image.topics if _may_collide(name)}
        return self._taken

    def _replicas(self, request: TopicCreation) -> list[ReplicaAssignment]:
        if request.assignments:
            return _manual_replicas(open_brokers(self._image), self._stopped, request)
        if request.replication_factor < DEFAULT or request.replication_factor == 0:
            detail = "The replication factor must be at least 1, or -1 for the broker's default."
            raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, detail)
        if request.num_partitions < DEFAULT or request.num_partitions == 0:
            detail = "The number of partitions must be at least 1, or -1 for the broker's default."
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, detail)
        count = self._defaults.num_partitions if request.num_partitions == DEFAULT else request.num_partitions
        factor = request.replication_factor
        factor = self._defaults.replication_factor if factor == DEFAULT else factor
        return place(open_brokers(self._image), count, factor, Load(), self._load, self._stopped)


def _manual_replicas(
    brokers: Mapping[int, BrokerImage], stopped: Collection[int], request: TopicCreation
) -> list[ReplicaAssignment]:
    if (request.num_partitions, request.replication_factor) != (DEFAULT, DEFAULT):
        detail = "With assignments of replicas, the numbers of partitions and replicas must both be -1."
        raise KafkaError(ErrorCode.INVALID_REQUEST, detail)
    by_partition: dict[int, ReplicaAssignment] = {}
    for partition, replicas in request.assignments:
        if partition in by_partition:
            raise _bad_assignment(f"Partition {partition} is assigned more than once.")
        by_partition[partition] = replicas
    if sorted(by_partition) != list(range(len(by_partition))):
        raise _bad_assignment("The assigned partitions must be 0, 1, 2 and so on, without a gap.")
    ordered = [by_partition[partition] for partition in range(len(by_partition))]
    _check_assignments(brokers, stopped, ordered, len(ordered[0]))
    return ordered


def _check_assignments(
    brokers: Mapping[int, BrokerImage],
    stopped: Collection[int],
    assignments: Sequence[ReplicaAssignment],
    replication_factor: int,
) -> None:
    for replicas in assignments:
        if not replicas:
            raise _bad_assignment("A partition is assigned to no broker.")
        unknown = [broker_id for broker_id in replicas if broker_id not in brokers and broker_id not in stopped]
        if unknown:
            detail = f"Broker {unknown[0]} is in an assignment, and is not registered, or is cordoned."
            raise _bad_assignment(detail)
        if not any(broker_id in brokers for broker_id in replicas):
            raise _bad_assignment(f"All brokers of an assignment are stopped: {list(replicas)}.")
        if len(set(replicas)) < len(replicas):
            raise _bad_assignment(f"An assignment names a broker twice: {list(replicas)}.")
        if len(replicas) != replication_factor:
            detail = f"An assignment has {len(replicas)} replicas where others have {replication_factor}."
            raise _bad_assignment(detail)


def _grown(image: MetadataImage, request: NewPartitions, cluster: Load, stopped: Collection[int]) -> TopicImage:
    topic = image.topics.get(request.name)
    if topic is None:
        raise _no_topic()
    present = len(topic.partitions)
    added = request.count - present
    _check_growth(request, present)
    factor = len(topic.partitions[0].target or topic.partitions[0].replicas)
    if request.assignments is None:
        replicas = place(open_brokers(image), added, factor, Load.of(topic.partitions), cluster, stopped)
    elif len(request.assignments) != added:
        raise _bad_assignment(f"{added} partitions to add, but {len(request.assignments)} assignments.")
    else:
        replicas = list(request.assignments)
        _check_assignments(open_brokers(image), stopped, replicas, factor)
    new = (_new_partition(image, assignment) for assignment in replicas)
    return _checked_size(replace(topic, partitions=(*topic.partitions, *new)))


def _checked_size(topic: TopicImage) -> TopicImage:
    """The topic, unless its node would be larger than the store takes."""
    size = sum(map(listed_bytes, topic.partitions))
    if size > MAX_TOPIC_NODE_BYTES:
        detail = f"{len(topic.partitions)} partitions with so many replicas do not fit in the coordination store."
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, detail)
    return topic


def _check_growth(request: NewPartitions, present: int) -> None:
    if request.count <= present:
        detail = f"Topic '{request.name}' has {present} partitions already; {request.count} is not an increase."
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, detail)
    if request.count > MAX_PARTITIONS_PER_TOPIC:
        detail = f"A topic can have {MAX_PARTITIONS_PER_TOPIC} partitions at most."
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, detail)
    if request.count - present > MAX_PARTITIONS_PER_REQUEST:
        raise _too_many(request.count - present)


def _new_partition(image: MetadataImage, replicas: ReplicaAssignment) -> PartitionImage:
    """All replicas of a new partition are alike, so those that live are in sync and the first of them leads."""
    live = tuple(replica for replica in replicas if replica in image.brokers)
    assert live, "at least one replica is placed on a broker that runs"
    incarnation = image.brokers[live[0]].epoch
    return PartitionImage(replicas, leader=live[0], leader_epoch=0, isr=live, leader_incarnation=incarnation)


def _checked_configs(configs: Mapping[str, str | None], defaults: Mapping[str, Value]) -> dict[str, str]:
    nulls = [name for name, text in configs.items() if text is None]
    if nulls:
        detail = f"A topic's setting cannot be null: {', '.join(nulls)}"
        raise KafkaError(ErrorCode.INVALID_CONFIG, detail)
    overrides = {name: text for name, text in configs.items() if text is not None}
    check_topic_overrides(overrides, defaults)
    return overrides


def _cluster_load(image: MetadataImage) -> Load:
    if len(image.brokers) <= 1:
        return Load()  # There is no choice to make, at least of who leads.
    return Load.of(partition for topic in image.topics.values() for partition in topic.partitions)


def _find(image: MetadataImage, topic: str | TopicId) -> TopicImage | None:
    return image.topics.get(topic) if isinstance(topic, str) else image.topics_by_id.get(topic)


def _may_collide(name: str) -> bool:
    return "." in name or "_" in name


def _check_once(name: str, counts: Counter[str]) -> None:
    if counts[name] > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The request names this topic more than once.")


def _no_topic() -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "There is no topic with this name.")


def _bad_assignment(detail: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, detail)


def _too_many(wanted: int) -> KafkaError:
    detail = f"One request may add {MAX_PARTITIONS_PER_REQUEST} partitions at most, not {wanted}."
    return KafkaError(ErrorCode.POLICY_VIOLATION, detail)
