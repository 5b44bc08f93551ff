"""The connectors of PostgreSQL over TLS: the address of the database says so, as for every client of libpq."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from headrace.client.cluster import Cluster
from headrace.connect import ConnectorError
from headrace.env.certificates import make_authority, make_certificate
from headrace.testing.connectors import committed_records, run_to_the_end
from headrace.testing.postgres import PostgresProcess
from tests.connectors.conftest import Database
from tests.connectors.test_postgres_source import ORDERS, capture
from tests.connectors.test_tables import kept

TLS_WITHIN_S = 120.0


@pytest.fixture
def authority(postgres: PostgresProcess, database: Database) -> Iterator[Path]:
    """The one that the server has its certificate from. TLS begins while it runs, without a restart."""
    made = make_authority("headrace.testing")
    store, path = postgres.data_dir / "server.pem", postgres.root / "ca.pem"
    store.touch(mode=0o600)
    store.write_text(make_certificate(made, "CN=database", (postgres.host,)).store)
    shutil.chown(store, postgres.data_dir.owner(), postgres.data_dir.group())
    path.write_text(made.pem)
    database.run("ALTER SYSTEM SET ssl_cert_file = 'server.pem'")
    database.run("ALTER SYSTEM SET ssl_key_file = 'server.pem'")
    database.run("ALTER SYSTEM SET ssl = on")
    database.run("SELECT pg_reload_conf()")
    _wait_for_tls(f"{database.conninfo}?sslmode=require")
    yield path
    database.run("ALTER SYSTEM RESET ALL")
    database.run("SELECT pg_reload_conf()")


def _wait_for_tls(conninfo: str) -> None:
    deadline = time.monotonic() + TLS_WITHIN_S
    while True:
        try:
            psycopg.connect(conninfo).close()
        except psycopg.OperationalError:
            assert time.monotonic() < deadline, "the server has no TLS"
            time.sleep(0.05)
        else:
            return


async def test_rows_changes_and_a_table_over_tls(cluster: Cluster, database: Database, authority: Path) -> None:
    """With sslmode=verify-full nothing goes unencrypted, nor to a server of another authority."""
    database.run(f"{ORDERS}; INSERT INTO orders VALUES (1, 'tea', 2.50)")
    address, over_tls = database.conninfo, f"?sslmode=verify-full&sslrootcert={authority}"
    captured = capture(database, connection=address + over_tls)
    await run_to_the_end(cluster, captured)
    database.run("INSERT INTO orders VALUES (2, 'cup', 3)")
    await run_to_the_end(cluster, captured)
    assert len(await committed_records(cluster, "orders")) == 2
    columns = {"id": "integer", "item": "text", "price": "decimal"}
    copied = kept(address + over_tls, "orders", table="copied", key=["id"], columns=columns)
    await run_to_the_end(cluster, copied)
    assert database.rows("SELECT id, item FROM copied ORDER BY id") == [(1, "tea"), (2, "cup")]
    authority.write_text(make_authority("another").pem)
    with pytest.raises(ConnectorError, match="certificate verify failed"):
        await run_to_the_end(cluster, captured)
