"""R-PRO-1, R-PRO-2: acks, batching, retries, requests in flight, and what a client sees when it cannot send."""

from __future__ import annotations

import time

import confluent_kafka as ck
import pytest
from kafka import KafkaProducer
from kafka.errors import KafkaTimeoutError

from headrace.testing.process import free_port
from headrace.testing.process_cluster import wait_until
from headrace.testing.raw_client import (
    PRODUCE,
    BatchShape,
    RawClient,
    build_batch,
    frame,
    produce_body,
    request_header,
    stored_batches,
)
from tests.compat.clients import Client, Confluent, Record, Settings
from tests.compat.conftest import MakeTopic, unique_name

INVALID_REQUIRED_ACKS = 21
OUT_OF_ORDER_SEQUENCE = 45
UNKNOWN_TOPIC_OR_PARTITION = 3
INVALID_PRODUCER_EPOCH = 47


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_acks(bootstrap: str, topic: str, client: Client, acks: int) -> None:
    """R-PRO-1."""
    records = [Record(b"%d" % number) for number in range(200)]
    placed = client.produce(bootstrap, topic, records, Settings(acks=acks))
    if acks != 0:
        assert placed == [(0, number) for number in range(200)]
    assert [one.value for one in client.read(bootstrap, topic, 0, 200)] == [record.value for record in records]


def test_acks_zero_is_not_answered(bootstrap: str, topic: str) -> None:
    """R-PRO-1: after a Produce with acks=0 the next answer on the connection is the next request's."""
    with RawClient(bootstrap) as raw:
        body = produce_body(topic, 0, build_batch([b"silent"]), acks=0)
        raw.send(frame(request_header(PRODUCE, 8, 1000) + body))
        assert raw.api_versions()
        deadline = time.monotonic() + 60
        while not raw.fetch(topic, 0, 0).batches:
            assert time.monotonic() < deadline


def test_acks_zero_with_an_error_closes_the_connection(bootstrap: str) -> None:
    """R-PRO-1: the only way to tell a client that asked for no answer."""
    with RawClient(bootstrap) as raw:
        body = produce_body(unique_name("missing"), 0, build_batch([b"v"]), acks=0)
        raw.send(frame(request_header(PRODUCE, 8, 1) + body))
        assert raw.is_closed_by_peer()


@pytest.mark.parametrize("acks", [-2, -32768])
def test_senseless_acks(bootstrap: str, topic: str, acks: int) -> None:
    """R-PRO-1 (more than one is allowed here, beyond Kafka: see docs/choices.md)."""
    with RawClient(bootstrap) as raw:
        assert raw.produce(topic, 0, build_batch([b"v"]), acks=acks).error == INVALID_REQUIRED_ACKS
        assert raw.fetch(topic, 0, 0).high_watermark == 0


@pytest.mark.headrace_only
def test_acks_above_one(bootstrap: str, topic: str) -> None:
    """R-PRO-1, beyond Kafka: acks=k waits for k in-sync replicas; a topic with fewer can never have them."""
    with RawClient(bootstrap) as raw:
        assert raw.produce(topic, 0, build_batch([b"v"]), acks=2).error == INVALID_REQUIRED_ACKS


def test_unknown_topic_and_partition(bootstrap: str, topic: str) -> None:
    with RawClient(bootstrap) as raw:
        assert raw.produce(unique_name("missing"), 0, build_batch([b"v"])).error == UNKNOWN_TOPIC_OR_PARTITION
        assert raw.produce(topic, 1, build_batch([b"v"])).error == UNKNOWN_TOPIC_OR_PARTITION
        assert raw.produce(topic, -1, build_batch([b"v"])).error == UNKNOWN_TOPIC_OR_PARTITION
        assert raw.produce(topic, 0, build_batch([b"v"])).error == 0


def test_linger_and_batch_size_make_batches(bootstrap: str, topic: str, client: Client) -> None:
    """R-PRO-2: with time and room, many records share a batch; stored as it was sent."""
    records = [Record(b"x" * 50) for _ in range(300)]
    client.produce(bootstrap, topic, records, Settings(linger_ms=200, batch_bytes=1_000_000))
    assert len(stored_batches(bootstrap, topic)) <= 10


def test_no_batching(bootstrap: str, topic: str) -> None:
    """R-PRO-2: one message per batch on request."""
    producer = ck.Producer({"bootstrap.servers": bootstrap, "batch.num.messages": 1})
    for _ in range(50):
        producer.produce(topic, b"v")
    assert producer.flush(60) == 0
    assert [batch.record_count for batch in stored_batches(bootstrap, topic)] == [1] * 50


@pytest.mark.parametrize("in_flight", [1, 5, 1000])
def test_requests_in_flight_keep_their_order(bootstrap: str, topic: str, in_flight: int) -> None:
    """R-PRO-2, R-TOP-1: pipelined requests of one connection are appended in the order they were sent."""
    producer = ck.Producer(
        {"bootstrap.servers": bootstrap, "max.in.flight": in_flight, "batch.num.messages": 3, "linger.ms": 0}
    )
    for number in range(2_000):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(60) == 0
    read = Confluent().read(bootstrap, topic, 0, 2_000)
    assert [int(one.value or b"") for one in read] == list(range(2_000))


