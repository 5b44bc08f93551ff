"""A pipeline between two connectors, as `headrace pipeline run` does it: PostgreSQL, Spark, and a table."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from headrace.testing.postgres import PostgresProcess
from headrace.testing.process import BrokerProcess
from tests.spark.commands import Commands
from tests.spark.conftest import BROKER

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "connectors"
TIMEOUT_S = 800.0
pytestmark = [pytest.mark.headrace_only, pytest.mark.timeout(900), pytest.mark.long]


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[tuple[Commands, psycopg.Connection]]:
    with PostgresProcess() as postgres, BrokerProcess(BROKER) as broker:
        commands = Commands(tmp_path, broker.bootstrap)
        commands.environment |= {"SHOP_DB": postgres.conninfo, "SHOP_COPY": f"sqlite:{tmp_path / 'shop.db'}"}
        with psycopg.connect(postgres.conninfo, autocommit=True) as connection:
            yield commands, connection


@pytest.mark.spark
def test_a_database_through_spark_into_a_table(shop: tuple[Commands, psycopg.Connection], tmp_path: Path) -> None:
    commands, database = shop
    database.execute("CREATE TABLE products (id int PRIMARY KEY, name text, category text, price numeric)")
    database.execute(
        "INSERT INTO products VALUES (1, 'a', 'drinks', 4.5), (2, 'b', 'drinks', 5), (3, 'c', 'food', 9), "
        "(4, 'd', NULL, 1)"
    )
    with commands.start("pipeline", "run", "--once", EXAMPLE / "pipeline.yaml") as running:
        assert running.process.wait(TIMEOUT_S) == 0, running.err
    with sqlite3.connect(tmp_path / "shop.db") as copy:
        found = copy.execute("SELECT category, changes, highest FROM prices ORDER BY category").fetchall()
    assert found == [("drinks", 2, 5.0), ("food", 1, 9.0)]
    status = commands.run("connector", "status")
    assert "shop-products" in status.out
    assert "shop-prices" in status.out
