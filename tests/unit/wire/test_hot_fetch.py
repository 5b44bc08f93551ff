"""The hand-written Fetch codec agrees with the schema classes, in every version."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.model.errors import ProtocolError
from headrace.model.topics import TopicId
from headrace.wire.fetch import (
    ONE_PARTITION_TAIL,
    TOPIC_IDS,
    encode_one_partition,
    parse_fetch,
    parse_one_partition,
    tags_after,
    topic_echo,
    write_partition_head,
    write_response_head,
    write_topic_head,
)
from headrace.wire.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)

FEW = settings(max_examples=25)
"""For each version: together they are some hundreds, and most code is that of all versions."""
VERSIONS = range(4, 19)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)


@st.composite
def topic_fields(draw: st.DrawFn, version: int) -> dict[str, object]:
    if version >= TOPIC_IDS:
        return {"topic_id": TopicId(draw(st.binary(min_size=16, max_size=16)))}
    return {"topic": draw(st.text(min_size=1, max_size=150))}


@st.composite
def fetch_requests(draw: st.DrawFn, version: int) -> FetchRequest:
    def partition() -> FetchPartition:
        values: dict[str, object] = {
            "partition": draw(int32),
            "fetch_offset": draw(int64),
            "partition_max_bytes": draw(int32),
        }
        if version >= 5:
            values["log_start_offset"] = draw(int64)
        if version >= 9:
            values["current_leader_epoch"] = draw(int32)
        if version >= 12:
            values["last_fetched_epoch"] = draw(int32)
        if version >= 17:
            values["replica_directory_id"] = draw(st.binary(min_size=16, max_size=16))
        return FetchPartition(**values)  # type: ignore[arg-type]

    request = FetchRequest(
        max_wait_ms=draw(int32),
        min_bytes=draw(int32),
        max_bytes=draw(int32),
        isolation_level=draw(st.integers(0, 1)),
        topics=[
            FetchTopic(
                **draw(topic_fields(version)),  # type: ignore[arg-type]
                partitions=[partition() for _ in range(draw(st.integers(0, 3)))],
            )
            for _ in range(draw(st.integers(0, 3)))
        ],
    )
    if version >= 15:
        request.replica_state = ReplicaState(replica_id=draw(int32), replica_epoch=draw(int64))
    else:
        request.replica_id = draw(int32)
    if version >= 7:
        request.session_id, request.session_epoch = draw(int32), draw(int32)
        request.forgotten_topics_data = [
            ForgottenTopic(**draw(topic_fields(version)), partitions=draw(st.lists(int32, max_size=3)))  # type: ignore[arg-type]
            for _ in range(draw(st.integers(0, 2)))
        ]
    if version >= 11:
        request.rack_id = draw(st.text(max_size=150))
    return request


@pytest.mark.parametrize("version", VERSIONS)
@FEW
@given(data=st.data())
def test_reads_what_the_schema_writes(version: int, data: st.DataObject) -> None:
    request = data.draw(fetch_requests(version))
    got = parse_fetch(memoryview(b"header" + request.encode(version)), 6, version)

    def key(topic: FetchTopic | ForgottenTopic) -> bytes:
        return topic.topic_id if version >= TOPIC_IDS else topic.topic.encode()

    assert got.replica_id == (request.replica_state.replica_id if version >= 15 else request.replica_id)
    assert got[1:7] == (
        request.max_wait_ms,
        request.min_bytes,
        request.max_bytes,
        request.isolation_level,
        request.session_id,
        request.session_epoch,
    )
    assert got.rack == request.rack_id
    assert got.forgotten == [
        (key(topic), index) for topic in request.forgotten_topics_data for index in topic.partitions
    ]
    assert got.wants == [
        (
            key(topic),
            part.partition,
            part.current_leader_epoch,
            part.fetch_offset,
            part.last_fetched_epoch,
            part.partition_max_bytes,
            part.log_start_offset,
        )
        for topic in request.topics
        for part in topic.partitions
    ]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("committed", [False, True])
def test_writes_what_the_schema_reads(version: int, committed: bool) -> None:
    by_id = version >= TOPIC_IDS
    topic = bytes(range(16)) if by_id else b"events"
    out = bytearray()
    write_response_head(out, version, 0, 77, 1)
    write_topic_head(out, version, topic, 2)
    write_partition_head(out, version, (0, 0, 100, 90, 10), committed, 200)
    out += b"r" * 200 + tags_after(version)
    write_partition_head(out, version, (1, 3, -1, -1, -1), committed, 0)
    out += tags_after(version) + tags_after(version) + tags_after(version)

    log_start = 10 if version >= 5 else -1
    aborted: list[AbortedTransaction] | None = [] if committed else None
    expected = FetchResponse(
        session_id=77 if version >= 7 else 0,
        responses=[
            FetchableTopicResponse(
                topic="" if by_id else "events",
                topic_id=TopicId(topic if by_id else bytes(16)),
                partitions=[
                    PartitionData(
                        partition_index=0,
                        high_watermark=100,
                        last_stable_offset=90,
                        log_start_offset=log_start,
                        aborted_transactions=aborted,
                        records=b"r" * 200,
                    ),
                    PartitionData(
                        partition_index=1,
                        error_code=3,
                        high_watermark=-1,
                        aborted_transactions=aborted,
                        records=b"",
                    ),
                ],
            )
        ],
    )
    assert FetchResponse.decode(bytes(out), version) == expected


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("count", [1, 127, 300])
def test_aborted_transactions_are_written(version: int, count: int) -> None:
    topic = bytes(range(16)) if version >= TOPIC_IDS else b"events"
    rows = [(2**40 + number, number, 7, 7) for number in range(count)]
    out = bytearray()
    write_response_head(out, version, 0, 0, 1)
    write_topic_head(out, version, topic, 1)
    write_partition_head(out, version, (0, 0, 100, 90, 10), True, 200, aborted=rows)
    out += b"r" * 200 + tags_after(version) * 3
    (partition,) = FetchResponse.decode(bytes(out), version).responses[0].partitions
    assert partition.aborted_transactions == [
        AbortedTransaction(producer_id=producer_id, first_offset=first) for producer_id, first, _, _ in rows
    ]
    assert (partition.last_stable_offset, partition.preferred_read_replica) == (90, -1)
    assert partition.records == b"r" * 200


@pytest.mark.parametrize("version", range(12, 19))
@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize("size", [0, 100, 100_000])
def test_the_short_way_for_one_partition_writes_the_same(version: int, committed: bool, size: int) -> None:
    topic = bytes(range(16)) if version >= TOPIC_IDS else b"events"
    result = (3, 0, 2**40, 90, 10)
    out = bytearray()
    write_response_head(out, version, 0, 77, 1)
    write_topic_head(out, version, topic, 1)
    write_partition_head(out, version, result, committed, size)
    assert encode_one_partition(77, topic_echo(version, topic), result, committed, size) == out
    assert tags_after(version) * 3 == ONE_PARTITION_TAIL


def one_partition(version: int, **fields: object) -> FetchRequest:
    topic = {"topic_id": TopicId(bytes(range(16)))} if version >= TOPIC_IDS else {"topic": "events"}
    partition = FetchPartition(partition=3, current_leader_epoch=5, fetch_offset=2**40, partition_max_bytes=99)
    request = FetchRequest(
        max_wait_ms=500,
        min_bytes=7,
        max_bytes=8,
        isolation_level=1,
        topics=[FetchTopic(**topic, partitions=[partition])],
    )
    for name, value in fields.items():
        setattr(request, name, value)
    return request


def parsed_as_one(request: FetchRequest, version: int) -> object:
    return parse_one_partition(memoryview(b"header" + request.encode(version)), 6, version)


@pytest.mark.parametrize("version", range(12, 19))
def test_the_short_way_for_one_partition_reads_the_same(version: int) -> None:
    topic = bytes(range(16)) if version >= TOPIC_IDS else b"events"
    expected = (7, 8, True, topic_echo(version, topic), topic, 3, 5, 2**40, 99)
    assert parsed_as_one(one_partition(version), version) == expected


@pytest.mark.parametrize("version", range(12, 19))
@FEW
@given(data=st.data())
def test_the_short_way_for_one_partition_agrees_or_steps_aside(version: int, data: st.DataObject) -> None:
    request = data.draw(fetch_requests(version))
    if data.draw(st.booleans()):
        request.session_id, request.session_epoch = 0, -1
        request.forgotten_topics_data, request.rack_id = [], ""
        request.replica_state, request.replica_id = ReplicaState(), -1
    frame = memoryview(b"header" + request.encode(version))
    one = parse_one_partition(frame, 6, version)
    if one is None:
        return
    got = parse_fetch(frame, 6, version)
    least, most, committed, _, topic, index, epoch, offset, partition_most = one
    assert (least, most, int(committed)) == (got.min_bytes, got.max_bytes, got.isolation)
    assert (got.replica_id, got.session_id, got.session_epoch, got.forgotten, got.rack) == (-1, 0, -1, [], "")
    [want] = got.wants
    assert (topic, index, epoch, offset, partition_most) == (*want[:4], want[5])


@pytest.mark.parametrize("version", [12, 13, 18])
@pytest.mark.parametrize(
    "fields",
    [
        {"session_id": 9, "session_epoch": 3},
        {"session_epoch": 0},
        {"rack_id": "here"},
        {"forgotten_topics_data": None},
        {"topics": []},
    ],
)
def test_anything_else_takes_the_long_way(version: int, fields: dict[str, object]) -> None:
    request = one_partition(version, **fields)
    if "forgotten_topics_data" in fields:
        topic = {"topic_id": TopicId(bytes(16))} if version >= TOPIC_IDS else {"topic": "gone"}
        request.forgotten_topics_data = [ForgottenTopic(**topic, partitions=[1])]
    assert parsed_as_one(request, version) is None


def test_a_follower_takes_the_long_way() -> None:
    assert parsed_as_one(one_partition(12, replica_id=2), 12) is None
    assert parsed_as_one(one_partition(18, replica_state=ReplicaState(replica_id=2, replica_epoch=1)), 18) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_a_cut_request_is_a_protocol_error_and_a_padded_one_is_not(version: int) -> None:
    fields: dict[str, object] = {"topic_id": TopicId(bytes(range(16)))} if version >= TOPIC_IDS else {"topic": "t"}
    request = FetchRequest(
        max_wait_ms=1,
        topics=[FetchTopic(**fields, partitions=[FetchPartition(partition=1, partition_max_bytes=9)])],  # type: ignore[arg-type]
    )
    if version >= 7:
        request.forgotten_topics_data = [ForgottenTopic(**fields, partitions=[1, 2])]  # type: ignore[arg-type]
    whole = request.encode(version)
    parse_fetch(memoryview(whole), 0, version)
    for size in range(len(whole)):
        with pytest.raises(ProtocolError):
            parse_fetch(memoryview(whole[:size]), 0, version)
    assert parse_fetch(memoryview(whole + b"\0\1"), 0, version) == parse_fetch(memoryview(whole), 0, version)


@pytest.mark.parametrize("version", VERSIONS)
@FEW
@given(noise=st.binary(max_size=150))
def test_noise_raises_nothing_else(version: int, noise: bytes) -> None:
    try:
        parse_fetch(memoryview(noise), 0, version)
    except ProtocolError:
        pass
