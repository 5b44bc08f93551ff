"""Brokers that speak just enough of the protocol for a client, and do to it what a test asks for.

They keep record batches per partition and check an idempotent producer's sequences as a broker must: the last five
batches are recognised, anything else out of order is refused.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from headrace.client.address import Address
from headrace.model.errors import ErrorCode
from headrace.model.topics import TopicPartition
from headrace.records.batch import HEADER, BatchHeader, checked_header, parse_header
from headrace.records.builder import NewRecord, build_batch
from headrace.records.reader import read_records
from headrace.wire.api_keys import ApiKey
from headrace.wire.header import parse_request_header, response_header
from headrace.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from headrace.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from headrace.wire.messages.init_producer_id import InitProducerIdResponse
from headrace.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from headrace.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from headrace.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from headrace.wire.schema import Response

VERSIONS = {
    ApiKey.PRODUCE: (3, 13),
    ApiKey.FETCH: (4, 18),
    ApiKey.LIST_OFFSETS: (1, 10),
    ApiKey.METADATA: (0, 13),
    ApiKey.API_VERSIONS: (0, 4),
    ApiKey.INIT_PRODUCER_ID: (0, 6),
}
REMEMBERED_BATCHES = 5
PRODUCER_ID = 4000

Interference = Callable[[int, int], "ErrorCode | str | None"]
"""(broker id, API key) -> an error to answer with, 'drop' before or 'lose' after the work, 'silence', or None."""


class FakeLog:
    """One partition."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.max_bytes = 1 << 30
        self.cut_answers_at = 1 << 30
        self.visible_end: int | None = None

    @property
    def end(self) -> int:
        return parse_header(self.batches[-1]).next_offset if self.batches else 0

    def fill(self, count: int, per_batch: int = 10) -> None:
        for first in range(self.end, self.end + count, per_batch):
            records = [NewRecord(b"%d" % (first + index), timestamp=1) for index in range(per_batch)]
            self.batches.append(bytes(build_batch(records, base_offset=first)))

    def values(self) -> list[bytes | None]:
        return [record.value for batch in self.batches for record in read_records(batch)]

    def append(self, batch: bytes) -> ErrorCode:
        if len(batch) > self.max_bytes:
            return ErrorCode.MESSAGE_TOO_LARGE
        header = checked_header(batch)
        problem = self._sequence_problem(header)
        if problem is None:
            placed = header._replace(base_offset=self.end)
            self.batches.append(HEADER.pack(*placed) + batch[HEADER.size :])
        return problem or ErrorCode.NONE

    def _sequence_problem(self, header: BatchHeader) -> ErrorCode | None:
        if header.producer_id < 0:
            return None
        known = [parse_header(batch) for batch in self.batches]
        mine = [one for one in known if one.producer_id == header.producer_id]
        if header.base_sequence in [one.base_sequence for one in mine[-REMEMBERED_BATCHES:]]:
            return ErrorCode.DUPLICATE_SEQUENCE_NUMBER
        expected = mine[-1].base_sequence + mine[-1].record_count if mine else 0
        return None if header.base_sequence == expected else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def read(self, offset: int, max_bytes: int) -> bytes:
        wanted = [batch for batch in self.batches if parse_header(batch).last_offset >= offset]
        out = b""
        for batch in wanted:
            if self.visible_end is not None and parse_header(batch).base_offset >= self.visible_end:
                break
            if out and len(out) + len(batch) > max_bytes:
                out += batch[: max_bytes - len(out)]  # cut off, as brokers do
                break
            out += batch
        return out[: self.cut_answers_at]


