"""A hostile client and a polite one beside it, on a broker whose loop is turned by hand.

However much the hostile one asks for, the polite one is served between. `python -m bench.stalls` measures how long
that takes for every API.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench.hand_driven import HandDrivenBroker
from bench.stalls import Meeting, frame, largest, session_fetch
from headrace.handlers import load_all
from headrace.handlers.add_partitions_to_txn import AT_ONCE, add_partitions_to_txn
from headrace.handlers.context import Context
from headrace.handlers.describe_topic_partitions import SORTED_AT_ONCE
from headrace.handlers.registry import APIS
from headrace.metadata.image import MetadataImage
from headrace.model.errors import ErrorCode
from headrace.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from headrace.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)

PARTITIONS = 10_000
Note = Callable[[str, object], None]
FETCH, LIST_OFFSETS, METADATA, OFFSET_COMMIT, OFFSET_FETCH = 1, 2, 3, 8, 9
WRITE_TXN_MARKERS, ALTER_PARTITION, DESCRIBE_TOPIC_PARTITIONS = 27, 56, 75
CREATE_TOPICS, ADD_PARTITIONS_TO_TXN, TXN_OFFSET_COMMIT = 19, 24, 28
ALTER_REPLICA_LOG_DIRS = 34


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[HandDrivenBroker]:
    running = HandDrivenBroker(tmp_path, divided=True)
    yield running
    running.close()


@pytest.mark.parametrize(
    "key",
    [
        LIST_OFFSETS,
        METADATA,
        OFFSET_COMMIT,
        OFFSET_FETCH,
        WRITE_TXN_MARKERS,
        ALTER_PARTITION,
        CREATE_TOPICS,
        ALTER_REPLICA_LOG_DIRS,
        ADD_PARTITIONS_TO_TXN,
        TXN_OFFSET_COMMIT,
        DESCRIBE_TOPIC_PARTITIONS,
    ],
)
def test_one_large_request(broker: HandDrivenBroker, key: int, record_property: Note) -> None:
    load_all()
    data = largest(APIS[key], wide=False, most=PARTITIONS)
    assert data is not None
    found = Meeting(broker).measure(broker.connect(), data, 1)
    record_property("longest turn in ms", found.longest_turn * 1000)
    assert found.polite_answers >= 10


class CountedLooks:
    """Never due; counts how often it was asked, and how many tasks there were at most."""

    def __init__(self) -> None:
        self.looks = self.most_tasks = 0

    def due(self) -> bool:
        self.looks += 1
        self.most_tasks = max(self.most_tasks, len(asyncio.all_tasks()))
        return False

    async def give_way(self) -> None: ...


@pytest.mark.parametrize(
    ("transactions", "partitions", "version"), [(1, 2_000, 3), (1, 2_000, 5), (1_000, 1, 5)], ids=str
)
async def test_partitions_of_transactions_leave_room_for_others(
    transactions: int, partitions: int, version: int
) -> None:
    topics = [AddPartitionsToTxnTopic(name="unknown", partitions=list(range(partitions)))]
    request = AddPartitionsToTxnRequest(
        v3_and_below_topics=topics,
        transactions=[
            AddPartitionsToTxnTransaction(transactional_id=f"x{number}", topics=topics)
            for number in range(transactions)
        ],
    )
    slices = CountedLooks()
    broker: Any = SimpleNamespace(metadata=SimpleNamespace(image=MetadataImage("c")))
    work: Any = add_partitions_to_txn(Context(broker, version, None, "p", "h", "l", slices), request)
    response = await work
    answered = response.results_by_transaction
    assert len(answered) == (transactions if version > 3 else 0)
    results = answered[-1].topic_results if answered else response.results_by_topic_v3_and_below
    codes = {row.partition_error_code for row in results[0].results_by_partition}
    assert codes == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert slices.looks >= 2 * transactions * partitions
    assert slices.most_tasks <= AT_ONCE + 2


def test_names_of_topics_are_answered_in_order_however_many(broker: HandDrivenBroker) -> None:
    load_all()
    names = [f"t{number}" for number in range(2 * SORTED_AT_ONCE + 1)]
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name) for name in [*names, names[0]]])
    client = broker.connect()
    Meeting(broker).measure(client, frame(DESCRIBE_TOPIC_PARTITIONS, 0, request.encode(0), flexible=True), 1)
    found = DescribeTopicPartitionsResponse.decode(client.answers.pop(), 0, 5)
    assert [topic.name for topic in found.topics] == sorted(names)


def test_pipelined_fetches_of_a_large_session(broker: HandDrivenBroker, record_property: Note) -> None:
    """2.6 KB once stopped the broker for seconds and took gigabytes."""
    hostile = broker.connect()
    meeting = Meeting(broker)
    meeting.measure(hostile, session_fetch(0, 0, PARTITIONS), 1)
    session = int.from_bytes(hostile.answers.pop()[10:14], "big")
    assert session
    flood = b"".join(session_fetch(session, epoch, 0) for epoch in range(1, 101))
    found = meeting.measure(hostile, flood, 100)
    record_property("longest turn in ms", found.longest_turn * 1000)
    assert len(hostile.answers) == 100
    assert found.polite_answers >= 10
