"""Moving partitions to other brokers (KIP-455, R-REP-4): pure decisions, one outcome per partition.

A move keeps every copy until all of the target has one:

    begin     replicas = target + those of the original that will go; the new ones copy from the leader
    progress  the leader asks new replicas into the in-sync set as they catch up, as it does with any follower
    end       the whole target is in sync: the others leave, in the same write (`partition_decisions.end_move`)
    cancel    a move to where the partition was: the new copies leave at once

Another target while a move runs replaces the first: what is needed for neither leaves at once. A move that would
drop the only in-sync replicas that live is refused, since the others may lack committed records; while none of
them lives, none is dropped, for one that returns may have lost its log. All of it is in the partition's state in
the store, so a new controller continues where the old one stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from headrace.metadata.cordons import open_brokers
from headrace.metadata.eligible import MinInSync, one_is_enough
from headrace.metadata.image import NO_LEADER, MetadataImage, PartitionImage
from headrace.metadata.partition_decisions import Liveness, Rules, decide_leader, led_by
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicPartition


@dataclass(frozen=True, slots=True)
class Reassignment:
    partition: TopicPartition
    replicas: tuple[int, ...] | None
    """None cancels the move that is under way."""


ReassignmentOutcome = PartitionImage | KafkaError


def decide_reassignments(
    image: MetadataImage,
    requests: Sequence[Reassignment],
    may_change_factor: bool = True,
    rules: Rules | None = None,
) -> list[ReassignmentOutcome]:
    """For each the partition as it will be, which may be as it was, or why not."""
    liveness = Liveness.of(image)
    outcomes: list[ReassignmentOutcome] = []
    for request in requests:
        try:
            outcomes.append(_decide(image, request, liveness, may_change_factor, rules))
        except KafkaError as error:
            outcomes.append(error)
    return outcomes


def _decide(
    image: MetadataImage, request: Reassignment, liveness: Liveness, may_change_factor: bool, rules: Rules | None
) -> PartitionImage:
    name = request.partition
    partition = image.partition(name)
    if partition is None:
        what = f"partition {name}" if name.topic in image.topics else f"topic '{name.topic}'"
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no {what}.")
    topic = image.topics[name.topic]
    own = liveness.for_partition(topic.id, name.partition)
    min_in_sync = partial(rules.min_in_sync, topic) if rules is not None else one_is_enough
    if request.replicas is None:
        if not partition.target:
            raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        return move_to(partition, partition.original, own, min_in_sync)
    _check(image, partition, request.replicas)
    factor = len(partition.original or partition.replicas)
    if not may_change_factor and len(request.replicas) != factor:
        detail = f"The replication factor is {factor} and may not become {len(request.replicas)}."
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, detail)
    return move_to(partition, request.replicas, own, min_in_sync)


def _check(image: MetadataImage, partition: PartitionImage, replicas: tuple[int, ...]) -> None:
    if not replicas:
        raise _bad("A partition is assigned to no broker.")
    usable = open_brokers(image)
    for broker_id in replicas:
        if broker_id not in usable and broker_id not in partition.replicas:
            why = "is cordoned" if broker_id in image.brokers else "is not registered"
            raise _bad(f"Broker {broker_id} is in the assignment, and {why}.")
    if len(set(replicas)) < len(replicas):
        raise _bad(f"The assignment names a broker twice: {list(replicas)}.")


def move_to(
    partition: PartitionImage,
    target: tuple[int, ...],
    liveness: Liveness,
    min_in_sync: MinInSync = one_is_enough,
) -> PartitionImage:
    """The partition on its way to the target, or there already; itself if that changes nothing."""
    original = partition.original or partition.replicas
    if target == (partition.target or partition.replicas):
        return partition
    replicas = (*target, *(replica for replica in original if replica not in target))
    isr = tuple(replica for replica in replicas if replica in partition.isr)
    if any(_alive(partition.isr, liveness)) and not any(_alive(isr, liveness)):
        raise _bad(f"The replicas {list(partition.isr)} alone are in sync: records would be lost without them.")
    if not isr:
        raise _bad("None of the replicas that stay is in sync.")
    if len(isr) < len(partition.isr) and not any(_alive(isr, liveness)):
        raise _bad(
            f"None of the in-sync replicas {list(partition.isr)} is alive, and each may be the only one whose "
            "disk is whole: none is dropped before another is back."
        )
    leader = partition.leader if partition.leader in replicas else NO_LEADER
    moved = replace(partition, replicas=replicas, isr=isr, leader=leader, target=target, original=original)
    if leader != NO_LEADER and not set(partition.replicas) <= set(replicas):
        moved = led_by(moved, leader, isr, partition.leader_incarnation)
    return decide_leader(moved, liveness, lambda: False, min_in_sync)


def _alive(replicas: tuple[int, ...], liveness: Liveness) -> list[bool]:
    return [replica in liveness.epochs for replica in replicas]


def _bad(detail: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, detail)
