"""Hosts as network namespaces: cut one way, unplugged, slowed, healed, and gone afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress

import pytest

from headrace.testing.hosts import Host, Hosts, HostsUnavailable, missing

REASON = missing()
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))

ECHO = """
import socket, sys
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind((sys.argv[1], 7000))
print("ready", flush=True)
while True:
    server.sendto(*server.recvfrom(100))
"""
ASK = """
import socket, sys
client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
client.settimeout(float(sys.argv[2]))
client.sendto(b"?", (sys.argv[1], 7000))
try:
    sys.exit(client.recvfrom(100)[0] != b"?")
except OSError:
    sys.exit(1)
"""
ANSWERED, UNANSWERED = 20, 0.3
"""Seconds to wait for an answer that must come, and for one that must not."""


def answers(host: Host, asked_by: Host | None = None, *, patience: float = ANSWERED) -> bool:
    prefix = asked_by.prefix if asked_by is not None else []
    return not subprocess.run(
        [*prefix, sys.executable, "-c", ASK, host.address, str(patience)], check=False
    ).returncode


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    with Hosts(2) as made:
        command = [*made.all[0].prefix, sys.executable, "-c", ECHO, made.all[0].address]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
            try:
                assert server.stdout is not None
                assert server.stdout.readline() == b"ready\n"
                yield made
            finally:
                server.kill()


def test_links_are_cut_one_way_and_healed(hosts: Hosts) -> None:
    server, other = hosts.all
    assert answers(server)
    assert answers(server, other)
    hosts.cut(server, other)
    assert not answers(server, other, patience=UNANSWERED)
    assert answers(server), "the cut concerns one pair"
    server.unplug()
    assert not answers(server, patience=UNANSWERED)
    hosts.heal()
    assert answers(server, other)
    with suppress(HostsUnavailable):  # a kernel without traffic control
        server.slow()
    assert answers(server)
    hosts.heal()
    assert answers(server, other)


def test_nothing_is_left() -> None:
    before = os.readlink("/proc/thread-self/ns/net"), sorted(os.listdir("/sys/class/net"))
    hosts = Hosts(1)
    with suppress(ZeroDivisionError), hosts:
        assert os.readlink("/proc/thread-self/ns/net") != before[0]
        raise ZeroDivisionError
    assert (os.readlink("/proc/thread-self/ns/net"), sorted(os.listdir("/sys/class/net"))) == before
    assert hosts.all == []
