"""Topics kept as tables, and tables polled: PostgreSQL for real, and SQLite."""

from __future__ import annotations

import json
import sqlite3
import threading
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from headrace.client.admin import NewTopic, create_topics
from headrace.client.cluster import Cluster
from headrace.client.producer import Producer
from headrace.connect import ConnectorError
from headrace.connect.definition import ConnectorDefinition, load
from headrace.connect.runner import Runner
from headrace.connect.tables.database import FoundTable, open_database
from headrace.connect.tables.postgres import PostgresDatabase
from headrace.model.errors import ErrorCode, KafkaError
from headrace.records.builder import NewRecord
from headrace.testing.connectors import (
    KillAt,
    committed_records,
    killed_everywhere,
    run_to_the_end,
    steps_of,
)
from tests.connectors.conftest import Database

COLUMNS = {"id": "integer", "name": "text", "price": "decimal", "seen": "timestamptz"}


def kept(connection: str, topic: str = "items", **config: object) -> ConnectorDefinition:
    given = {"connection": connection, **config}
    return load({"connector": "table-sink", "topics": [topic], "config": given}, "kept")


def polled(connection: str, table: str = "items", **config: object) -> ConnectorDefinition:
    given = {"connection": connection, "tables": table, "column": "id", **config}
    return load({"connector": "table-source", "partitions": 1, "config": given}, "polled")


async def write(cluster: Cluster, *rows: tuple[Any, dict[str, Any] | None], topic: str = "items") -> None:
    producer = Producer(cluster, topic)
    await producer.start()
    await producer.send(
        [
            NewRecord(None if row is None else json.dumps(row).encode(), json.dumps(key).encode())
            for key, row in rows
        ]
    )


async def test_a_topic_is_kept_as_a_table_of_postgres(cluster: Cluster, database: Database) -> None:
    await create_topics(cluster, [NewTopic("items", 2)])
    definition = kept(database.conninfo, key=["id"], columns=COLUMNS)
    await write(cluster, ({"id": 1}, {"id": 1, "name": "tea", "price": 2.5, "seen": "2026-01-31T12:00:00Z"}))
    await write(cluster, ({"id": 2}, {"id": 2, "name": "cup"}), ({"id": 3}, {"id": 3}))
    await run_to_the_end(cluster, definition)
    await write(cluster, ({"id": 1}, {"price": 3}), ({"id": 2}, None), ({"id": 9}, None))
    await write(cluster, ({"id": 3}, {"name": "a"}), ({"id": 3}, None), ({"id": 3}, {"price": 1}))
    await run_to_the_end(cluster, definition)
    assert database.rows("SELECT id, name, price::text, seen::text FROM items ORDER BY id") == [
        (1, "tea", "3", "2026-01-31 12:00:00+00"),
        (3, None, "1", None),
    ]


async def test_a_table_sink_killed_at_every_step_is_exact(cluster: Cluster, database: Database) -> None:
    """Counting in the database would show a record that is applied twice."""
    await create_topics(cluster, [NewTopic("items", 2)])
    database.run("CREATE TABLE items (id int PRIMARY KEY, name text); CREATE TABLE seen (id int, name text)")
    database.run(
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN INSERT INTO seen VALUES (NEW.id, NEW.name); RETURN NEW; END $$;"
        "CREATE TRIGGER note AFTER INSERT OR UPDATE ON items FOR EACH ROW EXECUTE FUNCTION note()"
    )
    written: list[tuple[int, str]] = []

    async def feed(number: int) -> None:
        rows = [(number % 3 * 10 + index, f"{number}") for index in range(4)]
        written.extend(rows)
        await write(cluster, *(({"id": key}, {"id": key, "name": name}) for key, name in rows))

    assert await killed_everywhere(cluster, kept(database.conninfo), feed) >= len(
        steps_of(kept(database.conninfo))
    )
    assert sorted(database.rows("SELECT * FROM seen")) == sorted(written)
    assert dict(database.rows("SELECT * FROM items")) == dict(written)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["postgres", "sqlite"])
