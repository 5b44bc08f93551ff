"""The fixtures, in pytest runs of their own: found without any configuration, shared, cleaned up, explained."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

TESTS = """
from confluent_kafka import Consumer, Producer, TopicPartition

seen = []

def test_a_topic_of_its_own(headrace_broker, headrace_topic):
    topic = headrace_topic(partitions=2)
    assert topic != headrace_topic()
    producer = Producer({"bootstrap.servers": headrace_broker.bootstrap_servers})
    producer.produce(topic, "hello", partition=1)
    assert producer.flush(60) == 0
    consumer = Consumer({"bootstrap.servers": headrace_broker.bootstrap_servers, "group.id": "g"})
    consumer.assign([TopicPartition(topic, 1, 0)])
    assert consumer.poll(60).value() == b"hello"
    seen.append((headrace_broker.bootstrap_servers, topic))

def test_the_broker_is_shared_and_the_topics_are_gone(headrace_broker):
    (bootstrap, topic), = seen
    assert headrace_broker.bootstrap_servers == bootstrap
    assert headrace_broker.create_topic(topic) == topic
    assert headrace_broker.overrides["num.partitions"] == "7", "from conftest.py"

def test_others(headrace_broker, headrace_broker_factory):
    other = headrace_broker_factory({"node.id": "7"})
    assert other.bootstrap_servers != headrace_broker.bootstrap_servers
    print("PIDS", other.pid, headrace_broker.pid)

def test_that_fails(headrace_broker):
    headrace_broker.create_topic("made-by-the-test-that-fails")
    assert headrace_broker is None

def test_with_a_typo(headrace_broker_factory):
    headrace_broker_factory({"num.partitons": "3"})
"""

CONFTEST = """
import pytest

@pytest.fixture(scope="session")
def headrace_settings():
    return {"num.partitions": "7"}
"""


def test_the_plugin_is_announced() -> None:
    """Fails when .venv is older than pyproject.toml: make setup."""
    (entry,) = entry_points(group="pytest11", name="headrace")
    assert entry.value == "headrace.testing.pytest_plugin"


def test_a_run_with_the_fixtures(tmp_path: Path) -> None:
    (tmp_path / "test_orders.py").write_text(TESTS)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rP", "-p", "no:cacheprovider", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        cwd=tmp_path,
    )
    assert "2 failed, 3 passed" in result.stdout, result.stdout + result.stderr
    assert "log of the broker at 127.0.0.1:" in result.stdout, "the failure comes with the broker's log"
    told = result.stdout.partition("log of the broker at 127.0.0.1:")[2]
    assert "topic=made-by-the-test-that-fails" in told
    assert "is ready at" not in told, "what was logged before this test"
    assert "did you mean num.partitions?" in result.stdout
    assert "def is_ready" not in result.stdout, "code of the fixtures is not what a test author looks for"
    (pids,) = (line for line in result.stdout.splitlines() if line.startswith("PIDS"))
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids.split()[1:])
