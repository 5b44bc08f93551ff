"""`headrace.testing.Broker`: several at once, plain and async, nothing left when the test process is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from headrace.cli.broker.run_files import is_broker
from headrace.model.errors import ErrorCode, KafkaError
from headrace.testing import AsyncBroker, Broker, BrokerCluster, ServerFailed

END_TIMEOUT_S = 60.0

LEFT_ALONE = """
import sys, time
from headrace.testing import Broker
broker = Broker()
broker.start()
print(broker.pid, broker.root, flush=True)
time.sleep(float(sys.argv[1]))
"""


def ends(pid: int) -> bool:
    deadline = time.monotonic() + END_TIMEOUT_S
    while is_broker(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not is_broker(pid)


def send(broker: Broker, topic: str, value: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce(topic, value)
    assert producer.flush(60) == 0


def receive(broker: Broker, topic: str) -> str:
    """With a group, which a broker for tests forms at once."""
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    try:
        message = consumer.poll(60)
        assert message is not None
        assert message.error() is None
        value = message.value()
        assert value is not None
        return value.decode()
    finally:
        consumer.close()


def test_a_broker_for_the_length_of_a_block() -> None:
    with Broker() as broker:
        topic = broker.create_topic("greetings", partitions=2)
        send(broker, topic, "hello")
        assert receive(broker, topic) == "hello"
        with pytest.raises(KafkaError) as refused:
            broker.create_topic("greetings")
        assert refused.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
        broker.delete_topic(topic)
        pid, root = broker.pid, broker.root
    assert not is_broker(pid)
    assert not root.exists()


async def test_several_at_once_inside_a_loop() -> None:
    async with Broker() as first, Broker({"num.partitions": "5"}) as second:
        assert first.bootstrap_servers != second.bootstrap_servers
        assert first.create_topic("same") == second.create_topic("same")
        pids, roots = (first.pid, second.pid), (first.root, second.root)
    assert not any(map(is_broker, pids))
    assert not any(root.exists() for root in roots)


def test_a_crash_and_a_restart_keep_data_and_address(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "data") as broker:
        broker.create_topic("kept")
        send(broker, "kept", "still there")
        address = broker.bootstrap_servers
        broker.kill()
        broker.start()
        assert broker.bootstrap_servers == address
        assert receive(broker, "kept") == "still there"
        broker.stop()
        broker.stop()
    with Broker(data_dir=tmp_path / "data") as broker, pytest.raises(KafkaError):
        broker.create_topic("kept")


def test_a_broker_survives_the_thread_that_asked_for_it() -> None:
    broker = Broker()
    starting = threading.Thread(target=broker.start)
    starting.start()
    starting.join()
    time.sleep(0.2)
    assert broker.exit_code() is None
    broker.close()


def test_the_environment_of_the_test_does_not_reach_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_LISTENERS", "nonsense")
    with Broker() as broker:
        assert broker.port


def test_a_broker_that_cannot_start_says_why() -> None:
    broker = Broker({"num.partitons": "3"})
    with pytest.raises(ServerFailed, match=r"num\.partitions"), broker:
        pass
    assert not broker.root.exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_is_left_when_the_test_process_is_killed(number: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", LEFT_ALONE, "60"], stdout=subprocess.PIPE, text=True) as test:
        assert test.stdout is not None
        pid, root = test.stdout.readline().split()
        assert is_broker(int(pid))
        os.kill(test.pid, number)
    assert ends(int(pid))
    deadline = time.monotonic() + END_TIMEOUT_S
    while Path(root).exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not Path(root).exists()


def test_nothing_is_left_when_a_test_forgets_its_broker() -> None:
    test = subprocess.run(
        [sys.executable, "-c", LEFT_ALONE, "0"], capture_output=True, text=True, timeout=120, check=True
    )
    pid, root = test.stdout.split()
    assert ends(int(pid))
    assert not Path(root).exists()


@pytest.mark.parametrize("program", ["broker.stop()", "del broker"])
def test_start_and_stop_leave_nothing_behind(program: str) -> None:
    text = f"from headrace.testing import Broker\nbroker = Broker()\nbroker.start()\nprint(broker.root)\n{program}"
    test = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120, check=True)
    assert not Path(test.stdout.strip()).exists()


def test_users_in_one_line() -> None:
    with Broker(users={"admin": "a secret", "alice": "another"}) as broker:
        broker.create_topic("orders")
        settings = broker.client_settings("alice")
        assert settings["security.protocol"] == "SASL_PLAINTEXT"
        assert "orders" in AdminClient(settings).list_topics(timeout=60).topics
        assert broker.python_settings("alice")["sasl_plain_username"] == "alice"
        broker.restart()
        assert broker.client_settings() == {**settings, "sasl.username": "admin", "sasl.password": "a secret"}
        assert "orders" in AdminClient(broker.client_settings()).list_topics(timeout=60).topics


def test_users_and_tls_in_one_line() -> None:
    with Broker(users={"alice": "secret"}, tls=True) as broker:
        broker.create_topic("orders")
        assert broker.client_settings()["security.protocol"] == "SASL_SSL"
        assert "orders" in AdminClient(broker.client_settings()).list_topics(timeout=60).topics
        assert Path(broker.python_settings()["ssl_cafile"]).exists()


def test_three_brokers() -> None:
    with BrokerCluster() as cluster:
        cluster.create_topic("orders", partitions=3)
        assert len(cluster.bootstrap_servers.split(",")) == 3
        found = AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics(timeout=60)
        assert {len(one.replicas) for one in found.topics["orders"].partitions.values()} == {3}
        before = cluster.broker_pid(2)
        cluster.kill_broker(2)
        assert ends(before)
        root = cluster.root
    assert not root.exists()


async def test_with_coroutines() -> None:
    async with AsyncBroker() as broker:
        assert await broker.create_topic("orders") == "orders"
        await broker.stop()
        await broker.start()
        await broker.delete_topic("orders")
        address = broker.bootstrap_servers
        await broker.restart()
        assert broker.bootstrap_servers == address
        assert "ready" in broker.log_text()
        root = broker.broker.root
    assert not root.exists()


def test_importing_it_imports_little() -> None:
    program = (
        "import sys; import headrace.testing\n"
        "heavy = ('headrace.node', 'headrace.client', 'headrace.wire', 'pytest', 'asyncio')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True
    )
    assert result.stdout == "[]\n"