async def test_a_sink_that_is_removed_starts_over(
    cluster: Cluster, database: Database, tmp_path: Path, kind: str
) -> None:
    """Its positions are in the database. Those of others stay."""
    address = database.conninfo if kind == "postgres" else f"sqlite:{tmp_path / 'kept.db'}"
    await create_topics(cluster, [NewTopic("items", 1)])
    definition = kept(address, key=["id"], columns=COLUMNS)
    definition.connector.remove()  # nothing is there yet
    await write(cluster, ({"id": 1}, {"id": 1}))
    await run_to_the_end(cluster, definition)
    with closing(open_database(address)) as other, other.transaction():
        other.change("INSERT INTO headrace_positions VALUES ('other', 'items', 0, 1)")
        other.change("DELETE FROM items")
    definition.connector.remove()
    await run_to_the_end(cluster, definition)
    with closing(open_database(address)) as found, found.transaction():
        assert list(found.rows("SELECT id FROM items")) == [(1,)]
        assert sorted(found.rows("SELECT connector, next_offset FROM headrace_positions")) == [
            ("kept", 1),
            ("other", 1),
        ]


async def test_a_second_run_of_a_sink_is_noticed(cluster: Cluster, tmp_path: Path) -> None:
    await create_topics(cluster, [NewTopic("items", 1)])
    definition = kept(f"sqlite:{tmp_path / 'kept.db'}", key=["id"], columns=COLUMNS)
    await write(cluster, ({"id": 1}, {"id": 1}))

    class WhileReading(KillAt):
        """Another run writes first what this one has read."""

        def __call__(self, step: str) -> None:
            if step == "read":
                with sqlite3.connect(tmp_path / "kept.db") as database:
                    database.execute("INSERT INTO headrace_positions VALUES ('kept', 'items', 0, 1)")

    with pytest.raises(ConnectorError, match="another run of the connector kept has written partition items-0"):
        await Runner(cluster, definition, once=True, at=WhileReading("", 1)).run()
    with sqlite3.connect(tmp_path / "kept.db") as database:
        assert database.execute("SELECT * FROM items").fetchall() == []


async def test_what_a_source_tells_makes_the_table(cluster: Cluster, database: Database, tmp_path: Path) -> None:
    """From PostgreSQL through a topic into another table, and into SQLite; a column that comes later too."""
    database.run(
        "CREATE TABLE items (id int PRIMARY KEY, data bytea, doc jsonb, ok boolean, at timestamp, n numeric)"
    )
    database.run("INSERT INTO items VALUES (1, '\\x00ff', '{\"a\": [1.5]}', true, '2026-01-31 12:00', 1.10)")
    given = {"connection": database.conninfo, "tables": "items", "topic": "{table}"}
    capture = load({"connector": "postgres-source", "partitions": 1, "config": given}, database.name)
    sinks = [
        kept(database.conninfo, table="copy_of_{topic}"),
        kept(f"sqlite:{tmp_path / 'copy.db'}", table="copy_of_{topic}"),
    ]
    await run_to_the_end(cluster, capture)
    for sink in sinks:
        await run_to_the_end(cluster, sink)
    database.run("ALTER TABLE items ADD more text; INSERT INTO items (id, more) VALUES (2, 'x')")
    await run_to_the_end(cluster, capture)
    for sink in sinks:
        await run_to_the_end(cluster, sink)
    assert database.rows("SELECT * FROM copy_of_items ORDER BY id") == database.rows(
        "SELECT * FROM items ORDER BY id"
    )
    with sqlite3.connect(tmp_path / "copy.db") as copy:
        assert copy.execute("SELECT id, data, ok, at, n, more FROM copy_of_items ORDER BY id").fetchall() == [
            (1, b"\x00\xff", 1, "2026-01-31T12:00:00", 1.1, None),
            (2, None, None, None, None, "x"),
        ]


