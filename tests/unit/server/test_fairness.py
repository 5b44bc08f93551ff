"""A hostile client and a polite one beside it, on a broker whose loop is turned by hand.

However much the hostile one asks for, the polite one is served between. `python -m bench.stalls` measures how long
that takes for every API.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench.hand_driven import HandDrivenBroker
from bench.stalls import Meeting, frame, largest
from headrace.handlers import load_all
from headrace.handlers.describe_topic_partitions import SORTED_AT_ONCE
from headrace.handlers.registry import APIS
from headrace.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)

PARTITIONS = 10_000
Note = Callable[[str, object], None]
FETCH, LIST_OFFSETS, METADATA, OFFSET_COMMIT, OFFSET_FETCH = 1, 2, 3, 8, 9
WRITE_TXN_MARKERS, ALTER_PARTITION, DESCRIBE_TOPIC_PARTITIONS = 27, 56, 75


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


def test_names_of_topics_are_answered_in_order_however_many(broker: HandDrivenBroker) -> None:
    load_all()
    names = [f"t{number}" for number in range(2 * SORTED_AT_ONCE + 1)]
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name) for name in [*names, names[0]]])
    client = broker.connect()
    Meeting(broker).measure(client, frame(DESCRIBE_TOPIC_PARTITIONS, 0, request.encode(0), flexible=True), 1)
    found = DescribeTopicPartitionsResponse.decode(client.answers.pop(), 0, 5)
    assert [topic.name for topic in found.topics] == sorted(names)


def fetch(session: int, epoch: int, partitions: int) -> bytes:
    parts = b"".join(struct.pack(">iiqqi", index, -1, 0, -1, 1) for index in range(partitions))
    head = struct.pack(">iiiibii", -1, 0, 1, 1 << 20, 0, session, epoch)
    topics = struct.pack(">ih", 1, 1) + b"t" + struct.pack(">i", partitions) + parts if partitions else bytes(4)
    return frame(FETCH, 11, head + topics + struct.pack(">ih", 0, 0), flexible=False)


def test_pipelined_fetches_of_a_large_session(broker: HandDrivenBroker, record_property: Note) -> None:
    """2.6 KB once stopped the broker for seconds and took gigabytes."""
    hostile = broker.connect()
    meeting = Meeting(broker)
    meeting.measure(hostile, fetch(0, 0, PARTITIONS), 1)
    session = int.from_bytes(hostile.answers.pop()[10:14], "big")
    assert session
    flood = b"".join(fetch(session, epoch, 0) for epoch in range(1, 101))
    found = meeting.measure(hostile, flood, 100)
    record_property("longest turn in ms", found.longest_turn * 1000)
    assert len(hostile.answers) == 100
    assert found.polite_answers >= 10
