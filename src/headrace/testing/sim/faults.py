"""Faults by schedule: which kinds a run has, how often, and how long they last is drawn from its seed.

Each run draws some of the kinds (a run with all of them at once rarely gets anywhere near a rare state of one).
What could lose acknowledged records by the rules themselves is not done: a machine loses what it had not synced,
or its disk, only while somebody else has each committed record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from headrace.testing.sim.brokers import Machine
from headrace.testing.sim.world import World

Undo = Callable[[], None]


class Faults:
    def __init__(self, world: World, machines: Sequence[Machine], only: Sequence[str] | None = None) -> None:
        """`only` names the kinds of faults, if they are not to be drawn."""
        self._world = world
        self._machines = machines
        self._rng = world.fork()
        self._clients: list[str] = []
        self.move: Callable[[], None] = _nothing
        """Move a partition: no fault, but as hard to bear."""
        kinds: dict[str, Callable[[], None]] = {
            "kill": self._kill,
            "kill in a write": self._kill_in_a_write,
            "kill all": self._kill_all,
            "stop": self._stop,
            "pause": self._pause,
            "crash": self._crash,
            "wipe": self._wipe,
            "lose one of all": self._lose_one_of_all,
            "cut": self._cut,
            "isolate": self._isolate,
            "reset": self._reset,
            "lose the store": self._lose_store,
            "expire": self._expire,
            "unknown results": self._unknown_results,
            "full disk": self._full_disk,
            "failing sync": self._failing_sync,
            "move": lambda: self.move(),
        }
        chosen = self._rng.sample(sorted(kinds), self._rng.randrange(0, 7)) if only is None else only
        self.kinds = {name: kinds[name] for name in sorted(chosen)}
        self._mean_pause = self._rng.choice((0.3, 1.0, 2.0))

    async def run(self, seconds: float, clients: list[str]) -> None:
        self._clients = clients
        self._world.say(f"faults: {sorted(self.kinds)} about every {self._mean_pause} s for {seconds:.1f} s")
        end = self._world.loop.time() + seconds
        while self._world.loop.time() < end:
            await asyncio.sleep(self._rng.expovariate(1.0 / self._mean_pause))
            if self.kinds:
                name = self._rng.choice(list(self.kinds))
                self.kinds[name]()

    def heal(self) -> None:
        """Everything that is broken works again, and everybody is started."""
        self._world.say("all faults are over")
        self._world.network.heal()
        self._world.store.unknown_rate = 0.0
        self._world.store.unreachable.clear()
        self._world.store.unheard.clear()
        for machine in self._machines:
            machine.disk.full = machine.disk.broken = False
            machine.resume()
            if machine.down:
                machine.boot()
            machine.start_if_down()

    def _say(self, text: str) -> None:
        self._world.say(f"FAULT {text}")
        self._world.count("faults")

    def _later(self, seconds: float, undo: Undo) -> None:
        self._world.network.later(seconds, undo)

    def _running(self) -> Machine | None:
        running = [machine for machine in self._machines if machine.running]
        return self._rng.choice(running) if running else None

    # -- processes

    def _end_session_of(self, machine: Machine) -> None:
        """On one machine the store sees a dead process at once; over a network it waits for the session."""
        session = machine.session
        if session is not None and self._rng.random() < 0.5 and self._world.store.knows(session.session.id):
            self._world.store.remove_session(session.session.id)

    def _kill(self) -> None:
        machine = self._running()
        if machine is not None:
            self._say(f"kill {machine.host}")
            machine.kill()
            self._end_session_of(machine)
            self._later(self._rng.uniform(0.05, 6.0), machine.start_if_down)

    def _kill_in_a_write(self) -> None:
        machine = self._running()
        if machine is not None:
            changes = self._rng.randrange(40)
            self._say(f"kill {machine.host} {changes} writes from now")
            machine.kill_in(changes)

    def _kill_all(self) -> None:
        if self._rng.random() < 0.7:
            return
        self._say("kill all")
        for machine in self._machines:
            if machine.running:
                machine.kill()
                self._end_session_of(machine)
                self._later(self._rng.uniform(0.05, 3.0), machine.start_if_down)

    def _stop(self) -> None:
        machine = self._running()
        if machine is not None and machine.ready:
            self._say(f"stop {machine.host}")
            machine.stop()

    def _pause(self) -> None:
        machine = self._running()
        if machine is not None:
            seconds = self._rng.choice((0.3, 1.9, 2.5, 6.0)) * self._rng.uniform(0.8, 1.2)
            self._say(f"pause {machine.host} for {seconds:.2f} s")
            machine.pause()
            self._later(seconds, machine.resume)

    # -- machines

    def _may_crash(self, machine: Machine) -> bool:
        """Whether others still have what it has: no promise covers the loss of the last copy."""
        return self._world.store.others_have_all(machine.id) and not machine.asks_to_be_alone

    def _crash(self) -> None:
        machine = self._running()
        if machine is not None and self._may_crash(machine):
            self._say(f"crash {machine.host}")
            machine.crash()
            self._later(self._rng.uniform(0.5, 8.0), lambda: self._boot(machine))

    def _wipe(self) -> None:
        machine = self._running()
        if machine is not None and self._may_crash(machine):
            self._say(f"wipe {machine.host}")
            machine.crash()
            machine.replace_disk()
            self._later(self._rng.uniform(0.5, 8.0), lambda: self._boot(machine))

    def _lose_one_of_all(self) -> None:
        """All are down at once; the one that lost records, or all of its disk, is the first to come back."""
        machine = self._running()
        if machine is None or not self._may_crash(machine):
            return
        self._say(f"kill all, and crash {machine.host}")
        machine.crash()
        self._end_session_of(machine)
        if self._rng.random() < 0.5:
            self._say(f"wipe {machine.host}")
            machine.replace_disk()
        self._later(self._rng.uniform(0.1, 1.0), lambda: self._boot(machine))
        for other in self._machines:
            if other.running:
                other.kill()
                self._end_session_of(other)
                self._later(self._rng.uniform(1.5, 6.0), other.start_if_down)

    def _boot(self, machine: Machine) -> None:
        if machine.down:
            machine.boot()

    # -- the network

    def _cut(self) -> None:
        hosts = [machine.host for machine in self._machines]
        source = self._rng.choice(hosts + self._clients)
        target = self._rng.choice([host for host in hosts if host != source])
        if self._rng.random() < 0.5:
            source, target = target, source
        seconds = self._rng.uniform(0.2, 8.0)
        self._say(f"cut {source} -> {target} for {seconds:.2f} s")
        self._world.network.cut(source, target)
        self._later(seconds, lambda: self._world.network.heal_one(source, target))

    def _isolate(self) -> None:
        """From the other brokers, one way or both; clients still reach it, and so does the store by chance."""
        machine = self._rng.choice(list(self._machines))
        others = [other.host for other in self._machines if other is not machine]
        both = self._rng.random() < 0.7
        seconds = self._rng.uniform(0.5, 14.0)
        self._say(f"isolate {machine.host} for {seconds:.2f} s")
        pairs = [(machine.host, other) for other in others] + [(other, machine.host) for other in others if both]
        for source, target in pairs:
            self._world.network.cut(source, target)
            self._later(seconds, lambda source=source, target=target: self._world.network.heal_one(source, target))  # type: ignore[misc]
        if self._rng.random() < 0.5:
            self._cut_store(machine, seconds)

    def _reset(self) -> None:
        hosts = [machine.host for machine in self._machines]
        one = self._rng.choice(hosts)
        other = self._rng.choice([host for host in hosts + self._clients if host != one])
        self._say(f"reset {one} - {other}")
        self._world.network.reset_between(one, other)

    # -- the store

    def _cut_store(self, machine: Machine, seconds: float) -> None:
        store = self._world.store
        cut = store.unreachable if self._rng.random() < 0.5 else store.unheard
        cut.add(machine.host)
        self._later(seconds, lambda: cut.discard(machine.host))

    def _lose_store(self) -> None:
        seconds = self._rng.uniform(0.3, 6.0)
        if self._rng.random() < 0.3:
            self._say(f"nobody reaches the store for {seconds:.2f} s")
            for machine in self._machines:
                self._cut_store(machine, seconds)
            return
        machine = self._rng.choice(list(self._machines))
        self._say(f"{machine.host} does not reach the store for {seconds:.2f} s")
        self._cut_store(machine, seconds)

    def _expire(self) -> None:
        machine = self._running()
        session = machine.session if machine is not None else None
        if machine is not None and session is not None and self._world.store.knows(session.session.id):
            self._say(f"expire the session of {machine.host}")
            self._world.store.run_out(session.session.id)

    def _unknown_results(self) -> None:
        store = self._world.store
        store.unknown_rate = self._rng.choice((0.05, 0.3))
        self._say(f"unknown results: {store.unknown_rate}")

        def end() -> None:
            store.unknown_rate = 0.0

        self._later(self._rng.uniform(0.5, 4.0), end)

    # -- disks

    def _full_disk(self) -> None:
        machine = self._rng.choice(list(self._machines))
        self._say(f"full disk of {machine.host}")
        machine.disk.full = True
        self._later(self._rng.uniform(0.2, 4.0), lambda: _empty(machine))

    def _failing_sync(self) -> None:
        machine = self._rng.choice(list(self._machines))
        self._say(f"failing syncs of {machine.host}")
        machine.disk.broken = True
        self._later(self._rng.uniform(0.2, 4.0), lambda: _repair(machine))


def _empty(machine: Machine) -> None:
    machine.disk.full = False


def _repair(machine: Machine) -> None:
    machine.disk.broken = False


def _nothing() -> None: ...
