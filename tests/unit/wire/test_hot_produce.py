"""The hand-written Produce codec agrees with the schema classes, byte for byte, in every version."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.model.errors import ErrorCode, ProtocolError
from headrace.model.topics import TopicId
from headrace.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from headrace.wire.produce import (
    TOPIC_IDS,
    encode_failure,
    encode_produce_response,
    encode_result,
    parse_one_batch,
    parse_one_in_transaction,
    parse_produce,
    transactional_id_of,
)

FEW = settings(max_examples=25)
"""For each version: together they are some hundreds, and most code is that of all versions."""
VERSIONS = range(3, 14)

partition_data = st.builds(
    PartitionProduceData,
    index=st.integers(-1, 2**31 - 1),
    records=st.one_of(st.none(), st.binary(max_size=300)),
)


@st.composite
def produce_requests(draw: st.DrawFn, version: int) -> ProduceRequest:
    topics = [
        TopicProduceData(
            name=draw(st.text(min_size=1, max_size=200)) if version < TOPIC_IDS else "",
            topic_id=TopicId(draw(st.binary(min_size=16, max_size=16)) if version >= TOPIC_IDS else bytes(16)),
            partition_data=draw(st.lists(partition_data, max_size=4)),
        )
        for _ in range(draw(st.integers(0, 3)))
    ]
    return ProduceRequest(
        transactional_id=draw(st.one_of(st.none(), st.text(max_size=200))),
        acks=draw(st.integers(-1, 3)),
        timeout_ms=1000,
        topic_data=topics,
    )


@pytest.mark.parametrize("version", VERSIONS)
@FEW
@given(data=st.data())
def test_reads_what_the_schema_writes(version: int, data: st.DataObject) -> None:
    request = data.draw(produce_requests(version))
    frame = memoryview(b"header" + request.encode(version))
    transactional, acks, timeout_ms, topics = parse_produce(frame, 6, version)
    assert transactional == (request.transactional_id is not None)
    assert (acks, timeout_ms) == (request.acks, request.timeout_ms)
    wanted = [
        (
            topic.topic_id if version >= TOPIC_IDS else topic.name.encode(),
            [(part.index, part.records) for part in topic.partition_data],
        )
        for topic in request.topic_data
    ]
    got = [
        (key, [(index, None if batch is None else bytes(batch)) for index, batch in partitions])
        for _, key, partitions in topics
    ]
    assert got == wanted


@pytest.mark.parametrize("version", VERSIONS)
@FEW
@given(data=st.data())
def test_writes_what_the_schema_reads(version: int, data: st.DataObject) -> None:
    request = data.draw(produce_requests(version))
    _, _, _, topics = parse_produce(memoryview(request.encode(version)), 0, version)
    results = []
    expected = []
    for (echo, _, partitions), topic in zip(topics, request.topic_data, strict=True):
        answers, responses = [], []
        for index, batch in partitions:
            if batch is None:
                bad = data.draw(st.lists(st.tuples(st.integers(0, 2**31 - 1), st.text(max_size=200)), max_size=3))
                answers.append(encode_failure(version, index, ErrorCode.INVALID_RECORD, "no batch", bad))
                responses.append(
                    PartitionProduceResponse(
                        index=index,
                        error_code=ErrorCode.INVALID_RECORD,
                        base_offset=-1,
                        record_errors=[
                            BatchIndexAndErrorMessage(batch_index=number, batch_index_error_message=problem)
                            for number, problem in (bad if version >= 8 else [])
                        ],
                        error_message="no batch" if version >= 8 else None,
                    )
                )
            else:
                answers.append(encode_result(version, index, 2**40, 5, 7))
                responses.append(
                    PartitionProduceResponse(
                        index=index,
                        base_offset=2**40,
                        log_append_time_ms=5,
                        log_start_offset=7 if version >= 5 else -1,
                    )
                )
        results.append((echo, answers))
        expected.append(
            TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=responses)
        )
    body = encode_produce_response(version, results)
    assert ProduceResponse.decode(body, version) == ProduceResponse(responses=expected)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_cut_request_is_a_protocol_error_and_a_padded_one_is_not(version: int) -> None:
    request = ProduceRequest(
        transactional_id="id",
        acks=1,
        timeout_ms=1,
        topic_data=[
            TopicProduceData(
                name="topic" if version < TOPIC_IDS else "",
                topic_id=TopicId(bytes(range(16)) if version >= TOPIC_IDS else bytes(16)),
                partition_data=[PartitionProduceData(index=0, records=b"x" * 200)],
            )
        ],
    )
    whole = request.encode(version)
    parse_produce(memoryview(whole), 0, version)
    for size in range(len(whole)):
        with pytest.raises(ProtocolError):
            parse_produce(memoryview(whole[:size]), 0, version)
    assert parse_produce(memoryview(whole + b"\0\1"), 0, version) == parse_produce(memoryview(whole), 0, version)


@pytest.mark.parametrize("version", VERSIONS)
@FEW
@given(noise=st.binary(max_size=120))
def test_noise_raises_nothing_else(version: int, noise: bytes) -> None:
    try:
        parse_produce(memoryview(noise), 0, version)
    except ProtocolError:
        pass


@pytest.mark.parametrize("size", [1, 80, 126, 127, 128, 200, 16_382, 16_383, 1_000_000, 2_097_150, 2_097_151])
@pytest.mark.parametrize("version", [9, 13])
def test_the_short_way_for_usual_requests_reads_what_the_long_one_does(version: int, size: int) -> None:
    request = ProduceRequest(
        acks=-1,
        timeout_ms=1,
        topic_data=[
            TopicProduceData(
                name="topic" if version < TOPIC_IDS else "",
                topic_id=TopicId(bytes(range(16)) if version >= TOPIC_IDS else bytes(16)),
                partition_data=[PartitionProduceData(index=7, records=b"x" * size)],
            )
        ],
    )
    whole = memoryview(request.encode(version))
    _, acks, timeout_ms, [(echo, key, [(index, batch)])] = parse_produce(whole, 0, version)
    one = parse_one_batch(whole, 0, version >= TOPIC_IDS)
    assert one == ((acks, timeout_ms, echo, key, index, batch) if size < 2_097_151 else None)
    for cut in {0, 5, 20, min(30, len(whole) - 1), size // 2, size, len(whole) - 1}:
        assert parse_one_batch(whole[:cut], 0, version >= TOPIC_IDS) is None


@pytest.mark.parametrize("version", [9, 12, 13])
@pytest.mark.parametrize("name", ["i", "é" * 63, "a" * 126, "a" * 127, ""])
def test_one_batch_in_a_transaction_is_found_as_the_whole_parser_finds_it(version: int, name: str) -> None:
    topic = TopicProduceData(
        name="topic" if version < TOPIC_IDS else "",
        topic_id=TopicId(bytes(range(16)) if version >= TOPIC_IDS else bytes(16)),
        partition_data=[PartitionProduceData(index=7, records=b"x" * 300)],
    )
    request = ProduceRequest(transactional_id=name, acks=-1, timeout_ms=1, topic_data=[topic])
    whole = memoryview(request.encode(version))
    by_id = version >= TOPIC_IDS
    assert parse_one_batch(whole, 0, by_id) is None
    one = parse_one_in_transaction(whole, 0, by_id)
    if not 0 < len(name.encode()) < 127:
        assert one is None
        return
    _, acks, timeout_ms, [(echo, key, [(index, batch)])] = parse_produce(whole, 0, version)
    assert one == (transactional_id_of(whole, 0, version), (acks, timeout_ms, echo, key, index, batch))
    for cut in (0, 1, 5, len(name.encode()) + 3, len(whole) - 1):
        assert parse_one_in_transaction(whole[:cut], 0, by_id) is None
    request.topic_data.append(topic)
    assert parse_one_in_transaction(memoryview(request.encode(version)), 0, by_id) is None


def test_a_transactional_id_that_is_not_utf_8_takes_the_long_way() -> None:
    topic = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=7, records=b"x" * 300)])
    request = ProduceRequest(transactional_id="id", acks=-1, timeout_ms=1, topic_data=[topic])
    spoiled = memoryview(request.encode(9).replace(b"id", b"\xff\xff"))
    assert parse_one_in_transaction(spoiled, 0, False) is None
    with pytest.raises(ProtocolError):
        transactional_id_of(spoiled, 0, 9)


def test_a_batch_that_is_null_takes_the_long_way() -> None:
    whole = memoryview(b"\0\0\1\0\0\0\1\2\2t\2\0\0\0\7" + b"\0" + b"\x80\1" + b"\0" * 20_000)
    assert parse_one_batch(whole, 0, False) is None


def test_a_length_written_longer_than_it_must_be_is_still_null() -> None:
    whole = b"\0\0\1\0\0\0\1\2\2t\2\0\0\0\7" + b"\x80\0" + b"\0\0\0"
    assert parse_produce(memoryview(whole), 0, 9)[3] == [(b"\2t", b"t", [(7, None)])]