class FakeCluster:
    def __init__(self, brokers: int = 1) -> None:
        self.listeners = {number: socket.create_server(("127.0.0.1", 0)) for number in range(1, brokers + 1)}
        self.leaders: dict[TopicPartition, int] = {}
        self.logs: dict[TopicPartition, FakeLog] = {}
        self.interfere: Interference = lambda broker, key: None
        self.requests: list[tuple[int, int]] = []
        self.versions = dict(VERSIONS)
        self._sockets: list[socket.socket] = []

    def __enter__(self) -> Self:
        for number, listener in self.listeners.items():
            threading.Thread(target=self._accept, args=(number, listener), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for one in (*self.listeners.values(), *self._sockets):
            one.close()

    @property
    def bootstrap(self) -> str:
        return ",".join(str(self.address(number)) for number in self.listeners)

    def address(self, number: int) -> Address:
        return Address("127.0.0.1", self.listeners[number].getsockname()[1])

    def create(self, topic: str, partitions: int = 1) -> None:
        for index in range(partitions):
            place = TopicPartition(topic, index)
            self.leaders[place] = 1 + index % len(self.listeners)
            self.logs[place] = FakeLog()

    def count(self, key: int) -> int:
        return sum(1 for _, asked in self.requests if asked == key)

    def _accept(self, number: int, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                self._sockets.append(client)
                threading.Thread(target=self._serve, args=(number, client), daemon=True).start()

    def _serve(self, number: int, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client, client.makefile("rb") as stream:
            while True:
                size = stream.read(4)
                if len(size) < 4:
                    return
                if not self._answer(number, client, stream.read(*struct.unpack(">i", size))):
                    client.shutdown(socket.SHUT_RDWR)
                    return

    def _answer(self, number: int, client: socket.socket, frame: bytes) -> bool:
        """Whether the conversation goes on."""
        header = parse_request_header(frame)
        key, version = header.api_key, header.api_version
        self.requests.append((number, key))
        what = self.interfere(number, key) if key != ApiKey.API_VERSIONS else None
        if what == "drop":
            return False
        if what == "silence":
            while client.recv(1 << 20):  # from now on
                self.requests.append((number, key))
            return False
        error = what if isinstance(what, ErrorCode) else ErrorCode.NONE
        response = self._respond(number, key, version, frame[header.body :], error)
        if what in ("lose", "mute"):
            return what == "mute"
        body = response_header(key, version, header.correlation_id) + response.encode(version)
        client.sendall(struct.pack(">i", len(body)) + body)
        return True

    def _respond(self, number: int, key: int, version: int, body: bytes, error: ErrorCode) -> Response:
        if key == ApiKey.API_VERSIONS:
            keys = [
                ApiVersion(api_key=one, min_version=low, max_version=high)
                for one, (low, high) in self.versions.items()
            ]
            return ApiVersionsResponse(api_keys=keys)
        if key == ApiKey.METADATA:
            return self._metadata(MetadataRequest.decode(body, version))
        if key == ApiKey.INIT_PRODUCER_ID:
            return InitProducerIdResponse(producer_id=PRODUCER_ID, producer_epoch=0, error_code=error)
        if key == ApiKey.LIST_OFFSETS:
            return self._list_offsets(number, ListOffsetsRequest.decode(body, version), error)
        if key == ApiKey.FETCH:
            return self._fetch(number, FetchRequest.decode(body, version), error)
        assert key == ApiKey.PRODUCE
        return self._produce(number, ProduceRequest.decode(body, version), error)

    def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        names = sorted({place.topic for place in self.logs})
        if request.topics is not None:
            names = [topic.name for topic in request.topics if topic.name is not None]
        brokers = [
            MetadataResponseBroker(node_id=number, host="127.0.0.1", port=self.address(number).port)
            for number in self.listeners
        ]
        return MetadataResponse(brokers=brokers, topics=[self._topic(name) for name in names])

    def _topic(self, name: str) -> MetadataResponseTopic:
        partitions = [
            MetadataResponsePartition(partition_index=place.partition, leader_id=leader)
            for place, leader in self.leaders.items()
            if place.topic == name
        ]
        code = ErrorCode.NONE if partitions else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return MetadataResponseTopic(name=name, error_code=code, partitions=partitions)

    def _error(self, number: int, place: TopicPartition, error: ErrorCode) -> ErrorCode:
        if error or place not in self.logs:
            return error or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE if self.leaders[place] == number else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _list_offsets(self, number: int, request: ListOffsetsRequest, error: ErrorCode) -> ListOffsetsResponse:
        topics = []
        for topic in request.topics:
            answers = []
            for asked in topic.partitions:
                place = TopicPartition(topic.name, asked.partition_index)
                code = self._error(number, place, error)
                offset = -1 if code else {-1: self.logs[place].end, -2: 0}.get(asked.timestamp, -1)
                answers.append(
                    ListOffsetsPartitionResponse(
                        partition_index=asked.partition_index, error_code=code, offset=offset
                    )
                )
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
        return ListOffsetsResponse(topics=topics)

    def _fetch(self, number: int, request: FetchRequest, error: ErrorCode) -> FetchResponse:
        ((topic, asked),) = [(topic.topic, one) for topic in request.topics for one in topic.partitions]
        place = TopicPartition(topic, asked.partition)
        code = self._error(number, place, error)
        log = self.logs.get(place, FakeLog())
        end = log.end if log.visible_end is None else log.visible_end
        if not code and asked.fetch_offset > end:
            code = ErrorCode.OFFSET_OUT_OF_RANGE
        records = b"" if code else log.read(asked.fetch_offset, asked.partition_max_bytes)
        answer = PartitionData(
            partition_index=asked.partition,
            error_code=code,
            high_watermark=end,
            last_stable_offset=end,
            log_start_offset=0,
            records=records,
        )
        return FetchResponse(responses=[FetchableTopicResponse(topic=topic, partitions=[answer])])

    def _produce(self, number: int, request: ProduceRequest, error: ErrorCode) -> ProduceResponse:
        topics = []
        for topic in request.topic_data:
            answers = []
            for data in topic.partition_data:
                place = TopicPartition(topic.name, data.index)
                code = self._error(number, place, error)
                if not code:
                    assert data.records is not None
                    code = self.logs[place].append(data.records)
                answers.append(PartitionProduceResponse(index=data.index, error_code=code, base_offset=0))
            topics.append(TopicProduceResponse(name=topic.name, partition_responses=answers))
        return ProduceResponse(responses=topics)