def test_message_timeout_without_a_broker() -> None:
    """R-PRO-2: with nobody there, the record fails after message.timeout.ms, with the client's own error."""
    producer = ck.Producer({"bootstrap.servers": f"127.0.0.1:{free_port()}", "message.timeout.ms": 500})
    errors: list[ck.KafkaError | None] = []
    producer.produce("nowhere", b"v", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(60) == 0
    assert errors[0] is not None
    assert errors[0].code() == ck.KafkaError._MSG_TIMED_OUT


def test_max_block_is_bounded(bootstrap: str) -> None:
    """R-PRO-2: max.block.ms: waiting for a topic that never comes ends."""
    producer = KafkaProducer(bootstrap_servers=bootstrap, max_block_ms=500)
    began = time.monotonic()
    with pytest.raises(KafkaTimeoutError):
        producer.send(unique_name("missing"), b"v").get(50)
    assert time.monotonic() - began < 40, "a minute is what it waits without max_block_ms"
    producer.close()


def test_confluent_unknown_topic_is_an_error(bootstrap: str) -> None:
    """R-TOP-5: topics are not made by writing to them."""
    settings = {"bootstrap.servers": bootstrap, "topic.metadata.propagation.max.ms": 500}
    producer = ck.Producer({**settings, "message.timeout.ms": 10_000})
    errors: list[ck.KafkaError | None] = []
    producer.produce(unique_name("missing"), b"v", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(60) == 0
    assert errors[0] is not None
    assert errors[0].code() in (ck.KafkaError._UNKNOWN_TOPIC, ck.KafkaError.UNKNOWN_TOPIC_OR_PART)


def test_idempotent_clients(bootstrap: str, topic: str, client: Client) -> None:
    """R-PRO-3: every client's idempotent producer works and numbers its batches."""
    records = [Record(b"%d" % number) for number in range(500)]
    client.produce(bootstrap, topic, records, Settings(idempotent=True, batch_bytes=500, linger_ms=0))
    stored = stored_batches(bootstrap, topic)
    assert len({(batch.producer_id, batch.producer_epoch) for batch in stored}) == 1
    assert stored[0].producer_id >= 0
    assert [batch.base_sequence for batch in stored] == [batch.base_offset for batch in stored]


def sequenced(producer_id: int, sequence: int, count: int = 1, epoch: int = 0) -> bytes:
    shape = BatchShape(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    return build_batch([b"%d" % number for number in range(sequence, sequence + count)], shape)


def test_duplicates_get_the_first_answer(bootstrap: str, topic: str) -> None:
    """R-PRO-3: the last five batches are remembered; the same one again is answered and not appended."""
    with RawClient(bootstrap) as raw:
        for number in range(6):
            assert raw.produce(topic, 0, sequenced(4_000_001, number * 3, 3)).base_offset == number * 3
        for number in (5, 3, 1):
            again = raw.produce(topic, 0, sequenced(4_000_001, number * 3, 3))
            assert (again.error, again.base_offset) == (0, number * 3)
        assert raw.fetch(topic, 0, 0).high_watermark == 18


def test_gaps_are_refused(bootstrap: str, topic: str) -> None:
    """R-PRO-3: a sequence that leaves one out is refused, and the right one is still taken after."""
    with RawClient(bootstrap) as raw:
        assert raw.produce(topic, 0, sequenced(4_000_002, 0, 2)).error == 0
        assert raw.produce(topic, 0, sequenced(4_000_002, 3)).error == OUT_OF_ORDER_SEQUENCE
        assert raw.produce(topic, 0, sequenced(4_000_002, 2)).error == 0
        assert raw.fetch(topic, 0, 0).high_watermark == 3


def test_unknown_producer_may_begin_anywhere(bootstrap: str, topic: str) -> None:
    """R-PRO-3: what the broker has forgotten (retention, expiry) must not stop a producer.

    Headrace refuses it for a moment after an election: what comes before may have been refused.
    """
    with RawClient(bootstrap) as raw:
        wait_until(lambda: raw.produce(topic, 0, sequenced(4_000_003, 77)).error == 0, "the producer may begin")
        assert raw.produce(topic, 0, sequenced(4_000_003, 78)).error == 0


def test_older_epoch_is_fenced_and_newer_begins_at_zero(bootstrap: str, topic: str) -> None:
    """R-PRO-3."""
    with RawClient(bootstrap) as raw:
        assert raw.produce(topic, 0, sequenced(4_000_004, 0, epoch=5)).error == 0
        assert raw.produce(topic, 0, sequenced(4_000_004, 1, epoch=4)).error == INVALID_PRODUCER_EPOCH
        assert raw.produce(topic, 0, sequenced(4_000_004, 3, epoch=6)).error == OUT_OF_ORDER_SEQUENCE
        assert raw.produce(topic, 0, sequenced(4_000_004, 0, epoch=6)).error == 0


def test_sequence_wraps_around(bootstrap: str, topic: str) -> None:
    """R-PRO-3: after 2^31 - 1 comes 0."""
    with RawClient(bootstrap) as raw:
        wait_until(lambda: raw.produce(topic, 0, sequenced(4_000_005, 2**31 - 1)).error == 0, "it may begin there")
        assert raw.produce(topic, 0, sequenced(4_000_005, 0)).error == 0


def test_sequences_are_per_partition(bootstrap: str, make_topic: MakeTopic) -> None:
    """R-PRO-3."""
    name = make_topic(2)
    with RawClient(bootstrap) as raw:
        for partition in (0, 1):
            for sequence in range(3):
                answer = raw.produce(name, partition, sequenced(4_000_006, sequence))
                assert (answer.error, answer.base_offset) == (0, sequence)
