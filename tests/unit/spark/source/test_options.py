"""The options of the source (R-SPK-1): those of Spark's kafka format, and some of our own."""

from __future__ import annotations

import pickle

import pytest

from headrace.model.topics import TopicPartition
from headrace.spark.source.option_names import CONSUMER_SETTINGS, REFUSED_SETTINGS, SOURCE_OPTIONS
from headrace.spark.source.options import (
    Isolation,
    OptionError,
    Retries,
    SourceOptions,
    TopicChoice,
    parse_source_options,
)
from headrace.spark.source.positions import AT_EARLIEST, AT_LATEST, PositionKind, TimestampStrategy
from headrace.spark.source.ranges import DEFAULT_TARGET_BYTES, Splitting
from headrace.spark.source.rate_limit import RateLimits

BASE = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}


def stream(**more: str) -> SourceOptions:
    return parse_source_options({**BASE, **more}, streaming=True)


def batch(**more: str) -> SourceOptions:
    return parse_source_options({**BASE, **more}, streaming=False)


def problem(given: dict[str, str], *, streaming: bool = True) -> OptionError:
    with pytest.raises(OptionError) as caught:
        parse_source_options(given, streaming=streaming)
    return caught.value


def test_defaults_of_a_stream() -> None:
    options = stream()
    assert (options.start.default, options.end.default) == (AT_LATEST, AT_LATEST)
    assert options.bootstrap == "localhost:9092"
    assert options.topics == TopicChoice(subscribe=("orders",))
    assert options.limits == RateLimits(max_trigger_delay_ms=900_000)
    assert options.splitting == Splitting(target_bytes=DEFAULT_TARGET_BYTES)
    assert options.retries == Retries(3, 1000)
    assert options.isolation is Isolation.READ_COMMITTED
    assert options.fail_on_data_loss
    assert not options.include_headers
    assert options.group_id is None
    assert options.stop_file is None


def test_a_batch_starts_at_earliest_and_ends_at_latest() -> None:
    options = batch()
    assert (options.start.default, options.end.default) == (AT_EARLIEST, AT_LATEST)


def test_names_are_compared_without_case() -> None:
    given = {name.upper(): value for name, value in BASE.items()}
    assert parse_source_options({**given, "FAILONDATALOSS": "FALSE"}, streaming=True).fail_on_data_loss is False


def test_every_value_arrives() -> None:
    options = stream(
        maxOffsetsPerTrigger="100",
        minOffsetsPerTrigger="10",
        maxTriggerDelay="2m",
        maxBytesPerTrigger="64m",
        minPartitions="4",
        maxRecordsPerPartition="1000",
        includeHeaders="true",
        groupId="pipeline.sink",
        **{
            "fetchOffset.numRetries": "0",
            "fetchOffset.retryIntervalMs": "7",
            "kafkaConsumer.pollTimeoutMs": "500",
            "kafka.isolation.level": "read_uncommitted",
            "kafka.client.id": "me",
            "kafka.max.partition.fetch.bytes": "1000",
            "kafka.request.timeout.ms": "900",
        },
    )
    assert options.limits == RateLimits(100, 10, 120_000, 64 * 1024 * 1024)
    assert options.splitting == Splitting(4, 1000, None)
    assert options.retries == Retries(0, 7)
    assert options.isolation is Isolation.READ_UNCOMMITTED
    assert (options.client_id, options.group_id, options.include_headers) == ("me", "pipeline.sink", True)
    assert (options.poll_timeout_ms, options.fetch_max_bytes, options.request_timeout_ms) == (500, 1000, 900)


