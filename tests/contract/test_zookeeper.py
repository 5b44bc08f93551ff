"""What is particular to ZooKeeper: chroots, cut connections, lost servers, the watchdog, brokers on it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from headrace.config.broker_config import BrokerConfig
from headrace.coordination.contract import (
    ANY_VERSION,
    AccessDenied,
    Create,
    SessionLost,
    StoreError,
    TreeNode,
    Unknown,
)
from headrace.coordination.lease import LeaseKeeper, LeaseState
from headrace.coordination.zookeeper import ZooKeeperStore, open_zookeeper_store
from headrace.coordination.zookeeper_login import NO_ACCESS_RULES, ZooKeeperAccess
from headrace.env.certificates import make_authority, make_certificate
from headrace.env.real import real_env
from headrace.failures import StartError
from headrace.metadata.stores import open_store
from headrace.node import Node
from headrace.testing.process import free_port
from headrace.testing.zookeeper import SecureZooKeeper, ZooKeeperEnsemble, ZooKeeperServer

ENV = real_env()
LONG = 20.0
PATIENCE_SECONDS = 60.0


async def connect(servers: str, chroot: str, timeout: float = LONG) -> ZooKeeperStore:
    return await open_zookeeper_store(ENV, servers.split(","), chroot, timeout, PATIENCE_SECONDS)


async def until_known(call: Callable[[], Awaitable[object]]) -> object:
    """As a caller does it: again after an unknown result."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                return await call()
            except Unknown:
                await asyncio.sleep(0.05)


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():
            await asyncio.sleep(0.01)


class Gate:
    """A way to the server that can lose a request, or the answer to one, together with the connection."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._open: list[asyncio.StreamWriter] = []
        self.lose_requests = False
        self.lose_answers = False
        self.silent = False
        """New connections are taken, and nothing is said."""
        self.silent_connections = 0
        self.port = 0

    async def start(self) -> None:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.silent:
            self.silent_connections += 1
            while await reader.read(65536):
                pass
            writer.close()
            return
        there, back = await asyncio.open_connection("127.0.0.1", self._target)
        self._open += [writer, back]
        await asyncio.gather(
            self._pass(reader, back, lambda: self.lose_requests),
            self._pass(there, writer, lambda: self.lose_answers),
        )

    async def _pass(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, loses: Callable[[], bool]
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                if loses():
                    break
                sink.write(data)
        for writer in self._open:
            writer.close()


@pytest.fixture
async def gate(zookeeper: ZooKeeperServer) -> Gate:
    gate = Gate(zookeeper.port)
    await gate.start()
    return gate


@pytest.mark.parametrize("happens", [True, False], ids=["answer lost", "request lost"])
async def test_a_write_whose_connection_is_cut_is_unknown(gate: Gate, chroot: str, happens: bool) -> None:
    store = await connect(f"127.0.0.1:{gate.port}", chroot)
    await store.create("/before", b"")
    session = store.session.id
    gate.lose_answers, gate.lose_requests = happens, not happens
    with pytest.raises(Unknown):
        await store.create("/a", b"x")
    gate.lose_answers = gate.lose_requests = False
    found = await until_known(lambda: store.get("/a"))
    assert found == (TreeNode(b"x", 0) if happens else None)
    await until_known(store.renew)
    assert store.session.id == session
    assert not store.session.lost
    await store.close()


async def test_a_server_that_says_nothing_is_given_up_before_the_session_ends(gate: Gate, chroot: str) -> None:
    store = await connect(f"127.0.0.1:{gate.port}", chroot)
    gate.silent = gate.lose_requests = True
    with pytest.raises(Unknown):
        await store.renew()
    await eventually(lambda: gate.silent_connections > 0)
    gate.silent = gate.lose_requests = False
    assert gate.silent_connections == 1
    await until_known(store.renew)
    assert not store.session.lost
    await store.close()


async def test_a_watch_survives_a_cut_connection(gate: Gate, zookeeper: ZooKeeperServer, chroot: str) -> None:
    watcher, writer = await connect(f"127.0.0.1:{gate.port}", chroot), await connect(zookeeper.connect, chroot)
    changed = asyncio.Event()
    await watcher.watch("/a", changed.set)
    gate.lose_requests = gate.lose_answers = True
    with pytest.raises(StoreError):
        await watcher.get("/a")
    await writer.create("/a", b"while it was away")
    assert not changed.is_set()
    gate.lose_requests = gate.lose_answers = False
    await asyncio.wait_for(changed.wait(), PATIENCE_SECONDS)
    assert await until_known(lambda: watcher.get("/a")) == TreeNode(b"while it was away", 0)
    changed.clear()
    await writer.put("/a", b"later", 0)
    await asyncio.wait_for(changed.wait(), PATIENCE_SECONDS)
    await watcher.close()
    await writer.close()


async def test_chroots_are_apart(zookeeper: ZooKeeperServer, chroot: str) -> None:
    one, two = await connect(zookeeper.connect, f"{chroot}/one"), await connect(zookeeper.connect, f"{chroot}/two")
    whole = await connect(zookeeper.connect, chroot)
    await one.create("/a", b"one")
    await two.create("/a", b"two")
    assert await one.get("/a") == TreeNode(b"one", 0)
    assert await two.children("/") == ["a", "leases"]
    assert await whole.get_many(["/one/a", "/two/a"]) == [TreeNode(b"one", 0), TreeNode(b"two", 0)]
    for store in (one, two, whole):
        await store.close()


async def test_the_granted_timeout_counts(zookeeper: ZooKeeperServer, chroot: str) -> None:
    store = await connect(zookeeper.connect, chroot, timeout=0.1)
    assert store.session.timeout == pytest.approx(0.4)
    await store.close()


async def test_a_stuck_loop_loses_its_session_although_pings_are_answered(
    zookeeper: ZooKeeperServer, chroot: str, caplog: pytest.LogCaptureFixture
) -> None:
    store, other = await connect(zookeeper.connect, chroot, 2.0), await connect(zookeeper.connect, chroot)
    state = LeaseState(ENV.clock)
    keeping = asyncio.ensure_future(LeaseKeeper(ENV, store, state).run())
    await store.create("/a", b"", ephemeral=True)
    await eventually(state.valid)
    time.sleep(3.5)
    assert not state.valid()
    await asyncio.wait_for(keeping, PATIENCE_SECONDS)
    assert store.session.lost
    assert await other.get("/a") is None
    assert "has not renewed its lease" in caplog.text
    with pytest.raises(SessionLost):
        await store.get("/a")
    await store.close()
    await other.close()


OWNER_PROGRAM = """
import asyncio, sys
from headrace.coordination.lease import LeaseKeeper, LeaseState
from headrace.coordination.zookeeper import open_zookeeper_store
from headrace.env.real import real_env

