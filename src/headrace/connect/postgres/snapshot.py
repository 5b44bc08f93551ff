"""The rows that tables have at one place of the log: what a change stream continues.

A temporary slot gives that place and a snapshot of the database that agrees with it to the transaction. Each table
is handed out in parts, of which only the last has a position: the runtime makes it visible as a whole, and a run
that is killed before leaves nothing of it. The next run takes another snapshot, at a later place, of what is left.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing

import psycopg
from psycopg import sql

from headrace.connect.api import SourceBatch
from headrace.connect.postgres.catalog import Catalog, TableInfo, connect, problems_told, row_texts
from headrace.connect.postgres.pgoutput import RowTexts, lsn_text
from headrace.connect.postgres.replication import ReplicationConnection
from headrace.connect.postgres.rows import TableShape, TopicOf, snapshot_record
from headrace.connect.postgres.stream import Progress

FETCH_ROWS = 2000


def snapshot_batches(
    conninfo: str,
    catalog: Catalog,
    tables: Sequence[TableInfo],
    progress: Progress,
    topic_of: TopicOf,
    slot_name: str,
) -> Iterator[SourceBatch]:
    """`slot_name`: of the capture; the temporary slot is called after it."""
    with closing(connect(conninfo)) as connection, problems_told():
        with closing(ReplicationConnection(conninfo)) as replication:
            slot = replication.create_slot(f"{slot_name[:40]}_snapshot_{os.getpid()}", temporary=True)
            connection.execute("SET row_security = off")  # rows that a policy hides are an error, and not left out
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            connection.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(slot.snapshot)))
        for table in tables:
            columns = [(column.name, column.type_oid) for column in catalog.columns(table)]
            shape = TableShape.of(table.name, topic_of(table.name), columns, table.key)
            schemas = [shape.schema()]
            for rows, is_last in _parts(connection, shape, table.partitioned):
                records = [snapshot_record(shape, row, lsn_text(slot.consistent_lsn)) for row in rows]
                if is_last:
                    progress.add(table, slot.consistent_lsn)
                yield SourceBatch(records, progress.to_json() if is_last else None, schemas)
                schemas = []


def _parts(
    connection: psycopg.Connection, shape: TableShape, partitioned: bool
) -> Iterator[tuple[list[RowTexts], bool]]:
    """Without the rows of tables that inherit from it: their changes come under their own names."""
    names = sql.SQL(", ").join(sql.Identifier(name) for name, _ in shape.columns)
    table = sql.Identifier(*shape.table)
    only = sql.SQL("" if partitioned else "ONLY ")
    query = sql.SQL("DECLARE headrace NO SCROLL CURSOR FOR SELECT {} FROM {}{}").format(names, only, table)
    connection.execute(query)
    while True:
        rows = _fetch(connection)
        yield rows, len(rows) < FETCH_ROWS
        if len(rows) < FETCH_ROWS:
            break
    connection.execute("CLOSE headrace")


def _fetch(connection: psycopg.Connection) -> list[RowTexts]:
    result = connection.execute(sql.SQL("FETCH {} FROM headrace").format(sql.Literal(FETCH_ROWS))).pgresult
    assert result is not None
    return [row_texts(result, row) for row in range(result.ntuples)]