def test_size_splits_beside_the_others_when_asked_for() -> None:
    assert stream(minPartitions="4", targetBytesPerTask="1m").splitting == Splitting(4, None, 1024 * 1024)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"subscribe": " b, a ,,a"}, TopicChoice(subscribe=("a", "b"))),
        ({"subscribePattern": " ^a.*$ "}, TopicChoice(pattern="^a.*$")),
        ({"assign": '{"b": [2, 0, 2], "a": [1]}'}, TopicChoice(assign={"a": (1,), "b": (0, 2)})),
    ],
)
def test_what_to_read(given: dict[str, str], expected: TopicChoice) -> None:
    options = {"kafka.bootstrap.servers": "h:1", **given}
    assert parse_source_options(options, streaming=True).topics == expected


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "one of them is required"),
        ({"topic": "a"}, "did you mean subscribe instead of topic?"),
        ({"path": "a"}, "did you mean subscribe instead of path?"),
        ({"subscribe": "a", "subscribePattern": "b"}, "exclude each other"),
        ({"subscribe": "a", "assign": "{}"}, "exclude each other"),
        ({"subscribe": " , "}, "names no topic"),
        ({"subscribePattern": " "}, "is empty"),
        ({"subscribePattern": "a("}, "not a regular expression"),
        ({"assign": "a"}, "is not JSON"),
        ({"assign": "{}"}, "assigns no partitions"),
        ({"assign": '{"a": 0}'}, "instead of its partitions"),
        ({"assign": '{"a": []}'}, "instead of its partitions"),
        ({"assign": '{"a": [-1]}'}, "instead of its partitions"),
        ({"assign": '{"a": [true]}'}, "instead of its partitions"),
    ],
)
def test_what_to_read_must_be_said_once_and_well(given: dict[str, str], says: str) -> None:
    assert says in str(problem({"kafka.bootstrap.servers": "h:1", **given}))


COUNTS = {"a": 2, "b": 1, "xa": 1, "__consumer_offsets": 50}


@pytest.mark.parametrize(
    ("choice", "names", "partitions", "missing"),
    [
        (TopicChoice(subscribe=("a", "z")), ("a", "z"), ["a-0", "a-1"], ["z"]),
        (TopicChoice(pattern="a"), None, ["a-0", "a-1", "xa-0"], []),
        (TopicChoice(pattern="^a$"), None, ["a-0", "a-1"], []),
        (TopicChoice(pattern="offsets"), None, [], []),
        (TopicChoice(assign={"a": (1, 2), "z": (0,)}), ("a", "z"), ["a-1"], ["z", "a-2"]),
    ],
)
def test_what_is_read_of_what_is_there(
    choice: TopicChoice, names: tuple[str, ...] | None, partitions: list[str], missing: list[str]
) -> None:
    assert choice.names() == names
    assert [str(one) for one in choice.partitions(COUNTS)] == partitions
    assert choice.missing(COUNTS) == missing


def test_a_topic_of_the_cluster_can_be_named() -> None:
    assert TopicPartition("__consumer_offsets", 49) in TopicChoice(subscribe=("__consumer_offsets",)).partitions(
        COUNTS
    )


@pytest.mark.parametrize(
    ("given", "option", "kind"),
    [
        ({"startingOffsets": "earliest"}, "startingOffsets", PositionKind.EARLIEST),
        ({"startingOffsets": "-10m"}, "startingOffsets", PositionKind.AGO),
        (
            {"startingOffsets": "earliest", "startingOffsetsByTimestamp": '{"a": {"0": 1}}'},
            "startingOffsetsByTimestamp",
            PositionKind.EARLIEST,
        ),
        (
            {"startingOffsets": "earliest", "startingOffsetsByTimestamp": "{}", "startingTimestamp": "5"},
            "startingTimestamp",
            PositionKind.TIMESTAMP,
        ),
    ],
)
def test_a_start_in_time_goes_before_offsets(given: dict[str, str], option: str, kind: PositionKind) -> None:
    for options in (stream(**given), batch(**given)):
        assert (options.start.option, options.start.default.kind) == (option, kind)


def test_an_end_in_time_goes_before_offsets() -> None:
    options = batch(endingTimestamp="5", endingOffsetsByTimestamp="{}", endingOffsets="latest")
    assert options.end.option == "endingTimestamp"
    assert batch(endingOffsetsByTimestamp="{}", endingOffsets="latest").end.option == "endingOffsetsByTimestamp"


