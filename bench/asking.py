"""Single questions to a broker over a plain socket: is it there, does it take a record, does it know an API."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Mapping

from bench.requests import Request, fetch, fetch_error, produce_error
from headrace.testing.process import HOST

FIRST_ACK_TIMEOUT_S = 120.0
READY_TIMEOUT_S = 120.0
PROBE_PAUSE_S = 0.002
PROBE_TIMEOUT_S = 5.0


def first_ack(port: int, request: Request, started: float) -> float:
    """Seconds from `started` (monotonic) until the broker acknowledges `request`, asked again and again."""
    deadline = started + FIRST_ACK_TIMEOUT_S
    while time.monotonic() < deadline:
        if acknowledged(port, request):
            return time.monotonic() - started
        time.sleep(PROBE_PAUSE_S)
    raise TimeoutError(f"no record was acknowledged within {FIRST_ACK_TIMEOUT_S} s")


def acknowledged(port: int, request: Request) -> bool:
    """Sends one Produce on a connection of its own. False: refused, or no broker there."""
    try:
        return produce_error(exchange(port, request)) == 0
    except OSError:
        return False


def exchange(port: int, request: Request) -> bytes:
    """The answer to one request, on a connection of its own."""
    with socket.create_connection((HOST, port), timeout=PROBE_TIMEOUT_S) as connection:
        connection.sendall(request.frame)
        return _read_frame(connection)


def supports_api(port: int, key: int) -> bool:
    """Whether ApiVersions (v0) names the API."""
    body = struct.pack(">hhih", 18, 0, 0, -1)
    answer = exchange(port, Request(struct.pack(">i", len(body)) + body, 18, 0))
    (count,) = struct.unpack_from(">i", answer, 6)
    return any(struct.unpack_from(">h", answer, 10 + 6 * index)[0] == key for index in range(count))


def _read_frame(connection: socket.socket) -> bytes:
    size = int.from_bytes(_read_exactly(connection, 4), "big")
    return _read_exactly(connection, size)


def _read_exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionError("the broker closed the connection")
        data += part
    return bytes(data)


def wait_until_served(port: int, topics: Mapping[str, int]) -> None:
    """Returns when the broker serves every partition: metadata may name a leader that does not lead yet."""
    waiting = [(topic, number) for topic, count in topics.items() for number in range(count)]
    deadline = time.monotonic() + READY_TIMEOUT_S
    with socket.create_connection((HOST, port), timeout=READY_TIMEOUT_S) as connection:
        while waiting:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(waiting)} partitions are not served, {waiting[0]} among them")
            waiting = [place for place in waiting if not _is_served(connection, *place)]


def _is_served(connection: socket.socket, topic: str, partition: int) -> bool:
    connection.sendall(fetch(topic, partition, 0, 1, max_wait_ms=0).frame)
    return fetch_error(_read_frame(connection)) == 0
