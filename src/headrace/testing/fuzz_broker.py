"""The frames of `fuzz` against a running broker, beside a good client that must not notice."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
from pathlib import Path

from headrace.testing.fuzz import frames
from headrace.testing.process import BrokerProcess
from headrace.testing.raw_client import API_VERSIONS, RawClient, build_batch, frame, request_header

PROBE = 0x0BADCAFE
GOOD_TOPIC = "good"
PATIENCE_SECONDS = 0.3
"""For an answer: a fuzzed request may be a valid long poll."""
MAX_GROWTH_BYTES = 64 * 1024 * 1024
CREATE_TOPICS, CREATE_TOPICS_VERSION = 19, 4


class GoodClient(threading.Thread):
    """Writes one record after the other and reads each back."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(name="good-client", daemon=True)
        self._address = bootstrap
        self._stop_asked = threading.Event()
        self.done = 0
        self.failures: list[str] = []

    def run(self) -> None:
        try:
            with RawClient(self._address) as client:
                while not self._stop_asked.wait(0.002):
                    written = client.produce(GOOD_TOPIC, 0, build_batch([b"good"]))
                    read = client.fetch(GOOD_TOPIC, 0, written.base_offset)
                    if written.error or read.error or b"good" not in read.records:
                        self.failures.append(f"{written} {read.error}")
                    self.done += 1
        except (OSError, AssertionError, struct.error) as failure:
            self.failures.append(repr(failure))

    def stop(self) -> None:
        self._stop_asked.set()
        self.join()


class Attacker:
    """One connection, opened again whenever the broker closes it."""

    def __init__(self, bootstrap: str) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self._address = (host, int(port))
        self._socket: socket.socket | None = None
        self.answered = self.closed = self.parked = 0

    def send(self, body: bytes) -> None:
        """The frame, then a question that is answered only if the connection has survived the frame."""
        if self._socket is None:
            self._socket = socket.create_connection(self._address, timeout=PATIENCE_SECONDS)
        try:
            self._socket.sendall(frame(body) + frame(request_header(API_VERSIONS, 0, PROBE)))
            self._read_until_probe(self._socket)
            self.answered += 1
        except TimeoutError:
            self.parked += 1
            self._reset()
        except ConnectionError:
            self.closed += 1
            self._reset()

    def _read_until_probe(self, connection: socket.socket) -> None:
        while True:
            (size,) = struct.unpack(">i", _receive(connection, 4))
            if struct.unpack_from(">i", _receive(connection, size))[0] == PROBE:
                return

    def _reset(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.close()
            self._socket = None


def _receive(connection: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        data = connection.recv(size - len(parts))
        if not data:
            raise ConnectionResetError
        parts += data
    return bytes(parts)


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def create_good_topic(bootstrap: str) -> None:
    name = GOOD_TOPIC.encode()
    topic = struct.pack(">h", len(name)) + name + struct.pack(">ihii", 1, 1, 0, 0)
    with RawClient(bootstrap) as client:
        client.request(
            CREATE_TOPICS, CREATE_TOPICS_VERSION, struct.pack(">i", 1) + topic + struct.pack(">i?", 5000, False)
        )


def broken_rules(log: str) -> str:
    """What the broker's log says of faults of its own, with what follows the first of them."""
    lines = log.splitlines()
    for number, line in enumerate(lines):
        if "Traceback" in line or " ERROR " in line:
            return "\n".join(lines[max(number - 1, 0) : number + 25])
    return ""


def fuzz_broker(seed: int, count: int) -> str:
    """Raises AssertionError where a rule is broken; otherwise what happened, in words."""
    with BrokerProcess() as broker:
        create_good_topic(broker.bootstrap)
        good = GoodClient(broker.bootstrap)
        good.start()
        attacker = Attacker(broker.bootstrap)
        warm_up = min(count // 5, 5_000)
        before = 0
        for number, body in enumerate(frames(random.Random(seed), count)):
            if number == warm_up:
                before = resident_bytes(broker.pid)
            attacker.send(body)
        after = resident_bytes(broker.pid)
        good.stop()
        assert broker.exit_code() is None, broker.log_tail()
        assert not good.failures, good.failures[:3]
        assert not (faults := broken_rules(broker.log_text())), faults
        assert after - before < MAX_GROWTH_BYTES, f"{before} bytes grew to {after}"
        return (
            f"{attacker.answered} answered, {attacker.closed} closed, {attacker.parked} left waiting; "
            f"the good client had {good.done} turns; memory {before >> 20} MB, then {after >> 20} MB"
        )