@pytest.mark.parametrize(
    ("given", "strategy"),
    [
        ({}, TimestampStrategy.LATEST),
        ({"startingOffsets": "-10m"}, TimestampStrategy.LATEST),
        ({"startingTimestamp": "5"}, TimestampStrategy.ERROR),
        ({"startingOffsetsByTimestamp": "{}"}, TimestampStrategy.ERROR),
        ({"startingTimestamp": "5", "startingOffsetsByTimestampStrategy": "Latest"}, TimestampStrategy.LATEST),
        ({"startingOffsets": "-10m", "startingOffsetsByTimestampStrategy": "error"}, TimestampStrategy.ERROR),
    ],
)
def test_what_a_time_that_no_record_reaches_means(given: dict[str, str], strategy: TimestampStrategy) -> None:
    assert stream(**given).timestamp_strategy is strategy


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"endingOffsets": "latest"}, "a stream has no end"),
        ({"endingOffsetsByTimestamp": "{}"}, "a stream has no end"),
        ({"endingTimestamp": "5"}, "a stream has no end"),
        ({"startingOffsets": "oldest"}, "is not a position"),
        ({"startingOffsetsByTimestampStrategy": "skip"}, "neither error nor latest"),
        ({"failOnDataLoss": "no"}, "neither true nor false"),
        ({"maxOffsetsPerTrigger": "many"}, "not a whole number"),
        ({"maxOffsetsPerTrigger": "0"}, "too small"),
        ({"minOffsetsPerTrigger": "11", "maxOffsetsPerTrigger": "10"}, "more than maxOffsetsPerTrigger"),
        ({"maxTriggerDelay": "soon"}, "not a duration"),
        ({"maxBytesPerTrigger": "0"}, "not a size"),
        ({"maxBytesPerTrigger": "-5m"}, "not a size"),
        ({"minPartitions": "0"}, "too small"),
        ({"maxRecordsPerPartition": "-1"}, "too small"),
        ({"fetchOffset.numRetries": "-1"}, "too small"),
        ({"kafka.isolation.level": "none"}, "neither read_committed nor read_uncommitted"),
        ({"kafka.bootstrap.servers": "host:port"}, "host:port"),
    ],
)
def test_a_wrong_value_is_named(given: dict[str, str], says: str) -> None:
    error = problem({**BASE, **given})
    assert says in str(error)
    assert error.option.split(",")[0] in {*given, "startingOffsetsByTimestampStrategy"}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"startingOffsets": "latest"}, "a batch cannot start at latest"),
        ({"startingOffsets": '{"a": {"0": -1}}'}, "a batch cannot start at latest (as a-0 does)"),
        ({"endingOffsets": "earliest"}, "a batch cannot end at earliest"),
        ({"endingOffsets": '{"a": {"0": -2}}'}, "a batch cannot end at earliest (as a-0 does)"),
        (
            {"startingOffsets": '{"a": {"0": 9}}', "endingOffsets": '{"a": {"0": 8}}'},
            "a-0: the start 9 comes after the end 8",
        ),
        ({"startingTimestamp": "9", "endingTimestamp": "8"}, "the start 9 comes after the end 8"),
        ({"startingOffsets": "-1m", "endingOffsets": "-2m"}, "comes after the end"),
        (
            {"startingTimestamp": "9", "endingOffsetsByTimestamp": '{"a": {"0": 8}}'},
            "a-0: the start 9 comes after the end 8",
        ),
    ],
)
def test_what_a_batch_cannot_do(given: dict[str, str], says: str) -> None:
    assert says in str(problem({**BASE, **given}, streaming=False))


