"""Reads a database's catalog over an ordinary connection: tables and their keys, publications, slots."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import LiteralString, NamedTuple, TypeVar, cast

import psycopg
from psycopg import pq, sql

from headrace.connect.api import ConnectorError
from headrace.connect.options import INVALID_ADDRESS
from headrace.connect.postgres.pgoutput import RowTexts
from headrace.connect.postgres.replication import SESSION, connect_problem, problem_of

T = TypeVar("T")
DEFAULT_SCHEMA = "public"
FULL, NOTHING = "f", "n"

_TABLES = """
    SELECT n.nspname, c.relname, c.relreplident::text, c.oid::bigint, c.relkind = 'p',
           ARRAY(SELECT a.attname::text
                 FROM pg_index i, pg_attribute a, array_position(i.indkey::int2[], a.attnum) place
                 WHERE i.indrelid = c.oid AND a.attrelid = c.oid AND place < i.indnkeyatts
                 AND CASE c.relreplident WHEN 'i' THEN i.indisreplident ELSE i.indisprimary END
                 ORDER BY place)
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND n.nspname = %s AND (%s = '*' OR c.relname = %s)
    ORDER BY 1, 2
"""
_COLUMNS = """
    SELECT attname::text, atttypid::bigint FROM pg_attribute
    WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum
"""
_SLOT = """
    SELECT slot_type, database, active, wal_status,
           pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint,
           pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn)::bigint
    FROM pg_replication_slots WHERE slot_name = %s
