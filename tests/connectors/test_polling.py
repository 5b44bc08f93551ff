"""Tables that are polled: what is easily missed, and values that a driver does not know."""

from __future__ import annotations

import base64
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from headrace.client.cluster import Cluster
from headrace.connect.definition import ConnectorDefinition, load
from headrace.testing.connectors import committed_records, run_to_the_end
from tests.connectors.conftest import Database


def polled(connection: str, **config: object) -> ConnectorDefinition:
    given = {"connection": connection, "tables": "items", "column": "changed", "batch_records": 2, **config}
    return load({"connector": "table-source", "partitions": 1, "config": given}, "polled")


async def values(cluster: Cluster) -> list[dict[str, Any]]:
    return [json.loads(record.value or b"") for record in await committed_records(cluster, "items")]


async def test_rows_of_one_time_are_all_read_without_a_key(cluster: Cluster, database: Database) -> None:
    """More of them than are read at a time: nothing but the column tells where to continue."""
    database.run("CREATE TABLE items (number int, changed timestamp)")
    definition = polled(database.conninfo)
    for time, count in (("2026-01-01", 1), ("2026-01-02", 5), ("2026-01-03", 2), ("2026-01-04", 1)):
        database.run(f"INSERT INTO items SELECT n, '{time}' FROM generate_series(1, {count}) n")
    await run_to_the_end(cluster, definition)
    database.run("INSERT INTO items SELECT n, '2026-01-05' FROM generate_series(1, 3) n")
    await run_to_the_end(cluster, definition)
    found = [(row["changed"][8:10], row["number"]) for row in await values(cluster)]
    assert sorted(found) == [
        *[("01", 1), ("02", 1), ("02", 2), ("02", 3), ("02", 4), ("02", 5), ("03", 1), ("03", 2), ("04", 1)],
        *[("05", 1), ("05", 2), ("05", 3)],
    ]


@pytest.mark.parametrize("kind", ["postgres", "sqlite"])
async def test_rows_with_a_key_of_bytes(cluster: Cluster, database: Database, tmp_path: Path, kind: str) -> None:
    keys = [bytes([number]) * 16 for number in (0, 7, 60, 127, 128, 255)]
    if kind == "postgres":
        address = database.conninfo
        database.run("CREATE TABLE items (id bytea PRIMARY KEY, changed int)")
        for key in keys:
            database.run(f"INSERT INTO items VALUES ('\\x{key.hex()}', 1)")
    else:
        address = f"sqlite:{tmp_path / 'polled.db'}"
        with sqlite3.connect(tmp_path / "polled.db") as connection:
            connection.execute("CREATE TABLE items (id blob PRIMARY KEY, changed int)")
            connection.executemany("INSERT INTO items VALUES (?, 1)", [(key,) for key in keys])
    await run_to_the_end(cluster, polled(address))
    await run_to_the_end(cluster, polled(address))
    assert [base64.b64decode(row["id"]) for row in await values(cluster)] == keys


async def test_values_that_the_driver_does_not_know(cluster: Cluster, database: Database) -> None:
    """Times beyond Python's, and intervals: as PostgreSQL writes them. And numbers that JSON does not know."""
    database.run(
        "CREATE TABLE items (id int PRIMARY KEY, changed timestamptz, day date, local timestamp, span interval,"
        " ratio float);"
        "INSERT INTO items VALUES"
        " (1, '0044-03-15 BC', '0044-03-15 BC', '20000-01-01', '1 mon 2 days 03:04', 'NaN'),"
        " (2, '2026-01-31 12:00+01', '2026-01-31', '2026-01-31 12:00', '-1 s', '-Infinity'),"
        " (3, 'infinity', 'infinity', '-infinity', NULL, 0.1)"
    )
    definition = polled(database.conninfo, batch_records=1)
    await run_to_the_end(cluster, definition)
    await run_to_the_end(cluster, definition)
    names = ("id", "changed", "day", "local", "span", "ratio")
    assert [tuple(row[name] for name in names) for row in await values(cluster)] == [
        (1, "0044-03-15 00:00:00+00 BC", "0044-03-15 BC", "20000-01-01 00:00:00", "P1M2DT3H4M", "NaN"),
        (2, "2026-01-31T11:00:00+00:00", "2026-01-31", "2026-01-31T12:00:00", "PT-1S", "-Infinity"),
        (3, "infinity", "infinity", "-infinity", None, 0.1),
    ]
