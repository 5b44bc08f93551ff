"""A PostgreSQL that the tests of a file share, with a database for each test."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.env.real import real_env
from headrace.testing.in_process import running_node
from headrace.testing.postgres import PostgresProcess

_numbers = itertools.count()


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresProcess]:
    with PostgresProcess() as server:
        yield server


class Database:
    """One of its own, and a connection to it."""

    def __init__(self, server: PostgresProcess, name: str) -> None:
        self.server = server
        self.name = name
        self.conninfo = server.conninfo.rpartition("/")[0] + f"/{name}"
        self.connection = psycopg.connect(self.conninfo, autocommit=True, client_encoding="UTF8")

    def run(self, statements: str) -> None:
        self.connection.execute(statements.encode())

    def rows(self, query: str) -> list[tuple[object, ...]]:
        return self.connection.execute(query.encode()).fetchall()


@pytest.fixture
def database(postgres: PostgresProcess) -> Iterator[Database]:
    name = f"test_{next(_numbers)}"
    with psycopg.connect(postgres.conninfo, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    made = Database(postgres, name)
    yield made
    with psycopg.connect(postgres.conninfo, autocommit=True) as connection:
        made.connection.close()
        for (slot,) in connection.execute(
            "SELECT slot_name FROM pg_replication_slots WHERE NOT active"
        ).fetchall():
            connection.execute("SELECT pg_drop_replication_slot(%s)", [slot])


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with (
        running_node(tmp_path / "data") as address,
        Cluster(real_env(), parse_bootstrap(address)) as cluster,
    ):
        yield cluster
