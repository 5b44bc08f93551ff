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

from headrace.cli.broker.run_files import is_broker
from headrace.model.errors import ErrorCode, KafkaError
from headrace.testing import Broker, ServerFailed

END_TIMEOUT_S = 20.0

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
    assert producer.flush(20) == 0


def receive(broker: Broker, topic: str) -> str:
    """With a group, which a broker for tests forms at once."""
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    try:
        message = consumer.poll(20)
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
        [sys.executable, "-c", LEFT_ALONE, "0"], capture_output=True, text=True, timeout=60, check=True
    )
    pid, root = test.stdout.split()
    assert ends(int(pid))
    assert not Path(root).exists()


def test_importing_it_imports_little() -> None:
    program = (
        "import sys; import headrace.testing\n"
        "heavy = ('headrace.node', 'headrace.client', 'headrace.wire', 'pytest', 'asyncio')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True
    )
    assert result.stdout == "[]\n"
