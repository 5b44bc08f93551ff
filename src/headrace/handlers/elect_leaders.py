"""ElectLeaders (43), v0-2. Has partitions led by their preferred replica, or by any that lives (KIP-183, KIP-460).

v1 the kind of election: preferred or unclean. A partition that is led as asked for gets ELECTION_NOT_NEEDED. That
is every partition of a single broker; where a leader would have to change, nobody can take over yet. Null asks
for all partitions: those that need no election are left out then.
"""

from __future__ import annotations

from enum import IntEnum

from headrace.handlers.context import Context, cluster_alter
from headrace.handlers.registry import api
from headrace.metadata.image import NO_LEADER, MetadataImage, PartitionImage
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicPartition
from headrace.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)

ELECTION_TYPE_SINCE = 1


class Election(IntEnum):
    PREFERRED = 0
    UNCLEAN = 1


@api(ElectLeadersRequest, ElectLeadersResponse, versions=range(3), authorize=cluster_alter)
def elect_leaders(ctx: Context, request: ElectLeadersRequest) -> ElectLeadersResponse:
    """Elects leaders of partitions anew."""
    image = ctx.broker.metadata.image
    asked = request.topic_partitions
    wanted = _every_partition(image) if asked is None else asked
    results = [
        ReplicaElectionResult(
            topic=topic.topic,
            partition_result=[
                PartitionResult(partition_id=index, error_code=error.code, error_message=error.message)
                for index in topic.partitions
                if (error := _elect(image, TopicPartition(topic.topic, index), request.election_type)).code
                is not ErrorCode.ELECTION_NOT_NEEDED
                or asked is not None
            ],
        )
        for topic in wanted
    ]
    response = ElectLeadersResponse(replica_election_results=results)
    if ctx.version >= ELECTION_TYPE_SINCE and request.election_type not in set(Election):
        response.error_code = ErrorCode.INVALID_REQUEST
    return response


def _every_partition(image: MetadataImage) -> list[TopicPartitions]:
    return [
        TopicPartitions(topic=topic.name, partitions=list(range(len(topic.partitions))))
        for topic in image.topics.values()
    ]


def _elect(image: MetadataImage, name: TopicPartition, election: int) -> KafkaError:
    partition = image.partition(name)
    if election not in set(Election):
        return KafkaError(ErrorCode.INVALID_REQUEST, f"There is no election of type {election}.")
    if name.topic not in image.topics:
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic '{name.topic}'.")
    if partition is None:
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {name}.")
    return _outcome(partition, Election(election))


def _outcome(partition: PartitionImage, election: Election) -> KafkaError:
    preferred = partition.replicas[0]
    led = partition.leader == preferred if election is Election.PREFERRED else partition.leader != NO_LEADER
    if led:
        return KafkaError(ErrorCode.ELECTION_NOT_NEEDED, "The partition has the leader that was asked for.")
    if election is Election.PREFERRED:
        detail = f"The preferred leader, broker {preferred}, cannot take over."
        return KafkaError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, detail)
    return KafkaError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "No replica of the partition can take over.")
