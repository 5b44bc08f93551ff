"""A real PostgreSQL for tests: its own data directory and port, gone when the test is.

    with PostgresProcess() as server:
        psycopg.connect(server.conninfo)

It refuses to run as root, so root starts it as the user `postgres`, whom Debian's package brings along.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from pathlib import Path

from headrace.testing.process import ServerFailed, ServerProcess, die_with_parent

USER = "postgres"
SETTINGS = {
    "wal_level": "logical",
    "max_replication_slots": "10",
    "max_wal_senders": "10",
    "fsync": "off",
    "autovacuum": "off",
}


def program(name: str) -> str:
    """The path of a program: the newest version of Debian's package, or from the PATH."""
    versions = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: path.parts[4].zfill(4))
    found = str(versions[-1]) if versions else shutil.which(name)
    if found is None:
        raise ServerFailed(f"PostgreSQL is not installed: there is no {name} (scripts/apt-ensure postgresql)")
    return found


class PostgresProcess(ServerProcess):
    name = "postgres"

    @property
    def conninfo(self) -> str:
        return f"postgresql://{USER}@{self.host}:{self.port}/postgres"

    def launch(self) -> None:
        if not self.data_dir.exists():
            self._initialize()
        super().launch()

    def command(self) -> list[str]:
        settings = {
            "port": str(self.port),
            "listen_addresses": self.host,
            "unix_socket_directories": "",
            **SETTINGS,
            **self.overrides,
        }
        options = [f"--{name}={value}" for name, value in settings.items()]
        return [program("postgres"), "-D", str(self.data_dir), *options]

    def _initialize(self) -> None:
        if user := _other_user():
            shutil.chown(self.root, user, user)
        made = subprocess.run(
            [program("initdb"), "-D", str(self.data_dir), "-U", USER, "-A", "trust", "--no-sync", "-E", "UTF8"],
            user=_other_user(),
            group=_other_user(),
            cwd=self.root,
            capture_output=True,
            text=True,
        )
        if made.returncode:
            raise ServerFailed(f"initdb failed\n{made.stdout}{made.stderr}")

    def _spawn(self, log: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self.command(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            user=_other_user(),
            group=_other_user(),
            cwd=self.root,
            preexec_fn=die_with_parent(),
        )

    def _serves(self) -> bool:
        """Whether it answers the start of a session: it accepts connections before it is ready."""
        import psycopg

        try:
            psycopg.connect(self.conninfo, connect_timeout=5).close()
        except (OSError, psycopg.OperationalError):
            return False
        return True


def _other_user() -> str | None:
    """The user that root has to become to start it; None without root."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam(USER).pw_name
    except KeyError:
        raise ServerFailed(f"PostgreSQL does not run as root, and there is no user {USER}") from None
