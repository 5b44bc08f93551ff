"""Transactions and the Java world: its producer (transactions version 2), its tools, its reader of our log."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from headrace.model.errors import ErrorCode
from headrace.testing.process import BrokerProcess
from tests.compat.confluent_admin import AdminClient, NewTopic
from tests.compat.conftest import MakeTopic, unique_name
from tests.compat.test_java_tools import CONSOLE_CONSUMER, DUMP_LOG, PERFORMANCE, TRANSACTIONS, java
from tests.compat.transaction_client import TransactionClient

pytestmark = pytest.mark.java
TIMEOUT_S = 60
OPEN_MS = 900_000
"""Of a transaction that stays open while the tools look at it: a JVM may take a minute to start."""
NONE = ErrorCode.NONE


def test_the_producer_commits(group_bootstrap: str, group_topic: MakeTopic) -> None:
    """Two thousand records, a new transaction every ten milliseconds, all of them committed."""
    topic, name = group_topic(2), unique_name("x")
    load = ("--num-records", "2000", "--record-size", "10", "--throughput", "10000")
    transactions = ("--transactional-id", name, "--transaction-duration-ms", "10")
    said = java(
        PERFORMANCE,
        "--topic",
        topic,
        *load,
        *transactions,
        "--command-property",
        f"bootstrap.servers={group_bootstrap}",
    )
    assert "2000 records sent" in said
    server = ("--bootstrap-server", group_bootstrap)
    reader = ("--topic", topic, "--from-beginning", "--isolation-level", "read_committed")
    assert len(java(CONSOLE_CONSUMER, *server, *reader, "--max-messages", "2000").split()) == 2000
    with TransactionClient(group_bootstrap, name) as client:
        state = client.until_state("CompleteCommit")
    assert state.producer_epoch > 0, "every end bumped the epoch"


def test_the_tool(group_bootstrap: str, group_topic: MakeTopic) -> None:
    topic, name = group_topic(1), unique_name("x")
    server = ("--bootstrap-server", group_bootstrap)
    with TransactionClient(group_bootstrap, name) as client:
        client.find()
        client.init_until_ready(transaction_timeout_ms=OPEN_MS)
        assert client.add(topic, 0) == [NONE]
        assert client.produce(topic) is NONE
        listed = java(TRANSACTIONS, *server, "list", "--transactional-id-pattern", f"{name}.*")
        assert re.search(rf"{name}\s+\d+\s+{client.producer_id}\s+Ongoing", listed)
        described = java(TRANSACTIONS, *server, "describe", "--transactional-id", name)
        assert re.search(rf"{name}\s+{client.producer_id}\s+0\s+Ongoing\s+{OPEN_MS}\s.*{topic}-0", described)
        terminated = ("forceTerminateTransaction", "--transactionalId", name)
        java(TRANSACTIONS, *server, *terminated)
        client.until(lambda: client.describe().transaction_state, lambda state: state != "Ongoing")


@pytest.mark.headrace_only
def test_the_log_tool_reads_our_transactions() -> None:
    """Every state that is stored, and a prepared transaction, whose record has a field of our own."""
    with BrokerProcess({"transaction.state.log.num.partitions": "1"}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic("orders", 2, 1)])["orders"].result(TIMEOUT_S)
        with TransactionClient(broker.bootstrap, "id") as client:
            client.find()
            assert client.init() is NONE
            for commit in (True, False):
                assert client.produce("orders", 1, 12) is NONE
                assert client.end(commit, 5) is NONE
                client.until_state("CompleteCommit" if commit else "CompleteAbort")
            assert client.add("orders", 0) == [NONE]
            assert client.init(6, enable2_pc=True, keep_prepared_txn=True) is NONE
        broker.terminate()
        (segment,) = Path(broker.data_dir).glob("*/__transaction_state-0/*.log")
        dumped = java(DUMP_LOG, "--transaction-log-decoder", "--deep-iteration", "--files", str(segment))
    pairs = re.findall(r"key: (\{.*?\}) payload: (\{.*\})", dumped)
    assert len(pairs) == len(re.findall(r"\| offset: \d+", dumped)), "every record was understood"
    assert {json.loads(key)["data"]["transactionalId"] for key, _ in pairs} == {"id"}
    values = [json.loads(value)["data"] for _, value in pairs]
    assert [value["transactionStatus"] for value in values] == [0, 1, 2, 4, 1, 3, 5, 1, 1]
    assert values[1]["transactionPartitions"] == [{"topic": "orders", "partitionIds": [1]}]
    assert values[-1]["transactionTimeoutMs"] == 2**31 - 1
    assert (values[-1]["producerEpoch"], values[-1]["nextProducerEpoch"]) == (2, 3)
