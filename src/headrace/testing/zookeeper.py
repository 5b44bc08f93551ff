"""Real ZooKeeper servers for tests: Debian's package, in the foreground, without its service.

    with ZooKeeperServer() as server:          # one, in half a second
        use(server.connect)
    with ZooKeeperEnsemble() as ensemble:      # three
        ensemble.servers[0].kill()

The flags are for quick starts and short sessions, not for production: a tick of 200 ms, no sync of the log.
"""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from headrace.testing.process import (
    HOST,
    POLL_INTERVAL_S,
    START_TIMEOUT_S,
    ServerFailed,
    ServerProcess,
    free_port,
)

_JAVA = Path("/usr/share/java")
JARS = tuple(_JAVA / name for name in ("zookeeper.jar", "slf4j-simple.jar"))
TLS_JARS = tuple(_JAVA / f"netty-{name}.jar" for name in ("codec", "resolver", "transport-native-unix-common"))
"""What the package's own list of jars leaves out, and its secure port needs."""
MAIN_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
JAVA_FLAGS = (
    "-Xmx128m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-Dzookeeper.admin.enableServer=false",
    "-Dzookeeper.forceSync=no",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)
SETTINGS: Mapping[str, str] = {
    "tickTime": "200",
    "initLimit": "50",
    "syncLimit": "20",
    "minSessionTimeout": "400",
    "maxSessionTimeout": "60000",
    "maxClientCnxns": "0",
    "4lw.commands.whitelist": "*",
}
ENSEMBLE_SIZE = 3


class ZooKeeperServer(ServerProcess):
    name = "zookeeper"
    jars = JARS

    def __init__(self, overrides: Mapping[str, str] | None = None, root: Path | None = None) -> None:
        """`overrides` are settings of zoo.cfg."""
        super().__init__(overrides, root)
        self.id = 1
        self.peers: Sequence[tuple[int, int]] = ()
        """The two ports of each server of an ensemble."""

    @property
    def connect(self) -> str:
        """What clients are given: `127.0.0.1:54321`."""
        return self.bootstrap

    def command(self) -> list[str]:
        java = shutil.which("java")
        missing = [str(jar) for jar in self.jars if not jar.exists()]
        if java is None or missing:
            raise ServerFailed("ZooKeeper is not installed: apt-get install --no-install-recommends zookeeper")
        self._write_files()
        classpath = os.pathsep.join(map(str, self.jars))
        return [java, *JAVA_FLAGS, "-cp", classpath, MAIN_CLASS, str(self.root / "zoo.cfg")]

    def _write_files(self) -> None:
        self.data_dir.mkdir(parents=True, exist_ok=True)
        (self.data_dir / "myid").write_text(f"{self.id}\n")
        own = {"dataDir": str(self.data_dir), "clientPort": str(self.port), "clientPortAddress": self.host}
        settings = {**SETTINGS, **own, **self.overrides}
        for number, (port, election_port) in enumerate(self.peers, 1):
            settings[f"server.{number}"] = f"{HOST}:{port}:{election_port}"
        text = "".join(f"{name}={value}\n" for name, value in settings.items())
        (self.root / "zoo.cfg").write_text(text)

    def mode(self) -> str | None:
        """standalone, leader or follower; None while it does not serve."""
        try:
            with socket.create_connection((self.host, self.port), timeout=1) as connection:
                connection.sendall(b"srvr")
                said = b""
                while chunk := connection.recv(4096):
                    said += chunk
        except OSError:
            return None
        for line in said.decode().splitlines():
            if line.startswith("Mode: "):
                return line.removeprefix("Mode: ")
        return None

    def _serves(self) -> bool:
        return self.mode() is not None


class SecureZooKeeper(ZooKeeperServer):
    """With a secure port too, which asks clients for certificates of the same authority."""

    jars = (*JARS, *TLS_JARS)

    def __init__(self, identity: Path, trusted: Path) -> None:
        """Files in PEM: the server's certificate and key, and whom it trusts."""
        self.secure_port = free_port()
        super().__init__(
            {
                "secureClientPort": str(self.secure_port),
                "secureClientPortAddress": HOST,
                "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
                "ssl.keyStore.location": str(identity),
                "ssl.keyStore.password": "",
                "ssl.trustStore.location": str(trusted),
                "ssl.trustStore.password": "",
            }
        )

    @property
    def secure_connect(self) -> str:
        return f"{HOST}:{self.secure_port}"


class ZooKeeperEnsemble:
    """Three servers that start, and end, together; or one."""

    def __init__(self, size: int = ENSEMBLE_SIZE) -> None:
        peers = [(free_port(), free_port()) for _ in range(size)] if size > 1 else []
        self.servers = [ZooKeeperServer() for _ in range(size)]
        for number, server in enumerate(self.servers, 1):
            server.id, server.peers = number, peers

    @property
    def connect(self) -> str:
        return ",".join(server.connect for server in self.servers)

    def start(self) -> None:
        for server in self.servers:
            server.launch()
        deadline = time.monotonic() + START_TIMEOUT_S
        for server in self.servers:
            while not server.is_ready(deadline):
                time.sleep(POLL_INTERVAL_S)

    def leader(self) -> ZooKeeperServer:
        """Waits for one to be elected."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            for server in self.servers:
                if server.mode() == "leader":
                    return server
            time.sleep(POLL_INTERVAL_S)
        raise ServerFailed("the ensemble has no leader")

    def close(self) -> None:
        for server in self.servers:
            server.close()

    def __enter__(self) -> Self:
        try:
            self.start()
        except ServerFailed:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
