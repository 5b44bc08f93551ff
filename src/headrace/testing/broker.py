"""`Broker`: a Headrace broker for one test or a whole session, in its own process.

    with Broker({"auto.create.topics.enable": "true"}) as broker:
        run_my_program(broker.bootstrap_servers)
        broker.kill()       # as a crash; broker.start() goes on with the same data and port

Rules:
- The broker takes a port that the kernel gives it, so that any number can start at once without a race.
- It ends with the process that made it, also when that is killed (`child`). A thread of its own starts all
  brokers, because the kernel watches the starting thread: a broker must not end with some worker thread.
- Variables HEADRACE_* of the test's environment do not reach it: a test means the same on every machine.
- Leaving the block throws the broker and its data away. With `data_dir` the data stays, and it is stopped cleanly.
  Without a block the temporary files go with `close`, with the object, or at the latest with this process.
"""

from __future__ import annotations

import os
import queue
import shutil
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from headrace.testing.process import POLL_INTERVAL_S, START_TIMEOUT_S, BrokerProcess
from headrace.testing.securing import Securing

if TYPE_CHECKING:
    from headrace.client.cluster import Cluster

T = TypeVar("T")

CHILD = Path(__file__).with_name("child.py")
FOR_TESTS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "headrace.admin.port": "0",
}
"""What differs from a broker in production: groups settle at once, and little is made that nobody needs."""
ADDRESS_FILES = "broker-*/headrace.address"
PID_FILES = "broker-*/headrace.pid"


class _Starter:
    """A thread that lives as long as this process, and starts the others."""

    def __init__(self) -> None:
        self._wanted: queue.SimpleQueue[tuple[Callable[[], object], Future[object]]] = queue.SimpleQueue()
        threading.Thread(target=self._serve, name="headrace-starter", daemon=True).start()

    def start(self, make: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
        future: Future[object] = Future()
        self._wanted.put((make, future))
        made = future.result()
        assert isinstance(made, subprocess.Popen)
        return made

    def _serve(self) -> None:
        while True:
            make, future = self._wanted.get()
            try:
                future.set_result(make())
            except OSError as error:
                future.set_exception(error)


class Leftovers:
    """What a broker leaves that was not closed: its process, and its temporary files."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._owner = os.getpid()
        self.process: subprocess.Popen[bytes] | None = None

    def remove(self) -> None:
        if os.getpid() != self._owner:  # a fork that ends
            return
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.root, ignore_errors=True)


_starters: dict[int, _Starter] = {}
"""By process: a fork has none of the threads."""


class Broker(BrokerProcess):
    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        data_dir: str | Path | None = None,
        users: Mapping[str, str] | None = None,
        tls: bool = False,
    ) -> None:
        """`settings` are a broker's, with Kafka's names. Nothing runs before `start` or the `with` block.

        With `users` (names and passwords) clients log in, with `tls` they see a certificate: `client_settings`.
        """
        super().__init__({**FOR_TESTS, **(settings or {})})
        self.port = 0
        self._address = ""
        self._kept_data = Path(data_dir) if data_dir is not None else None
        self._securing = Securing(users or {}, tls)
        self._leftovers = Leftovers(self.root)
        weakref.finalize(self, self._leftovers.remove)

    def client_settings(self, user: str | None = None) -> dict[str, Any]:
        """What librdkafka's clients (confluent-kafka) need to connect, as `user` or as the first of `users`."""
        secured = self._securing.client_settings(self.root, user)
        return {"bootstrap.servers": self.bootstrap_servers, **secured}

    def python_settings(self, user: str | None = None) -> dict[str, Any]:
        """The same in the words of kafka-python."""
        secured = self._securing.python_settings(self.root, user)
        return {"bootstrap_servers": self.bootstrap_servers, **secured}

    @property
    def bootstrap_servers(self) -> str:
        """What clients are given: `127.0.0.1:54321`."""
        assert self._address, "not started"
        return self._address

    @property
    def bootstrap(self) -> str:
        return self._address or f"{self.host}:{self.port}"

    @property
    def data_dir(self) -> Path:
        return self._kept_data or self.root / "data"

    def command(self) -> list[str]:
        doomed = str(self.root)
        _, _, _, *arguments = super().command()
        if self._securing:
            plain, secured = "listeners=PLAINTEXT://", f"listeners={self._securing.protocol}://"
            arguments = [one.replace(plain, secured) for one in arguments]
            arguments.append(str(self._securing.write(self.root)))
        return [sys.executable, "-P", str(CHILD), str(os.getpid()), doomed, *arguments]

    def environment(self) -> dict[str, str]:
        return {name: value for name, value in super().environment().items() if not name.startswith("HEADRACE_")}

    def launch(self) -> None:
        for stale in self.data_dir.glob(PID_FILES):  # of a broker that was killed
            stale.unlink()
        self.root.mkdir(exist_ok=True)
        super().launch()
        self._leftovers.process = self._process

    def stop(self) -> None:
        """A clean stop, as by SIGTERM; `start` goes on with the same data and port."""
        if self.exit_code() is None and self._process is not None:
            self.terminate()

    def close(self) -> None:
        if self._kept_data is not None:
            self.stop()
        super().close()

    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> str:
        """Creates a topic and returns its name. Works inside a running event loop too."""
        from headrace.client.admin import NewTopic, create_topics

        topic = NewTopic(name, partitions, configs=dict(configs or {}))

        async def work(cluster: Cluster) -> None:
            if (error := (await create_topics(cluster, [topic]))[name]) is not None:
                raise error

        self._ask(work)
        return name

    def delete_topic(self, name: str) -> None:
        from headrace.client.admin import delete_topics

        async def work(cluster: Cluster) -> None:
            if (error := (await delete_topics(cluster, [name]))[name]) is not None:
                raise error

        self._ask(work)

    async def __aenter__(self) -> Self:
        import asyncio

        try:
            self.launch()
            deadline = time.monotonic() + START_TIMEOUT_S
            while not self.is_ready(deadline):
                await asyncio.sleep(POLL_INTERVAL_S)
        except BaseException:
            self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _spawn(self, log: int) -> subprocess.Popen[bytes]:
        starter = _starters.get(os.getpid()) or _starters.setdefault(os.getpid(), _Starter())
        command, environment = self.command(), self.environment()
        return starter.start(
            lambda: subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=environment
            )
        )

    def _serves(self) -> bool:
        """The broker writes its address and then its process id as soon as it serves."""
        if not any(True for _ in self.data_dir.glob(PID_FILES)):
            return False
        self._address = next(self.data_dir.glob(ADDRESS_FILES)).read_text().strip().split(",")[0]
        self.port = int(self._address.rpartition(":")[2])
        return True

    def _ask(self, work: Callable[[Cluster], Awaitable[T]], address: str | None = None) -> T:
        """In a thread: this one may be running a loop."""
        import asyncio
        from concurrent.futures import ThreadPoolExecutor

        from headrace.client.address import parse_bootstrap
        from headrace.client.cluster import Cluster
        from headrace.client.connection import ClientSettings
        from headrace.env.real import real_env

        async def main() -> T:
            settings = ClientSettings(client_id="headrace-testing")
            if self._securing:
                from headrace.client.security import client_security

                security = client_security(self._securing.client_settings(self.root, None).get, os.urandom)
                settings = replace(settings, login=security.login, tls=security.context)
            async with Cluster(real_env(), parse_bootstrap(address or self.bootstrap), settings) as cluster:
                return await work(cluster)

        with ThreadPoolExecutor(1) as pool:
            return pool.submit(asyncio.run, main()).result()
