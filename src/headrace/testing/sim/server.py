"""A broker's listener and the links under its exchanges, on the simulated network."""

from __future__ import annotations

from headrace.env import Env
from headrace.server.connections import ConnectionLimits
from headrace.server.dispatch import Dispatcher
from headrace.server.exchange import Exchange
from headrace.server.listener import Listener, SocketOptions
from headrace.storage.files import FileRange
from headrace.testing.sim.loop import Process
from headrace.testing.sim.network import End, Network, Receiver


class SimListener(Listener):
    def __init__(
        self,
        network: Network,
        process: Process,
        env: Env,
        name: str,
        limits: ConnectionLimits,
        options: SocketOptions,
    ) -> None:
        super().__init__(env, name, limits, options)
        self._network = network
        self.process = process
        self._dispatcher: Dispatcher | None = None

    async def open(self, dispatcher: Dispatcher, host: str | None, port: int) -> None:
        assert port, "simulated listeners have ports of their own"
        self._dispatcher = dispatcher
        self.port = port

    async def serve(self) -> None:
        self._network.listen((self.process.host, self.port), self)

    def stop_accepting(self) -> None:
        self._network.stop_listening((self.process.host, self.port))

    def accept(self, end: End) -> Receiver:
        assert self._dispatcher is not None
        return SimLink(self._dispatcher, self, end)


class SimLink:
    """Moves bytes between an exchange and its end of a connection; reads the ranges of files it has to send."""

    def __init__(self, dispatcher: Dispatcher, owner: SimListener, end: End) -> None:
        self._owner = owner.connections
        self._end = end
        self._exchange = Exchange(dispatcher, self, owner.name)
        self._exchange.client_host = end.peer.process.host
        self.active = True
        if not self._owner.admit(self):
            end.close()

    @property
    def client_host(self) -> str:
        return self._exchange.client_host

    def hold_back(self, seconds: float) -> None:
        self._exchange.hold_back(seconds)

    # -- Receiver

    def received(self, data: bytes) -> None:
        self.active = True
        exchange = self._exchange
        rest = memoryview(data)
        while rest and not exchange.closed:
            target = exchange.target
            if target is None:
                exchange.receive(rest)
                break
            count = min(len(target), len(rest))
            target[:count] = rest[:count]
            exchange.filled(count)
            rest = rest[count:]
        if exchange.ready:
            self.answer()

    def lost(self) -> None:
        self._exchange.lost()
        self._owner.forget(self)

    # -- Link

    def pause_reading(self) -> None:
        self._end.pause()

    def resume_reading(self) -> None:
        self._end.resume()

    def answer(self) -> None:
        exchange = self._exchange
        ready = exchange.ready
        if not ready or self._end.closed:
            return
        exchange.ready = []
        exchange.files_ready = False
        try:
            data = b"".join(
                piece.file.read(piece.size, piece.position) if isinstance(piece, FileRange) else piece
                for piece in ready
            )
        except OSError as error:
            exchange.fail(error)
            return
        self._end.send(data)

    def close(self) -> None:
        self.answer()
        self._end.close()

    def abort(self) -> None:
        self._end.close()

    def close_if_idle(self) -> None:
        if not self.active and self._exchange.is_idle:
            self._end.close()
        self.active = False
