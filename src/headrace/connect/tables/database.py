"""What the table connectors ask of a database: PostgreSQL, MySQL and MariaDB, SQLite.

All have an upsert and comparisons of rows, so most statements are the same. What differs is how parameters are
marked and names are quoted, what types are called, and where columns and keys are looked up.
"""

from __future__ import annotations

import re
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from headrace.connect.api import ConnectorError, TryAgain
from headrace.connect.schema import ColumnType

Row = Sequence[Any]
SQLITE = "sqlite:"
POSTGRES = ("postgresql:", "postgres:")
MYSQL = ("mysql:", "mariadb:")
_KIND = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)
ADDRESSES = "`postgresql://...`, `mysql://...` or `sqlite:path`."


class FoundTable(NamedTuple):
    columns: Mapping[str, ColumnType | None]
    """The type of each column; None is any type."""
    unique: Sequence[frozenset[str]]
    """Sets of columns whose values are unique, the primary key first."""
    primary_key: tuple[str, ...]


class SqlDatabase(ABC):
    mark: str
    """The mark that stands for a parameter."""
    types: Mapping[ColumnType, str]
    key_types: Mapping[ColumnType, str] = {}
    """The types that differ in a column of a primary key."""
    same_types: frozenset[tuple[ColumnType, ColumnType]] = frozenset()
    """(asked for, found): types that the database does not tell apart."""
    name_type = "varchar({})"
    """The type of names up to a given length, in which upper and lower case differ."""

    @abstractmethod
    def transaction(self) -> Any:
        """A block that is committed, or rolled back by an error."""

    @abstractmethod
    def rows(self, statement: str, values: Row = ()) -> list[tuple[Any, ...]]: ...

    @abstractmethod
    def change(self, statement: str, values: Row = ()) -> int:
        """Run a statement; returns how many rows were changed."""

    @abstractmethod
    def change_many(self, statement: str, rows: Sequence[Row]) -> None: ...

    @abstractmethod
    def table(self, name: str) -> FoundTable | None: ...

    @abstractmethod
    def close(self) -> None: ...

    def marks(self, count: int) -> str:
        return ", ".join([self.mark] * count)

    def type_name(self, type: ColumnType, in_key: bool) -> str:
        return self.key_types.get(type, self.types[type]) if in_key else self.types[type]

    def quoted(self, name: str) -> str:
        """A name, or several with dots between."""
        return quoted(name)

    def insert_if_missing(self, table: str, count: int) -> str:
        return f"INSERT INTO {table} VALUES ({self.marks(count)}) ON CONFLICT DO NOTHING"

    def upsert(self, table: str, key: Sequence[str], names: Sequence[str]) -> str:
        others = [self.quoted(name) for name in names if name not in key]
        changed = ", ".join(f"{name} = excluded.{name}" for name in others)
        then = f"UPDATE SET {changed}" if changed else "NOTHING"
        columns, conflict = (", ".join(map(self.quoted, some)) for some in (names, key))
        return (
            f"INSERT INTO {self.quoted(table)} ({columns}) VALUES ({self.marks(len(names))}) "
            f"ON CONFLICT ({conflict}) DO {then}"
        )

    def to_parameter(self, value: Any, type: ColumnType | None) -> Any:
        """A value as the driver takes it, for a column of that type."""
        return value


def quoted(name: str) -> str:
    """A name, quoted as in the standard."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in name.split("."))


def check_address(address: str) -> None:
    """Check that it names a supported kind of database; nothing is opened."""
    if not address.startswith((*POSTGRES, *MYSQL, SQLITE)):
        kind = _KIND.match(address)  # an invalid address may be a password
        what = f"{kind[1]} is not supported" if kind else "it is not an address"
        raise ConnectorError(f"connection: {what}; write postgresql://..., mysql://... or sqlite:PATH")


def open_database(address: str) -> SqlDatabase:
    if address.startswith(POSTGRES):
        try:
            from headrace.connect.tables.postgres import PostgresDatabase
        except ImportError:
            raise ConnectorError("PostgreSQL needs psycopg: pip install 'headrace[postgres]'") from None

        return PostgresDatabase(address)
    if address.startswith(MYSQL):
        from headrace.connect.tables.mysql import MysqlDatabase

        return MysqlDatabase(address)
    if address.startswith(SQLITE):
        return SqliteDatabase(address.removeprefix(SQLITE).removeprefix("//"))
    check_address(address)
    raise AssertionError(address)


@contextmanager
def sqlite_problems() -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        kind = TryAgain if "locked" in str(error) or "busy" in str(error) else ConnectorError
        raise kind(f"SQLite says: {error}") from None
    except sqlite3.Error as error:
        raise ConnectorError(f"SQLite says: {error}") from None


class SqliteDatabase(SqlDatabase):
    mark = "?"
    types = {
        "boolean": "INTEGER",
        "integer": "INTEGER",
        "float": "REAL",
        "decimal": "NUMERIC",
        "text": "TEXT",
        "bytes": "BLOB",
        "date": "TEXT",
        "time": "TEXT",
        "timestamp": "TEXT",
        "timestamptz": "TEXT",
        "json": "TEXT",
    }

    def __init__(self, path: str) -> None:
        try:
            self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        except sqlite3.Error as error:
            raise ConnectorError(f"SQLite cannot open {path}: {error}") from None

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with sqlite_problems():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    def rows(self, statement: str, values: Row = ()) -> list[tuple[Any, ...]]:
        with sqlite_problems():
            return self._connection.execute(statement, values).fetchall()

    def change(self, statement: str, values: Row = ()) -> int:
        with sqlite_problems():
            return self._connection.execute(statement, values).rowcount

    def change_many(self, statement: str, rows: Sequence[Row]) -> None:
        with sqlite_problems():
            self._connection.executemany(statement, rows)

    def table(self, name: str) -> FoundTable | None:
        columns = self.rows("SELECT name, pk FROM pragma_table_info(?)", [name])
        if not columns:
            return None
        ordered = sorted((place, column) for column, place in columns if place)
        primary_key = tuple(column for _, column in ordered)
        unique = [frozenset(primary_key)] if primary_key else []
        for (index,) in self.rows('SELECT name FROM pragma_index_list(?) WHERE "unique"', [name]):
            found = self.rows("SELECT name FROM pragma_index_info(?)", [index])
            unique.append(frozenset(column for (column,) in found))
        return FoundTable({column: None for column, _ in columns}, unique, primary_key)

    def to_parameter(self, value: Any, type: ColumnType | None) -> Any:
        return value if isinstance(value, int | float | str | bytes | None) else str(value)

    def close(self) -> None:
        self._connection.close()
