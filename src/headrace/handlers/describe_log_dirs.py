"""DescribeLogDirs (35), v1-5. The data directories of this broker and what the partitions in them weigh.

v3 an error for the whole answer, which we never need; v4 total and usable bytes of the volume (KIP-827); v5
whether a directory is cordoned (KIP-1066). Null asks for every partition. A directory
that failed, or cannot be read, is reported as KAFKA_STORAGE_ERROR. A log on its way into a directory
(AlterReplicaLogDirs) is shown there as a future one, with what it lacks.
"""

from __future__ import annotations

import os.path

from headrace.handlers.context import Context, cluster_describe
from headrace.handlers.registry import api
from headrace.model.errors import ErrorCode
from headrace.model.topics import TopicPartition
from headrace.replication.partition import Partition
from headrace.services.log_moves import Move
from headrace.storage.log_directory import LogDirectory
from headrace.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


@api(DescribeLogDirsRequest, DescribeLogDirsResponse, versions=range(1, 6), authorize=cluster_describe)
async def describe_log_dirs(ctx: Context, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    """Returns how full the data directories are, and what is in them."""
    wanted = None
    if request.topics is not None:
        wanted = {
            TopicPartition(topic.topic, index)
            async for topic in ctx.each(request.topics)
            async for index in ctx.each(topic.partitions)
        }
    partitions = [
        partition
        async for partition in ctx.each(list(ctx.broker.replicas.all()))
        if wanted is None or partition.topic_partition in wanted
    ]
    return DescribeLogDirsResponse(
        results=[
            await _describe(ctx, directory, [p for p in partitions if p.topic_partition in directory.logs], wanted)
            for directory in ctx.broker.directories
        ]
    )


def configured_path(directory: LogDirectory) -> str:
    """The name in log.dirs, which holds one directory for each broker of the machine."""
    return os.path.abspath(os.path.dirname(directory.path))


def _future(index: int, move: Move) -> DescribeLogDirsPartition:
    assert move.future is not None
    return DescribeLogDirsPartition(
        partition_index=index, partition_size=move.future.size, offset_lag=move.lag, is_future_key=True
    )


async def _describe(
    ctx: Context, directory: LogDirectory, partitions: list[Partition], wanted: set[TopicPartition] | None
) -> DescribeLogDirsResult:
    disk = ctx.broker.env.disk
    path = configured_path(directory)
    if directory.failure is not None:
        return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=path)
    try:
        total, usable = disk.total_bytes(path), disk.free_bytes(path)
    except OSError:
        return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=path)
    topics: dict[str, DescribeLogDirsTopic] = {}
    async for partition in ctx.each(partitions):
        name, index = partition.topic_partition
        topic = topics.setdefault(name, DescribeLogDirsTopic(name=name))
        lag = partition.lag
        topic.partitions.append(
            DescribeLogDirsPartition(partition_index=index, partition_size=partition.size, offset_lag=lag)
        )
    for move in ctx.broker.log_moves.into(directory):
        name, index = move.partition.topic_partition
        if wanted is None or move.partition.topic_partition in wanted:
            topic = topics.setdefault(name, DescribeLogDirsTopic(name=name))
            topic.partitions.append(_future(index, move))
    return DescribeLogDirsResult(
        log_dir=path,
        topics=list(topics.values()),
        total_bytes=total,
        usable_bytes=usable,
        is_cordoned=ctx.broker.directories.is_cordoned(directory),
    )
