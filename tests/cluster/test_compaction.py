"""R-LOG-5 with a real broker: compaction runs while a producer writes and consumers read, and under kill -9.

Whatever is compacted when: a reader that begins at the start sees offsets grow, never a value that was not written
under that offset, and at the end the last value of every key.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import confluent_kafka as ck
import pytest

from headrace.testing.process import BrokerProcess
from tests.compat.clients import confluent_consumer
from tests.compat.confluent_admin import AdminClient, NewTopic

pytestmark = [pytest.mark.headrace_only, pytest.mark.timeout(600)]

TOPIC = "table"
KEYS = 300
BROKER = {"log.cleaner.backoff.ms": "20", "log.segment.delete.delay.ms": "50"}
TABLE = {"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.01"}
KILLS = 4
TIMEOUT_S = 60.0


class Writer(threading.Thread):
    """Writes numbered values under a few hundred keys, some of them deletions; remembers what was acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self.written: dict[int, tuple[bytes, bytes | None]] = {}
        self.failures: list[str] = []
        self._stopping = threading.Event()
        self._producer = ck.Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": int(TIMEOUT_S * 1000),
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 50,
                "linger.ms": 2,
            }
        )

    def _note(self, error: ck.KafkaError | None, message: ck.Message) -> None:
        if error is not None:
            self.failures.append(str(error))
            return
        offset, key = message.offset(), message.key()
        assert offset is not None
        assert key is not None
        self.written[offset] = (bytes(key), message.value())

    def run(self) -> None:
        number = 0
        while not self._stopping.is_set():
            for _ in range(100):
                key = b"key-%d" % (number * 7919 % KEYS)
                value = None if number % 11 == 0 else b"%d:" % number + b"x" * 300
                self._producer.produce(TOPIC, value, key, on_delivery=self._note)
                number += 1
            self._producer.poll(0)
            time.sleep(0.01)
        self._producer.flush(TIMEOUT_S)

    def finish(self) -> None:
        self._stopping.set()
        self.join(TIMEOUT_S)
        assert not self.failures

    def table(self) -> dict[bytes, bytes]:
        last = {key: value for _, (key, value) in sorted(self.written.items())}
        return {key: value for key, value in last.items() if value is not None}


def read_all(bootstrap: str, on_message: Callable[[ck.Message], None]) -> None:
    """From the start to the end of now: the writer may go on, so the end of the partition may never be seen."""
    consumer = confluent_consumer(bootstrap, **{"enable.partition.eof": True})
    partition = ck.TopicPartition(TOPIC, 0, 0)
    _, end_offset = consumer.get_watermark_offsets(partition, TIMEOUT_S)
    consumer.assign([partition])
    deadline = time.monotonic() + TIMEOUT_S
    position = 0
    while position < end_offset:
        assert time.monotonic() < deadline, f"{position} of {end_offset} was reached"
        message = consumer.poll(1.0)
        if message is None:
            continue
        error = message.error()
        assert error is None or error.code() == ck.KafkaError._PARTITION_EOF, error
        offset = message.offset()
        assert offset is not None
        position = offset + 1
        if error is None:
            on_message(message)
    consumer.close()


def read_table(bootstrap: str) -> tuple[dict[bytes, bytes], dict[int, tuple[bytes, bytes | None]]]:
    """The table that a reader of everything ends up with, and every record by offset; offsets must grow."""
    seen: dict[int, tuple[bytes, bytes | None]] = {}
    table: dict[bytes, bytes] = {}

    def note(message: ck.Message) -> None:
        offset, key, value = message.offset(), message.key(), message.value()
        assert offset is not None
        assert key is not None
        assert not seen or offset > next(reversed(seen))
        seen[offset] = (bytes(key), value)
        table.pop(bytes(key), None)
        if value is not None:
            table[bytes(key)] = bytes(value)

    read_all(bootstrap, note)
    return table, seen


def create_table(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, 1, 1, config=TABLE)])[TOPIC].result(TIMEOUT_S)


def wait_for(check: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def log_bytes(broker: BrokerProcess) -> int:
    return sum(path.stat().st_size for path in Path(broker.data_dir).glob(f"broker-*/{TOPIC}-0/*.log"))


def check_against(writer: Writer, seen: dict[int, tuple[bytes, bytes | None]]) -> None:
    for offset, record in seen.items():
        if offset in writer.written:
            assert writer.written[offset] == record, f"another record at offset {offset}"


def test_readers_and_a_writer_notice_nothing_of_compaction() -> None:
    with BrokerProcess(BROKER) as broker:
        create_table(broker.bootstrap)
        writer = Writer(broker.bootstrap)
        writer.start()
        for _ in range(6):
            time.sleep(0.5)
            check_against(writer, read_table(broker.bootstrap)[1])
        writer.finish()
        table, seen = read_table(broker.bootstrap)
        assert table == writer.table()
        check_against(writer, seen)
        written_bytes = sum(300 for _, value in writer.written.values() if value is not None)
        wait_for(lambda: log_bytes(broker) < min(written_bytes / 2, 4 << 20))
        assert "compacted up to offset" in broker.log_text()
        assert "compaction failed" not in broker.log_text()


def test_kill_9_during_compaction_never_loses_the_last_value_of_a_key() -> None:
    with BrokerProcess(BROKER) as broker:
        create_table(broker.bootstrap)
        writer = Writer(broker.bootstrap)
        writer.start()
        for kill in range(KILLS):
            mark = broker.log_text().count("compacted up to offset")
            deadline = time.monotonic() + TIMEOUT_S
            while broker.log_text().count("compacted up to offset") < mark + 2 and time.monotonic() < deadline:
                time.sleep(0.003)
            time.sleep(0.011 * kill)
            broker.kill()
            broker.start()
            check_against(writer, read_table(broker.bootstrap)[1])
        writer.finish()
        table, seen = read_table(broker.bootstrap)
        assert table == writer.table()
        check_against(writer, seen)
        broker.restart()
        assert read_table(broker.bootstrap)[0] == writer.table()
        assert "compaction failed" not in broker.log_text()
