"""A network in memory: connections between hosts, with delays, cuts in one direction, and resets.

As with TCP, bytes of one direction arrive in order or not at all. Data that is sent into a cut waits, and arrives
late once the cut is healed: the worst that a network does. Between connections nothing is ordered.

A process that is killed resets its connections, since its kernel is alive; a machine that crashes says nothing
until it is back.
"""

from __future__ import annotations

import asyncio
import math
import random
import zlib
from collections.abc import Callable
from typing import Any, Protocol

from headrace.testing.sim.loop import NOBODY, Process, VirtualLoop, current_process

SPLIT_CHANCE = 0.03
"""The probability that a message arrives in two parts."""
SLOW_CHANCE = 0.004
SYN_SECONDS = 0.2
"""The time between two attempts to reach a host that does not answer."""


class Receiver(Protocol):
    def received(self, data: bytes) -> None: ...

    def lost(self) -> None: ...


class Acceptor(Protocol):
    """Listens on a port of a process."""

    process: Process

    def accept(self, end: End) -> Receiver: ...


class End:
    """One process's end of a connection."""

    def __init__(self, network: Network, process: Process) -> None:
        self._network = network
        self.process = process
        self.peer: End = self
        self.receiver: Receiver | None = None
        self.closed = False
        self._reading = True
        self._unread: list[bytes | None] = []
        self._sent: list[bytes | None] = []
        """Data that is still to be sent over the network: it waits for a cut to heal."""
        self._arrives = 0.0

    def send(self, data: bytes | None) -> None:
        """Send data; None is the end of the connection."""
        if self._network.is_cut(self.process.host, self.peer.process.host) or self._sent:
            self._sent.append(data)
            self._network.held[self] = None
        else:
            self._pass_on(data)

    def send_held(self) -> None:
        sent, self._sent = self._sent, []
        for data in sent:
            self._pass_on(data)

    def _pass_on(self, data: bytes | None) -> None:
        network = self._network
        pieces: list[bytes | None] = [data]
        if data is not None and len(data) > 1 and network.rng.random() < SPLIT_CHANCE:
            at = network.rng.randrange(1, len(data))
            pieces = [data[:at], data[at:]]
        for piece in pieces:
            # Timers of the same time have no order of their own.
            self._arrives = max(math.nextafter(self._arrives, math.inf), network.loop.time() + network.delay())
            network.loop.call_at(self._arrives, self.peer.arrived, piece, context=self.peer.process.context)

    def arrived(self, data: bytes | None) -> None:
        if not self._reading or self._unread:
            self._unread.append(data)
        else:
            self._deliver(data)

    def _deliver(self, data: bytes | None) -> None:
        if self.closed or self.receiver is None:
            return
        self._network.note(self, data)
        if data is None:
            self._end()
        else:
            self.receiver.received(data)

    def pause(self) -> None:
        self._reading = False

    def resume(self) -> None:
        if not self._reading:
            self._reading = True
            self._network.loop.call_soon(self._read_on, context=self.process.context)

    def _read_on(self) -> None:
        while self._reading and self._unread:
            data = self._unread[0]
            self._deliver(data)
            del self._unread[:1]

    def close(self) -> None:
        """Close this side; data that was sent before still arrives."""
        if not self.closed:
            self.send(None)
            self._end()

    def _end(self) -> None:
        self.closed = True
        self._network.ends.pop(self, None)
        if self.receiver is not None:
            self._network.loop.call_soon(self.receiver.lost, context=self.process.context)


class SimTransport(asyncio.Transport):
    """The transport that a client's protocol writes to."""

    def __init__(self, end: End, protocol: Any) -> None:
        super().__init__()
        self._end = end
        self._protocol = protocol
        self._buffered = isinstance(protocol, asyncio.BufferedProtocol)

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if not self._end.closed:
            self._end.send(bytes(data))

    def close(self) -> None:
        self._end.close()

    def abort(self) -> None:
        self._end.close()

    def is_closing(self) -> bool:
        return self._end.closed

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    # -- Receiver

    def received(self, data: bytes) -> None:
        if not self._buffered:
            self._protocol.data_received(data)
            return
        rest = memoryview(data)
        while rest and not self._end.closed:
            buffer = self._protocol.get_buffer(-1)
            count = min(len(buffer), len(rest))
            buffer[:count] = rest[:count]
            rest = rest[count:]
            self._protocol.buffer_updated(count)

    def lost(self) -> None:
        self._protocol.connection_lost(None)


