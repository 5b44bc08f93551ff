"""What is answered for single bad records (KIP-467), and what becomes of a header that tells its times wrongly."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Producer

from headrace.records.batch import HEADER_SIZE, parse_header
from headrace.records.builder import NewRecord, assemble, build_batch
from headrace.records.compression import Codec
from headrace.testing.raw_client import RawClient
from tests.compat.clients import TIMEOUT_S
from tests.compat.conftest import MakeTopic

INVALID_TIMESTAMP = 32
INVALID_RECORD = 87
HOUR_MS = 3_600_000
CODECS = pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@CODECS
def test_records_without_a_key(bootstrap: str, make_topic: MakeTopic, codec: Codec) -> None:
    name = make_topic(configs={"cleanup.policy": "compact"})
    keys = [b"k", None, b"k", None]
    batch = build_batch([NewRecord(b"v", key, now_ms()) for key in keys], codec=codec)
    with RawClient(bootstrap) as client:
        answer = client.produce(name, 0, bytes(batch))
        assert (answer.error, answer.base_offset) == (INVALID_RECORD, -1)
        assert answer.error_message
        assert [number for number, _ in answer.record_errors] == [1, 3]
        assert all(problem and "key" in problem for _, problem in answer.record_errors)
        assert client.fetch(name, 0, 0).high_watermark == 0


@CODECS
def test_a_timestamp_out_of_range_in_the_middle(bootstrap: str, make_topic: MakeTopic, codec: Codec) -> None:
    name = make_topic(configs={"message.timestamp.before.max.ms": str(HOUR_MS)})
    now = now_ms()
    times = [now, now - 2 * HOUR_MS, -1, now + 2 * HOUR_MS, now]
    batch = build_batch([NewRecord(b"v", None, at) for at in times], codec=codec)
    with RawClient(bootstrap) as client:
        answer = client.produce(name, 0, bytes(batch))
        assert (answer.error, answer.base_offset) == (INVALID_TIMESTAMP, -1)
        assert [number for number, _ in answer.record_errors] == [1, 3]
        assert str(now - 2 * HOUR_MS) in (answer.record_errors[0][1] or "")
        good = build_batch([NewRecord(b"v", None, at) for at in (now, now - 1000, -1)], codec=codec)
        assert client.produce(name, 0, bytes(good)).error == 0


@CODECS
def test_records_without_a_timestamp_under_a_header_that_states_zero(
    bootstrap: str, topic: str, codec: Codec
) -> None:
    """As librdkafka sends them. Stored as 0, the first look of retention would remove them."""
    batch = build_batch([NewRecord(b"v", None, -1)] * 2, codec=codec)
    batch = assemble(parse_header(batch)._replace(max_timestamp=0), batch[HEADER_SIZE:])
    with RawClient(bootstrap) as client:
        assert client.produce(topic, 0, bytes(batch)).error == 0
        stored = parse_header(client.fetch(topic, 0, 0).records)
    assert (stored.base_timestamp, stored.max_timestamp) == (-1, -1)


def test_librdkafka_without_a_timestamp(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50})
    for number in range(3):
        producer.produce(topic, b"%d" % number, partition=0, timestamp=-1)
    assert producer.flush(TIMEOUT_S) == 0
    with RawClient(bootstrap) as client:
        answer = client.fetch(topic, 0, 0)
    assert answer.high_watermark == 3
    assert parse_header(answer.records).max_timestamp == -1
