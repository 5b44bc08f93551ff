"""Simulated machines, each with a broker that is killed, paused, restarted and crashed."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from functools import partial

from headrace.client.address import Address
from headrace.client.connection import ClientSettings, open_connection
from headrace.config.broker_config import BrokerConfig
from headrace.coordination.contract import Store
from headrace.coordination.memory import MemoryStore
from headrace.env import Env
from headrace.failures import StartError
from headrace.metadata.image import Endpoint
from headrace.metadata.stores import session_timeout
from headrace.model.topics import TopicPartition
from headrace.node import Node
from headrace.outside import CONNECT_SECONDS, Outside
from headrace.replication.controller_link import BROKER_CLIENT_ID
from headrace.replication.partition import Partition
from headrace.replication.peers import Peer
from headrace.services.cleaner import Worker
from headrace.storage.log_directory import CLEAN_STOP
from headrace.testing.sim.compaction import SimWorker
from headrace.testing.sim.disk import MachineDisk, ProcessDisk
from headrace.testing.sim.loop import NOBODY, Process
from headrace.testing.sim.server import SimListener
from headrace.testing.sim.world import World

PORT = 9092
MAX_DRIFT = 0.01
RESTART_SECONDS = 1.0
"""How long a supervisor waits before it restarts a broker that ended by itself."""
_BUG = re.compile(r" (failed: (?!OSError|KafkaError)|ended$)")
"""A reason to stop that no fault of the environment explains."""


class Machine:
    def __init__(self, world: World, broker_id: int, settings: dict[str, str]) -> None:
        self._world = world
        self.id = broker_id
        self.host = f"b{broker_id}"
        self._settings = settings
        rng = world.fork()
        self._rate = 1.0 + rng.uniform(-MAX_DRIFT, MAX_DRIFT)
        self._offset = rng.uniform(10.0, 100_000.0)
        self.disk = MachineDisk(world.fork(), lambda: int(world.loop.time() * 1000))
        self.process: Process | None = None
        self.node: Node | None = None
        self.ready_since: float | None = None
        self.sessions: list[MemoryStore] = []
        self._view: ProcessDisk | None = None
        self._starts = 0
        self.checkpointed: dict[TopicPartition, int] = {}
        """The high watermarks that the process found on the disk when it started."""
        self.unclean_starts = 0
        """How many starts found no sign on the disk that the process before had stopped cleanly."""
        self.before_death: Callable[[], None] = _nothing
        """Called while the process's state can still be inspected."""
        self.in_a_write = False
        """Whether it died in the middle of a write, so that its state may be inconsistent."""
        self.down = False
        """Whether the whole machine is down, not just the process."""

    @property
    def running(self) -> bool:
        return self.process is not None

    @property
    def ready(self) -> bool:
        return self.ready_since is not None

    @property
    def paused(self) -> bool:
        return self.process is not None and self.process.paused

    def partitions(self) -> list[Partition]:
        replicas = self.node._replicas if self.node is not None else None
        if replicas is None:
            return []
        return [partition for topic in replicas.by_name.values() for partition in topic.values()]

    def partition(self, name: TopicPartition) -> Partition | None:
        replicas = self.node._replicas if self.node is not None else None
        return replicas.by_name.get(name.topic.encode(), {}).get(name.partition) if replicas is not None else None

    @property
    def asks_to_be_alone(self) -> bool:
        """Whether its request is under way to be alone in an in-sync set, where that is enough."""
        return any(
            partition.leadership is not None
            and partition.leadership.pending is not None
            and partition.leadership.pending.isr == (self.id,)
            and partition.min_in_sync == 1
            for partition in self.partitions()
        )

    # -- life

    def start(self) -> None:
        assert self.process is None
        assert not self.down
        self._starts += 1
        self.checkpointed = self._read_checkpoint()
        self.unclean_starts += f"/data/broker-{self.id}/{CLEAN_STOP}" not in self.disk.names
        process = self.process = Process(f"{self.host}.{self._starts}", self.host)
        view = self._view = ProcessDisk(self.disk, partial(self._died_writing, process))
        env = self._world.env(process, view, self._rate, self._offset)
        config = BrokerConfig.build(
            flags={
                "node.id": str(self.id),
                "log.dirs": "/data",
                "listeners": f"PLAINTEXT://{self.host}:{PORT}",
                "zookeeper.connect": "sim:2181",
                "headrace.allow.insecure": "true",
                **self._settings,
            }
        )
        node = self.node = Node(env, config, partial(self._failed, process), self._outside(process, env))
        self._world.say(f"{process.name} starts")
        self._world.loop.create_task(self._run(process, node), context=process.context)

    def _read_checkpoint(self) -> dict[TopicPartition, int]:
        file = self.disk.names.get(f"/data/broker-{self.id}/replication-offset-checkpoint")
        lines = bytes(file.data).decode().splitlines()[2:] if file is not None else []
        found = {}
        for line in lines:
            topic, index, offset = line.split()
            found[TopicPartition(topic, int(index))] = int(offset)
        return found

    async def _run(self, process: Process, node: Node) -> None:
        try:
            await node.start()
        except StartError as error:
            self._world.say(f"{process.name} could not start: {error}")
            await self._stop_node(process, node)
            self._ended(process)
        else:
            self.ready_since = self._world.loop.time()
            self._world.say(f"{process.name} is ready")

    async def _stop_node(self, process: Process, node: Node) -> None:
        try:
            await node.stop()
        except OSError as error:
            self._world.say(f"{process.name} could not stop cleanly: {error}")

    def _failed(self, process: Process, reason: str) -> None:
        """Called when the broker cannot continue: its process stops, and its supervisor restarts it."""
        self._world.say(f"{process.name} gives up: {reason}")
        self._world.count("gave up")
        if _BUG.search(reason):
            self._world.violated(f"{process.name} gave up: {reason}")
        if process is self.process and process.alive:
            self._world.loop.call_soon(self._fail_stop, process, context=NOBODY)

    def _fail_stop(self, process: Process) -> None:
        if process is self.process:
            self.kill()
            self._world.network.later(RESTART_SECONDS, self.start_if_down)

    def _ended(self, process: Process) -> None:
        """Called when the process ended by itself: the supervisor restarts it."""
        self._world.loop.call_soon(self._fail_stop, process, context=NOBODY)

    def start_if_down(self) -> None:
        if self.process is None and not self.down:
            self.start()

    def kill(self) -> None:
        """Kill the process with SIGKILL: nothing more is done, and the page cache stays."""
        process, view = self.process, self._view
        assert process is not None
        assert view is not None
        self.before_death()
        self._world.bury_tasks()
        self._world.remains.append(self.node)
        process.alive = False
        view.end()
        self.process = self.ready_since = None
        self._world.network.process_ended(process)
        self._world.say(f"{process.name} is dead")

    def _died_writing(self, process: Process) -> None:
        """End in the middle of a call: the rest of that call must not do anything."""
        if process is self.process:
            self._world.count("died writing")
            self.in_a_write = True
            self.kill()
            self.in_a_write = False
            self._world.network.later(self._world.rng.uniform(0.1, 5.0), self.start_if_down)

    def kill_in(self, changes: int) -> None:
        """Die in the middle of a write, `changes` changes of the disk from now."""
        assert self._view is not None
        self._view.die_after(changes)

    def crash(self) -> None:
        """Power off: data that was not synced is lost, and nobody is notified."""
        self.down = True
        self._world.store.machine_lost(self.id)
        self._world.network.machine_down(self.host)
        if self.process is not None:
            self.kill()
        self.disk.crash()

    def replace_disk(self) -> None:
        """Replace the disk after a crash: the machine comes back with an empty one."""
        assert self.down
        self.disk.wipe()

    def boot(self) -> None:
        self.down = False
        self._world.network.machine_up(self.host)
        self.start()

    async def stop_cleanly(self) -> None:
        """Stop with SIGTERM, in the process's own context: see `stop`."""
        process, node = self.process, self.node
        assert process is not None
        assert node is not None
        await self._stop_node(process, node)
        if process is self.process:
            self._world.say(f"{process.name} stopped")
            self._world.loop.call_soon(self._stopped, process, context=NOBODY)

    def _stopped(self, process: Process) -> None:
        if process is self.process:
            self.kill()
            self._world.network.later(self._world.rng.uniform(0.1, 4.0), self.start_if_down)

    def stop(self) -> None:
        assert self.process is not None
        self.ready_since = None
        self._world.loop.create_task(self.stop_cleanly(), context=self.process.context)

    def pause(self) -> None:
        assert self.process is not None
        self.process.paused = True

    def resume(self) -> None:
        if self.process is not None and self.process.paused:
            self._world.loop.resume(self.process)

    # -- what the node can reach

    def _outside(self, process: Process, env: Env) -> Outside:
        world = self._world

        async def open_store(env: Env, config: BrokerConfig) -> Store:
            store = await world.store.open(env, self.host, session_timeout(config))
            self.sessions.append(store)
            return store

        settings = ClientSettings(client_id=f"{BROKER_CLIENT_ID}{self.id}", connect_timeout_s=CONNECT_SECONDS)

        def connect(endpoint: Endpoint) -> Awaitable[Peer]:
            return open_connection(Address(endpoint.host, endpoint.port), settings)

        async def start_worker() -> Worker:
            return SimWorker(env)

        listener = partial(SimListener, world.network, process)
        return Outside(open_store, connect, listener, serves_admin=False, start_worker=start_worker)

    @property
    def session(self) -> MemoryStore | None:
        return self.sessions[-1] if self.sessions else None


def _nothing() -> None: ...
