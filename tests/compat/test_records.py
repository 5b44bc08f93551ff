"""What a record carries comes back as it was: keys, values, headers, times, sizes (R-TOP-1, R-PRO-1, R-LOG-3)."""

from __future__ import annotations

import time

import confluent_kafka as ck
import pytest

from headrace.testing.raw_client import FetchLimits, RawClient, stored_batches
from tests.compat.clients import (
    CLIENTS,
    Client,
    Confluent,
    ProduceFailed,
    Record,
    Settings,
    confluent_consumer,
    poll_confluent,
)
from tests.compat.confluent_admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from tests.compat.conftest import MakeTopic

MESSAGE_TOO_LARGE = 10
CREATE_TIME, APPEND_TIME = 0, 1
LOG_APPEND_TIME_BIT = 0x08
LONG_AGO_MS = 1_500_000_000_000


def test_everything_a_record_can_carry(bootstrap: str, topic: str, client: Client) -> None:
    """Null and empty keys and values, headers with empty values and repeated names, any bytes, any script."""
    records = [
        Record(b"value", key=b"key"),
        Record(b"no key"),
        Record(None, key=b"a tombstone"),
        Record(b"", key=b"empty value"),
        Record(b"empty key", key=b""),
        Record("grüße, 日本語, 🙂".encode(), key="ключ".encode()),
        Record(bytes(range(256)), key=bytes(reversed(range(256)))),
        Record(b"h", headers=(("trace", b"1"), ("trace", b"2"), ("пусто", b""), ("bin", bytes(range(256))))),
    ]
    placed = client.produce(bootstrap, topic, records)
    assert placed == [(0, offset) for offset in range(len(records))]
    for reader in CLIENTS:
        read = reader.read(bootstrap, topic, 0, len(records))
        assert [(one.key, one.value, one.headers) for one in read] == [
            (record.key, record.value, record.headers) for record in records
        ], reader.name


def test_null_header_and_null_everything(bootstrap: str, topic: str) -> None:
    """Only librdkafka can send a header without a value, or a record with neither key nor value."""
    producer = ck.Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, headers=[("absent", None), ("empty", b"")])
    producer.produce(topic, value=None, key=None)
    assert producer.flush(60) == 0
    consumer = confluent_consumer(bootstrap)
    consumer.assign([ck.TopicPartition(topic, 0, 0)])
    first, second = poll_confluent(consumer, 2)
    consumer.close()
    assert first.headers() == [("absent", None), ("empty", b"")]
    assert (second.key(), second.value(), second.headers()) == (None, None, None)


def test_create_time_is_the_clients(bootstrap: str, topic: str, client: Client) -> None:
    times = [LONG_AGO_MS + 1000 * number for number in (5, 1, 9, 0)]
    client.produce(bootstrap, topic, [Record(b"v", timestamp_ms=one) for one in times])
    for reader in CLIENTS:
        read = reader.read(bootstrap, topic, 0, 4)
        assert [(one.timestamp_ms, one.timestamp_type) for one in read] == [(one, CREATE_TIME) for one in times]


def test_create_time_defaults_to_now(bootstrap: str, topic: str, client: Client) -> None:
    before = int(time.time() * 1000) - 1
    client.produce(bootstrap, topic, [Record(b"v")])
    (one,) = client.read(bootstrap, topic, 0, 1)
    assert before <= one.timestamp_ms <= int(time.time() * 1000) + 1


def test_log_append_time_is_the_brokers(bootstrap: str, make_topic: MakeTopic, client: Client) -> None:
    name = make_topic(configs={"message.timestamp.type": "LogAppendTime"})
    before = int(time.time() * 1000) - 1
    settings = Settings("gzip", linger_ms=50)
    client.produce(bootstrap, name, [Record(b"v", timestamp_ms=LONG_AGO_MS) for _ in range(10)], settings)
    after = int(time.time() * 1000) + 1
    for reader in CLIENTS:
        for one in reader.read(bootstrap, name, 0, 10):
            assert one.timestamp_type == APPEND_TIME, reader.name
            assert before <= one.timestamp_ms <= after, reader.name
    for batch in stored_batches(bootstrap, name):
        assert batch.attributes & LOG_APPEND_TIME_BIT
        assert batch.codec == 1


def test_timestamps_out_of_range_are_refused(bootstrap: str, make_topic: MakeTopic) -> None:
    """message.timestamp.before.max.ms: INVALID_TIMESTAMP for a record that is too old."""
    name = make_topic(configs={"message.timestamp.before.max.ms": "60000"})
    with pytest.raises(ProduceFailed) as refused:
        Confluent().produce(bootstrap, name, [Record(b"v", timestamp_ms=LONG_AGO_MS)])
    assert refused.value.code == 32
    Confluent().produce(bootstrap, name, [Record(b"v")])