"""


class TableName(NamedTuple):
    schema: str
    table: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"


class TableInfo(NamedTuple):
    name: TableName
    identity: str
    oid: int
    partitioned: bool
    key: tuple[str, ...]
    """The columns of its replica identity index, or of its primary key; empty if it has neither."""


class TableColumn(NamedTuple):
    name: str
    type_oid: int


class SlotInfo(NamedTuple):
    active: bool
    lost: bool
    """The server has removed what the slot still needed (`max_slot_wal_keep_size`)."""
    retained_bytes: int
    """How many bytes of its log the server keeps because of the slot."""
    behind_bytes: int
    """How far our confirmed position is behind."""


def connect(conninfo: str) -> psycopg.Connection:
    try:
        return psycopg.connect(conninfo, autocommit=True, options=SESSION)
    except psycopg.OperationalError as error:
        raise connect_problem(str(error).strip()) from None
    except psycopg.ProgrammingError:  # it repeats a part of the address, which may be one of the password
        raise ConnectorError(INVALID_ADDRESS) from None


@contextmanager
def problems_told() -> Iterator[None]:
    """Raises errors of PostgreSQL as errors of a connector."""
    try:
        yield
    except psycopg.Error as error:
        raise problem_of(error.sqlstate or "", str(error).strip()) from None


def _table_info(row: Sequence[object]) -> TableInfo:
    schema, table, identity, oid, partitioned, key = row
    name = TableName(str(schema), str(table))
    return TableInfo(name, str(identity), int(str(oid)), bool(partitioned), tuple(cast("list[str]", key)))


def row_texts(result: pq.abc.PGresult, row: int) -> RowTexts:
    """The values as the server writes them: the same text as in the change stream."""
    values = (result.get_value(row, column) for column in range(result.nfields))
    return tuple(None if value is None else bytes(value) for value in values)


def parse_table_name(text: str) -> TableName:
    schema, dot, table = text.strip().rpartition(".")
    return TableName(schema if dot else DEFAULT_SCHEMA, table)


class Catalog:
    def __init__(self, conninfo: str) -> None:
        self._connection = connect(conninfo)

    def close(self) -> None:
        self._connection.close()

    def check_server(self) -> None:
        if self._value("SHOW wal_level") != "logical":
            raise ConnectorError(
                "the server has wal_level = "
                f"{self._value('SHOW wal_level')}; set wal_level = logical in postgresql.conf and restart it"
            )

    def tables(self, wanted: Iterable[str]) -> list[TableInfo]:
        """The tables with these names; `schema.*` stands for all tables of a schema."""
        found: dict[TableName, TableInfo] = {}
        for text in wanted:
            schema, table = parse_table_name(text)
            rows = self._rows(_TABLES, schema, table, table)
            if not rows:
                raise ConnectorError(f"there is no table {schema}.{table}")
            found.update((info.name, info) for info in map(_table_info, rows))
        return list(found.values())

    def table(self, name: TableName) -> TableInfo | None:
        """The table as it is now."""
        rows = self._rows(_TABLES, name.schema, name.table, name.table)
        return _table_info(rows[0]) if rows else None

    def columns(self, table: TableInfo) -> list[TableColumn]:
        return [TableColumn(str(name), int(str(oid))) for name, oid in self._rows(_COLUMNS, table.oid)]

    def values_now(self, table: TableName, key: Mapping[str, str | None], names: Sequence[str]) -> RowTexts | None:
        """The values of the row with that key, as the server writes them; None if it or a column is gone."""
        wanted = sql.SQL(", ").join(map(sql.Identifier, names))
        same = sql.SQL(" AND ").join(
            sql.SQL("{} = {}").format(sql.Identifier(name), text) for name, text in key.items()
        )
        query = sql.SQL("SELECT {} FROM {} WHERE {}").format(wanted, sql.Identifier(*table), same)
        try:
            with problems_told():
                found = self._connection.execute(query).pgresult
        except ConnectorError:
            return None
        assert found is not None
        return row_texts(found, 0) if found.ntuples else None

    def set_identity_full(self, table: TableName) -> None:
        self._execute(sql.SQL("ALTER TABLE {} REPLICA IDENTITY FULL").format(sql.Identifier(*table)))

    # --- publications

    def published(self, name: str) -> set[TableName] | None:
        """The tables of a publication; None if it does not exist."""
        if self._value("SELECT count(*) FROM pg_publication WHERE pubname = %s", name) == 0:
            return None
        rows = self._rows("SELECT schemaname, tablename FROM pg_publication_tables WHERE pubname = %s", name)
        return {TableName(str(schema), str(table)) for schema, table in rows}

    def ensure_publication(self, name: str, tables: Sequence[TableName]) -> None:
        """Create the publication, or add the missing tables to it."""
        published = self.published(name)
        missing = [table for table in tables if table not in (published or ())]
        if published is not None and not missing:
            return
        names = sql.SQL(", ").join(sql.Identifier(*table) for table in missing)
        if published is not None:
            self._execute(sql.SQL("ALTER PUBLICATION {} ADD TABLE {}").format(sql.Identifier(name), names))
        else:
            command = "CREATE PUBLICATION {} FOR TABLE {} WITH (publish_via_partition_root = true)"
            self._execute(sql.SQL(command).format(sql.Identifier(name), names))

    def drop_publication(self, name: str) -> None:
        self._execute(sql.SQL("DROP PUBLICATION IF EXISTS {}").format(sql.Identifier(name)))

    # --- slots

    def slot(self, name: str) -> SlotInfo | None:
        rows = self._rows(_SLOT, name)
        if not rows:
            return None
        _, _, active, wal_status, retained, behind = rows[0]
        numbers = [int(str(value)) if value is not None else 0 for value in (retained, behind)]
        return SlotInfo(bool(active), wal_status == "lost", *numbers)

    def drop_slot(self, name: str) -> None:
        if self.slot(name) is not None:
            self._rows("SELECT pg_drop_replication_slot(%s)", name)

    def flushed_lsn(self) -> str:
        """The LSN up to which the log is written, and can be streamed."""
        return str(self._value("SELECT pg_current_wal_flush_lsn()::text"))

    def keeps_all(self) -> bool:
        """Whether the server keeps its log for a slot without a limit."""
        return self._value("SELECT setting FROM pg_settings WHERE name = 'max_slot_wal_keep_size'") == "-1"

    # --- statements

    def _rows(self, statement: LiteralString, *values: object) -> list[tuple[object, ...]]:
        return self._told(lambda: list(self._connection.execute(statement, values or None)))

    def _value(self, statement: LiteralString, *values: object) -> object:
        return self._rows(statement, *values)[0][0]

    def _execute(self, statement: sql.Composed) -> None:
        self._told(lambda: self._connection.execute(statement))

    def _told(self, work: Callable[[], T]) -> T:
        with problems_told():
            return work()
