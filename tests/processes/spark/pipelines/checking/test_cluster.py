"""What a pipeline needs of a cluster, asked of a real one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.spark.client.cluster import BlockingCluster, ClusterSettings
from headrace.spark.pipelines.checking.cluster import partitions_read, topics_made, unprepared
from headrace.spark.pipelines.checking.static import check_cluster
from headrace.spark.pipelines.loading.files import load_pipeline
from headrace.testing import Broker


@pytest.fixture(scope="module")
def cluster(headrace_broker: Broker) -> Iterator[BlockingCluster]:
    headrace_broker.create_topic("check.logs", 3)
    headrace_broker.create_topic("check.users", 1, {"cleanup.policy": "compact"})
    cluster = BlockingCluster(ClusterSettings(headrace_broker.bootstrap_servers))
    yield cluster
    cluster.close()


def source(text: str) -> str:
    return f"sources:\n  raw: {{{text}}}\nsinks:\n  out: {{from: raw, console: true}}\n"


def sink(text: str) -> str:
    return f"sources:\n  raw: {{topic: check.logs}}\nsinks:\n  out: {{from: raw, {text}}}\n"


CASES = [
    (source("topic: check.logs"), ""),
    (source("topics: [check.logs, check.users]"), ""),
    (source("topic: chek.logs"), "2:16: there is no topic chek.logs\n    Did you mean check.logs?"),
    (
        source("topics: [check.logs, far-away]"),
        "2:17: there is no topic far-away\n    Create it with `headrace topic create far-away`.",
    ),
    (source('pattern: "check[.].*"'), ""),
    (
        source('pattern: "chek.*"'),
        "2:18: warning: no topic matches chek.*\n"
        "    Matching topics that are created later will be read, so this can be intended.",
    ),
    (source("table: check.users"), ""),
    (
        source("table: check.logs"),
        "2:16: warning: topic check.logs is read as a table, but its records are deleted by age "
        "(cleanup.policy=delete)\n"
        "    Keep the latest of each key: headrace topic alter check.logs --set cleanup.policy=compact",
    ),
    (source("table: check.user"), "2:16: there is no topic check.user\n    Did you mean check.users?"),
    (sink("topic: check.users"), ""),
    (
        sink("topic: check.out"),
        "4:27: there is no topic check.out\n"
        "    Add create: {partitions: 3} to the sink, or run `headrace topic create check.out`.",
    ),
    (sink("topic: check.out, create: true"), ""),
    (sink("topic: check.out, create: {partitions: 5}"), ""),
    (sink("topic: check.users, create: true"), ""),
    (
        sink("topic: check.users, create: {partitions: 5}"),
        "4:48: warning: topic check.users already exists with 1 partition, not 5\n    It is used as it is.",
    ),
    (sink('topic: "check.{key}", create: true'), ""),
    (
        sink('topic: "check.{key}"'),
        "4:27: warning: the topics of check.{key} must all exist, but their names are not known yet\n"
        "    Add create: {partitions: 3} to create them.",
    ),
    (sink("parquet: out"), ""),
    (
        "sources:\n  raw: {topic: check.logs}\n  next: {topic: made}\nsinks:\n"
        "  a: {from: raw, topic: made, create: true}\n  b: {from: next, console: true}\n",
        "",
    ),
]


@pytest.mark.parametrize(("text", "told"), CASES)
def test_topics_of_a_pipeline(cluster: BlockingCluster, tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "p.yml"
    file.write_text(text)
    problems = check_cluster(load_pipeline(file, {}), cluster)
    assert "\n".join(str(problem).removeprefix(f"{file}:") for problem in problems) == told


def test_a_topic_that_another_pipeline_makes(cluster: BlockingCluster, tmp_path: Path) -> None:
    first, second = tmp_path / "first.yml", tmp_path / "second.yml"
    first.write_text(sink("topic: check.made, create: true"))
    second.write_text(source("topic: check.made"))
    made = topics_made(load_pipeline(first, {}))
    assert made == {"check.made"}
    assert check_cluster(load_pipeline(second, {}), cluster, made=made) == []
    assert len(check_cluster(load_pipeline(second, {}), cluster)) == 1


def test_partitions_of_all_streams(cluster: BlockingCluster, tmp_path: Path) -> None:
    file = tmp_path / "p.yml"
    file.write_text(
        "sources:\n  a: {topic: check.logs}\n  b: {pattern: 'check.l.*'}\n  users: {table: check.users}\n"
        "  gone: {topic: check.gone}\nsinks:\n  out: {from: a, console: true}\n"
    )
    assert partitions_read(load_pipeline(str(file)), cluster.topics()) == 6


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("topic: out", "so the topic is written at least once\n    After a failure rows may be there twice."),
        ("topic: out, options: {delivery: at-least-once}", ""),
        (
            "topic: out, options: {delivery: exactly-once}",
            "only if a batch is committed within 900000 ms of its first record",
        ),
        (
            "topic: out, options: {delivery: exactly-once, kafka.transaction.timeout.ms: 5000}",
            "only if a batch is committed within 5000 ms of its first record",
        ),
        ("parquet: out", ""),
    ],
)
def test_what_a_cluster_without_prepared_transactions_allows(tmp_path: Path, text: str, wanted: str) -> None:
    """Apache Kafka, today. Nobody is to find out from their data."""
    file = tmp_path / "pipeline.yml"
    file.write_text(sink(text))
    problems = list(unprepared(load_pipeline(file, {})))
    assert all(problem.warning for problem in problems)
    assert wanted in "".join(map(str, problems))
    assert bool(problems) == bool(wanted)