def test_timestamps_in_the_future_are_refused(bootstrap: str, topic: str) -> None:
    """message.timestamp.after.max.ms is one hour by default."""
    tomorrow = int(time.time() * 1000) + 24 * 3600 * 1000
    with pytest.raises(ProduceFailed) as refused:
        Confluent().produce(bootstrap, topic, [Record(b"v", timestamp_ms=tomorrow)])
    assert refused.value.code == 32


@pytest.mark.parametrize("size", [0, 1, 1_000, 100_000, 900_000])
def test_sizes(bootstrap: str, topic: str, client: Client, size: int) -> None:
    value = (b"0123456789abcdef" * (size // 16 + 1))[:size]
    client.produce(bootstrap, topic, [Record(value, key=b"k")])
    for reader in CLIENTS:
        (one,) = reader.read(bootstrap, topic, 0, 1)
        assert one.value == value, reader.name


def test_above_max_message_bytes(bootstrap: str, topic: str, client: Client) -> None:
    """R-PRO-1: a little over 1 MiB is the default limit; above it MESSAGE_TOO_LARGE, and nothing is kept."""
    settings = Settings(max_request_bytes=8_000_000)
    with pytest.raises(ProduceFailed) as refused:
        client.produce(bootstrap, topic, [Record(b"x" * 1_500_000)], settings)
    assert refused.value.code == MESSAGE_TOO_LARGE
    assert client.produce(bootstrap, topic, [Record(b"small")], settings) == [(0, 0)]


def test_topic_with_larger_limit(bootstrap: str, make_topic: MakeTopic, client: Client) -> None:
    name = make_topic(configs={"max.message.bytes": "5242880"})
    value = b"0123456789" * 400_000
    client.produce(bootstrap, name, [Record(value)], Settings(max_request_bytes=8_000_000))
    for reader in CLIENTS:
        (one,) = reader.read(bootstrap, name, 0, 1)
        assert one.value == value, reader.name


def test_limit_can_be_changed(bootstrap: str, topic: str, admin: AdminClient) -> None:
    """A topic's max.message.bytes works from the next request on, up and down."""
    big = [Record(b"x" * 1_500_000)]
    settings = Settings(max_request_bytes=8_000_000)
    for limit, fits in (("2000000", True), ("1000", False), ("3000000", True)):
        entry = ConfigEntry("max.message.bytes", limit, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(60)
        time.sleep(0.2)
        if fits:
            Confluent().produce(bootstrap, topic, big, settings)
        else:
            with pytest.raises(ProduceFailed) as refused:
                Confluent().produce(bootstrap, topic, big, settings)
            assert refused.value.code == MESSAGE_TOO_LARGE


def test_a_batch_larger_than_the_fetch_limit_still_comes(bootstrap: str, topic: str) -> None:
    """KIP-74: the first batch is served whole, however small the client's limits, or it would be stuck."""
    value = b"z" * 500_000
    Confluent().produce(bootstrap, topic, [Record(value), Record(b"next")], Settings(linger_ms=0))
    limits = FetchLimits(max_bytes=1_000, partition_max_bytes=1_000)
    with RawClient(bootstrap) as raw:
        answer = raw.fetch(topic, 0, 0, limits)
    assert answer.error == 0
    assert answer.batches[0].length > len(value)


def test_fetch_in_the_middle_of_a_batch(bootstrap: str, topic: str) -> None:
    """The whole batch is served and the client skips what it did not ask for."""
    Confluent().produce(bootstrap, topic, [Record(b"%d" % n) for n in range(100)], Settings("zstd", linger_ms=100))
    for reader in CLIENTS:
        read = reader.read(bootstrap, topic, 0, 37, offset=63)
        assert [one.value for one in read] == [b"%d" % n for n in range(63, 100)], reader.name


def test_offsets_are_consecutive_over_many_batches(bootstrap: str, topic: str, client: Client) -> None:
    """R-TOP-1: order kept, no gap, no reuse."""
    records = [Record(b"%06d" % number) for number in range(5_000)]
    placed = client.produce(bootstrap, topic, records, Settings("lz4", batch_bytes=2_000, linger_ms=0))
    assert [offset for _, offset in placed] == list(range(5_000))
    read = client.read(bootstrap, topic, 0, 5_000)
    assert [one.value for one in read] == [record.value for record in records]
    assert [one.offset for one in read] == list(range(5_000))