async def main():
    env = real_env()
    store = await open_zookeeper_store(env, [sys.argv[1]], sys.argv[2], 3.0, 60.0)
    await store.create("/owner", b"alive", ephemeral=True)
    lease = LeaseState(env.clock)
    keeping = asyncio.create_task(LeaseKeeper(env, store, lease).run())

    def answer():
        sys.stdin.readline()
        print("valid" if lease.valid() else "invalid", flush=True)

    asyncio.get_running_loop().add_reader(sys.stdin, answer)
    print("ready", flush=True)
    await keeping
    print("lost", flush=True)

asyncio.run(main())
"""


async def test_a_stopped_process_loses_its_node_and_knows_it_before_it_answers(
    zookeeper: ZooKeeperServer, chroot: str
) -> None:
    store = await connect(zookeeper.connect, chroot)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", OWNER_PROGRAM, zookeeper.connect, chroot),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ready\n"
    gone = asyncio.Event()
    await store.watch("/owner", gone.set)
    process.send_signal(signal.SIGSTOP)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await store.get("/owner") is not None:
            await gone.wait()
            gone.clear()
        process.stdin.write(b"?\n")
        await process.stdin.drain()
        process.send_signal(signal.SIGCONT)
        assert {await process.stdout.readline(), await process.stdout.readline()} == {b"invalid\n", b"lost\n"}
        await process.wait()
    await store.close()


async def test_a_server_that_was_down_ends_the_lease_and_not_the_session(chroot: str) -> None:
    with ZooKeeperServer() as server:
        store = await connect(server.connect, chroot)
        await store.create("/a", b"", ephemeral=True)
        server.kill()
        with pytest.raises(Unknown):
            await store.renew()
        with pytest.raises(Unknown):
            await store.get("/a")
        before = store.session.deadline
        await asyncio.to_thread(server.start)
        await until_known(store.renew)
        assert store.session.deadline > before
        assert await until_known(lambda: store.get("/a")) == TreeNode(b"", 0)
        await store.close()


async def test_an_ensemble_survives_the_loss_of_its_leader(chroot: str) -> None:
    with ZooKeeperEnsemble() as ensemble:
        stores = [await connect(server.connect, chroot) for server in ensemble.servers]
        for store in stores:
            await store.close()
        store, other = await connect(ensemble.connect, chroot), await connect(ensemble.connect, chroot)
        changed = asyncio.Event()
        await store.create("/a", b"", ephemeral=True)
        await other.watch("/a", changed.set)
        ensemble.leader().kill()
        version = 0

        async def put() -> int:
            node = await store.get("/a")
            assert node is not None
            return await store.put("/a", b"after", node.version)

        changed.clear()
        assert await until_known(put) in (version + 1, version + 2)
        await asyncio.wait_for(changed.wait(), PATIENCE_SECONDS)
        for each in (store, other):
            await until_known(each.renew)
            assert not each.session.lost
        await until_known(store.close)
        await until_known(other.close)


async def test_nobody_there_is_an_error_that_says_so() -> None:
    port = free_port()
    with pytest.raises(ConnectionError, match=f"127.0.0.1:{port}"):
        await open_zookeeper_store(ENV, [f"127.0.0.1:{port}"], "", 1.0, 0.3)


async def test_a_write_over_the_limit_is_our_bug(zookeeper: ZooKeeperServer, chroot: str) -> None:
    store = await connect(zookeeper.connect, chroot)
    with pytest.raises(AssertionError, match="split it"):
        await store.multi([Create("/a", bytes(600_000)), Create("/b", bytes(600_000))])
    await store.create("/a", bytes(900_000))
    await store.delete("/a", ANY_VERSION)
    await store.close()


def broker_config(data: Path, connect: str, **more: str) -> BrokerConfig:
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(data),
        "headrace.admin.port": "0",
        "zookeeper.connect": connect,
        **{name.replace("_", "."): text for name, text in more.items()},
    }
    return BrokerConfig.build(flags=settings)


async def test_two_clusters_live_in_one_ensemble(zookeeper: ZooKeeperServer, chroot: str, tmp_path: Path) -> None:
    """Both of their brokers have the id 1, and each is its cluster's controller."""
    nodes = []
    for name in ("one", "two"):
        config = broker_config(tmp_path / name, f"{zookeeper.connect}{chroot}/{name}")
        nodes.append(Node(real_env(), config))
        await nodes[-1].start()
    images = [node._metadata.image for node in nodes if node._metadata is not None]
    assert [list(image.brokers) for image in images] == [[1], [1]]
    assert [image.controller_id for image in images] == [1, 1]
    assert images[0].cluster_id != images[1].cluster_id
    assert not list(tmp_path.glob("*/cluster.db*"))
    for node in nodes:
        await node.stop()