def test_a_batch_passes_over_the_limits_of_a_stream() -> None:
    batch(maxOffsetsPerTrigger="5", minOffsetsPerTrigger="2", maxTriggerDelay="1m", groupId="g")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"subscribe": "a"}, "kafka.bootstrap.servers: it is required"),
        ({"subscribe": "a", "kafka.bootstrap.servers": " "}, "it is required"),
        (
            {"subscribe": "a", "bootstrap.servers": "h:1"},
            "write kafka.bootstrap.servers instead of bootstrap.servers",
        ),
    ],
)
def test_brokers_must_be_given(given: dict[str, str], says: str) -> None:
    assert says in str(problem(given))


@pytest.mark.parametrize("setting", REFUSED_SETTINGS)
def test_settings_that_would_change_what_is_read_are_refused_with_the_reason(setting: str) -> None:
    error = problem({**BASE, f"kafka.{setting}": "x"})
    assert error.option == f"kafka.{setting}"
    assert error.problem
    assert error.advice


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"security.protocol": "TLS"}, "PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ({"security.protocol": "SASL_PLAINTEXT"}, "sasl.mechanism is one of"),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}, "sasl.password are missing"),
        ({"sasl.mechanism": "PLAIN"}, "without kafka.security.protocol"),
        ({"security.protocol": "SSL", "ssl.ca.location": "/no/ca.pem"}, "No such file"),
        ({"security.protocol": "SSL", "ssl.ca.locaton": "x"}, "did you mean kafka.ssl.ca.location?"),
        ({"security.protocol": "SSL", "ssl.engine.factory.class": "x.Y"}, "Java classes"),
    ],
)
def test_what_is_wrong_with_security_is_said(given: dict[str, str], said: str) -> None:
    assert said in str(problem({**BASE, **{f"kafka.{name}": value for name, value in given.items()}}))


def test_how_to_log_in_and_whom_to_trust() -> None:
    assert stream(**{"kafka.security.protocol": "plaintext"}).security is None
    options = stream(
        **{
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "SCRAM-SHA-512",
            "kafka.sasl.username": "alice",
            "kafka.sasl.password": "hush",
            "kafka.ssl.endpoint.identification.algorithm": "",
        }
    )
    security = options.security
    assert security is not None
    assert security.login is not None
    assert security.tls is not None
    assert (security.login.user, security.tls.verify, security.tls.verify_host) == ("alice", True, False)
    assert "hush" not in repr(options)
    assert pickle.loads(pickle.dumps(options)) == options, "it travels to the tasks"


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("startingOffset", "startingOffsets"),
        ("starting_offsets", "startingOffsets"),
        ("failOnDataLost", "failOnDataLoss"),
        ("maxOffsetPerTrigger", "maxOffsetsPerTrigger"),
        ("subscribePatern", "subscribePattern"),
        ("includeHeader", "includeHeaders"),
        ("groupIds", "groupId"),
        ("kafka.isolation.levels", "kafka.isolation.level"),
        ("kafka.bootstrap.server", "kafka.bootstrap.servers"),
        ("kafka.max.poll.record", "kafka.max.poll.records"),
    ],
)
def test_a_slip_of_the_pen_is_an_error_that_names_what_was_meant(name: str, meant: str) -> None:
    assert f"did you mean {meant}?" in str(problem({**BASE, name: "1"}))


@pytest.mark.parametrize(
    "name",
    [
        "path",
        "mergeSchema",
        "topic",
        "delivery",
        "kafka.max.poll.records",
        "kafka.session.timeout.ms",
        "kafka.group.id",
        "kafka.acks",
        "groupIdPrefix",
        "partition.metadata.cache.ttl.ms",
    ],
)
def test_what_means_nothing_here_is_passed_over(name: str) -> None:
    stream(**{name: "1"})


def test_every_option_is_in_one_table_with_its_meaning() -> None:
    names = [option.name.lower() for option in (*SOURCE_OPTIONS, *CONSUMER_SETTINGS)]
    assert len(names) == len(set(names))
    for option in (*SOURCE_OPTIONS, *CONSUMER_SETTINGS):
        assert option.meaning.endswith(".")
        assert option.use in ("both", "stream", "batch")
