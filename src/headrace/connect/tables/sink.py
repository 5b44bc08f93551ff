"""Topics kept as tables: an upsert for each record, a delete for each tombstone, exactly once.

Rows and positions are written in one transaction of the database. The positions are in a table of their own, and
move only from where this run left them: a second run that writes at the same time is noticed before it does harm.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple, cast

from headrace.connect.api import ConnectorError, Sink, SinkRecord, SinkTask, TryAgain
from headrace.connect.options import ConfigOption, ConnectorConfig
from headrace.connect.schema import COLUMN_TYPES, ColumnSchema, ColumnType, TopicSchema
from headrace.connect.tables.database import ADDRESSES, FoundTable, SqlDatabase, check_address, open_database
from headrace.connect.tables.values import column_value, parse_row
from headrace.model.topics import TopicPartition

POSITIONS = "headrace_positions"
_ANY_TYPE: frozenset[ColumnType | None] = frozenset({None, "text", "json"})


class TableSink(Sink):
    """The value of a record is a row, its key the primary key, both as JSON objects; a key of one column may be
    plain.

    A record replaces the columns that it has; one without a value deletes its row. The columns come from `columns`
    and `key`, or from the schema that a source stored for its topic. A table that is not there is created, and one
    that lacks a column gets it; with `create: false` the sink only checks.
    """

    summary = "Keeps topics as tables of PostgreSQL, MySQL or SQLite, by upserts and deletes."
    options = (
        ConfigOption("connection", "text", ADDRESSES, required=True, secret=True),
        ConfigOption("table", "text", "The table of a topic.", "{topic}"),
        ConfigOption("key", "list", "The columns of the primary key.", None),
        ConfigOption("columns", "mapping", f"Columns and types: {', '.join(COLUMN_TYPES)}.", None),
        ConfigOption("create", "flag", "Whether to create tables and add columns.", True),
        ConfigOption("deletes", "flag", "Whether tombstones delete rows; otherwise they are ignored.", True),
        ConfigOption(
            "malformed", "text", "What to do with a record that is not a row.", "fail", choices=("fail", "skip")
        ),
    )

    def check(self) -> None:
        check_address(self.config.text("connection"))
        columns = self.config.table("columns")
        for name, type_name in columns.items():
            if type_name not in COLUMN_TYPES:
                raise ConnectorError(
                    f"column {name} has the type {type_name}; there are {', '.join(COLUMN_TYPES)}"
                )
        missing = [name for name in self.config.texts("key") if columns and name not in columns]
        if missing:
            raise ConnectorError(f"the key has the column {missing[0]}, which columns does not have")
        if columns and not self.config.texts("key"):
            raise ConnectorError("columns needs key: which of them identify a row")

    def open(
        self, task: str, partitions: Sequence[TopicPartition], schemas: Mapping[str, TopicSchema]
    ) -> SinkTask:
        database = open_database(self.config.text("connection"))
        try:
            return TableSinkTask(self.name, self.config, database, {one.topic for one in partitions}, schemas)
        except BaseException:
            database.close()
            raise

    def remove(self) -> None:
        with closing(open_database(self.config.text("connection"))) as database, database.transaction():
            if database.table(POSITIONS) is not None:
                database.change(f"DELETE FROM {POSITIONS} WHERE connector = {database.mark}", [self.name])


@dataclass(frozen=True, slots=True)
class Target:
    """The table of a topic."""

    table: str
    types: Mapping[str, ColumnType | None]
    key: tuple[str, ...]


class _Row(NamedTuple):
    """What becomes of the row of one key."""

    key: dict[str, Any]
    values: dict[str, Any] | None
    """None: it is deleted."""
    anew: bool
    """What the table has of it is deleted first."""


class TableSinkTask(SinkTask):
    def __init__(
        self,
        name: str,
        config: ConnectorConfig,
        database: SqlDatabase,
        topics: set[str],
        schemas: Mapping[str, TopicSchema],
    ) -> None:
        self._name = name
        self._config = config
        self._database = database
        self._skipped = 0
        with database.transaction():
            database.change(
                f"CREATE TABLE IF NOT EXISTS {POSITIONS} (connector {database.name_type.format(80)}, "
                f"topic {database.name_type.format(249)}, part int, next_offset bigint NOT NULL, "
                "PRIMARY KEY (connector, topic, part))"
            )
        with database.transaction():
            self._targets = {topic: self._target(topic, schemas.get(topic)) for topic in sorted(topics)}
        self._stored = dict(self._read_positions())

    # --- tables

    def _target(self, topic: str, schema: TopicSchema | None) -> Target:
        table = self._config.text("table").format(topic=topic)
        wanted = self._declared(schema)
        database = self._database
        found = database.table(table)
        if found is None:
            return self._created(table, topic, wanted)
        key = (
            tuple(column.name for column in wanted if column.key) or self._config.texts("key") or found.primary_key
        )
        missing = [column for column in wanted if column.name not in found.columns]
        if missing and not self._config.flag("create"):
            raise ConnectorError(f"table {table} has no column {missing[0].name}, which topic {topic} has")
        for column in missing:
            added = f"{database.quoted(column.name)} {database.type_name(column.type, False)}"
            database.change(f"ALTER TABLE {database.quoted(table)} ADD COLUMN {added}")
        _check_types(table, found, wanted, database.same_types)
        if not key or frozenset(key) not in found.unique:
            raise ConnectorError(
                f"table {table} has no primary key or unique index on ({', '.join(key)}): rows could not be "
                "updated"
            )
        declared = {column.name: column.type for column in wanted}
        types = {name: type or declared.get(name) for name, type in found.columns.items()}
        return Target(table, {**types, **{column.name: column.type for column in missing}}, key)

    def _declared(self, schema: TopicSchema | None) -> Sequence[ColumnSchema]:
        key = self._config.texts("key")
        columns = self._config.table("columns")
        if columns:
            return [ColumnSchema(name, cast(ColumnType, type), name in key) for name, type in columns.items()]
        if schema is None:
            return ()
        return [column._replace(key=column.name in key) if key else column for column in schema.columns]

    def _created(self, table: str, topic: str, wanted: Sequence[ColumnSchema]) -> Target:
        key = tuple(column.name for column in wanted if column.key)
        if not self._config.flag("create"):
            raise ConnectorError(f"there is no table {table}")
        if not wanted or not key:
            raise ConnectorError(
                f"there is no table {table}, and no source has described what topic {topic} holds: give columns "
                "and key, or create the table"
            )
        database = self._database
        columns = ", ".join(
            f"{database.quoted(one.name)} {database.type_name(one.type, one.key)}" for one in wanted
        )
        names = ", ".join(map(database.quoted, key))
        database.change(f"CREATE TABLE {database.quoted(table)} ({columns}, PRIMARY KEY ({names}))")
        return Target(table, {one.name: one.type for one in wanted}, key)

    # --- positions

    def _read_positions(self) -> Mapping[TopicPartition, int]:
        mark = self._database.mark
        rows = self._database.rows(
            f"SELECT topic, part, next_offset FROM {POSITIONS} WHERE connector = {mark}", [self._name]
        )
        return {TopicPartition(topic, part): offset for topic, part, offset in rows}

    def positions(self) -> Mapping[TopicPartition, int]:
        return dict(self._stored)

    def _move(self, place: TopicPartition, offset: int) -> None:
        """From where we left it, or not at all."""
        mark, before = self._database.mark, self._stored.get(place)
        where = (self._name, place.topic, place.partition)
        if before is None:
            changed = self._database.change(self._database.insert_if_missing(POSITIONS, 4), [*where, offset])
        else:
            changed = self._database.change(
                f"UPDATE {POSITIONS} SET next_offset = {mark} WHERE connector = {mark} AND topic = {mark} "
                f"AND part = {mark} AND next_offset = {mark}",
                [offset, *where, before],
            )
        if changed != 1:
            raise ConnectorError(f"another run of the connector {self._name} has written partition {place}")

    # --- rows

    def write(self, records: Sequence[SinkRecord], positions: Mapping[TopicPartition, int]) -> None:
        changes: dict[str, dict[str, _Row]] = {}
        for record in records:
            self._add(changes.setdefault(record.topic, {}), record)
        with self._database.transaction():
            for place, offset in positions.items():
                if self._stored.get(place) != offset:
                    self._move(place, offset)
            for topic, rows in changes.items():
                self._apply(self._targets[topic], rows.values())
        self._stored.update(positions)

    def _add(self, rows: dict[str, _Row], record: SinkRecord) -> None:
        """The last of each key counts, with the columns of those before it."""
        target = self._targets[record.topic]
        try:
            row, key = _parsed(record, target)
        except ValueError as error:
            if self._config.text("malformed") == "fail":
                place = TopicPartition(record.topic, record.partition)
                raise ConnectorError(
                    f"the record at offset {record.offset} of {place} is not a row: {error}"
                ) from None
            self._skipped += 1
            return
        if row is not None:
            self._check_columns(record.topic, target, row)
        identity = json.dumps([key[name] for name in target.key], default=str)
        before = rows.get(identity)
        if row is not None:
            earlier = (before and before.values) or {}
            rows[identity] = _Row(key, {**earlier, **row, **key}, before is not None and before.anew)
        elif self._config.flag("deletes"):
            rows[identity] = _Row(key, None, True)

    def _check_columns(self, topic: str, target: Target, row: Mapping[str, Any]) -> None:
        unknown = [name for name in row if name not in target.types]
        if unknown:
            # A source stores the schema in the transaction of the record: opening again may know the column.
            raise TryAgain(f"table {target.table} has no column {unknown[0]}, which a record of topic {topic} has")

    def _apply(self, target: Target, rows: Iterable[_Row]) -> None:
        database = self._database
        wanted = list(rows)
        deleted = [self._parameters(target, target.key, row.key) for row in wanted if row.anew]
        if deleted:
            same = " AND ".join(f"{database.quoted(name)} = {database.mark}" for name in target.key)
            database.change_many(f"DELETE FROM {database.quoted(target.table)} WHERE {same}", deleted)
        by_columns: dict[tuple[str, ...], list[Sequence[Any]]] = {}
        for row in wanted:
            if row.values is not None:
                names = tuple(row.values)
                by_columns.setdefault(names, []).append(self._parameters(target, names, row.values))
        for names, values in by_columns.items():
            database.change_many(database.upsert(target.table, target.key, names), values)

    def _parameters(self, target: Target, names: Sequence[str], values: Mapping[str, Any]) -> list[Any]:
        convert = self._database.to_parameter
        return [convert(column_value(values[name], target.types[name]), target.types[name]) for name in names]

    def metrics(self) -> Mapping[str, float]:
        return {"skipped_records": float(self._skipped)}

    def close(self) -> None:
        self._database.close()


def _parsed(record: SinkRecord, target: Target) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """The row, None if it is deleted, and its key."""
    row = None if record.value is None else parse_row(record.value)
    given = None if record.key is None else _parsed_key(record.key, target)
    key = target.key
    values = given if isinstance(given, dict) else {key[0]: given} if len(key) == 1 and given is not None else {}
    found = {name: values[name] if name in values else (row or {}).get(name) for name in key}
    missing = [name for name, value in found.items() if value is None]
    if missing:
        raise ValueError(f"it has no {missing[0]}, which is part of the key")
    return row, found


def _parsed_key(data: bytes, target: Target) -> Any:
    """A plain key of a text column may look like a number: `1.10` and `1.1` are two of them."""
    text = data.decode()
    try:
        given = json.loads(text, parse_float=Decimal)
    except ValueError:
        return text
    plain_text = target.types[target.key[0]] == "text" and not isinstance(given, str | dict | None)
    return text if plain_text else given


def _check_types(
    table: str,
    found: FoundTable,
    wanted: Sequence[ColumnSchema],
    same: frozenset[tuple[ColumnType, ColumnType]],
) -> None:
    for column in wanted:
        there = found.columns.get(column.name)
        if there is not None and (column.type, there) in same:
            continue
        if there not in _ANY_TYPE and column.type != "text" and there != column.type:
            raise ConnectorError(
                f"column {column.name} of table {table} is of the type {there}, not {column.type}"
            )
