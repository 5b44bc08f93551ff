"""AlterReplicaLogDirs (34), v1-2. Moves logs between the data directories of this broker (KIP-113).

The answer says that a move has begun, or why not; DescribeLogDirs shows how far it is.
"""

from __future__ import annotations

import os.path

from headrace.handlers.context import Context, cluster_alter
from headrace.handlers.describe_log_dirs import configured_path
from headrace.handlers.registry import api
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicPartition
from headrace.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


@api(AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse, versions=range(1, 3), authorize=cluster_alter)
async def alter_replica_log_dirs(ctx: Context, request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    """Moves partitions to other data directories of the broker."""
    topics: dict[str, AlterReplicaLogDirTopicResult] = {}
    for wanted in request.dirs:
        for topic in wanted.topics:
            result = topics.setdefault(topic.name, AlterReplicaLogDirTopicResult(topic_name=topic.name))
            async for index in ctx.each(topic.partitions):
                code = _start(ctx, wanted.path, TopicPartition(topic.name, index))
                result.partitions.append(AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code))
    return AlterReplicaLogDirsResponse(results=list(topics.values()))


def _start(ctx: Context, path: str, name: TopicPartition) -> ErrorCode:
    broker = ctx.broker
    target = next((held for held in broker.directories if configured_path(held) == os.path.abspath(path)), None)
    if target is None:
        return ErrorCode.LOG_DIR_NOT_FOUND
    if broker.directories.is_cordoned(target):
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT
    partition = broker.replicas.by_name.get(name.topic.encode(), {}).get(name.partition)
    try:
        if partition is None:
            raise broker.replicas.why_not_leader(name.topic.encode(), name.partition, by_id=False)
        broker.log_moves.start(partition, target)
    except KafkaError as error:
        not_here = error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.REPLICA_NOT_AVAILABLE if not_here else error.code
    return ErrorCode.NONE
