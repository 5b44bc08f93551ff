"""What connections cost that send the beginning of a request and no more: `python -m bench.half_sent`.

Memory of the broker before, with so many of them, and after they closed. The process, and the broker that it
starts, need a limit of open files above the number. With `--tls` each sends the beginning of a TLS handshake, is
answered and goes on with nothing; beside them a client with TLS asks on its open connection and opens new ones,
and the longest time that took is shown.
"""

from __future__ import annotations

import argparse
import resource
import socket
import ssl
import struct
import sys
import threading
import time
from contextlib import suppress

from headrace.env.certificates import make_authority, make_certificate
from headrace.server.connections import AFTER_MANY_SECONDS
from headrace.server.request_memory import AFTER_BURST_SECONDS
from headrace.testing.fuzz_broker import resident_bytes
from headrace.testing.process import HOST, BrokerProcess, free_port
from headrace.testing.raw_client import RawClient

MB = 1 << 20
ANNOUNCED = 255 * 1024
SPARE_FILES = 500


def open_half_sent(address: tuple[str, int], count: int, sent: int) -> list[socket.socket]:
    data = struct.pack(">i", ANNOUNCED) + bytes(sent - 4)
    opened = []
    for _ in range(count):
        one = socket.create_connection(address, timeout=30)
        one.sendall(data)
        opened.append(one)
    return opened


def settled(pid: int) -> float:
    """Megabytes, once they stopped changing."""
    last = 0
    while abs((now := resident_bytes(pid)) - last) > MB // 4:
        last = now
        time.sleep(1)
    return now / MB


def client_hello() -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    talking = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname=HOST)
    with suppress(ssl.SSLWantReadError):
        talking.do_handshake()
    return outgoing.read()


def open_handshakes(port: int, count: int) -> list[socket.socket]:
    """Each is answered before the next begins; the broker closes the oldest when there are too many."""
    hello, opened = client_hello(), []
    for _ in range(count):
        one = socket.create_connection((HOST, port), timeout=30)
        with suppress(OSError):
            one.sendall(hello)
            one.recv(1)
        opened.append(one)
    return opened


class TlsNeighbour(threading.Thread):
    """A client that asks on one connection, and opens another one each time."""

    def __init__(self, port: int, authority: str) -> None:
        super().__init__(daemon=True)
        self._address = f"{HOST}:{port}"
        self._context = ssl.create_default_context(cadata=authority)
        self._over = threading.Event()
        self.asked = self.failed = 0
        self.longest_ms = 0.0

    def connected(self) -> RawClient:
        client = RawClient(self._address, 30)
        client.socket = self._context.wrap_socket(client.socket, server_hostname=HOST)
        return client

    def run(self) -> None:
        with self.connected() as old:
            while not self._over.wait(0.01):
                began = time.monotonic()
                try:
                    old.api_versions()
                    with self.connected() as new:
                        new.api_versions()
                    self.asked += 1
                except (OSError, AssertionError):
                    self.failed += 1
                self.longest_ms = max(self.longest_ms, (time.monotonic() - began) * 1000)

    def stop(self) -> None:
        self._over.set()
        self.join()


def run_tls(connections: int) -> None:
    port, authority, broker = free_port(), make_authority("bench"), BrokerProcess()
    broker.overrides |= {
        "listeners": f"PLAINTEXT://{HOST}:{broker.port},SSL://{HOST}:{port}",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(broker.root / "broker.pem"),
        "max.connections": str(connections),
    }
    (broker.root / "broker.pem").write_text(make_certificate(authority, "broker", (HOST,)).store)
    with broker:
        neighbour = TlsNeighbour(port, authority.pem)
        neighbour.start()
        before = settled(broker.pid)
        for number in (1, 2):
            opened = open_handshakes(port, connections)
            during, after = with_and_after(broker.pid, opened, AFTER_MANY_SECONDS + 1)
            print(
                f"{connections:,} half-open TLS handshakes, the limit of connections, time {number}: resident"
                f" memory {before:.0f} MB before, {during:.0f} MB with them, {after:.0f} MB after they closed"
            )
        neighbour.stop()
    print(
        f"beside them {neighbour.asked:,} requests over an open and a new connection each,"
        f" {neighbour.failed} failed, the longest took {neighbour.longest_ms:.0f} ms"
    )


def with_and_after(pid: int, opened: list[socket.socket], pause_s: float) -> tuple[float, float]:
    """Resident MB while the connections are open, and some time after they are closed."""
    during = settled(pid)
    for one in opened:
        one.close()
    time.sleep(pause_s)
    return during, settled(pid)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.half_sent", description=__doc__)
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--bytes", type=int, default=5, help="what each sends of a request of 255 KB")
    parser.add_argument("--tls", action="store_true", help="half of a TLS handshake instead of a request")
    options = parser.parse_args(arguments)
    wanted = options.connections + SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))
    if options.tls:
        run_tls(options.connections)
        return 0
    with BrokerProcess({"max.connections": str(wanted)}) as broker:
        host, port = broker.bootstrap.rsplit(":", 1)
        before = settled(broker.pid)
        opened = open_half_sent((host, int(port)), options.connections, options.bytes)
        during, after = with_and_after(broker.pid, opened, AFTER_BURST_SECONDS + 1)
    print(
        f"{options.connections:,} connections with {options.bytes:,} bytes of a request each: resident memory"
        f" {before:.0f} MB before, {during:.0f} MB with them"
        f" ({(during - before) * 1024 / options.connections:.1f} KB each), {after:.0f} MB after they closed"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
