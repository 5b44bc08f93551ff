"""DescribeLogDirs (35): the data directories of a broker and what the partitions in them weigh.

v2 flexible; v3 an error for the whole answer; v4 total and usable bytes of the volume (KIP-827); v5 whether a
directory is cordoned, takes no new partitions (KIP-1066).
"""

from __future__ import annotations

from headrace.wire.primitives import BOOL, INT16, INT32, INT64, STRING
from headrace.wire.schema import Request, Response, Struct, array, field


class DescribableLogDirTopic(Struct):
    topic: str = field(STRING)
    partitions: list[int] = field(array(INT32))


class DescribeLogDirsRequest(Request, key=35, versions=range(1, 6), flexible=2):
    topics: list[DescribableLogDirTopic] | None = field(array(DescribableLogDirTopic), nullable=0)


class DescribeLogDirsPartition(Struct):
    partition_index: int = field(INT32)
    partition_size: int = field(INT64)
    offset_lag: int = field(INT64)
    is_future_key: bool = field(BOOL)


class DescribeLogDirsTopic(Struct):
    name: str = field(STRING)
    partitions: list[DescribeLogDirsPartition] = field(array(DescribeLogDirsPartition))


class DescribeLogDirsResult(Struct):
    error_code: int = field(INT16)
    log_dir: str = field(STRING)
    topics: list[DescribeLogDirsTopic] = field(array(DescribeLogDirsTopic))
    total_bytes: int = field(INT64, since=4, default=-1)
    usable_bytes: int = field(INT64, since=4, default=-1)
    is_cordoned: bool = field(BOOL, since=5)


class DescribeLogDirsResponse(Response, key=35, versions=range(1, 6), flexible=2):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16, since=3)
    results: list[DescribeLogDirsResult] = field(array(DescribeLogDirsResult))
