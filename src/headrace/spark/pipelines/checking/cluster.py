"""Checks a pipeline against the cluster: its topics exist, those read as tables are compacted, and the cluster can
prepare transactions, without which there is no exactly-once delivery.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

from headrace.model.errors import ErrorCode
from headrace.model.topics import HIDDEN_TOPICS
from headrace.spark.client.cluster import BlockingCluster, TopicInfo
from headrace.spark.client.transactions import can_prepare
from headrace.spark.pipelines.definition import BROKER_DEFAULT, Pipeline, Problem, Sink, Source
from headrace.spark.pipelines.nearest import nearest
from headrace.spark.sink.options import AT_LEAST_ONCE, DEFAULT_TRANSACTION_TIMEOUT_MS, EXACTLY_ONCE
from headrace.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)

_TOPIC_RESOURCE = 2
_POLICY = "cleanup.policy"

Topics = Mapping[str, TopicInfo]


def check_cluster(pipeline: Pipeline, cluster: BlockingCluster, *, made: Collection[str] = ()) -> list[Problem]:
    """`made`: topics that other pipelines of the same run create, so that they need not exist yet."""
    topics = cluster.topics()
    coming = {*made, *topics_made(pipeline)}
    found: list[Problem] = []
    for source in pipeline.sources:
        found += _source(pipeline, source, topics, coming)
    for sink in pipeline.sinks:
        found += _sink(pipeline, sink, topics, coming)
    tables = [source for source in pipeline.sources if source.kind == "table" and source.topics[0] in topics]
    if tables:
        policies = cleanup_policies(cluster, [source.topics[0] for source in tables])
        found += [problem for source in tables for problem in _table(pipeline, source, policies)]
    if any(sink.kind == "topic" for sink in pipeline.sinks) and not can_prepare(cluster):
        found += unprepared(pipeline)
    return sorted(found, key=lambda problem: (problem.line, problem.column))


def unprepared(pipeline: Pipeline) -> Iterator[Problem]:
    """What the sinks of a pipeline can promise on a cluster that cannot prepare transactions."""
    for sink in pipeline.sinks:
        options = {name.lower(): value for name, value in sink.options.items()}
        delivery = options.get("delivery", "").lower()
        if sink.kind != "topic" or delivery == AT_LEAST_ONCE:
            continue
        if delivery == EXACTLY_ONCE:
            timeout_ms = options.get("kafka.transaction.timeout.ms", str(DEFAULT_TRANSACTION_TIMEOUT_MS))
            what = (
                f"sink {sink.name}: the cluster cannot prepare transactions (KIP-939): exactly once holds only if "
                f"a batch is committed within {timeout_ms} ms of its first record (kafka.transaction.timeout.ms)"
            )
            advice = (
                "If Spark dies after the decision and is not back by then, the cluster aborts the batch, and the "
                "next run ends with an error."
            )
        else:
            what = (
                f"sink {sink.name}: the cluster cannot prepare transactions (KIP-939), so the topic is written at "
                "least once"
            )
            advice = (
                "After a failure rows may be there twice. Set options: {delivery: exactly-once} for what the "
                "cluster allows, or at-least-once if this is what you want."
            )
        yield pipeline.problem(sink, "options" if delivery else "topic", what, advice, warning=True)


def topics_made(pipeline: Pipeline) -> set[str]:
    """Topics that the pipeline itself creates when they are not there."""
    created = {sink.topic for sink in pipeline.sinks if sink.create is not None}
    created |= {topic for source in pipeline.sources if source.connector is not None for topic in source.topics}
    letters = {topic for source in pipeline.sources for topic in (source.dead_letter, source.late_rows)}
    letters |= {step.dead_letter for step in pipeline.steps}
    return created | {topic for topic in letters if topic is not None}


def partitions_read(pipeline: Pipeline, topics: Topics) -> int:
    """How many partitions the streams of a pipeline read, all together."""
    streams = [source for source in pipeline.sources if source.kind == "topics"]
    return sum(
        info.partition_count
        for source in streams
        for name, info in topics.items()
        if name in source.topics or (source.pattern is not None and _matches(source.pattern, name))
    )


def _source(pipeline: Pipeline, source: Source, topics: Topics, coming: set[str]) -> Iterator[Problem]:
    key = next((key for key in ("topic", "topics", "table") if key in source.places), "")
    for topic in source.topics:
        if topic not in topics and topic not in coming:
            near = nearest(topic, (name for name in topics if name not in HIDDEN_TOPICS))
            advice = f"Did you mean {near}?" if near else f"Create it with `headrace topic create {topic}`."
            yield pipeline.problem(source, key, f"there is no topic {topic}", advice)
    if source.pattern is not None and not any(_matches(source.pattern, name) for name in (*topics, *coming)):
        advice = "Matching topics that are created later will be read, so this can be intended."
        what = f"no topic matches {source.pattern}"
        yield pipeline.problem(source, "pattern", what, advice, warning=True)


def _matches(pattern: str, name: str) -> bool:
    return name not in HIDDEN_TOPICS and re.fullmatch(pattern, name) is not None


def _sink(pipeline: Pipeline, sink: Sink, topics: Topics, coming: set[str]) -> Iterator[Problem]:
    if sink.kind != "topic":
        return
    if "{" in sink.topic:
        if sink.create is None:
            what = f"the topics of {sink.topic} must all exist, but their names are not known yet"
            yield pipeline.problem(
                sink, "topic", what, "Add create: {partitions: 3} to create them.", warning=True
            )
        return
    there = topics.get(sink.topic)
    if there is None:
        if sink.topic not in coming:
            advice = f"Add create: {{partitions: 3}} to the sink, or run `headrace topic create {sink.topic}`."
            yield pipeline.problem(sink, "topic", f"there is no topic {sink.topic}", advice)
    elif sink.create is not None and sink.create.partitions not in (BROKER_DEFAULT, there.partition_count):
        count, wanted = there.partition_count, sink.create.partitions
        what = f"topic {sink.topic} already exists with {count} partition{'s' if count > 1 else ''}, not {wanted}"
        yield pipeline.problem(sink, "create", what, "It is used as it is.", warning=True)


def _table(pipeline: Pipeline, source: Source, policies: Mapping[str, str]) -> Iterator[Problem]:
    topic = source.topics[0]
    policy = policies.get(topic)
    if policy is not None and "compact" not in policy:
        what = f"topic {topic} is read as a table, but its records are deleted by age (cleanup.policy={policy})"
        advice = f"Keep the latest of each key: headrace topic alter {topic} --set cleanup.policy=compact"
        yield pipeline.problem(source, "table", what, advice, warning=True)


def cleanup_policies(cluster: BlockingCluster, topics: list[str]) -> dict[str, str]:
    """By topic; one whose settings may not be read is left out."""
    resources = [
        DescribeConfigsResource(resource_type=_TOPIC_RESOURCE, resource_name=topic, configuration_keys=[_POLICY])
        for topic in topics
    ]
    request = DescribeConfigsRequest(resources=resources, include_synonyms=False, include_documentation=False)
    with cluster.entry() as connection:
        response = connection.request(request, DescribeConfigsResponse)
    return {
        result.resource_name: entry.value
        for result in response.results
        if result.error_code == ErrorCode.NONE
        for entry in result.configs
        if entry.name == _POLICY and entry.value is not None
    }
