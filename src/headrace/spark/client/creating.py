"""Creates the topic of a sink if it does not exist."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.client.errors import kafka_error
from headrace.model.errors import ErrorCode, KafkaError
from headrace.spark.client.cluster import BlockingCluster
from headrace.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

AS_THE_BROKER_HAS_IT = -1
TIMEOUT_MS = 30_000


@dataclass(frozen=True, slots=True)
class TopicShape:
    """How to create a topic. Sent to the tasks."""

    partitions: int = AS_THE_BROKER_HAS_IT
    replication: int = AS_THE_BROKER_HAS_IT
    config: tuple[tuple[str, str], ...] = ()


def ensure_topic(cluster: BlockingCluster, name: str, wanted: TopicShape) -> None:
    """Create the topic unless it exists; another process may create it at the same time."""
    if name in cluster.topics([name]):
        return
    topic = CreatableTopic(
        name=name,
        num_partitions=wanted.partitions,
        replication_factor=wanted.replication,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in wanted.config],
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)

    def attempt() -> None:
        with cluster.entry() as connection:
            response = connection.request(request, CreateTopicsResponse)
        for answer in response.topics:
            if answer.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                raise kafka_error(
                    answer.error_code, f"topic {name} cannot be created: {answer.error_message or ''}"
                )

    cluster.retrying(attempt)
    cluster.retrying(lambda: _check_known(cluster, name))


def _check_known(cluster: BlockingCluster, name: str) -> None:
    """The cluster responds before all of its brokers know a new topic."""
    if name not in cluster.topics([name]):
        raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {name} was created, but no broker knows it yet")
