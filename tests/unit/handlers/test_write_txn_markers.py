"""WriteTxnMarkers: who may end a transaction, in which partitions, and when the answer comes."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.groups.messages import CommitOffsets, OffsetToCommit
from headrace.model.errors import ErrorCode
from headrace.model.topics import TopicPartition
from headrace.records.builder import ProducerStamp
from headrace.services.groups.hashing import partition_of
from headrace.services.groups.shard import TransactionalCommit
from headrace.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from headrace.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.unit.handlers.test_read_committed import Writer

PRODUCER = 7


def marker(*topics: tuple[str, list[int]], **fields: Any) -> WriteTxnMarkersRequest:
    values: dict[str, Any] = {"producer_id": PRODUCER, "transaction_result": True, **fields}
    listed = [WritableTxnMarkerTopic(name=name, partition_indexes=indexes) for name, indexes in topics]
    return WriteTxnMarkersRequest(markers=[WritableTxnMarker(topics=listed, **values)])


async def codes(bench: Any, request: WriteTxnMarkersRequest, version: int = 2) -> list[list[ErrorCode]]:
    response = await bench.call(request, version)
    (answer,) = response.markers
    assert answer.producer_id == PRODUCER
    return [[ErrorCode(one.error_code) for one in topic.partitions] for topic in answer.topics]


@pytest.fixture
async def writer(bench: Any) -> Writer:
    await bench.create_topic("t", 2)
    return Writer(bench)


@pytest.mark.parametrize("version", [1, 2])
async def test_a_transaction_ends(bench: Any, writer: Writer, version: int) -> None:
    writer.write(PRODUCER, "a")
    assert writer.partition.last_stable_offset == 0
    assert await codes(bench, marker(("t", [0, 1])), version) == [[ErrorCode.NONE, ErrorCode.NONE]]
    assert (writer.partition.last_stable_offset, writer.partition.end_offset) == (2, 2)
    assert bench.partition("t", 1).end_offset == 1, "a partition without a record of it takes a marker too"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({}, ErrorCode.NONE),
        ({"producer_epoch": 1, "transaction_version": 2}, ErrorCode.NONE),
        ({"producer_epoch": 0, "transaction_version": 2}, ErrorCode.INVALID_PRODUCER_EPOCH),
        ({"producer_epoch": -1}, ErrorCode.INVALID_PRODUCER_EPOCH),
        ({"coordinator_epoch": 3}, ErrorCode.NONE),
    ],
    ids=str,
)
async def test_epochs(bench: Any, writer: Writer, fields: dict[str, int], code: ErrorCode) -> None:
    writer.write(PRODUCER, "a")
    assert await codes(bench, marker(("t", [0]), **fields)) == [[code]]


@pytest.mark.parametrize(("producer", "epoch"), [(-1, 0), (-1, -1), (PRODUCER, -1)])
async def test_a_marker_of_no_producer_is_not_written(
    bench: Any, writer: Writer, producer: int, epoch: int
) -> None:
    request = marker(("t", [0, 9]), producer_id=producer, producer_epoch=epoch)
    (answer,) = (await bench.call(request, 2)).markers
    told = [one.error_code for topic in answer.topics for one in topic.partitions]
    assert told == [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION], "as in Kafka 4.3.1"
    assert writer.partition.end_offset == 0


async def test_a_coordinator_of_the_past_is_fenced(bench: Any, writer: Writer) -> None:
    writer.write(PRODUCER, "a")
    await codes(bench, marker(("t", [0]), coordinator_epoch=5))
    writer.write(PRODUCER, "b")
    refused = await codes(bench, marker(("t", [0]), coordinator_epoch=4))
    assert refused == [[ErrorCode.TRANSACTION_COORDINATOR_FENCED]]
    assert writer.partition.last_stable_offset == 2


async def test_partitions_that_are_not_here(bench: Any, writer: Writer) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    answer = await codes(bench, marker(("t", [0, 9]), ("nowhere", [0])))
    assert answer == [[ErrorCode.NONE, unknown], [unknown]]


async def test_the_positions_of_a_group_end_with_it(bench: Any, writer: Writer) -> None:
    await bench.broker.groups.ensure_topic()
    partition = bench.broker.groups.transaction_partition("g")
    guard = partition.start_verification(PRODUCER, 0, -1, bumps_epochs=False)
    request = CommitOffsets("g", (OffsetToCommit("t", 0, 5),), producer_id=PRODUCER)
    reply = await bench.broker.groups.commit_in_transaction(
        TransactionalCommit(request, ProducerStamp(PRODUCER, 0, -1), guard)
    )
    assert reply.errors == (ErrorCode.NONE,)
    offsets = bench.broker.groups.coordinator("g").offsets
    assert offsets.is_pending("g", TopicPartition("t", 0))
    index = partition_of("g", 50)
    assert await codes(bench, marker(("__consumer_offsets", [index]))) == [[ErrorCode.NONE]]
    assert not offsets.is_pending("g", TopicPartition("t", 0))
    stored = offsets.get("g", TopicPartition("t", 0))
    assert stored is not None
    assert stored.offset == 5
    assert partition.last_stable_offset == partition.end_offset == 2


async def test_describe_producers_tells_of_open_transactions(bench: Any, writer: Writer) -> None:
    writer.plain("a")
    writer.write(PRODUCER, "b")
    request = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0])])

    async def described() -> tuple[int, int, int, int]:
        response = await bench.call(request, 0)
        (row,) = response.topics[0].partitions[0].active_producers
        return row.producer_epoch, row.last_sequence, row.coordinator_epoch, row.current_txn_start_offset

    assert await described() == (0, 0, -1, 1)
    await codes(bench, marker(("t", [0]), coordinator_epoch=3, producer_epoch=1, transaction_version=2))
    assert await described() == (1, -1, 3, -1)
