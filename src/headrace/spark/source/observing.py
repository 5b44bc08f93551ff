"""The requests of the readers on the driver: topics, the bounds of their partitions, sizes of records. A topic may
disappear between the request for topics and the one for offsets. Then both are repeated, so that it is reported as
missing instead of an error halfway.
"""

from __future__ import annotations

import difflib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from headrace.client.errors import ClientError
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicPartition
from headrace.records.batch import parse_header
from headrace.spark.client.cluster import EARLIEST, LATEST, BlockingCluster, FoundOffset, TopicInfo
from headrace.spark.client.connection import ClusterSettings
from headrace.spark.client.fetching import RangeUnavailable, read_chunks
from headrace.spark.errors import SourceError
from headrace.spark.source.data_loss import PartitionBounds, TopicsNow
from headrace.spark.source.options import Retries, SourceOptions
from headrace.spark.source.ranges import OffsetRange

VANISHING_ATTEMPTS = 3
SAMPLE_BYTES = 64 * 1024
SAMPLE_WAIT_MS = 500
MAX_SAMPLES_AT_ONCE = 32
SAMPLES_LAST_S = 60.0
WORTH_SAMPLING_OFFSETS = 1000

OffsetLookup = Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, FoundOffset | None]]
T = TypeVar("T")


def client_settings(options: SourceOptions, *, patient: bool = False) -> ClusterSettings:
    return ClusterSettings(
        bootstrap=options.bootstrap,
        client_id=options.client_id,
        request_timeout_s=options.request_timeout_ms / 1000,
        patient=patient,
        security=options.security,
    )


def find_topics(cluster: BlockingCluster, options: SourceOptions) -> dict[str, TopicInfo]:
    """The topics to read that exist now."""
    found = cluster.topics(options.topics.names())
    return {name: topic for name, topic in found.items() if options.topics.wants(name)}


def require_topics(cluster: BlockingCluster, options: SourceOptions, found: Mapping[str, TopicInfo]) -> None:
    """At the start of a read, a named topic that does not exist is a mistake."""
    missing = options.topics.missing({name: topic.partition_count for name, topic in found.items()})
    if not missing:
        return
    what = f"Topic {missing[0]} does" if len(missing) == 1 else f"Topics {', '.join(missing)} do"
    near = difflib.get_close_matches(missing[0], cluster.topics(), n=1, cutoff=0.6)
    hint = f" Did you mean {near[0]}?" if near and near[0] not in missing else ""
    raise SourceError(f"{what} not exist on {options.bootstrap}.{hint}")


def offset_lookup(cluster: BlockingCluster, isolation: int) -> OffsetLookup:
    """ListOffsets in the form that `positions.resolve` asks for."""
    return lambda wanted: cluster.list_offsets(wanted, isolation=isolation) if wanted else {}


def observe(cluster: BlockingCluster, options: SourceOptions) -> TopicsNow:
    """The partitions to read that exist now, with where their logs begin and end."""
    for attempt in range(1, VANISHING_ATTEMPTS + 1):
        topics = find_topics(cluster, options)
        partitions = options.topics.partitions({name: topic.partition_count for name, topic in topics.items()})
        try:
            bounds = find_bounds(cluster, partitions, int(options.isolation))
        except KafkaError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or attempt == VANISHING_ATTEMPTS:
                raise
            continue
        return TopicsNow({name: topic.topic_id for name, topic in topics.items()}, bounds)
    raise AssertionError("the last attempt returns or raises")


def find_bounds(
    cluster: BlockingCluster, partitions: list[TopicPartition], isolation: int
) -> dict[TopicPartition, PartitionBounds]:
    ask = offset_lookup(cluster, isolation)
    first = ask(dict.fromkeys(partitions, EARLIEST))
    last = ask(dict.fromkeys(partitions, LATEST))
    return {one: PartitionBounds(_offset(first[one]), _offset(last[one])) for one in partitions}


def _offset(found: FoundOffset | None) -> int:
    return 0 if found is None else found.offset


def with_retries(cluster: BlockingCluster, retries: Retries, work: Callable[[], T]) -> T:
    """A stream survives a broker that is down for a while; permanent errors are raised at once."""
    for _ in range(retries.count):
        try:
            return work()
        except (KafkaError, ClientError) as error:
            if not cluster.is_passing(error):
                raise
        time.sleep(retries.interval_ms / 1000)
    return work()


@dataclass(frozen=True, slots=True)
class _Sample:
    bytes_per_offset: float
    taken_at: float


class RecordSizes:
    """How many bytes an offset takes in each partition, as stored, from a small read now and then."""

    def __init__(self) -> None:
        self._samples: dict[TopicPartition, _Sample] = {}

    def estimate(
        self, cluster: BlockingCluster, starts: Mapping[TopicPartition, int], isolation: int
    ) -> dict[TopicPartition, float]:
        """For partitions with records from these offsets on. Those not sampled take the mean of the others."""
        now = time.monotonic()
        good = {one for one, sample in self._samples.items() if now - sample.taken_at <= SAMPLES_LAST_S}
        for partition in [one for one in starts if one not in good][:MAX_SAMPLES_AT_ONCE]:
            size = _sample(cluster, partition, starts[partition], isolation)
            if size is not None:
                self._samples[partition] = _Sample(size, now)
        known = {one: self._samples[one].bytes_per_offset for one in starts if one in self._samples}
        mean = sum(known.values()) / len(known) if known else None
        return known if mean is None else {one: known.get(one, mean) for one in starts}


def _sample(cluster: BlockingCluster, partition: TopicPartition, start: int, isolation: int) -> float | None:
    """None: nothing could be read there now. The real read will say why, if it still cannot."""
    limits = {"max_bytes": SAMPLE_BYTES, "wait_ms": SAMPLE_WAIT_MS}
    try:
        chunks = list(read_chunks(cluster, partition, start, start + 1, isolation=isolation, **limits))
    except (KafkaError, ClientError, RangeUnavailable):
        return None
    if not chunks:
        return None
    (chunk,) = chunks
    first, position, next_offset = parse_header(chunk.data, 0).base_offset, 0, 0
    while position < len(chunk.data):
        header = parse_header(chunk.data, position)
        position, next_offset = position + header.size, header.next_offset
    return len(chunk.data) / max(1, next_offset - first)


def estimate_sizes(
    sizes: RecordSizes, cluster: BlockingCluster, options: SourceOptions, ranges: Sequence[OffsetRange]
) -> dict[TopicPartition, float]:
    """For splitting by size: only of ranges large enough to be worth a question."""
    if options.splitting.target_bytes is None:
        return {}
    large = {one.partition: one.start for one in ranges if one.size >= WORTH_SAMPLING_OFFSETS}
    return sizes.estimate(cluster, large, int(options.isolation))
