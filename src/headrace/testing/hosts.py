"""Several hosts on one machine: network namespaces on a bridge, whose links are cut, slowed and healed.

    with Hosts(3) as hosts:                       # this thread is on their network as well, as 10.77.0.1
        first, second, third = hosts.all
        Popen([*first.prefix, "server", first.address])
        hosts.cut(first, second)                  # what first sends to second is lost; not the other way
        first.slow()
        hosts.heal()

Rules:
- The namespaces have no names: they are held by descriptors of this process and by the processes inside, and are
  gone with them, links and all, also after a kill -9. Nothing of the machine's own network is touched.
- `unshare` and `setns` concern the calling thread: threads it starts meanwhile are on the network too.
- A cut loses packets silently, as a broken switch does. It is made with addresses of the link layer: every
  host has a fixed neighbour entry for every other, which names either the other's interface or nobody's. So it
  needs iproute2 alone, works one way, and holds for connections that are open.
- It needs the rights of root: `missing()` says why it cannot be done here.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

CLONE_NEWNET = 0x40000000
NETWORK = "10.77.0"
FIRST_HOST = 11
HUB = 1
BRIDGE = "hub"
NOBODY = "02:00:00:00:ff:ff"
DELAY_MS = 100
SLOW_BITS = "400kbit"
QUEUE_MS = 2_000
COMMAND_SECONDS = 60.0


class HostsUnavailable(Exception):
    """Namespaces cannot be made here; the message says why."""


def _libc(name: str, *arguments: int) -> None:
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def _current() -> int:
    """The network namespace of this thread."""
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False)
    if done.returncode:
        raise HostsUnavailable(f"{' '.join(command)}: {done.stderr.strip()}")


def missing() -> str | None:
    """Why hosts cannot be made on this machine; None if they can."""
    for tool, package in (("ip", "iproute2"), ("tc", "iproute2"), ("nsenter", "util-linux")):
        if shutil.which(tool) is None:
            return f"{tool} is not installed (package {package})"
    try:
        with Hosts(1):
            return None
    except (OSError, HostsUnavailable) as error:
        return f"network namespaces are not permitted here ({error}); they need the rights of root"


@dataclass(slots=True)
class Host:
    number: int
    namespace: int
    """A descriptor of its network namespace."""

    @property
    def address(self) -> str:
        return f"{NETWORK}.{self.number}"

    @property
    def mac(self) -> str:
        return f"02:00:00:00:00:{self.number:02x}"

    @property
    def link(self) -> str:
        """The end of its cable at the bridge."""
        return f"host{self.number}"

    @property
    def prefix(self) -> list[str]:
        """A prefix with which a command runs on this host."""
        return ["nsenter", f"--net=/proc/{os.getpid()}/fd/{self.namespace}", "--"]

    def run(self, *command: str) -> None:
        _run(*self.prefix, *command)

    def unplug(self) -> None:
        """Make the host unreachable for all others, silently."""
        _run("ip", "link", "set", self.link, "down")

    def plug(self) -> None:
        _run("ip", "link", "set", self.link, "up")

    def slow(self) -> str:
        """Slow down both directions of its link; returns how much. Without netem there are no delays."""
        delayed = ("netem", "delay", f"{DELAY_MS}ms", f"{DELAY_MS // 4}ms")
        narrow = ("tbf", "rate", SLOW_BITS, "burst", "1600", "latency", f"{QUEUE_MS}ms")
        try:
            self._shape(delayed)
        except HostsUnavailable:
            self._shape(narrow)
            return f"{SLOW_BITS} per second"
        return f"{DELAY_MS} ms each way"

    def _shape(self, discipline: Sequence[str]) -> None:
        _run("tc", "qdisc", "replace", "dev", self.link, "root", *discipline)
        self.run("tc", "qdisc", "replace", "dev", "eth0", "root", *discipline)

    def full_speed(self) -> None:
        with suppress(HostsUnavailable):  # it was not slow
            _run("tc", "qdisc", "del", "dev", self.link, "root")
        with suppress(HostsUnavailable):
            self.run("tc", "qdisc", "del", "dev", "eth0", "root")


class Hosts:
    """`count` hosts, and this thread in the middle of them (`hub`)."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.all: list[Host] = []
        self._home = -1
        self._hub = -1

    @property
    def hub(self) -> Host:
        return Host(HUB, self._hub)

    def __enter__(self) -> Self:
        self._home = _current()
        try:
            _libc("unshare", CLONE_NEWNET)
            self._hub = _current()
            _run("ip", "link", "set", "lo", "up")
            _run("ip", "link", "add", BRIDGE, "address", self.hub.mac, "type", "bridge")
            _run("ip", "address", "add", f"{self.hub.address}/24", "dev", BRIDGE)
            _run("ip", "link", "set", BRIDGE, "up")
            self.all = [self._add(FIRST_HOST + n) for n in range(self.count)]
            self._introduce()
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()

    def _add(self, number: int) -> Host:
        _libc("unshare", CLONE_NEWNET)
        host = Host(number, _current())
        try:
            _libc("setns", self._hub, CLONE_NEWNET)
            path = f"/proc/{os.getpid()}/fd/{host.namespace}"
            _run("ip", "link", "add", host.link, "type", "veth", "peer", "name", "eth0", "netns", path)
            _run("ip", "link", "set", host.link, "master", BRIDGE, "up")
            host.run("ip", "link", "set", "eth0", "address", host.mac, "up")
            host.run("ip", "link", "set", "lo", "up")
            host.run("ip", "address", "add", f"{host.address}/24", "dev", "eth0")
        except BaseException:
            os.close(host.namespace)
            raise
        return host

    def _introduce(self) -> None:
        for sender in (self.hub, *self.all):
            for receiver in (self.hub, *self.all):
                if sender.number != receiver.number:
                    self._send_to(sender, receiver, receiver.mac)

    def _send_to(self, sender: Host, receiver: Host, mac: str) -> None:
        command = ("ip", "neigh", "replace", receiver.address, "lladdr", mac, "nud", "permanent")
        if sender.number == HUB:
            _run(*command, "dev", BRIDGE)
        else:
            sender.run(*command, "dev", "eth0")

    def cut(self, sender: Host, receiver: Host) -> None:
        """Lose everything that `sender` sends to `receiver`."""
        self._send_to(sender, receiver, NOBODY)

    def part(self, one: Host, others: Sequence[Host]) -> None:
        """Lose everything between them, in both directions."""
        for other in others:
            self.cut(one, other)
            self.cut(other, one)

    def heal(self) -> None:
        """Let everything reach everybody again, at full speed."""
        for host in self.all:
            host.plug()
            host.full_speed()
        self._introduce()

    def _leave(self) -> None:
        if self._home >= 0:
            _libc("setns", self._home, CLONE_NEWNET)
        for descriptor in (*(host.namespace for host in self.all), self._hub, self._home):
            if descriptor >= 0:
                os.close(descriptor)
        self.all, self._hub, self._home = [], -1, -1
