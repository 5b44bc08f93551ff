"""Heartbeats and commits read by hand agree with their schemas, or leave the request to them."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.model.topics import TopicId
from headrace.wire.group_frames import (
    client_id_of,
    commit_answer,
    consumer_heartbeat_answer,
    even_commit_answer,
    heartbeat_answer,
    one_position_answer,
    read_commit,
    read_consumer_heartbeat,
    read_heartbeat,
    read_one_position,
)
from headrace.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from headrace.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from headrace.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)

INT32 = st.integers(-(2**31), 2**31 - 1)
TEXT = st.text(max_size=40) | st.text(min_size=100, max_size=140)
POSITIONS = st.builds(
    OffsetCommitRequestPartition,
    partition_index=INT32,
    committed_offset=st.integers(-1, 2**62),
    committed_leader_epoch=INT32,
    committed_metadata=st.none() | TEXT,
)
OWNED = st.lists(
    st.builds(
        TopicPartitions,
        topic_id=st.binary(min_size=16, max_size=16).map(TopicId),
        partitions=st.lists(INT32, max_size=5) | st.just(list(range(130))),
    ),
    max_size=4,
)
START = b"before"
ID = TopicId(b"t" * 16)


def placed(body: bytes) -> tuple[memoryview, int]:
    return memoryview(START + body), len(START)


def short(*texts: str | None) -> bool:
    return all(text is None or len(text.encode()) < 127 for text in texts)


@settings(deadline=None)
@given(TEXT, INT32, TEXT, st.none() | TEXT)
def test_heartbeats(group: str, generation: int, member: str, instance: str | None) -> None:
    request = HeartbeatRequest(
        group_id=group, generation_id=generation, member_id=member, group_instance_id=instance
    )
    read = read_heartbeat(*placed(request.encode(4)))
    assert read == ((group, generation, member, instance) if short(group, member, instance) else None)


def test_an_answer_to_a_heartbeat() -> None:
    assert heartbeat_answer(27) == HeartbeatResponse(error_code=27).encode(4)


@settings(deadline=None)
@given(TEXT, TEXT, INT32, st.none() | OWNED, st.sampled_from([0, 1]))
def test_consumer_heartbeats(
    group: str, member: str, epoch: int, owned: list[TopicPartitions] | None, version: int
) -> None:
    request = ConsumerGroupHeartbeatRequest(
        group_id=group, member_id=member, member_epoch=epoch, topic_partitions=owned
    )
    read = read_consumer_heartbeat(*placed(request.encode(version)), version)
    few = all(len(topic.partitions) < 127 for topic in owned or ())
    assert read == ((group, member, epoch) if short(group, member) and few else None)
    if short(member):
        response = ConsumerGroupHeartbeatResponse(
            member_id=member, member_epoch=epoch, heartbeat_interval_ms=5_000
        )
        assert consumer_heartbeat_answer(member, epoch, 5_000) == response.encode(version)


def test_a_consumer_heartbeat_that_says_something_is_not_read() -> None:
    news: list[dict[str, Any]] = [
        {"instance_id": "i"},
        {"rack_id": "r"},
        {"rebalance_timeout_ms": 1},
        {"subscribed_topic_names": []},
        {"subscribed_topic_regex": ""},
        {"server_assignor": "range"},
    ]
    for one in news:
        request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=3, **one)
        assert read_consumer_heartbeat(*placed(request.encode(1)), 1) is None, one


@st.composite
def commits(draw: st.DrawFn) -> tuple[OffsetCommitRequest, int]:
    version = draw(st.sampled_from([8, 9, 10]))
    topics = []
    for _ in range(draw(st.sampled_from([0, 1, 1, 2, 5]))):
        named: dict[str, Any] = {"name": draw(TEXT)}
        if version >= 10:
            named = {"topic_id": TopicId(draw(st.binary(min_size=16, max_size=16)))}
        topics.append(OffsetCommitRequestTopic(**named, partitions=draw(st.lists(POSITIONS, max_size=4))))
    request = OffsetCommitRequest(
        group_id=draw(TEXT),
        generation_id_or_member_epoch=draw(INT32),
        member_id=draw(TEXT),
        group_instance_id=draw(st.none() | TEXT),
        topics=topics,
    )
    return request, version


@settings(deadline=None)
@given(commits())
def test_commits(made: tuple[OffsetCommitRequest, int]) -> None:
    request, version = made
    read = read_commit(*placed(request.encode(version)), version)
    names = [topic.name for topic in request.topics if version < 10]
    notes = [one.committed_metadata for topic in request.topics for one in topic.partitions]
    if not short(request.group_id, request.member_id, request.group_instance_id, *names, *notes):
        assert read is None
        return
    assert read is not None
    assert read[:4] == (
        request.group_id,
        request.generation_id_or_member_epoch,
        request.member_id,
        request.group_instance_id,
    )
    assert [(topic.name, topic.topic_id, list(map(tuple, topic.positions))) for topic in read.topics] == [
        (
            topic.name if version < 10 else "",
            topic.topic_id if version >= 10 else None,
            [
                (
                    one.partition_index,
                    one.committed_offset,
                    one.committed_leader_epoch,
                    one.committed_metadata,
                )
                for one in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    errors = list(range(len(notes)))
    answer = OffsetCommitResponse.decode(commit_answer(read.topics, errors), version)
    assert [one.error_code for topic in answer.topics for one in topic.partitions] == errors
    assert [(topic.name, topic.topic_id) for topic in answer.topics] == [
        (topic.name, topic.topic_id) for topic in request.topics
    ]


def test_commits_of_one_position() -> None:
    """What the general reader says, from the first time on; other shapes are left to it."""
    bare = OffsetCommitRequestPartition(partition_index=7, committed_offset=5, committed_leader_epoch=3)
    empty = OffsetCommitRequestPartition(partition_index=7, committed_offset=5, committed_metadata="")
    noted = OffsetCommitRequestPartition(partition_index=7, committed_offset=5, committed_metadata="n")

    def body(version: int, *topics: list[OffsetCommitRequestPartition], seat: str | None = None) -> bytes:
        named = [OffsetCommitRequestTopic(name="topic", topic_id=ID, partitions=list(one)) for one in topics]
        fields: dict[str, Any] = {"group_instance_id": seat, "topics": named}
        return OffsetCommitRequest(group_id="g", member_id="m", **fields).encode(version)

    for version, one, seat in itertools.product((8, 9, 10), (bare, empty), (None, "seat")):
        frame, position = placed(body(version, [one], seat=seat))
        for _ in range(2):
            found = read_one_position(frame, position, version)
            assert found is not None
            head, *place = found
            read = read_commit(frame, position, version)
            assert read is not None
            assert head.member == read[:4]
            assert (head.name, head.topic_id) == (read.topics[0].name, read.topics[0].topic_id)
            assert place == [7, 5, one.committed_leader_epoch]
            assert one_position_answer(head.answer, 7, 25) == even_commit_answer(read.topics, 25)
    usual = body(9, [bare])
    for other in (
        *(body(9, []), body(9, [noted]), body(9, [bare, bare]), body(9, [bare], [bare]), body(9)),
        *(usual + bytes(20), usual + usual[-20:], bytes(25), usual[:-1], usual[-20:]),
        OffsetCommitRequest(group_id="g" * 600).encode(9) + usual,
    ):
        assert read_one_position(*placed(other), 9) is None, other


def test_what_is_cut_off_is_left_to_the_schema() -> None:
    position = OffsetCommitRequestPartition(partition_index=1, committed_offset=2, committed_metadata="note")
    topics = [OffsetCommitRequestTopic(name="topic", partitions=[position, position])]
    commit = OffsetCommitRequest(group_id="group", member_id="member", group_instance_id="seat", topics=topics)
    beat = HeartbeatRequest(group_id="group", generation_id=1, member_id="member", group_instance_id="seat")
    owned = [TopicPartitions(topic_id=TopicId(b"t" * 16), partitions=[1, 2])]
    quiet = ConsumerGroupHeartbeatRequest(
        group_id="group", member_id="member", member_epoch=1, topic_partitions=owned
    )
    for body, read in (
        (commit.encode(9), lambda frame, position: read_commit(frame, position, 9)),
        (beat.encode(4), read_heartbeat),
        (quiet.encode(1), lambda frame, position: read_consumer_heartbeat(frame, position, 1)),
    ):
        assert read(*placed(body)) is not None
        for size in range(len(body)):
            assert read(*placed(body[:size])) is None, size


@settings(deadline=None)
@given(st.binary(max_size=80), st.sampled_from([8, 9, 10]))
def test_no_bytes_are_too_strange(body: bytes, version: int) -> None:
    frame, position = placed(body)
    read_commit(frame, position, version)
    read_one_position(frame, position, version)
    read_heartbeat(frame, position)
    read_consumer_heartbeat(frame, position, version % 2)


def test_client_ids() -> None:
    head = b"\0\x0c\0\4\0\0\0\1"
    assert client_id_of(memoryview(head + b"\0\5bench\0")) == "bench"
    assert client_id_of(memoryview(head + b"\0\0\0")) == ""
    assert client_id_of(memoryview(head + b"\xff\xff\0")) == ""
    assert client_id_of(memoryview(head + b"\xff\xfe\0")) is None
    assert client_id_of(memoryview(head + b"\0\1\xff\0")) is None
