"""Tables that are polled: rows whose increasing column has grown since the last poll."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.connect.api import ConnectorError, Position, Source, SourceBatch, SourceRecord, SourceTask
from headrace.connect.options import ConfigOption, ConnectorConfig
from headrace.connect.schema import ColumnSchema, TopicSchema
from headrace.connect.tables.database import ADDRESSES, FoundTable, Row, SqlDatabase, check_address, open_database
from headrace.connect.tables.values import json_object, parameter_of, position_value


class TableSource(Source):
    """Reads rows in the order of a column that only grows, such as a number that counts up or the time of the last
    change; among rows with the same value, in the order of the primary key. Every row that it finds becomes one
    record, with the primary key as key.

    What a poll cannot see: deleted rows, states between two polls, and rows that are committed after others with a
    larger value. Capture changes with `postgres-source` where that matters.
    """

    summary = "Polls tables of PostgreSQL, MySQL or SQLite by an increasing column."
    options = (
        ConfigOption("connection", "text", ADDRESSES, required=True, secret=True),
        ConfigOption("tables", "list", "The tables to read.", required=True),
        ConfigOption("column", "text", "A column whose values only grow.", required=True),
        ConfigOption("key", "list", "Columns that identify a row.", "the primary key"),
        ConfigOption("topic", "text", "The topic of a table.", "{table}"),
        ConfigOption("interval", "duration", "How long to wait when there is nothing new.", "5s"),
        ConfigOption("batch_records", "whole number", "How many rows are read at a time.", 1000, minimum=1),
    )

    def __init__(self, name: str, config: ConnectorConfig) -> None:
        super().__init__(name, config)
        self.idle_pause_s = config.seconds("interval")

    def check(self) -> None:
        check_address(self.config.text("connection"))

    def tasks(self) -> Sequence[str]:
        return self.config.texts("tables")

    def open(self, task: str, position: Position | None) -> SourceTask:
        database = open_database(self.config.text("connection"))
        try:
            return TablePoll(self.config, database, task, None if position is None else position["after"])
        except BaseException:
            database.close()
            raise


class TablePoll(SourceTask):
    def __init__(
        self, config: ConnectorConfig, database: SqlDatabase, table: str, after: list[object] | None
    ) -> None:
        self._database = database
        self._topic = config.text("topic").format(table=table)
        self._limit = config.number("batch_records")
        self._after = after
        found = database.table(table)
        if found is None:
            raise ConnectorError(f"there is no table {table}")
        given = config.texts("key")
        self._key = found.primary_key if given == ("the primary key",) else given
        column = config.text("column")
        for name in (column, *self._key):
            if name not in found.columns:
                raise ConnectorError(f"table {table} has no column {name}")
        self._order = (column, *(name for name in self._key if name != column))
        self._names = tuple(found.columns)
        self._table = table
        self._schemas = [self._schema(found)]

    def _schema(self, found: FoundTable) -> TopicSchema:
        columns = (ColumnSchema(name, type or "text", name in self._key) for name, type in found.columns.items())
        return TopicSchema(self._topic, tuple(columns))

    def poll(self) -> SourceBatch | None:
        rows = [dict(zip(self._names, row, strict=True)) for row in self._read()]
        if not rows:
            return None
        self._after = [position_value(rows[-1][name]) for name in self._order]
        records = [
            SourceRecord(
                self._topic,
                json_object(row.items()),
                json_object((name, row[name]) for name in self._key) if self._key else None,
            )
            for row in rows
        ]
        schemas, self._schemas = self._schemas, []
        return SourceBatch(records, {"after": self._after}, schemas)

    def _read(self) -> list[Row]:
        """The next rows. Without a key nothing but the column tells where to continue: all rows with the last
        value belong to the batch, however many there are."""
        quoted, marks = self._database.quoted, self._database.marks(len(self._order))
        order = ", ".join(map(quoted, self._order))
        if self._after is None:
            rows = self._selected(f"{quoted(self._order[0])} IS NOT NULL ORDER BY {order} LIMIT {self._limit}", ())
        else:
            after = [parameter_of(value) for value in self._after]
            rows = self._selected(f"({order}) > ({marks}) ORDER BY {order} LIMIT {self._limit}", after)
        if self._key or len(rows) < self._limit:
            return rows
        place = self._names.index(self._order[0])
        last = rows[-1][place]
        same = self._selected(f"{order} = {marks}", [parameter_of(position_value(last))])
        return [row for row in rows if row[place] != last] + same

    def _selected(self, condition: str, values: Row) -> list[Row]:
        quoted = self._database.quoted
        columns = ", ".join(map(quoted, self._names))
        return [*self._database.rows(f"SELECT {columns} FROM {quoted(self._table)} WHERE {condition}", values)]

    def close(self) -> None:
        self._database.close()