VALUES = {
    "numeric": ["'NaN'", "12345678901234567890.12345678901234567890", "-0.10"],
    "float8": ["'NaN'", "'-Infinity'", "5e-324"],
    "float4": ["'-0'", "1e-45", "3.4028235e38"],
    "double precision": ["'-0'", "0.1", "1e308"],
    "date": ["'infinity'", "'0044-03-15 BC'", "'12026-01-01'"],
    "timestamptz": ["'-infinity'", "'2026-07-01 12:00:00.000001+05:30'", "'0044-03-15 00:00 BC'"],
    "jsonb": ["""'{"a": [3.14159265358979323846, 1e400, null]}'""", """'"text"'""", "NULL"],
    "bytea": ["''", r"'\x00ff27'", "'text'"],
    "uuid": ["'c0ffee00-0000-4000-8000-000000000000'", "gen_random_uuid()", "NULL"],
    "mood": ["'it''s fine'", "'ok'", "NULL"],
    "int[]": ["'{}'", "'{{1,2},{3,NULL}}'", "'[5:6]={1,2}'"],
    "text[]": ["""ARRAY['a,b', 'NULL', NULL, '"']""", "'{}'", "NULL"],
    "tstzrange": ["'empty'", "'[2026-01-01, infinity)'", "'(,)'"],
    "interval": ["'1 mon -2 days 00:00:03.5'", "'0'", "'-1 year'"],
    "positive": ["7", "9223372036854775807", "NULL"],
    "timetz": ["'24:00:00+14'", "'12:00'", "NULL"],
    "inet": ["'::1/64'", "'10.0.0.1'", "NULL"],
    "bit varying": ["B'101'", "B''", "NULL"],
    "xml": ["'<a>&amp;</a>'", "''", "NULL"],
    "text": [r"""E'\\ \t\n "'""", r"U&'\2028\+01F600'", "''"],
}
"""Of columns, row by row, as SQL."""


async def test_values_of_every_type_come_back_as_they_were(cluster: Cluster, database: Database) -> None:
    """In a table of the same types: from the snapshot, and as changes."""
    database.run(
        "CREATE TYPE mood AS ENUM ('ok', 'it''s fine'); CREATE DOMAIN positive AS bigint CHECK (VALUE > 0)"
    )
    columns = ", ".join(f'"{name}" {name}' for name in VALUES)
    database.run(
        f"CREATE TABLE items (id int PRIMARY KEY, {columns}); CREATE TABLE copy (LIKE items INCLUDING ALL)"
    )
    given = {"connection": database.conninfo, "tables": "items", "topic": "{table}"}
    capture = load({"connector": "postgres-source", "partitions": 1, "config": given}, database.name)
    for number, row in enumerate(zip(*VALUES.values(), strict=True)):
        database.run(f"INSERT INTO items VALUES ({number}, {', '.join(row)})")
        if number == 0:
            await run_to_the_end(cluster, capture)
    await run_to_the_end(cluster, capture)
    await run_to_the_end(cluster, kept(database.conninfo, table="copy"))
    for name in VALUES:
        query = f'SELECT id, "{name}"::text FROM {{}} ORDER BY id'
        assert database.rows(query.format("copy")) == database.rows(query.format("items")), name


