"""The sink's options (R-SPK-1): defaults, what is refused, and messages that say what to do."""

from __future__ import annotations

import pytest

from headrace.records.compression import Codec
from headrace.spark.client.producing import ALL_IN_SYNC, MAX_REQUEST_BYTES
from headrace.spark.option_table import OptionError
from headrace.spark.sink.once.plan import SinkSettings
from headrace.spark.sink.options import DEFAULT_BATCH_BYTES, PRODUCER_SETTINGS, SINK_OPTIONS, parse_sink_options

BROKER = {"kafka.bootstrap.servers": "host:9092"}


def test_defaults() -> None:
    options = parse_sink_options(BROKER)
    assert options.client.bootstrap == "host:9092"
    assert options.client.request_timeout_s == 30
    assert options.topic is None
    assert options.include_headers
    assert (options.acks, options.idempotent, options.max_in_flight) == (ALL_IN_SYNC, True, 5)
    assert options.codec is Codec.NONE
    assert options.batch_bytes == DEFAULT_BATCH_BYTES
    assert options.delivery_timeout_s == 120


def test_everything_given_as_spark_gives_it() -> None:
    """Spark hands names over in lower case."""
    options = parse_sink_options(
        {
            **BROKER,
            "topic": " logs ",
            "includeheaders": "false",
            "delivery": "at-least-once",
            "checkpointlocation": "dir",
            "kafka.acks": "1",
            "kafka.compression.type": "LZ4",
            "kafka.batch.size": "16384",
            "kafka.max.request.size": "10000",
            "kafka.request.timeout.ms": "1500",
            "kafka.delivery.timeout.ms": "2500",
            "kafka.client.id": "me",
            "kafka.linger.ms": "5",
            "kafka.retries": "3",
            "kafka.security.protocol": "plaintext",
            "kafka.max.in.flight.requests.per.connection": "2",
        }
    )
    assert options.topic == "logs"
    assert not options.include_headers
    assert (options.acks, options.idempotent, options.max_in_flight) == (1, False, 2)
    assert options.codec is Codec.LZ4
    assert (options.batch_bytes, options.request_bytes) == (10_000, 10_000)
    assert (options.client.request_timeout_s, options.delivery_timeout_s) == (1.5, 2.5)
    assert options.client.client_id == "me"


@pytest.mark.parametrize(
    ("given", "batch", "most"),
    [
        ({}, DEFAULT_BATCH_BYTES, MAX_REQUEST_BYTES),
        ({"kafka.batch.size": "4000000"}, 4_000_000, MAX_REQUEST_BYTES),
        ({"kafka.max.request.size": "10000"}, 10_000, 10_000),
        ({"kafka.batch.size": "4000000", "kafka.max.request.size": "5000000"}, 4_000_000, 5_000_000),
    ],
)
def test_a_batch_fits_the_request_size_that_was_asked_for(given: dict[str, str], batch: int, most: int) -> None:
    """The default is no limit: a larger batch goes alone."""
    options = parse_sink_options({**BROKER, **given})
    assert (options.batch_bytes, options.request_bytes) == (batch, most)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "option kafka.bootstrap.servers: it is required; write brokers as"),
        ({"bootstrap.servers": "h"}, "did you mean kafka.bootstrap.servers?"),
        ({"bootstrap": "h"}, "write kafka.bootstrap.servers instead of bootstrap"),
        (
            {"kafka.bootstrap.servers": "a b:1"},
            "'a b:1' is not of the form host:port",
        ),
        ({**BROKER, "topic": "a/b"}, "option topic: Invalid topic name: 'a/b'"),
        ({**BROKER, "topic": ""}, "option topic: Invalid topic name: it is empty"),
        ({**BROKER, "topics": "a"}, "option topics: there is no such option; did you mean topic?"),
        ({**BROKER, "kafka.compresion.type": "gzip"}, "did you mean kafka.compression.type?"),
        ({**BROKER, "kafka.compression.type": "brotli"}, "there is no compression 'brotli'; write none, gzip"),
        ({**BROKER, "delivery": "maybe"}, "option delivery: 'maybe' is not a known delivery guarantee"),
        ({**BROKER, "delivery": "exactly-once", "kafka.acks": "1"}, "exactly-once needs kafka.acks=all"),
        ({**BROKER, "sinkId": "a b"}, "option sinkId: 'a b' is not a valid name; write at most 100 letters"),
        ({**BROKER, "kafka.acks": "2"}, "option kafka.acks: '2' is not all, 1 or 0"),
        ({**BROKER, "kafka.acks": "1", "kafka.enable.idempotence": "true"}, "it needs kafka.acks=all, not 1"),
        ({**BROKER, "kafka.enable.idempotence": "yes"}, "'yes' is neither true nor false"),
        ({**BROKER, "kafka.max.in.flight.requests.per.connection": "6"}, "with idempotence it is 5 at most"),
        ({**BROKER, "kafka.batch.size": "big"}, "option kafka.batch.size: 'big' is not a whole number"),
        ({**BROKER, "kafka.batch.size": "0"}, "option kafka.batch.size: 0 is too small"),
        ({**BROKER, "kafka.key.serializer": "x"}, "option kafka.key.serializer: key and value are written as"),
        ({**BROKER, "kafka.value.serializer": "x"}, "give the column value as string or binary"),
        ({**BROKER, "kafka.transactional.id": "x"}, "the sink names its transactions itself"),
        ({**BROKER, "kafka.partitioner.class": "x"}, "give a column partition"),
        ({**BROKER, "kafka.sasl.mechanism": "PLAIN"}, "without kafka.security.protocol"),
        ({**BROKER, "kafka.security.protocol": "TLS"}, "is not one of PLAINTEXT, SSL"),
        ({**BROKER, "path": "x"}, "option path: a topic has no path; use the option topic"),
    ],
)
def test_mistakes_are_named_with_advice(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_sink_options(given)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_nobody_knows_is_left_alone() -> None:
    """Spark passes on what others set, such as its own options of a stream."""
    assert parse_sink_options({**BROKER, "mergeSchema": "true", "queryname": "q"}).topic is None


def test_the_table_is_complete() -> None:
    assert all(option.meaning.endswith(".") for option in (*SINK_OPTIONS, *PRODUCER_SETTINGS))


def test_what_names_the_sink() -> None:
    named = parse_sink_options({**BROKER, "sinkId": "orders", "checkpointLocation": "/c"}).sink
    assert named == SinkSettings("orders", 900_000, "/c")
    made = parse_sink_options(
        {**BROKER, "checkpointLocation": "/c/orders", "kafka.transaction.timeout.ms": "5"}
    ).sink
    assert made is not None
    assert made.sink_id.startswith("orders-")
    assert made.timeout_ms == 5
    assert parse_sink_options(BROKER).sink is None
    for weaker in ({"delivery": "at-least-once"}, {"kafka.acks": "1"}, {"kafka.enable.idempotence": "false"}):
        options = parse_sink_options({**BROKER, "checkpointLocation": "/c", **weaker})
        assert (options.delivery, options.sink) == ("at-least-once", None)
