"""PostgreSQL as a database of the table connectors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from headrace.connect.postgres.catalog import connect, problems_told
from headrace.connect.postgres.values import TYPES
from headrace.connect.tables.database import FoundTable, Row, SqlDatabase, quoted

_COLUMNS = """
    SELECT attname::text, atttypid::bigint FROM pg_attribute
    WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""
_KEYS = """
    SELECT i.indisprimary, ARRAY(SELECT a.attname::text FROM unnest(i.indkey::int2[]) WITH ORDINALITY k (n, place)
                 JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.n ORDER BY k.place)
    FROM pg_index i
    WHERE i.indrelid = to_regclass(%s) AND i.indisunique AND i.indpred IS NULL AND i.indexprs IS NULL
    ORDER BY NOT i.indisprimary
"""


class PostgresDatabase(SqlDatabase):
    mark = "%s"
    types = {
        "boolean": "boolean",
        "integer": "bigint",
        "float": "double precision",
        "decimal": "numeric",
        "text": "text",
        "bytes": "bytea",
        "date": "date",
        "time": "time",
        "timestamp": "timestamp",
        "timestamptz": "timestamptz",
        "json": "jsonb",
    }

    def __init__(self, address: str) -> None:
        self._connection = connect(address)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with problems_told(), self._connection.transaction():
            yield

    def rows(self, statement: str, values: Row = ()) -> list[tuple[Any, ...]]:
        with problems_told():
            return self._connection.execute(statement.encode(), values or None).fetchall()

    def change(self, statement: str, values: Row = ()) -> int:
        with problems_told():
            return self._connection.execute(statement.encode(), values or None).rowcount

    def change_many(self, statement: str, rows: Sequence[Row]) -> None:
        with problems_told(), self._connection.cursor() as cursor:
            cursor.executemany(statement.encode(), rows)

    def table(self, name: str) -> FoundTable | None:
        columns = self.rows(_COLUMNS, [quoted(name)])
        if not columns:
            return None
        keys = self.rows(_KEYS, [quoted(name)])
        primary_key = tuple(keys[0][1]) if keys and keys[0][0] else ()
        return FoundTable(
            {column: TYPES.get(type_oid) for column, type_oid in columns},
            [frozenset(key) for _, key in keys],
            primary_key,
        )

    def close(self) -> None:
        self._connection.close()