async def test_without_rights_on_the_group_a_sink_writes(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its positions are in the database; those of the group are for whoever looks at the lag."""

    async def refused(*_: object) -> None:
        raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "not authorized to access this group")

    monkeypatch.setattr("headrace.connect.sink_run.commit_offsets", refused)
    await create_topics(cluster, [NewTopic("items", 1)])
    definition = kept(f"sqlite:{tmp_path / 'kept.db'}", key=["id"], columns=COLUMNS)
    for number in (1, 2):
        await write(cluster, ({"id": number}, {"id": number}))
        await run_to_the_end(cluster, definition)
    with sqlite3.connect(tmp_path / "kept.db") as database:
        assert database.execute("SELECT id FROM items").fetchall() == [(1,), (2,)]


async def test_a_topic_that_cannot_be_created_is_named(cluster: Cluster, database: Database) -> None:
    database.run("CREATE TABLE items (id int PRIMARY KEY)")
    database.run("INSERT INTO items VALUES (1)")
    config = {"connection": database.conninfo, "tables": "items", "column": "id"}
    definition = load({"connector": "table-source", "replication": 9, "config": config}, "polled")
    with pytest.raises(KafkaError, match="cannot create the topic items: "):
        await run_to_the_end(cluster, definition)


async def test_names_with_any_character(cluster: Cluster, database: Database) -> None:
    """A percent sign marks parameters in the driver's statements."""
    await create_topics(cluster, [NewTopic("items", 1)])
    definition = kept(database.conninfo, table='100%s "new"', key=["a%"], columns={"a%": "integer", "%s": "text"})
    await write(cluster, ({"a%": 1}, {"a%": 1, "%s": "x%"}), ({"a%": 2}, {"%s": "y"}), ({"a%": 2}, None))
    await run_to_the_end(cluster, definition)
    assert database.rows('SELECT "a%", "%s" FROM "100%s ""new"""') == [(1, "x%")]
    await run_to_the_end(cluster, polled(database.conninfo, '100%s "new"', column="a%", topic="again"))
    assert [record.value for record in await committed_records(cluster, "again")] == [b'{"a%":1,"%s":"x%"}']


async def test_tasks_that_make_the_same_table_at_once(
    cluster: Cluster, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them finds what it was to make: it looks again."""
    meeting = threading.Barrier(2)
    found = PostgresDatabase.table

    def both_look_first(self: PostgresDatabase, name: str) -> FoundTable | None:
        table = found(self, name)
        if name == "items" and (table is None or "price" not in table.columns):
            with suppress(threading.BrokenBarrierError):
                meeting.wait(10)
        return table

    monkeypatch.setattr(PostgresDatabase, "table", both_look_first)
    await create_topics(cluster, [NewTopic("items", 2)])
    await write(cluster, *(({"id": number}, {"id": number}) for number in range(9)))
    some = {"id": "integer", "name": "text"}
    for columns in (some, COLUMNS):
        given = {"connection": database.conninfo, "key": ["id"], "columns": columns}
        written = {"connector": "table-sink", "topics": ["items"], "tasks": 2, "config": given}
        await run_to_the_end(cluster, load(written, "kept"))
    assert database.rows("SELECT count(*), count(price) FROM items") == [(9, 0)]


async def test_what_does_not_fit_is_said(cluster: Cluster, database: Database) -> None:
    await create_topics(cluster, [NewTopic("items", 1)])
    with pytest.raises(ConnectorError, match="there is no table items, and no source has described"):
        await run_to_the_end(cluster, kept(database.conninfo))
    database.run("CREATE TABLE items (id int, price text, seen boolean)")
    with pytest.raises(ConnectorError, match=r"no primary key or unique index on \(id\)"):
        await run_to_the_end(cluster, kept(database.conninfo, key=["id"]))
    database.run("ALTER TABLE items ADD PRIMARY KEY (id)")
    with pytest.raises(ConnectorError, match="column seen of table items is of the type boolean, not timestamptz"):
        await run_to_the_end(cluster, kept(database.conninfo, key=["id"], columns=COLUMNS))
    with pytest.raises(ConnectorError, match="table items has no column name"):
        await run_to_the_end(cluster, kept(database.conninfo, key=["id"], columns=COLUMNS, create=False))
    producer = Producer(cluster, "items")
    await producer.start()
    await producer.send([NewRecord(b"no json", b"1"), NewRecord(b'{"id": 2}', b"2")])
    with pytest.raises(ConnectorError, match="record at offset 0 of items-0 is not a row"):
        await run_to_the_end(cluster, kept(database.conninfo))
    await run_to_the_end(cluster, kept(database.conninfo, malformed="skip"))
    assert database.rows("SELECT id FROM items") == [(2,)]


@pytest.mark.parametrize("kind", ["postgres", "sqlite"])
async def test_a_table_is_polled_by_an_increasing_column(
    cluster: Cluster, database: Database, tmp_path: Path, kind: str
) -> None:
    file = tmp_path / "polled.db"
    address = database.conninfo if kind == "postgres" else f"sqlite:{file}"

    def change(statement: str) -> None:
        if kind == "postgres":
            database.run(statement)
        else:
            with sqlite3.connect(file) as connection:
                connection.executescript(statement)

    change("CREATE TABLE items (id int PRIMARY KEY, name text, changed timestamp)")
    definition = polled(address, column="changed", batch_records=2)

    async def feed(number: int) -> None:
        time = f"2026-01-01 00:00:{number:02}"
        values = ", ".join(f"({number * 3 + index}, 'n', '{time}')" for index in range(3))
        change(f"INSERT INTO items VALUES {values}")

    assert await killed_everywhere(cluster, definition, feed, times=(1,)) >= len(steps_of(definition))
    change("UPDATE items SET name = 'new', changed = '2027-01-01 00:00:00' WHERE id = 4")
    await run_to_the_end(cluster, definition)
    found = [
        (json.loads(record.key or b""), json.loads(record.value or b""))
        for record in await committed_records(cluster, "items")
    ]
    count = 3 * (len(steps_of(definition)) + 1)
    assert [key["id"] for key, _ in found] == [*range(count), 4]
    assert found[-1][1]["name"] == "new"