class Network:
    def __init__(self, loop: VirtualLoop, rng: random.Random) -> None:
        self.loop = loop
        self.rng = rng
        self._acceptors: dict[tuple[str, int], Acceptor] = {}
        self._cuts: dict[tuple[str, str], None] = {}
        self.silent: dict[str, None] = {}
        """Hosts whose machine is down."""
        self.held: dict[End, None] = {}
        self.ends: dict[End, None] = {}
        self.mean_delay = 0.0005
        self.slow_seconds = 0.3
        self.digest = 0
        """A checksum of everything that ever arrived, and when: equal for equal runs."""
        self.on_arrival: Callable[[End, bytes | None], None] | None = None

    def delay(self) -> float:
        draw = self.rng.random
        if draw() < SLOW_CHANCE:
            return draw() * self.slow_seconds
        return self.mean_delay * (0.2 - math.log(1.0 - draw()))

    def note(self, end: End, data: bytes | None) -> None:
        self.digest = zlib.crc32(data or b"end", zlib.crc32(repr(self.loop.time()).encode(), self.digest))
        if self.on_arrival is not None:
            self.on_arrival(end, data)

    # -- faults

    def is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self._cuts or source in self.silent or target in self.silent

    def cut(self, source: str, target: str) -> None:
        """Let nothing through in this direction until it is healed."""
        self._cuts[source, target] = None

    def heal(self) -> None:
        self._cuts.clear()
        self._send_held()

    def heal_one(self, source: str, target: str) -> None:
        self._cuts.pop((source, target), None)
        self._send_held()

    def _send_held(self) -> None:
        held, self.held = self.held, {}
        for end in held:
            if self.is_cut(end.process.host, end.peer.process.host):
                self.held[end] = None
            else:
                end.send_held()

    def reset_between(self, one: str, other: str) -> None:
        for end in list(self.ends):
            if end.process.host == one and end.peer.process.host == other:
                end.close()
                if not end.peer.closed:
                    end.peer.close()

    def process_ended(self, process: Process) -> None:
        """Its kernel notifies the others, if the machine is up; else they learn of it when it is back."""
        for address in [key for key, acceptor in self._acceptors.items() if acceptor.process is process]:
            del self._acceptors[address]
        for end in [end for end in self.ends if end.process is process]:
            end.closed = True
            del self.ends[end]
            end.send(None)

    def machine_down(self, host: str) -> None:
        self.silent[host] = None

    def machine_up(self, host: str) -> None:
        self.silent.pop(host, None)
        self._send_held()

    # -- connections

    def listen(self, address: tuple[str, int], acceptor: Acceptor) -> None:
        assert address not in self._acceptors, f"{address} is taken"
        self._acceptors[address] = acceptor

    def stop_listening(self, address: tuple[str, int]) -> None:
        self._acceptors.pop(address, None)

    async def connect(self, host: str, port: int, protocol: asyncio.BaseProtocol) -> asyncio.Transport:
        process = current_process()
        assert process is not None, "only processes connect"
        await asyncio.sleep(self.delay())
        while self.is_cut(process.host, host) or self.is_cut(host, process.host):
            await asyncio.sleep(SYN_SECONDS)
        acceptor = self._acceptors.get((host, port))
        if acceptor is None:
            await asyncio.sleep(self.delay())
            raise ConnectionRefusedError(111, "Connection refused")
        near, far = End(self, process), End(self, acceptor.process)
        near.peer, far.peer = far, near
        self.ends[near] = self.ends[far] = None
        transport = SimTransport(near, protocol)
        near.receiver = transport
        self.loop.call_soon(self._accept, acceptor, far, context=acceptor.process.context)
        await asyncio.sleep(self.delay())
        protocol.connection_made(transport)
        return transport

    def _accept(self, acceptor: Acceptor, end: End) -> None:
        if not end.closed:
            end.receiver = acceptor.accept(end)

    def later(self, seconds: float, callback: Callable[[], object]) -> None:
        """Call later, for callbacks that belong to no process."""
        self.loop.call_later(seconds, callback, context=NOBODY)
