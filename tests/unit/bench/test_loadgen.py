"""The load generator against a small server that answers as told: it must count what really happened."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.loadgen import Load, run_load
from bench.requests import batch, fetch, produce, uvarint, write_requests

TOPIC = b"t"
Answer = Callable[[int, bytes], bytes | None]
"""From the number of a request and its frame (without its length) to the answer's body; None hangs up."""


def produce_answer(frame: bytes, error: int = 0) -> bytes:
    partition = struct.pack(">ihqqq", 0, error, 0, -1, 0) + b"\1\0\0"
    return frame[4:8] + b"\0" + b"\2\2" + TOPIC + b"\2" + partition + b"\0" + b"\0\0\0\0" + b"\0"


def fetch_answer(frame: bytes, records: bytes, error: int = 0) -> bytes:
    partition = struct.pack(">ihqqq", 0, error, 9, 9, 0) + b"\1" + b"\xff" * 4
    partition += uvarint(len(records) + 1) + records + b"\0"
    head = frame[4:8] + b"\0" + struct.pack(">ihi", 0, 0, 7)
    return head + b"\2\2" + TOPIC + b"\2" + partition + b"\0\0"


@contextmanager
def server(answer: Answer) -> Iterator[int]:
    listening = socket.create_server(("127.0.0.1", 0))

    def serve(connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as received:
            number = 0
            while size := received.read(4):
                body = answer(number, received.read(int.from_bytes(size, "big")))
                number += 1
                if body is None:
                    return
                connection.sendall(struct.pack(">i", len(body)) + body)

    def accept() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield listening.getsockname()[1]
    finally:
        listening.close()


def produce_file(path: Path) -> Path:
    return write_requests(path / "produce", [produce("t", 0, batch([b"x" * 100]))] * 4)


def test_all_good(tmp_path: Path) -> None:
    with server(lambda number, frame: produce_answer(frame)) as port:
        found = run_load(port, Load(produce_file(tmp_path), connections=3, inflight=4, count=100))
    assert (found.requests, found.records_acked, found.errors) == (100, 100, 0)
    assert found.round_trip is not None


def test_refusals_are_counted_by_code(tmp_path: Path) -> None:
    with server(lambda number, frame: produce_answer(frame, 6 if number % 10 == 0 else 0)) as port:
        found = run_load(port, Load(produce_file(tmp_path), count=100))
    assert (found.records_acked, found.errors, found.error_codes) == (90, 10, {"6": 10})


def test_an_answer_to_another_request_is_an_error(tmp_path: Path) -> None:
    with server(lambda number, frame: produce_answer(b"\0\0\0\0\0\0\0\x63")) as port:
        assert run_load(port, Load(produce_file(tmp_path), count=10)).errors == 10


def test_a_broker_that_hangs_up_is_an_error(tmp_path: Path) -> None:
    with server(lambda number, frame: produce_answer(frame) if number < 5 else None) as port:
        found = run_load(port, Load(produce_file(tmp_path), count=100))
    assert found.records_acked == 5
    assert found.errors >= 1


def test_the_payload_of_large_fetches_is_counted(tmp_path: Path) -> None:
    body = batch([b"x" * 300_000])
    file = write_requests(tmp_path / "fetch", [fetch("t", 0, 0, 1 << 20)])
    with server(lambda number, frame: fetch_answer(frame, body)) as port:
        found = run_load(port, Load(file, inflight=2, count=10))
    assert (found.requests, found.payload_in, found.empty_fetches, found.errors) == (10, 10 * len(body), 0, 0)


def test_an_open_loop_counts_a_stall_from_when_requests_were_due(tmp_path: Path) -> None:
    """One stall of 300 ms at 100 requests a second delays about 30 of them: no coordinated omission."""

    def stall_once(number: int, frame: bytes) -> bytes:
        if number == 50:
            time.sleep(0.3)
        return produce_answer(frame)

    with server(stall_once) as port:
        found = run_load(port, Load(produce_file(tmp_path), rate=100, seconds=1.5))
    assert (found.requests, found.errors) == (150, 0)
    assert found.round_trip is not None
    assert found.round_trip.max_us > 250_000
    assert found.round_trip.p99_us > 200_000


def test_a_tail_consumer_measures_from_the_stamp(tmp_path: Path) -> None:
    """The broker hands each batch on with its stamp 50 ms late: deliveries take 50 ms, acknowledgements do not."""
    stored: list[bytes] = []
    at = produce("t", 0, batch([b"x" * 100])).batch_at - 4

    def store_or_serve(number: int, frame: bytes) -> bytes:
        if frame[1] == 0:
            body = frame[at : at + int.from_bytes(frame[at + 8 : at + 12], "big") + 12]
            stored.append(struct.pack(">q", len(stored)) + body[8:])
            return produce_answer(frame)
        while number >= len(stored):
            time.sleep(0.001)
        time.sleep(0.05)
        return fetch_answer(frame, stored[number])

    tail = write_requests(tmp_path / "tail", [fetch("t", 0, 0, 1 << 20, session=True)])
    with server(store_or_serve) as port:
        load = Load(produce_file(tmp_path), rate=10, seconds=1, fetch=tail, consumers=1, stamp=True)
        found = run_load(port, load)
    assert (found.records_acked, found.records_delivered, found.errors) == (10, 10, 0)
    assert found.delivery is not None
    assert found.round_trip is not None
    assert found.delivery.p50_us >= 50_000
    assert found.delivery.p50_us > found.round_trip.p50_us
