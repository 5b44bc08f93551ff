"""Writes finished record batches: stamped with a producer's sequence, sent without waiting, acknowledged in order.

Batches of a partition form a *lane*. A request carries at most one batch of each lane that the same broker leads;
up to `max_in_flight` requests are under way to a broker, so a lane has no more batches under way than that: it is
what a broker remembers of an idempotent producer.

When a batch is refused for a passing reason, or its connection is lost, its lane stops until nothing of it is
under way, then begins again with its first batch that was not acknowledged. The broker recognises by the sequence
what it already has: nothing is duplicated, lost or reordered (KIP-98). Without idempotence only one request is
under way, so order holds, but a lost answer may mean a second copy.

Batches may belong to a transaction: each partition joins it before its first batch is sent.

A batch that a topic finds too large is cut in two and sent again; one record that is too large is an error.
"""

from __future__ import annotations

import struct
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

from headrace.client.errors import ClientError, RequestTimedOut, kafka_error
from headrace.client.protocol import Ticket
from headrace.model.backoff import backoff_seconds
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicPartition
from headrace.records.batch import TRANSACTIONAL, parse_header
from headrace.records.builder import NewRecord, ProducerStamp, build_batch, seal
from headrace.records.reader import read_records
from headrace.spark.client.cluster import BACKOFF_S, MAX_BACKOFF_S, MISSING_TOPIC_GRACE_S, BlockingCluster
from headrace.spark.client.connection import BlockingConnection, readable
from headrace.spark.client.transactions import InTransaction, TransactionClient
from headrace.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

ALL_IN_SYNC = -1
MAX_IN_FLIGHT = 5
"""The number of requests that a broker can put in order again, and of duplicates that it recognises."""
DELIVERY_TIMEOUT_S = 120.0
MAX_REQUEST_BYTES = 1024 * 1024
"""The same as in Kafka's producer. A broker receives larger ones into memory that it gets page by page."""
MAX_BUFFERED_BYTES = 16 * 1024 * 1024
MOST_BUFFERS = 20
"""Large batches whose memory is reused: as many of the usual size as may be buffered."""
LAST_VERSION_BY_NAME = 12
"""The last version of Produce that names topics by name, not by id."""
LAST_CLASSIC_VERSION = 11
"""The last version before brokers add partitions to a transaction, and ends take new epochs (KIP-890)."""
SEQUENCES = 1 << 31
WritableBuffer = bytearray | memoryview

_PRODUCER = struct.Struct(">qhi")
_PRODUCER_AT = 43
"""The position of producer id, epoch and base sequence in a batch's header."""
_FLAGS_AT = 22
"""The position of the low byte of a batch's attributes."""
_TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})


@dataclass(slots=True, eq=False)
class _Batch:
    data: WritableBuffer
    record_count: int
    sequence: int
    deadline: float


class _Lane:
    """The batches for one partition, in order; the first `under_way` of `batches` are sent and not yet
    acknowledged.
    """

    __slots__ = (
        "attempts", "batches", "leader", "next_sequence", "partition", "refusal", "retry_at", "stopped",
        "troubled_since", "under_way",
    )  # fmt: skip

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.batches: deque[_Batch] = deque()
        self.under_way = 0
        self.leader = -1
        """The broker that got the batches in flight: the next ones go there too, or they could overtake."""
        self.next_sequence = 0
        self.stopped = False
        """Whether it waits until the batches in flight are answered."""
        self.refusal: KafkaError | None = None
        """The error of its first batch, out of order: final unless a batch in flight behind it is accepted."""
        self.attempts = 0
        self.troubled_since = 0.0
        """When the first of these attempts failed."""
        self.retry_at = 0.0

    def can_send(self, now: float) -> bool:
        return self.under_way < len(self.batches) and not self.stopped and self.retry_at <= now

    def add(self, data: WritableBuffer, record_count: int, deadline: float) -> None:
        self.batches.append(_Batch(data, record_count, self.next_sequence, deadline))
        self.next_sequence = (self.next_sequence + record_count) % SEQUENCES

    def stop(self) -> None:
        """Start over as soon as nothing is in flight."""
        self.stopped = self.under_way > 0

    def pause(self, now: float) -> None:
        """Start over after a time that grows with each failed attempt."""
        if not self.stopped:
            self.retry_at = now + backoff_seconds(BACKOFF_S, MAX_BACKOFF_S, self.attempts)
            self.troubled_since = self.troubled_since if self.attempts else now
            self.attempts += 1
        self.stop()

    def remove(self, batch: _Batch) -> None:
        """Remove a batch that is written."""
        self.batches.remove(batch)
        self.refusal = None
        self.attempts = 0
        self.stopped = self.stopped and self.under_way > 0


