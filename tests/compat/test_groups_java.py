"""Groups with Apache Kafka's own tools and the Java client, and what its log tool makes of our offsets topic.

Run with `--with-java`, as in `make conformance`.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from headrace.testing.process import BrokerProcess
from headrace.wire.messages.join_group import JoinGroupRequestProtocol
from tests.compat.clients import Confluent, Record
from tests.compat.confluent_admin import AdminClient, NewTopic
from tests.compat.conftest import GROUP_SETTINGS, MakeTopic, unique_name
from tests.compat.group_client import GroupClient, subscription
from tests.compat.group_members import ConfluentConsumerProtocol, Membership, poll_until
from tests.compat.test_java_tools import CONSOLE_CONSUMER, DUMP_LOG, java

GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
TIMEOUT_S = 60

pytestmark = pytest.mark.java


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_console_consumer_and_group_tool(group_bootstrap: str, group_topic: MakeTopic, protocol: str) -> None:
    """The Java client in a group; then the tool: list, describe, reset, delete."""
    topic, group = group_topic(2), unique_name("java")
    records = [Record(b"%d" % number, partition=number % 2) for number in range(10)]
    Confluent().produce(group_bootstrap, topic, records)
    server = ("--bootstrap-server", group_bootstrap)
    read = java(
        CONSOLE_CONSUMER,
        *(*server, "--topic", topic, "--group", group, "--from-beginning", "--max-messages", "10"),
        *("--command-property", f"group.protocol={protocol}", "--timeout-ms", "20000"),
    )
    assert sorted(int(line) for line in read.split()) == list(range(10))
    assert group in java(GROUPS, *server, "--list").split()
    state = java(GROUPS, *server, "--describe", "--state", "--group", group)
    assert re.search(rf"{group}\s.*\sEmpty\s+0", state)
    described = java(GROUPS, *server, "--describe", "--group", group)
    for partition in range(2):
        assert re.search(rf"{group}\s+{topic}\s+{partition}\s+5\s+5\s+0\s", described)
    target = ("--group", group, "--topic", topic)
    java(GROUPS, *server, "--reset-offsets", *target, "--to-offset", "2", "--execute")
    described = java(GROUPS, *server, "--describe", "--group", group)
    assert re.search(rf"{group}\s+{topic}\s+0\s+2\s+5\s+3\s", described)
    java(GROUPS, *server, "--delete-offsets", *target)
    assert topic not in java(GROUPS, *server, "--describe", "--group", group)


def test_members_and_deletion(group_bootstrap: str, group_topic: MakeTopic) -> None:
    topic, group = group_topic(2), unique_name("java")
    member = ConfluentConsumerProtocol(group_bootstrap, Membership(group, (topic,)))
    poll_until([member], lambda: len(member.assignment()) == 2)
    server = ("--bootstrap-server", group_bootstrap)
    members = java(GROUPS, *server, "--describe", "--members", "--verbose", "--group", group)
    assert re.search(rf"{group}\s+\S+\s+/127.0.0.1\s+rdkafka\s+2\s", members)
    member.close()
    assert "was successful" in java(GROUPS, *server, "--delete", "--group", group)
    assert group not in java(GROUPS, *server, "--list").split()


@pytest.mark.headrace_only
def test_the_log_tool_reads_our_groups() -> None:
    """Every kind of record that a group can leave behind."""
    with BrokerProcess({**GROUP_SETTINGS, "offsets.topic.num.partitions": "1"}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic("orders", 2, 1)])["orders"].result(TIMEOUT_S)
        with GroupClient(broker.bootstrap) as client:
            client.wait_for_coordinator("classic")
            client.settle(
                "classic",
                group_instance_id="seat",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription("orders"))],
            )
            assert client.commit("simple", "orders", 7, metadata="note") == 0
        member = ConfluentConsumerProtocol(broker.bootstrap, Membership("modern", pattern="^ord.*"))
        poll_until([member], lambda: len(member.assignment()) == 2)
        member.close()
        broker.terminate()
        (segment,) = Path(broker.data_dir).glob("*/__consumer_offsets-0/*.log")
        dumped = java(DUMP_LOG, "--offsets-decoder", "--deep-iteration", "--files", str(segment))
    pairs = re.findall(r"key: (\{.*?\}) payload: (\{.*\}|<DELETE>)", dumped)
    kinds = {json.loads(key)["type"] for key, _ in pairs}
    assert kinds == {"1", "2", "3", "5", "6", "7", "8", "16"}
    (commit,) = [json.loads(value) for key, value in pairs if json.loads(key)["type"] == "1"]
    assert (commit["data"]["offset"], commit["data"]["metadata"]) == (7, "note")
    assert "null" not in {value for _, value in pairs}
    assert len(pairs) == len(re.findall(r"\| offset: \d+", dumped)), "every record was understood"
