"""PostgreSQL as a database of the table connectors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from psycopg import DataError
from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.types.datetime import DateLoader, TimestampLoader, TimestamptzLoader
from psycopg.types.string import TextLoader

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


class _Date(DateLoader):
    """One that Python does not have, such as `infinity`, stays the text that it is."""

    def load(self, data: Buffer) -> Any:
        return _or_text(super().load, data)


class _Timestamp(TimestampLoader):
    def load(self, data: Buffer) -> Any:
        return _or_text(super().load, data)


class _Timestamptz(TimestamptzLoader):
    def load(self, data: Buffer) -> Any:
        return _or_text(super().load, data)


def _or_text(load: Callable[[Buffer], Any], data: Buffer) -> Any:
    try:
        return load(data)
    except DataError:
        return bytes(data).decode()


_LOADERS: Mapping[str, type[Loader]] = {
    "date": _Date,
    "timestamp": _Timestamp,
    "timestamptz": _Timestamptz,
    "interval": TextLoader,
}


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
        for type_name, loader in _LOADERS.items():
            self._connection.adapters.register_loader(type_name, loader)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with problems_told(), self._connection.transaction():
            yield

    def rows(self, statement: str, values: Row = ()) -> list[tuple[Any, ...]]:
        with problems_told():
            return self._connection.execute(statement.encode(), values).fetchall()

    def change(self, statement: str, values: Row = ()) -> int:
        with problems_told():
            return self._connection.execute(statement.encode(), values).rowcount

    def change_many(self, statement: str, rows: Sequence[Row]) -> None:
        with problems_told(), self._connection.cursor() as cursor:
            cursor.executemany(statement.encode(), rows)

    def quoted(self, name: str) -> str:
        """In a statement with parameters, which all of them are: a percent sign would begin one."""
        return quoted(name).replace("%", "%%")

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
