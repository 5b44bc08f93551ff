"""Apache Kafka's own tools move partitions of three brokers, and elect their leaders."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.testing.process_cluster import ProcessCluster, wait_until
from tests.compat.confluent_admin import AdminClient, NewTopic
from tests.compat.test_java_tools import ELECT, REASSIGN, java

pytestmark = [pytest.mark.java, pytest.mark.headrace_only]
TOPIC = "moving"
PATIENCE_SECONDS = 60.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[ProcessCluster]:
    with ProcessCluster(3) as brokers:
        admin = AdminClient({"bootstrap.servers": brokers.bootstrap})
        wait_until(lambda: len(admin.list_topics(timeout=10).brokers) == 3, "three brokers")
        admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result(60)
        yield brokers


def test_partitions_are_moved_and_led(cluster: ProcessCluster, tmp_path: Path) -> None:
    server = ("--bootstrap-server", cluster.bootstrap)
    topics, plan = tmp_path / "topics.json", tmp_path / "plan.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": TOPIC}]}))
    generated = java(
        REASSIGN, *server, "--generate", "--topics-to-move-json-file", str(topics), "--broker-list", "2,3"
    )
    assert "Proposed partition reassignment configuration" in generated
    targets = {0: [2, 3], 1: [3, 1]}
    rows = [{"topic": TOPIC, "partition": part, "replicas": to} for part, to in targets.items()]
    plan.write_text(json.dumps({"version": 1, "partitions": rows}))
    file = ("--reassignment-json-file", str(plan))
    executed = java(REASSIGN, *server, "--execute", *file, "--throttle", "50000000")
    assert "Successfully started partition reassignments" in executed
    deadline = time.monotonic() + PATIENCE_SECONDS
    while "is still in progress" in (verified := java(REASSIGN, *server, "--verify", *file)):
        assert time.monotonic() < deadline, verified
    assert verified.count("is completed.") == 2, verified
    assert "Clearing broker-level throttles" in verified
    assert "No partition reassignments found." in java(REASSIGN, *server, "--list")
    partitions = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(TOPIC, timeout=10).topics[TOPIC]
    assert {index: list(one.replicas) for index, one in partitions.partitions.items()} == targets
    elected = java(ELECT, *server, "--election-type", "preferred", "--topic", TOPIC, "--partition", "0")
    assert f"{TOPIC}-0" in elected
