"""Requests of transactions read by hand agree with their schemas, or leave the request to them."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.model.topics import TopicPartition
from headrace.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)
from headrace.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from headrace.wire.transaction_frames import add_answer, end_answer, read_add, read_end

SHORT, INT, LONG = (st.integers(-(1 << bits), (1 << bits) - 1) for bits in (15, 31, 63))
TEXT = st.text(max_size=40) | st.text("aé", min_size=60, max_size=140)
TOPICS = st.lists(
    st.builds(
        AddPartitionsToTxnTopic,
        name=TEXT,
        partitions=st.lists(INT, max_size=5) | st.just(list(range(126))) | st.just(list(range(127))),
    ),
    max_size=4,
)
START = b"before"


def placed(body: bytes) -> tuple[memoryview, int]:
    return memoryview(START + body), len(START)


def is_short(text: str) -> bool:
    return 0 < len(text.encode()) < 127


@settings(deadline=None)
@given(TEXT, LONG, SHORT, st.booleans(), st.sampled_from(EndTxnRequest.versions))
def test_ends(transactional_id: str, producer_id: int, epoch: int, commit: bool, version: int) -> None:
    request = EndTxnRequest(
        transactional_id=transactional_id, producer_id=producer_id, producer_epoch=epoch, committed=commit
    )
    body = request.encode(version)
    expected = (transactional_id, producer_id, epoch, commit) if is_short(transactional_id) else None
    assert read_end(*placed(body), version) == expected
    response = EndTxnResponse(error_code=51, producer_id=producer_id, producer_epoch=epoch)
    assert end_answer(version, 51, producer_id, epoch) == response.encode(version)


@settings(deadline=None)
@given(TEXT, LONG, SHORT, TOPICS, st.sampled_from(range(4)))
def test_partitions_that_join(
    transactional_id: str, producer_id: int, epoch: int, topics: list[AddPartitionsToTxnTopic], version: int
) -> None:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=topics,
    )
    read = read_add(*placed(request.encode(version)), version)
    if read is None:
        size = len(request.encode(version))
        few = all(0 < len(topic.partitions) < 127 and is_short(topic.name) for topic in topics)
        assert not (topics and few and is_short(transactional_id)) or size > 512
        return
    assert read[:3] == (transactional_id, producer_id, epoch)
    asked = {TopicPartition(topic.name, index) for topic in topics for index in topic.partitions}
    assert read.topics.partitions == asked
    results = [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=47)
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]
    response = AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)
    assert add_answer(read.topics, 47) == response.encode(version)


@settings(deadline=None)
@given(st.sampled_from(range(4)), st.binary(min_size=1, max_size=8), st.integers(0, 60))
def test_whatever_is_cut_off_or_too_long_is_left_to_the_schema(version: int, more: bytes, size: int) -> None:
    end = EndTxnRequest(transactional_id="id", producer_id=7, producer_epoch=1, committed=True).encode(version)
    add = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="id",
        v3_and_below_producer_id=7,
        v3_and_below_producer_epoch=1,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0, 1])],
    ).encode(version)
    for body, read in ((end, read_end), (add, read_add)):
        assert read(*placed(body), version) is not None
        assert read(*placed(body + more), version) is None
        assert read(*placed(body[: min(size, len(body) - 1)]), version) is None


def test_text_that_is_not_utf_8_is_left_to_the_schema() -> None:
    body = EndTxnRequest(transactional_id="id", producer_id=7, producer_epoch=1, committed=True).encode(3)
    assert read_end(*placed(body.replace(b"id", b"\xff\xff")), 3) is None