@dataclass(slots=True)
class _Sent:
    ticket: Ticket
    batches: list[tuple[_Lane, _Batch]]
    deadline: float


class _Link:
    """A connection to one broker, and its requests in flight."""

    def __init__(self, connection: BlockingConnection) -> None:
        self.connection = connection
        self.sent: deque[_Sent] = deque()

    @property
    def buffered(self) -> bool:
        return self.connection.buffered

    def fileno(self) -> int:
        return self.connection.fileno()


class BatchProducer:
    """The producer of one task: `send` batches, `flush` before reporting them as written, `close` at the end."""

    def __init__(
        self,
        cluster: BlockingCluster,
        *,
        acks: int = ALL_IN_SYNC,
        idempotent: bool = True,
        max_in_flight: int = MAX_IN_FLIGHT,
        delivery_timeout_s: float = DELIVERY_TIMEOUT_S,
        max_request_bytes: int = MAX_REQUEST_BYTES,
        max_buffered_bytes: int | None = None,
    ) -> None:
        assert not idempotent or (acks == ALL_IN_SYNC and max_in_flight <= MAX_IN_FLIGHT)
        self._cluster = cluster
        self._acks = acks
        self._max_in_flight = max_in_flight if idempotent else 1
        self._delivery_timeout_s = delivery_timeout_s
        self._max_request_bytes = max_request_bytes
        enough = max(MAX_BUFFERED_BYTES, MAX_IN_FLIGHT * max_request_bytes)
        self._max_buffered_bytes = max_buffered_bytes or enough
        self._idempotent = idempotent
        self._stamp: ProducerStamp | None = None
        """The producer id and epoch, from the first batch on, if it is idempotent."""
        self._transaction: InTransaction | None = None
        self._joined: _Joined | None = None
        self._highest = LAST_VERSION_BY_NAME
        self._lanes: dict[TopicPartition, _Lane] = {}
        self._active: dict[TopicPartition, _Lane] = {}
        """Lanes with batches that are not acknowledged."""
        self._links: dict[int, _Link] = {}
        self._buffered_bytes = 0
        self._accepted_bytes: dict[str, int] = {}

    def begin(self, transaction: InTransaction) -> None:
        """Put all batches into this transaction; call it before the first."""
        assert self._idempotent
        assert self._stamp is None, "before the first batch"
        self._transaction = transaction
        self._joined = _Joined(self._cluster, transaction, self._delivery_timeout_s)
        self._stamp = ProducerStamp(*transaction.identity, 0)
        self._highest = LAST_CLASSIC_VERSION

    def send(self, partition: TopicPartition, batch: WritableBuffer, record_count: int) -> None:
        """Queue a batch; waits only if too much is in flight."""
        lane = self._lanes.get(partition)
        if lane is None:
            if self._joined is not None:
                self._joined.add([partition])
            lane = self._lanes[partition] = _Lane(partition)
        lane.add(batch, record_count, time.monotonic() + self._delivery_timeout_s)
        self._stamp_batch(lane.batches[-1])
        self._active[partition] = lane
        self._buffered_bytes += len(batch)
        self._advance(wait=False)
        while self._buffered_bytes > self._max_buffered_bytes:
            self._advance(wait=True)

    def announce(self, partitions: Iterable[TopicPartition]) -> None:
        """Add the partitions of the next batches to the transaction, if there is one, with a single request."""
        if self._joined is not None:
            self._joined.add(partitions)

    def flush(self) -> None:
        """Wait until everything is acknowledged; raises the error of a batch that cannot be written."""
        while self._active:
            self._advance(wait=True)
        if self._acks == 0:
            for link in self._links.values():
                link.connection.flush()

    def close(self) -> None:
        """Return the connections. Batches that were not flushed may or may not be written."""
        for link in self._links.values():
            self._cluster.give_back(link.connection)
        self._links.clear()

    def accepted_bytes(self, topic: str) -> int | None:
        """The size of batches that a topic is known to accept, once it has refused a larger one."""
        return self._accepted_bytes.get(topic)

    # --- one step: send what can be sent, take what has come

    def _advance(self, *, wait: bool) -> None:
        self._dispatch()
        waiting = [link for link in self._links.values() if link.sent]
        for link in readable(waiting, self._pause_s(waiting) if wait else 0.0):
            self._take_answer(link)
        now = time.monotonic()
        for link in waiting:
            if link.sent and link.sent[0].deadline < now and not link.connection.closed:
                self._lose(link, self._silence(link))

    def _pause_s(self, waiting: Iterable[_Link]) -> float:
        """The time until the next event: a request that times out, a lane that continues."""
        now = time.monotonic()
        moments = [link.sent[0].deadline for link in waiting]
        moments += [lane.retry_at for lane in self._active.values() if lane.retry_at > now]
        return max(0.0, min(moments, default=now) - now)

    def _dispatch(self) -> None:
        while True:
            now = time.monotonic()
            ready = [lane for lane in self._active.values() if lane.can_send(now)]
            sent = [self._send_request(link, lanes) for link, lanes in self._by_link(ready)]
            if not any(sent):
                return

    def _by_link(self, ready: list[_Lane]) -> list[tuple[_Link, list[_Lane]]]:
        """Lanes with the link they go to, as far as it has room."""
        groups: dict[int, list[_Lane]] = {}
        for lane in ready:
            try:
                if not lane.under_way:
                    lane.leader = self._cluster.leader(lane.partition)
                groups.setdefault(lane.leader, []).append(lane)
            except (KafkaError, ClientError) as error:
                self._fail(lane, error)
        found = []
        for leader, lanes in groups.items():
            try:
                link = self._link(leader)
            except (KafkaError, ClientError) as error:
                for lane in lanes:
                    self._fail(lane, error)
                continue
            if len(link.sent) < self._max_in_flight:
                found.append((link, lanes))
        return found

    def _link(self, leader: int) -> _Link:
        link = self._links.get(leader)
        if link is None or link.connection.closed:
            link = self._links[leader] = _Link(self._cluster.take(leader))
        return link

    def _send_request(self, link: _Link, lanes: list[_Lane]) -> bool:
        """Send one request with a batch of each lane, up to a size; returns whether it was sent."""
        chosen: list[tuple[_Lane, _Batch]] = []
        size = 0
        for lane in lanes:
            batch = lane.batches[lane.under_way]
            if chosen and size + len(batch.data) > self._max_request_bytes:
                break
            chosen.append((lane, batch))
            size += len(batch.data)
        request = self._request(chosen)
        try:
            if self._acks == 0:
                link.connection.post(request, highest=self._highest)
                for lane, batch in chosen:
                    self._finish(lane, batch)
                return True
            ticket = link.connection.send(request, highest=self._highest)
        except ClientError as error:
            self._lose(link, error)
            for lane, _ in chosen:
                self._fail(lane, error)
            return False
        for lane, _ in chosen:
            lane.under_way += 1
        link.sent.append(_Sent(ticket, chosen, time.monotonic() + self._cluster.settings.request_timeout_s))
        return True

    def _request(self, chosen: list[tuple[_Lane, _Batch]]) -> ProduceRequest:
        topics: dict[str, list[PartitionProduceData]] = {}
        for lane, batch in chosen:
            records = cast("bytes", batch.data)  # any buffer type works: it is only sent
            data = PartitionProduceData(index=lane.partition.partition, records=records)
            topics.setdefault(lane.partition.topic, []).append(data)
        return ProduceRequest(
            transactional_id=None if self._transaction is None else self._transaction.transactional_id,
            acks=self._acks,
            timeout_ms=int(self._cluster.settings.request_timeout_s * 1000),
            topic_data=[TopicProduceData(name=name, partition_data=data) for name, data in topics.items()],
        )

    def _stamp_batch(self, batch: _Batch) -> None:
        if self._idempotent:
            if self._stamp is None:
                self._stamp = self._cluster.producer_id()
            _PRODUCER.pack_into(batch.data, _PRODUCER_AT, self._stamp.id, self._stamp.epoch, batch.sequence)
            if self._transaction is not None:
                batch.data[_FLAGS_AT] |= TRANSACTIONAL
        seal(batch.data)

    # --- answers

    def _take_answer(self, link: _Link) -> None:
        sent = link.sent[0]
        try:
            response = link.connection.receive(sent.ticket, ProduceResponse)
        except ClientError as error:
            self._lose(link, error)
            return
        link.sent.popleft()
        answers = {
            TopicPartition(topic.name, answer.index): answer
            for topic in response.responses
            for answer in topic.partition_responses
        }
        for lane, batch in sent.batches:
            lane.under_way -= 1
            self._judge(lane, batch, answers[lane.partition])
            if lane.refusal is not None and not lane.under_way:
                raise lane.refusal

    def _judge(self, lane: _Lane, batch: _Batch, answer: PartitionProduceResponse) -> None:
        code = answer.error_code
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            # A broker accepts sequences only in order, so everything before an accepted batch was written,
            # whatever its response was.
            while lane.batches[0] is not batch:
                self._finish(lane, lane.batches[0])
            self._finish(lane, batch)
        elif code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            if batch is lane.batches[0]:
                # After a kill, Apache Kafka remembers only the last batch of the producer among those that are
                # repeated.
                lane.refusal = kafka_error(code, self._refusal(lane, batch, answer))
            lane.stop()  # the others were refused only because of the batch before them
        elif code in _TOO_LARGE and batch.record_count > 1:
            self._cut(lane, batch)
        else:
            self._fail(lane, kafka_error(code, self._refusal(lane, batch, answer)))

    def _finish(self, lane: _Lane, batch: _Batch) -> None:
        lane.remove(batch)
        self._buffered_bytes -= len(batch.data)
        if not lane.batches:
            self._active.pop(lane.partition, None)

    def _fail(self, lane: _Lane, error: KafkaError | ClientError) -> None:
        """Stop the lane and retry later; raises the error if a retry is pointless."""
        now = time.monotonic()
        if isinstance(error, KafkaError) and error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            passing = not lane.attempts or now - lane.troubled_since < MISSING_TOPIC_GRACE_S
        else:
            passing = self._cluster.is_passing(error)
        if not passing:
            raise error
        if now > lane.batches[0].deadline:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"records for partition {lane.partition} were not acknowledged in {self._delivery_timeout_s:g} s; "
                f"the last error was: {error}",
            ) from error
        self._cluster.forget_leaders([lane.partition])
        lane.pause(now)

    def _lose(self, link: _Link, error: ClientError) -> None:
        """Batches in flight may have been written or not: the lanes send them again."""
        link.connection.close()
        lost, link.sent = link.sent, deque()
        for sent in lost:
            for lane, _ in sent.batches:
                lane.under_way -= 1
                lane.refusal = None
        for lane in {id(lane): lane for sent in lost for lane, _ in sent.batches}.values():
            self._fail(lane, error)

    def _silence(self, link: _Link) -> RequestTimedOut:
        return RequestTimedOut(link.connection.address, "Produce", self._cluster.settings.request_timeout_s)

    def _refusal(self, lane: _Lane, batch: _Batch, answer: PartitionProduceResponse) -> str:
        if answer.error_code in _TOO_LARGE:
            return (
                f"a record for partition {lane.partition} makes a batch of {len(batch.data)} bytes, more than the "
                "topic accepts: raise its max.message.bytes, or write smaller records"
            )
        said = f": {answer.error_message}" if answer.error_message else ""
        return f"records for partition {lane.partition} were refused{said}"

    def _cut(self, lane: _Lane, batch: _Batch) -> None:
        """Replace a batch that is too large by two with the same sequences."""
        topic = lane.partition.topic
        self._accepted_bytes[topic] = min(self._accepted_bytes.get(topic, len(batch.data)), len(batch.data) // 2)
        halves = [
            _Batch(data, count, (batch.sequence + first) % SEQUENCES, batch.deadline)
            for first, count, data in cut_batch(batch.data)
        ]
        for half in halves:
            self._stamp_batch(half)
        position = lane.batches.index(batch)
        del lane.batches[position]
        for half in reversed(halves):
            lane.batches.insert(position, half)
        self._buffered_bytes += sum(len(half.data) for half in halves) - len(batch.data)
        lane.stop()


class _Joined:
    """The partitions that are in the transaction."""

    def __init__(self, cluster: BlockingCluster, transaction: InTransaction, patience_s: float) -> None:
        self._client = TransactionClient(cluster, patience_s)
        self._transaction = transaction
        self._partitions: set[TopicPartition] = set()

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        new = [partition for partition in partitions if partition not in self._partitions]
        if new:
            self._client.add_partitions(self._transaction, new)
            self._partitions.update(new)


def cut_batch(batch: WritableBuffer) -> list[tuple[int, int, bytearray]]:
    """The two halves of a batch, each as (index of its first record, count, batch)."""
    header = parse_header(batch)
    records = [
        NewRecord(record.value, record.key, record.timestamp, record.headers) for record in read_records(batch)
    ]
    middle = len(records) // 2
    return [
        (first, len(part), build_batch(part, codec=header.codec))
        for first, part in ((0, records[:middle]), (middle, records[middle:]))
    ]
