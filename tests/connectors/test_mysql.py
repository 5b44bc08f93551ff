"""Topics kept as tables of MariaDB, and its tables polled; with PyMySQL and a server that is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.client.admin import NewTopic, create_topics
from headrace.client.cluster import Cluster
from headrace.connect import ConnectorError
from headrace.connect.tables.database import open_database
from headrace.connect.tables.mysql import MysqlDatabase
from headrace.env.certificates import make_authority, make_certificate
from headrace.testing.connectors import committed_records, killed_everywhere, run_to_the_end, steps_of
from headrace.testing.process import free_port
from tests.connectors.test_tables import COLUMNS, kept, polled, write

pymysql = pytest.importorskip("pymysql", reason="PyMySQL is an extra: pip install 'headrace[mysql]'")
SERVER = shutil.which("mariadbd") or shutil.which("mysqld")
INSTALL = shutil.which("mariadb-install-db")
pytestmark = pytest.mark.skipif(SERVER is None or INSTALL is None, reason="needs a MariaDB server")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("mariadb")
    user = "root" if os.geteuid() == 0 else os.environ.get("USER", "mysql")
    assert SERVER is not None
    assert INSTALL is not None
    data = f"--datadir={folder / 'data'}"
    made = [INSTALL, "--no-defaults", data, f"--user={user}", "--auth-root-authentication-method=normal"]
    subprocess.run(made, check=True, capture_output=True, timeout=300)
    port = free_port()
    options = ["--bind-address=127.0.0.1", f"--port={port}", f"--socket={folder / 's'}", f"--user={user}"]
    authority = make_authority("headrace.testing")
    (folder / "server.pem").write_text(make_certificate(authority, "CN=database", ("127.0.0.1",)).store)
    (folder / "ca.pem").write_text(authority.pem)
    options += [f"--ssl-cert={folder / 'server.pem'}", f"--ssl-key={folder / 'server.pem'}"]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen([SERVER, "--no-defaults", data, *options], stdout=log, stderr=log)
    try:
        yield f"mysql://root@127.0.0.1:{port}/test"
    finally:
        server.terminate()
        server.wait(60)


@pytest.fixture
def authority(address: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the server's certificate."""
    return next(tmp_path_factory.getbasetemp().glob("mariadb*/ca.pem"))


@pytest.fixture
def connection(address: str) -> Iterator[Any]:
    port = int(address.rpartition(":")[2].partition("/")[0])
    deadline = time.monotonic() + 120
    while True:
        try:
            made = pymysql.connect(host="127.0.0.1", port=port, user="root", autocommit=True)
            break
        except pymysql.err.OperationalError:
            assert time.monotonic() < deadline, "the server does not start"
            time.sleep(0.1)
    with made.cursor() as cursor:
        cursor.execute("DROP DATABASE IF EXISTS test")
        cursor.execute("CREATE DATABASE test")
        cursor.execute("USE test")
    yield made
    made.close()


def rows(connection: Any, statement: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())


async def test_a_topic_is_kept_as_a_table(cluster: Cluster, address: str, connection: Any) -> None:
    await create_topics(cluster, [NewTopic("items", 2)])
    definition = kept(address, key=["id"], columns={**COLUMNS, "ok": "boolean", "more": "json", "raw": "bytes"})
    seen = "2026-01-31T12:00:00.250000Z"
    full = {"id": 1, "name": "tëa", "price": 2.5, "seen": seen, "ok": True, "more": {"a": [1]}, "raw": "AAE="}
    await write(cluster, ({"id": 1}, full), ({"id": 2}, {"id": 2, "name": "cup"}), ({"id": 3}, {"id": 3}))
    await run_to_the_end(cluster, definition)
    await write(cluster, ({"id": 1}, {"price": 3}), ({"id": 2}, None), ({"id": 9}, None))
    await write(cluster, ({"id": 3}, {"name": "a"}), ({"id": 3}, None), ({"id": 3}, {"price": 1}))
    await run_to_the_end(cluster, definition)
    found = rows(connection, "SELECT id, name, price, seen, ok, more, raw FROM items ORDER BY id")
    assert [(row[0], row[1], int(row[2])) for row in found] == [(1, "tëa", 3), (3, None, 1)]
    assert (found[0][3].isoformat(), found[0][4], found[0][5], found[0][6]) == (
        "2026-01-31T12:00:00.250000",
        1,
        '{"a": [1]}',
        b"\x00\x01",
    )


