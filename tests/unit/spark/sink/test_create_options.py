"""Whether and how the sink makes topics that are not there."""

from __future__ import annotations

import pytest

from headrace.spark.client.creating import TopicShape
from headrace.spark.option_table import OptionError
from headrace.spark.sink.options import parse_sink_options

BROKER = {"kafka.bootstrap.servers": "host:9092"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, None),
        ({"create.partitions": "3"}, TopicShape(3)),
        ({"create.partitions": "-1", "create.replication": "2"}, TopicShape(-1, 2)),
        (
            {
                "create.partitions": "1",
                "create.config.retention.ms": "5",
                "create.config.cleanup.policy": "compact",
            },
            TopicShape(1, config=(("cleanup.policy", "compact"), ("retention.ms", "5"))),
        ),
    ],
)
def test_how_topics_are_made(given: dict[str, str], expected: TopicShape | None) -> None:
    assert parse_sink_options({**BROKER, **given}).create == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"create.replication": "2"}, "create.replication: it has no effect without create.partitions"),
        (
            {"create.config.retention.ms": "5"},
            "create.config.retention.ms: it has no effect without create.partitions",
        ),
        ({"create.partitons": "2"}, "did you mean create.partitions?"),
        ({"create.partitions": "many"}, "'many' is not a whole number"),
    ],
)
def test_mistakes(given: dict[str, str], expected: str) -> None:
    with pytest.raises(OptionError) as refused:
        parse_sink_options({**BROKER, **given})
    assert expected in str(refused.value)
