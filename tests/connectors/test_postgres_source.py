"""Change capture from a real PostgreSQL into a broker in this process."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from headrace.client.cluster import Cluster
from headrace.connect import ConnectorError
from headrace.connect.definition import ConnectorDefinition, load
from headrace.connect.runner import Runner
from headrace.connect.store import read_state
from headrace.testing.connectors import committed_records, killed_everywhere, run_killed, run_to_the_end, steps_of
from tests.connectors.conftest import Database

ORDERS = "CREATE TABLE orders (id int PRIMARY KEY, item text, price numeric(10, 2))"


def capture(database: Database, *tables: str, **config: object) -> ConnectorDefinition:
    given = {"connection": database.conninfo, "tables": list(tables) or ["orders"], "topic": "{table}", **config}
    return load({"connector": "postgres-source", "partitions": 2, "config": given}, database.name)


async def changes(cluster: Cluster, topic: str) -> list[tuple[Any, Any, str]]:
    """Key, value and operation, by key in the order of the log."""
    found = [
        (json.loads(record.key or b"null"), json.loads(record.value or b"null"), _header(record.headers, "op"))
        for record in await committed_records(cluster, topic)
    ]
    return sorted(found, key=lambda change: int(change[0]["id"]))


def _header(headers: tuple[tuple[str, bytes | None], ...], name: str) -> str:
    return (dict(headers).get(name) or b"").decode()


async def test_rows_then_changes(cluster: Cluster, database: Database) -> None:
    database.run(f"{ORDERS}; INSERT INTO orders VALUES (1, 'tea', 2.50), (2, NULL, 3)")
    definition = capture(database)
    await run_to_the_end(cluster, definition)
    database.run("INSERT INTO orders VALUES (3, 'a \"cup\"', 1e10::numeric(20, 2) / 1000)")
    database.run("UPDATE orders SET price = 2.75 WHERE id = 1; DELETE FROM orders WHERE id = 2")
    database.run("UPDATE orders SET id = 30 WHERE id = 3")
    await run_to_the_end(cluster, definition)
    assert await changes(cluster, "orders") == [
        ({"id": 1}, {"id": 1, "item": "tea", "price": 2.5}, "r"),
        ({"id": 1}, {"id": 1, "item": "tea", "price": 2.75}, "u"),
        ({"id": 2}, {"id": 2, "item": None, "price": 3.0}, "r"),
        ({"id": 2}, None, "d"),
        ({"id": 3}, {"id": 3, "item": 'a "cup"', "price": 10000000.0}, "c"),
        ({"id": 3}, None, "d"),
        ({"id": 30}, {"id": 30, "item": 'a "cup"', "price": 10000000.0}, "u"),
    ]
    schema = (await read_state(cluster))["schema/orders"]
    assert [(one["name"], one["type"], one["key"]) for one in schema["columns"]] == [
        ("id", "integer", True),
        ("item", "text", False),
        ("price", "decimal", False),
    ]


async def test_killed_at_every_step_nothing_is_lost_or_written_twice(cluster: Cluster, database: Database) -> None:
    database.run(f"{ORDERS}; CREATE TABLE notes (id int PRIMARY KEY, note text)")
    definition = capture(database, "orders", "notes", batch_records=3)

    async def feed(number: int) -> None:
        """While the first run is killed again and again, rows come that a later snapshot has."""
        database.run(f"INSERT INTO orders SELECT {number} * 10 + n, 'x', n FROM generate_series(0, 4) n")
        database.run(f"INSERT INTO notes VALUES ({number}, 'n'); UPDATE notes SET note = 'm' WHERE id = {number}")
        database.run(f"DELETE FROM orders WHERE id = {number} * 10")

    assert await killed_everywhere(cluster, definition, feed) >= len(steps_of(definition))
    for topic in ("orders", "notes"):
        found = await changes(cluster, topic)
        last = {json.dumps(key): value for key, value, _ in found}
        there = database.rows(f"SELECT row_to_json({topic}) FROM {topic}")
        rows = {json.dumps({"id": row["id"]}): row for (row,) in there}  # type: ignore[index]
        assert {key: value for key, value in last.items() if value is not None} == rows
        # Every state of a row at most once: a row of a snapshot, or its insert, update and delete.
        seen = [(json.dumps(key), json.dumps(value), operation) for key, value, operation in found]
        assert len(seen) == len(set(seen))
        by_key: dict[str, list[str]] = {}
        for key, _, operation in found:
            by_key.setdefault(json.dumps(key), []).append(operation)
        allowed = {"r", "c", "cd", "rd", "cu", "ru"}
        assert {"".join(operations) for operations in by_key.values()} <= allowed, by_key


@pytest.mark.parametrize(("mode", "visible"), [("whole", 0), ("split", 20)])
async def test_a_large_transaction_is_seen_whole_or_split_if_asked(
    cluster: Cluster, database: Database, mode: str, visible: int
) -> None:
    database.run(ORDERS)
    definition = capture(database, batch_records=10, transactions=mode)
    await run_to_the_end(cluster, definition)
    database.run("INSERT INTO orders SELECT n, 'x', n FROM generate_series(1, 35) n")
    assert await run_killed(cluster, definition, "sent", 3)
    assert len(await committed_records(cluster, "orders", now=True)) == visible
    await run_to_the_end(cluster, definition)
    assert [key["id"] for key, _, _ in await changes(cluster, "orders")] == list(range(1, 36))


async def test_a_transaction_of_whole_batches_is_not_left_open(cluster: Cluster, database: Database) -> None:
    """Its last batch takes all of its records: the position comes alone, when its end does."""
    database.run(ORDERS)
    definition = capture(database, batch_records=10)
    await run_to_the_end(cluster, definition)
    database.run("INSERT INTO orders SELECT n, 'x', n FROM generate_series(1, 20) n")
    await run_to_the_end(cluster, definition)
    assert [key["id"] for key, _, _ in await changes(cluster, "orders")] == list(range(1, 21))


async def test_large_values_that_did_not_change(cluster: Cluster, database: Database) -> None:
    large = "repeat(md5(random()::text), 2000)"
    database.run("CREATE TABLE pages (id int PRIMARY KEY, title text, body text)")
    database.run("ALTER TABLE pages ALTER body SET STORAGE EXTERNAL")
    definition = capture(database, "pages")
    await run_to_the_end(cluster, definition)
    database.run(f"INSERT INTO pages VALUES (1, 'a', {large}); UPDATE pages SET title = 'b'")
    await run_to_the_end(cluster, definition)
    first, second = await committed_records(cluster, "pages")
    assert "body" in json.loads(first.value or b"")
    assert json.loads(second.value or b"") == {"id": 1, "title": "b"}
    assert _header(second.headers, "unchanged") == "body"
    definition = capture(database, "pages", replica_identity="full")
    await run_to_the_end(cluster, definition)
    database.run("UPDATE pages SET title = 'c'")
    await run_to_the_end(cluster, definition)
    third = json.loads((await committed_records(cluster, "pages"))[-1].value or b"")
    assert (third["title"], third["body"]) == ("c", json.loads(first.value or b"")["body"])


async def test_large_values_of_a_row_that_gets_another_key(cluster: Cluster, database: Database) -> None:
    """Nobody has them under the new key: the log does not have them, the table does."""
    large = "(SELECT string_agg(md5(n::text), '') FROM generate_series(1, 500) n)"
    database.run("CREATE TABLE pages (part text, id int, body text, data bytea, PRIMARY KEY (part, id))")
    database.run("ALTER TABLE pages ALTER body SET STORAGE EXTERNAL, ALTER data SET STORAGE EXTERNAL")
    definition = capture(database, "pages")
    await run_to_the_end(cluster, definition)
    database.run(f"INSERT INTO pages SELECT 'a', n, {large}, {large}::bytea FROM generate_series(1, 2) n")
    database.run("UPDATE pages SET id = 30, part = 'b' WHERE id = 1; UPDATE pages SET id = 20 WHERE id = 2")
    database.run("UPDATE pages SET id = 40, body = NULL WHERE id = 30; DELETE FROM pages WHERE id = 20")
    await run_to_the_end(cluster, definition)
    found = await committed_records(cluster, "pages")
    last = {record.key: json.loads(record.value) for record in found if record.value is not None}
    first, moved = last[b'{"part":"a","id":1}'], last[b'{"part":"b","id":40}']
    assert (moved["data"], moved["body"]) == (first["data"], None)
    gone = [record for record in found if record.key == b'{"part":"a","id":20}']
    assert [_header(record.headers, "unchanged") for record in gone] == ["body,data", ""]


async def test_a_schema_that_changes_is_reported(cluster: Cluster, database: Database) -> None:
    database.run(f"{ORDERS}; INSERT INTO orders VALUES (1, 'tea', 1)")
    definition = capture(database)
    await run_to_the_end(cluster, definition)
    database.run("ALTER TABLE orders ADD seen timestamptz, DROP item")
    database.run("INSERT INTO orders VALUES (2, 5, '2026-01-31 12:00:00.25+01')")
    runner = Runner(cluster, definition, once=True)
    await runner.run()
    assert runner.counts.schema_changes == 1
    assert (await changes(cluster, "orders"))[-1][1] == {"id": 2, "price": 5.0, "seen": "2026-01-31T11:00:00.25Z"}


async def test_keys_are_those_of_the_time_of_a_change(cluster: Cluster, database: Database) -> None:
    """The capture reads them later, when the columns of the key have other names."""
    database.run(f"{ORDERS}; INSERT INTO orders VALUES (1, 'tea', 1), (2, 'cup', 2)")
    definition = capture(database)
    await run_to_the_end(cluster, definition)
    database.run("UPDATE orders SET price = 3 WHERE id = 1; DELETE FROM orders WHERE id = 2")
    database.run("ALTER TABLE orders RENAME id TO number; INSERT INTO orders VALUES (3, 'pot', 3)")
    await run_to_the_end(cluster, definition)
    found = {(record.key, _header(record.headers, "op")) for record in await committed_records(cluster, "orders")}
    assert found == {
        (b'{"id":1}', "r"),
        (b'{"id":2}', "r"),
        (b'{"id":1}', "u"),
        (b'{"id":2}', "d"),
        (b'{"number":3}', "c"),
    }


@pytest.mark.parametrize(
    ("table", "key"),
    [
        ("id int, code int NOT NULL, note text, PRIMARY KEY (code, id)", {"code": 7, "id": 1}),
        ("id int, code int, note text, PRIMARY KEY (id) INCLUDE (code)", {"id": 1}),
        ("id int PRIMARY KEY, code int NOT NULL UNIQUE, note text", {"code": 7}),
    ],
    ids=["in the order of the index", "with columns that only come along", "of another index"],
)
async def test_a_row_keeps_its_key(cluster: Cluster, database: Database, table: str, key: dict[str, int]) -> None:
    """From the snapshot to the delete, of which the log has nothing but the columns of the identity."""
    database.run(f"CREATE TABLE items ({table}); INSERT INTO items VALUES (1, 7, 'a')")
    if "UNIQUE" in table:
        database.run("ALTER TABLE items REPLICA IDENTITY USING INDEX items_code_key")
    definition = capture(database, "items")
    await run_to_the_end(cluster, definition)
    database.run("UPDATE items SET note = 'b'; DELETE FROM items; INSERT INTO items VALUES (1, 7, 'c')")
    await run_to_the_end(cluster, definition)
    records = await committed_records(cluster, "items")
    assert [_header(record.headers, "op") for record in records] == ["r", "u", "d", "c"]
    assert {record.key for record in records} == {json.dumps(key, separators=(",", ":")).encode()}


async def test_a_table_that_is_renamed_is_not_left_out(cluster: Cluster, database: Database) -> None:
    database.run(f"{ORDERS}; INSERT INTO orders VALUES (1, 'tea', 1)")
    runner = Runner(cluster, capture(database))
    running = asyncio.ensure_future(runner.run())
    while not runner.counts.transactions:
        assert not running.done()
        await asyncio.sleep(0.05)
    database.run("ALTER TABLE orders RENAME TO sales; INSERT INTO sales VALUES (2, 'cup', 2)")
    with pytest.raises(ConnectorError, match=r"table public\.orders is now called public\.sales"):
        await running
    await run_to_the_end(cluster, capture(database, "sales"))
    assert [key["id"] for key, _, _ in await changes(cluster, "sales")] == [1, 2]


async def test_a_database_with_another_encoding(cluster: Cluster, database: Database) -> None:
    name = f"{database.name}_latin"
    database.run(f"CREATE DATABASE {name} ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
    other = Database(database.server, name)
    try:
        other.run("CREATE TABLE words (id int PRIMARY KEY, word text); INSERT INTO words VALUES (1, 'th\u00e9')")
        definition = capture(other, "words")
        await run_to_the_end(cluster, definition)
        other.run("INSERT INTO words VALUES (2, 'caf\u00e9')")
        await run_to_the_end(cluster, definition)
        assert [value["word"] for _, value, _ in await changes(cluster, "words")] == ["th\u00e9", "caf\u00e9"]
    finally:
        other.connection.close()


async def test_a_table_that_is_added_later_gets_its_rows_and_no_change_twice(
    cluster: Cluster, database: Database
) -> None:
    database.run(f"{ORDERS}; CREATE TABLE notes (id int PRIMARY KEY, note text)")
    await run_to_the_end(cluster, capture(database, "orders"))
    database.run("INSERT INTO notes VALUES (1, 'a'); INSERT INTO orders VALUES (1, 'x', 1)")
    await run_to_the_end(cluster, capture(database, "public.*"))
    database.run("INSERT INTO notes VALUES (2, 'b')")
    await run_to_the_end(cluster, capture(database, "public.*"))
    assert [operation for _, _, operation in await changes(cluster, "notes")] == ["r", "c"]
    assert [operation for _, _, operation in await changes(cluster, "orders")] == ["c"]


async def test_the_slot_does_not_hold_back_what_other_tables_write(
    cluster: Cluster, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.connect.postgres.stream.REPORT_EVERY_S", 0.1)
    database.run(f"{ORDERS}; CREATE TABLE noise (n int)")
    runner = Runner(cluster, capture(database))
    running = asyncio.ensure_future(runner.run())
    confirmed = "SELECT confirmed_flush_lsn >= {lsn} FROM pg_replication_slots WHERE database = current_database()"
    try:
        while not database.rows("SELECT 1 FROM pg_replication_slots WHERE active AND NOT temporary"):
            assert not running.done()
            await asyncio.sleep(0.05)
        database.run("INSERT INTO noise SELECT generate_series(1, 1000)")
        lsn = f"'{database.rows('SELECT pg_current_wal_lsn()')[0][0]}'::pg_lsn"
        while database.rows(confirmed.format(lsn=lsn)) != [(True,)]:
            assert not running.done()
            await asyncio.sleep(0.05)
    finally:
        runner.stop()
        await running
    assert runner.counts.gauges["0/slot_retained_bytes"] >= 0


async def test_a_slot_that_holds_much_is_warned_of(
    cluster: Cluster, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    database.run(ORDERS)
    definition = capture(database, lag_warning="1")
    await run_to_the_end(cluster, definition)
    database.run("INSERT INTO orders SELECT n, 'x', n FROM generate_series(1, 100) n")
    runner = Runner(cluster, definition, once=True)
    await runner.run()
    assert "makes the server keep" in caplog.text
    assert runner.counts.gauges["0/slot_retained_bytes"] > 1


async def test_a_slot_is_watched_while_a_long_snapshot_runs(
    cluster: Cluster, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    database.run(f"{ORDERS}; INSERT INTO orders VALUES (1, 'tea', 1)")
    assert await run_killed(cluster, capture(database, lag_warning="1"), "sent", 1)
    assert "makes the server keep" in caplog.text


async def test_what_the_user_must_change_is_said(cluster: Cluster, database: Database) -> None:
    database.run("CREATE TABLE bare (n int)")
    for tables, told in ((["bare"], "table public.bare has no primary key"), (["none"], "no table public.none")):
        with pytest.raises(ConnectorError, match=told):
            await run_to_the_end(cluster, capture(database, *tables))
    database.run(ORDERS)
    definition = capture(database)
    await run_to_the_end(cluster, definition)
    while database.rows("SELECT 1 FROM pg_replication_slots WHERE active"):
        await asyncio.sleep(0.05)  # the server takes a moment to see that the connection is gone
    database.run(f"SELECT pg_drop_replication_slot('headrace_{database.name}')")
    database.run("INSERT INTO orders VALUES (1, 'x', 1)")
    with pytest.raises(ConnectorError, match="is gone, so changes are missing"):
        await run_to_the_end(cluster, definition)
    definition.connector.remove()
    assert database.rows("SELECT * FROM pg_publication") == []


async def test_a_truncated_table_empties_its_topic(cluster: Cluster, database: Database) -> None:
    """Also what the same transaction wrote before, and not what it wrote after; and again after a kill."""
    database.run(f"{ORDERS}; INSERT INTO orders VALUES (1, 'tea', 1), (2, 'cup', 2)")
    definition = capture(database, batch_records=1)
    await run_to_the_end(cluster, definition)
    database.run("DELETE FROM orders WHERE id = 2")
    database.run(
        "BEGIN; INSERT INTO orders VALUES (3, 'x', 3); TRUNCATE orders;"
        "INSERT INTO orders VALUES (4, 'y', 4); COMMIT"
    )
    await run_killed(cluster, definition, "stored")
    await run_to_the_end(cluster, definition)
    await run_to_the_end(cluster, definition)
    assert [
        (key["id"], value is None, operation) for key, value, operation in await changes(cluster, "orders")
    ] == [
        (1, False, "r"),
        (1, True, "t"),
        (2, False, "r"),
        (2, True, "d"),
        (3, False, "c"),
        (3, True, "t"),
        (4, False, "c"),
    ]


async def test_a_truncated_table_may_be_kept(
    cluster: Cluster, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    database.run(f"{ORDERS}; INSERT INTO orders VALUES (1, 'tea', 1)")
    definition = capture(database, truncate="keep")
    await run_to_the_end(cluster, definition)
    database.run("TRUNCATE orders; INSERT INTO orders VALUES (2, 'y', 4)")
    await run_to_the_end(cluster, definition)
    assert [operation for _, _, operation in await changes(cluster, "orders")] == ["r", "c"]
    assert "topic orders keeps its rows" in caplog.text


async def test_a_table_that_is_dropped_and_made_again_is_copied_again(
    cluster: Cluster, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL takes it out of the publication, so its changes are missing: the new table has to be copied."""
    monkeypatch.setattr("headrace.connect.postgres.source.LOOK_EVERY_S", 0.0)
    again = f"DROP TABLE orders; {ORDERS}"
    database.run(f"{ORDERS}; INSERT INTO orders VALUES (1, 'tea', 1), (2, 'cup', 2)")
    definition = capture(database)
    await run_to_the_end(cluster, definition)
    database.run(f"{again}; INSERT INTO orders VALUES (2, 'mug', 3)")
    assert await run_killed(cluster, definition, "committed", 1), (
        "when the old keys are deleted, and no row is copied"
    )
    await run_to_the_end(cluster, definition)
    assert [
        (key["id"], value and value["item"], operation)
        for key, value, operation in await changes(cluster, "orders")
    ] == [
        (1, "tea", "r"),
        (1, None, "t"),
        (2, "cup", "r"),
        (2, None, "t"),
        (2, "mug", "r"),
    ]
    runner = Runner(cluster, definition)
    running = asyncio.ensure_future(runner.run())
    try:
        await _streams(database, running)
        database.run(f"BEGIN; {again}; INSERT INTO orders VALUES (3, 'pot', 4); COMMIT")
        while (await changes(cluster, "orders"))[-1][0] != {"id": 3}:
            assert not running.done()
            await asyncio.sleep(0.05)
    finally:
        runner.stop()
        await running
    assert [(key["id"], operation) for key, _, operation in await changes(cluster, "orders")][-2:] == [
        (2, "t"),
        (3, "r"),
    ]


