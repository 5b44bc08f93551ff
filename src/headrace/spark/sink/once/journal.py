"""Where a sink's log is kept: a partition of one compacted topic of the cluster, which all sinks share.

A record is appended under the driver's token, at a sequence of its own: a retry is recognised, and of two records
for one sequence the first stays (the answer to the second is where the first is). Reading goes up to the high
watermark: what is acknowledged by all in-sync replicas.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from headrace.client.errors import ClientError, kafka_error
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import SINKS_TOPIC, TopicPartition
from headrace.records.batch import parse_header
from headrace.records.builder import NewRecord, ProducerStamp, build_batch
from headrace.records.reader import Record, read_records
from headrace.spark.client.cluster import EARLIEST, LATEST, READ_UNCOMMITTED, BlockingCluster
from headrace.spark.client.creating import TopicShape, ensure_topic
from headrace.spark.client.fetching import Chunk, read_chunks
from headrace.spark.client.producing import ALL_IN_SYNC, LAST_CLASSIC_VERSION
from headrace.spark.client.transactions import LOST, Identity
from headrace.spark.sink.once.decisions import LogRecord, decode, decode_key, encode_key, encode_value
from headrace.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

PARTITIONS = 16
MAX_REPLICAS = 3
SETTINGS = (
    ("cleanup.policy", "compact"),
    ("segment.bytes", str(4 * 1024 * 1024)),
    ("min.cleanable.dirty.ratio", "0.1"),
    ("unclean.leader.election.enable", "false"),
)


class Superseded(Exception):
    """Another driver has the sink: a write under this token was refused."""


class SinkRecord(NamedTuple):
    offset: int
    record: LogRecord


class Journal:
    """The log of one sink."""

    def __init__(
        self, cluster: BlockingCluster, sink_id: str, partition: TopicPartition, patience_s: float
    ) -> None:
        self.partition = partition
        self._cluster = cluster
        self.sink_id = sink_id
        self._patience_s = patience_s

    @classmethod
    def open(cls, cluster: BlockingCluster, sink_id: str, patience_s: float) -> Journal:
        """Open the log; creates the topic if necessary."""
        found = cluster.topics([SINKS_TOPIC]).get(SINKS_TOPIC)
        if found is None:
            replicas = min(MAX_REPLICAS, len(cluster.broker_ids()))
            in_sync = ("min.insync.replicas", str(max(1, replicas - 1)))
            ensure_topic(cluster, SINKS_TOPIC, TopicShape(PARTITIONS, replicas, (*SETTINGS, in_sync)))
            found = cluster.topics([SINKS_TOPIC])[SINKS_TOPIC]
        index = zlib.crc32(sink_id.encode()) % found.partition_count
        return cls(cluster, sink_id, TopicPartition(SINKS_TOPIC, index), patience_s)

    def append(self, token: Identity, sequence: int, record: LogRecord) -> int:
        """Its offset, or that of what was written in its place before. Superseded if the token is an old one."""
        now_ms = int(time.time() * 1000)
        made = NewRecord(encode_value(record), encode_key(self.sink_id, record), timestamp=now_ms)
        batch = build_batch([made], producer=ProducerStamp(*token, sequence))

        def attempt() -> int:
            try:
                return self._produce(bytes(batch))
            except ClientError:
                self._cluster.forget_leaders([self.partition])
                raise

        try:
            return self._cluster.retrying(attempt, partitions=[self.partition], within_s=self._patience_s)
        except KafkaError as error:
            if error.code in LOST:
                raise Superseded(str(error)) from error
            raise

    def _produce(self, batch: bytes) -> int:
        data = PartitionProduceData(index=self.partition.partition, records=batch)
        request = ProduceRequest(
            acks=ALL_IN_SYNC,
            timeout_ms=int(self._cluster.settings.request_timeout_s * 1000),
            topic_data=[TopicProduceData(name=self.partition.topic, partition_data=[data])],
        )
        with self._cluster.borrow(self._cluster.leader(self.partition)) as connection:
            response = connection.request(request, ProduceResponse, highest=LAST_CLASSIC_VERSION)
        answer = response.responses[0].partition_responses[0]
        if answer.error_code not in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            raise kafka_error(answer.error_code, f"the log of sink {self.sink_id} ({self.partition})")
        return answer.base_offset

    def end(self) -> int:
        return self._landmark(LATEST)

    def start(self) -> int:
        return self._landmark(EARLIEST)

    def _landmark(self, which: int) -> int:
        found = self._cluster.list_offsets({self.partition: which})[self.partition]
        assert found is not None
        return found.offset

    def read(self, start: int, end: int) -> Iterator[SinkRecord]:
        """The records of this sink from `start` up to `end`, which is not included."""
        for chunk in read_chunks(self._cluster, self.partition, start, end, isolation=READ_UNCOMMITTED):
            for record in records_of(chunk):
                key = decode_key(record.key)
                if key is None or key[1] != self.sink_id or not start <= record.offset < end:
                    continue
                known = decode(key[0], record.value)
                if known is not None:
                    yield SinkRecord(record.offset, known)


def records_of(chunk: Chunk) -> Iterator[Record]:
    position = 0
    while position < len(chunk.data):
        header = parse_header(chunk.data, position)
        yield from read_records(chunk.data[position : position + header.size])
        position += header.size