async def test_killed_at_every_step(cluster: Cluster, address: str, connection: Any) -> None:
    await create_topics(cluster, [NewTopic("items", 2)])
    definition = kept(address, key=["name"], columns={"name": "text", "n": "integer"})
    fed = [0]

    async def feed(number: int) -> None:
        fed[0] = number + 1
        await write(cluster, ("Ada", {"name": "Ada", "n": fed[0]}), ("ada", {"name": "ada", "n": -fed[0]}))

    assert await killed_everywhere(cluster, definition, feed, times=(1,)) >= len(steps_of(definition))
    assert rows(connection, "SELECT name, n FROM items ORDER BY n") == [("ada", -fed[0]), ("Ada", fed[0])]


async def test_a_table_is_polled(cluster: Cluster, address: str, connection: Any) -> None:
    rows(connection, "CREATE TABLE items (id int PRIMARY KEY, name varchar(20), at datetime)")
    rows(connection, "INSERT INTO items VALUES (1, 'tea', '2026-01-31 12:00:00'), (2, 'cup', NULL)")
    definition = polled(address, batch_records=1)
    await run_to_the_end(cluster, definition)
    rows(connection, "INSERT INTO items VALUES (3, 'pot', NULL)")
    await run_to_the_end(cluster, definition)
    assert [record.value for record in await committed_records(cluster, "items")] == [
        b'{"id":1,"name":"tea","at":"2026-01-31T12:00:00"}',
        b'{"id":2,"name":"cup","at":null}',
        b'{"id":3,"name":"pot","at":null}',
    ]


async def test_over_tls(cluster: Cluster, address: str, connection: Any, authority: Path, tmp_path: Path) -> None:
    """The table and the poll, from a server that the authority vouches for and no other."""
    await create_topics(cluster, [NewTopic("items", 1)])
    rows(connection, "CREATE USER IF NOT EXISTS secret@localhost IDENTIFIED BY 'word' REQUIRE SSL")
    rows(connection, "GRANT ALL ON test.* TO secret@localhost")
    plain = address.replace("root@", "secret:word@")
    await write(cluster, ({"id": 1}, {"id": 1, "name": "tea"}))
    await run_to_the_end(cluster, kept(f"{plain}?ssl_ca={authority}", key=["id"], columns=COLUMNS))
    assert rows(connection, "SELECT id, name FROM items") == [(1, "tea")]
    await run_to_the_end(cluster, polled(f"{plain}?ssl_ca={authority}", topic="polled"))
    assert len(await committed_records(cluster, "polled")) == 1
    another = tmp_path / "ca.pem"
    another.write_text(make_authority("another").pem)
    mistakes = {
        f"ssl_ca={another}": "certificate verify failed",
        f"ssl_ca={tmp_path / 'none'}": "certificates cannot be read",
        "sslmode=require": "unknown setting sslmode; known are ssl_ca",
    }
    for query, told in mistakes.items():
        with pytest.raises(ConnectorError, match=told):
            open_database(f"{plain}?{query}")


def test_what_the_user_must_change_is_said(address: str, connection: Any) -> None:
    with pytest.raises(ConnectorError, match=r"MySQL says: Unknown database 'none' \(1049\)"):
        open_database(address.replace("/test", "/none"))
    database = open_database(address)
    assert isinstance(database, MysqlDatabase)
    with pytest.raises(ConnectorError, match="MySQL says: "):
        database.rows("SELECT * FROM nowhere")
    database.close()