async def test_a_table_that_takes_the_name_of_another_is_copied_again(
    cluster: Cluster, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new version of a table is filled beside it and renamed; the publication has both all the time."""
    monkeypatch.setattr("headrace.connect.postgres.source.LOOK_EVERY_S", 0.0)
    database.run(
        f"CREATE PUBLICATION everything FOR ALL TABLES; {ORDERS}; INSERT INTO orders VALUES (1, 'tea', 1)"
    )
    definition = capture(database, "public.*", publication="everything")
    await run_to_the_end(cluster, definition)

    def replace(number: int) -> None:
        database.run(
            f"BEGIN; DROP TABLE IF EXISTS old; CREATE TABLE new (LIKE orders INCLUDING ALL);"
            f"INSERT INTO new VALUES ({number}, 'x', 1);"
            "ALTER TABLE orders RENAME TO old; ALTER TABLE new RENAME TO orders; COMMIT"
        )

    async def orders() -> dict[int, str]:
        last = {key["id"]: value for key, value, _ in await changes(cluster, "orders")}
        return {key: value["item"] for key, value in last.items() if value is not None}

    replace(2)
    await run_to_the_end(cluster, definition)
    assert await orders() == {2: "x"}
    runner = Runner(cluster, definition)
    running = asyncio.ensure_future(runner.run())
    try:
        await _streams(database, running)
        for number, expected in ((3, {3: "x"}), (4, {3: "x", 4: "y"})):
            if number == 3:
                replace(number)
            else:
                database.run(f"INSERT INTO orders VALUES ({number}, 'y', 1)")
            while await orders() != expected:
                assert not running.done()
                await asyncio.sleep(0.05)
    finally:
        runner.stop()
        await running


async def test_rows_of_tables_that_inherit_are_not_those_of_the_table(
    cluster: Cluster, database: Database
) -> None:
    """As in the changes, which have the name of the table that holds the row."""
    database.run(f"{ORDERS}; CREATE TABLE foreign_orders (PRIMARY KEY (id)) INHERITS (orders)")
    database.run("INSERT INTO orders VALUES (1, 'tea', 1); INSERT INTO foreign_orders VALUES (2, 'cup', 1)")
    definition = capture(database, "orders")
    await run_to_the_end(cluster, definition)
    database.run("INSERT INTO orders VALUES (3, 'pot', 1); INSERT INTO foreign_orders VALUES (4, 'jug', 1)")
    await run_to_the_end(cluster, definition)
    assert [key["id"] for key, _, _ in await changes(cluster, "orders")] == [1, 3]


async def test_rights_that_are_missing_are_said(cluster: Cluster, database: Database) -> None:
    """At once, and no rows are left out: a policy would hide some from the snapshot, and none from the stream."""
    user = f"reader_{database.name}"
    database.run(f"{ORDERS}; INSERT INTO orders VALUES (1, 'tea', 1); CREATE PUBLICATION given FOR TABLE orders")
    database.run(f"CREATE USER {user}; GRANT SELECT ON orders TO {user}")
    database.run("ALTER TABLE orders ENABLE ROW LEVEL SECURITY; CREATE POLICY few ON orders USING (id > 1)")
    address = database.conninfo.replace("postgres@", f"{user}@")
    definition = capture(database, publication="given", connection=address)
    with pytest.raises(ConnectorError, match="replication"):
        await run_to_the_end(cluster, definition)
    database.run(f"ALTER USER {user} REPLICATION")
    with pytest.raises(ConnectorError, match="row-level security policy for table"):
        await run_to_the_end(cluster, definition)
    database.run(f"ALTER USER {user} BYPASSRLS")
    await run_to_the_end(cluster, definition)
    assert [key["id"] for key, _, _ in await changes(cluster, "orders")] == [1]


async def _streams(database: Database, running: asyncio.Future[None]) -> None:
    while not database.rows("SELECT 1 FROM pg_replication_slots WHERE active AND NOT temporary"):
        assert not running.done()
        await asyncio.sleep(0.05)


async def test_a_table_that_is_no_longer_named_is_left_alone(cluster: Cluster, database: Database) -> None:
    """And copied again when it is named again."""
    database.run(f"{ORDERS}; CREATE TABLE notes (id int PRIMARY KEY, note text)")
    await run_to_the_end(cluster, capture(database, "orders", "notes"))
    for number, tables in enumerate((["orders"], ["orders", "notes"])):
        database.run(f"INSERT INTO orders VALUES ({number}, 'x', 1); INSERT INTO notes VALUES ({number}, 'n')")
        await run_to_the_end(cluster, capture(database, *tables))
    assert [operation for _, _, operation in await changes(cluster, "orders")] == ["c", "c"]
    assert [(key["id"], operation) for key, _, operation in await changes(cluster, "notes")] == [
        (0, "r"),
        (1, "r"),
    ]


async def test_a_publication_that_is_gone_is_said(cluster: Cluster, database: Database) -> None:
    database.run(ORDERS)
    definition = capture(database)
    await run_to_the_end(cluster, definition)
    database.run(f"DROP PUBLICATION headrace_{database.name}; INSERT INTO orders VALUES (1, 'x', 1)")
    for _ in range(2):
        with pytest.raises(ConnectorError, match="is gone, so changes are missing"):
            await run_to_the_end(cluster, definition)


async def test_a_partitioned_table_is_one_table(cluster: Cluster, database: Database) -> None:
    database.run(
        "CREATE TABLE orders (id int, year int, item text, PRIMARY KEY (id, year)) PARTITION BY RANGE (year)"
    )
    for year in (2025, 2026):
        database.run(f"CREATE TABLE orders_{year} PARTITION OF orders FOR VALUES FROM ({year}) TO ({year + 1})")
    database.run("INSERT INTO orders VALUES (1, 2025, 'tea'), (2, 2026, 'cup')")
    definition = capture(database, "public.*")
    await run_to_the_end(cluster, definition)
    database.run("INSERT INTO orders VALUES (3, 2026, 'pot'); UPDATE orders SET item = 'mug' WHERE id = 1")
    database.run("CREATE TABLE orders_2027 PARTITION OF orders FOR VALUES FROM (2027) TO (2028)")
    database.run("UPDATE orders SET year = 2027 WHERE id = 2; INSERT INTO orders VALUES (4, 2027, 'jug')")
    await run_to_the_end(cluster, definition)
    found = await changes(cluster, "orders")
    assert [(key["id"], key["year"], operation) for key, _, operation in found if key["id"] != 2] == [
        (1, 2025, "r"),
        (1, 2025, "u"),
        (3, 2026, "c"),
        (4, 2027, "c"),
    ]
    assert sorted((key["year"], value is None) for key, value, _ in found if key["id"] == 2) == [
        (2026, False),
        (2026, True),
        (2027, False),
    ]
    database.run("TRUNCATE orders")
    await run_to_the_end(cluster, definition)
    truncated = [
        (key["id"], key["year"]) for key, _, operation in await changes(cluster, "orders") if operation == "t"
    ]
    assert sorted(truncated) == [(1, 2025), (2, 2027), (3, 2026), (4, 2027)]