async def test_a_broker_finds_its_cluster_again_after_a_restart(
    zookeeper: ZooKeeperServer, chroot: str, tmp_path: Path
) -> None:
    config = broker_config(tmp_path, zookeeper.connect + chroot)
    for epoch in (1, 2):
        node = Node(real_env(), config)
        await node.start()
        assert node._metadata is not None
        assert node._metadata.image.brokers[1].epoch == epoch
        await node.stop()


async def test_a_start_without_a_server_or_without_kazoo_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    config = broker_config(tmp_path, f"127.0.0.1:{port}/x", zookeeper_connection_timeout_ms="300")
    node = Node(real_env(), config)
    with pytest.raises(
        StartError, match=rf"No ZooKeeper server of 127.0.0.1:{port} accepted a session within 0\.3 s"
    ):
        await node.start()
    await node.stop()
    monkeypatch.delitem(sys.modules, "headrace.coordination.zookeeper")
    monkeypatch.delitem(sys.modules, "headrace.coordination.zookeeper_client")
    monkeypatch.setitem(sys.modules, "kazoo.client", None)
    with pytest.raises(OSError, match=r"pip install 'headrace\[zookeeper\]'"):
        await open_store(ENV, config)


class TestAccess:
    """Who may reach what a cluster keeps in ZooKeeper."""

    @staticmethod
    async def store(server: ZooKeeperServer, chroot: str, digest: str | None, own: bool = True) -> ZooKeeperStore:
        access = ZooKeeperAccess(digest=digest, own_nodes_only=own and digest is not None)
        return await open_zookeeper_store(ENV, [server.connect], chroot, LONG, PATIENCE_SECONDS, access)

    async def test_nodes_belong_to_the_login_that_made_them(self, zookeeper: ZooKeeperServer, chroot: str) -> None:
        ours = await self.store(zookeeper, chroot, "brokers:secret")
        await ours.create("/a", b"for us", make_parents=True)
        await ours.multi([Create("/b", b"too"), Create("/b/c", b"", ephemeral=True)])
        again = await self.store(zookeeper, chroot, "brokers:secret")
        assert await again.get("/a") == TreeNode(b"for us", 0)
        for other in (None, "brokers:guessed", "others:secret"):
            with pytest.raises(AccessDenied, match="belongs to another login"):
                await self.store(zookeeper, chroot, other)
        plain = await connect(zookeeper.connect, "", 10.0)
        for path in ("/a", "/b", "/b/c", "/leases"):
            with pytest.raises(AccessDenied):
                await plain.get(f"{chroot}{path}")
        for store in (ours, again, plain):
            await store.close()

    async def test_what_was_open_is_secured_at_the_next_start(
        self, zookeeper: ZooKeeperServer, chroot: str
    ) -> None:
        before = await connect(zookeeper.connect, chroot)
        await before.create("/config/users/alice", b"salted", make_parents=True)
        ours = await self.store(zookeeper, chroot, "brokers:secret")
        assert await ours.get("/config/users/alice") == TreeNode(b"salted", 0)
        with pytest.raises(AccessDenied):
            await before.get("/config/users/alice")
        for store in (before, ours):
            await store.close()

    async def test_a_broker_says_what_is_wrong(
        self, zookeeper: ZooKeeperServer, chroot: str, tmp_path: Path
    ) -> None:
        def node(number: int, digest: str) -> Node:
            file = {
                "node.id": str(number),
                "listeners": "PLAINTEXT://127.0.0.1:0",
                "log.dirs": str(tmp_path / str(number)),
                "zookeeper.connect": f"{zookeeper.connect}{chroot}",
                "headrace.zookeeper.digest": digest,
                "zookeeper.set.acl": "true",
                "headrace.admin.port": "0",
            }
            return Node(real_env(), BrokerConfig.build(file=file))

        first, wrong = node(1, "brokers:secret"), node(2, "brokers:guessed")
        await first.start()
        try:
            with pytest.raises(StartError, match="belongs to another login"):
                await wrong.start()
        finally:
            await wrong.stop()
            await first.stop()

    async def test_over_tls(self, tmp_path: Path) -> None:
        """A broker on the secure port of a real server, with certificates, a login and nodes of its own."""
        authority = make_authority("zookeeper")
        paths = {name: str(tmp_path / f"{name}.pem") for name in ("ca", "server", "broker", "other", "forged")}
        Path(paths["ca"]).write_text(authority.pem)
        Path(paths["server"]).write_text(make_certificate(authority, "server", ("127.0.0.1",)).store)
        Path(paths["broker"]).write_text(make_certificate(authority, "broker").store)
        other = make_authority("zookeeper")
        Path(paths["other"]).write_text(other.pem)
        Path(paths["forged"]).write_text(make_certificate(other, "broker").store)
        with SecureZooKeeper(Path(paths["server"]), Path(paths["ca"])) as server:
            file = {
                "node.id": "1",
                "listeners": "PLAINTEXT://127.0.0.1:0",
                "log.dirs": str(tmp_path / "data"),
                "headrace.admin.port": "0",
                "zookeeper.connect": f"{server.secure_connect}/tls",
                "headrace.zookeeper.digest": "brokers:secret",
                "zookeeper.set.acl": "true",
                "zookeeper.ssl.client.enable": "true",
                "zookeeper.ssl.truststore.location": paths["ca"],
                "zookeeper.ssl.keystore.location": paths["broker"],
            }
            node = Node(real_env(), BrokerConfig.build(file=file))
            await node.start()
            try:
                plain = await connect(server.connect, "", 10.0)
                with pytest.raises(AccessDenied):
                    await plain.get("/tls/leases")
                await plain.close()
            finally:
                await node.stop()
            refused = [
                NO_ACCESS_RULES,
                ZooKeeperAccess(tls=True, ca=paths["other"], certificate=paths["broker"]),
                ZooKeeperAccess(tls=True, ca=paths["ca"]),
                ZooKeeperAccess(tls=True, ca=paths["ca"], certificate=paths["forged"]),
            ]
            servers = [server.secure_connect]
            tries = [open_zookeeper_store(ENV, servers, "/tls", LONG, 2.0, access) for access in refused]
            outcomes = await asyncio.gather(*tries, return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [ConnectionError] * len(refused)
