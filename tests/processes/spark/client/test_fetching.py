"""Partitions read from a real broker."""

from __future__ import annotations

import pytest

from headrace.model.errors import KafkaError
from headrace.model.topics import TopicPartition
from headrace.records.reader import read_records
from headrace.spark.client.cluster import BlockingCluster, ClusterSettings
from headrace.spark.client.fetching import RangeUnavailable, read_chunks
from tests.spark.topics import Topics
from tests.unit.spark.client.test_fetching import batches, offsets


def test_a_whole_partition(bootstrap: str) -> None:
    topics = Topics(bootstrap)
    name = topics.create()
    values = [b"%06d" % number * 20 for number in range(3000)]
    for first in range(0, 3000, 300):
        topics.send(name, values[first : first + 300], partition=0)
    cluster = BlockingCluster(ClusterSettings(bootstrap))
    place = TopicPartition(name, 0)
    chunks = list(read_chunks(cluster, place, 0, 3000, isolation=1, max_bytes=50_000))
    assert len(chunks) > 2
    assert offsets(chunks) == list(range(3000))
    found = [record.value for chunk in chunks for batch in batches(chunk.data) for record in read_records(batch)]
    assert found == values
    assert chunks[0].start == 0
    assert chunks[0].high_watermark == chunks[0].last_stable == 3000
    assert chunks[0].log_start == 0
    part = offsets(read_chunks(cluster, place, 1500, 1510, isolation=0))
    assert part[0] <= 1500
    assert set(part) >= set(range(1500, 1510))
    assert list(read_chunks(cluster, place, 10, 10, isolation=0)) == []
    cluster.close()


def test_beyond_the_log(bootstrap: str) -> None:
    topics = Topics(bootstrap)
    name = topics.create()
    topics.send(name, [b"a", b"b"], partition=0)
    cluster = BlockingCluster(ClusterSettings(bootstrap))
    place = TopicPartition(name, 0)
    reading = read_chunks(cluster, place, 0, 5, isolation=1, wait_ms=100)
    assert offsets([next(reading)]) == [0, 1]
    with pytest.raises(RangeUnavailable, match="up to offset 5, but it ends at offset 2 now") as caught:
        next(reading)
    assert (caught.value.partition, caught.value.offset, caught.value.high_watermark) == (place, 2, 2)
    with pytest.raises(KafkaError, match=f"OFFSET_OUT_OF_RANGE: partition {name}-0 at offset 9"):
        list(read_chunks(cluster, place, 9, 12, isolation=0))
    with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        list(read_chunks(cluster, TopicPartition("no-such-topic", 0), 0, 1, isolation=0))
    cluster.close()
