"""What connections cost that send the beginning of a request and no more: `python -m bench.half_sent`.

Memory of the broker before, with so many of them, and after they closed. The process, and the broker that it
starts, need a limit of open files above the number.
"""

from __future__ import annotations

import argparse
import resource
import socket
import struct
import sys
import time

from headrace.server.request_memory import AFTER_BURST_SECONDS
from headrace.testing.fuzz_broker import resident_bytes
from headrace.testing.process import BrokerProcess

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


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.half_sent", description=__doc__)
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--bytes", type=int, default=5, help="what each sends of a request of 255 KB")
    options = parser.parse_args(arguments)
    wanted = options.connections + SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))
    with BrokerProcess({"max.connections": str(wanted)}) as broker:
        host, port = broker.bootstrap.rsplit(":", 1)
        before = settled(broker.pid)
        opened = open_half_sent((host, int(port)), options.connections, options.bytes)
        during = settled(broker.pid)
        for one in opened:
            one.close()
        time.sleep(AFTER_BURST_SECONDS + 1)
        after = settled(broker.pid)
    print(
        f"{options.connections:,} connections with {options.bytes:,} bytes of a request each: resident memory"
        f" {before:.0f} MB before, {during:.0f} MB with them"
        f" ({(during - before) * 1024 / options.connections:.1f} KB each), {after:.0f} MB after they closed"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
