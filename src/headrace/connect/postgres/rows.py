"""From a table's row to a record: topic, key, value and headers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headrace.connect.api import RecordHeaders, SourceRecord
from headrace.connect.postgres.catalog import FULL, TableName
from headrace.connect.postgres.pgoutput import UNCHANGED, ChangeMessage, ColumnText, RelationMessage, RowTexts
from headrace.connect.postgres.values import column_type, json_object
from headrace.connect.schema import ColumnSchema, TopicSchema

log = logging.getLogger(__name__)

TopicOf = Callable[[TableName], str]


@dataclass(frozen=True, slots=True)
class TableShape:
    """The columns of a table as they are at one place of the log, and which of them are its key."""

    table: TableName
    topic: str
    columns: tuple[tuple[str, int], ...]
    """Names and types."""
    key: tuple[int, ...]
    """Places in `columns`."""

    @classmethod
    def of(
        cls, table: TableName, topic: str, columns: Sequence[tuple[str, int]], key: Sequence[str]
    ) -> TableShape:
        places = {name: index for index, (name, _) in enumerate(columns)}
        known = [places[name] for name in key if name in places]
        return cls(table, topic, tuple(columns), tuple(known) or tuple(range(len(columns))))

    def schema(self) -> TopicSchema:
        columns = (
            ColumnSchema(name, column_type(oid), index in self.key)
            for index, (name, oid) in enumerate(self.columns)
        )
        return TopicSchema(self.topic, tuple(columns))

    def key_of(self, row: RowTexts) -> bytes:
        return json_object((*self.columns[index], row[index]) for index in self.key)

    def key_texts(self, row: RowTexts) -> dict[str, str | None]:
        texts = ((self.columns[index][0], row[index]) for index in self.key)
        return {name: text.decode() if isinstance(text, bytes) else None for name, text in texts}

    def differ_in_key(self, row: RowTexts, other: RowTexts) -> bool:
        return any(row[index] != other[index] for index in self.key)

    def value_of(self, row: RowTexts) -> bytes:
        return json_object((name, oid, text) for (name, oid), text in zip(self.columns, row, strict=True))

    def unchanged_in(self, row: RowTexts) -> list[str]:
        return [name for (name, _), text in zip(self.columns, row, strict=True) if text is UNCHANGED]


def identity_key(relation: RelationMessage, key_now: Sequence[str]) -> Sequence[str]:
    """What identified rows when the log was written. The catalog has the key as it is now, which may be another or
    have other names: it gives the order, and the key of tables whose identity is all columns."""
    logged = [column.name for column in relation.columns if column.in_identity]
    same = set(key_now) <= set(logged) if relation.identity == FULL else set(key_now) == set(logged)
    return key_now if same or not logged else logged


@dataclass(frozen=True, slots=True)
class Origin:
    """The position of a change in the log."""

    lsn: str
    xid: int
    time_ms: int | None

    def headers(self, operation: str) -> RecordHeaders:
        return (("op", operation.encode()), ("lsn", self.lsn.encode()), ("xid", str(self.xid).encode()))


def snapshot_record(shape: TableShape, row: RowTexts, lsn: str) -> SourceRecord:
    headers: RecordHeaders = (("op", b"r"), ("lsn", lsn.encode()))
    return SourceRecord(shape.topic, shape.value_of(row), shape.key_of(row), None, headers)


def change_records(shape: TableShape, change: ChangeMessage, origin: Origin) -> list[SourceRecord]:
    """One record for a change; two where an update changed the key: the old one is deleted."""
    if change.new is None:
        assert change.old is not None
        return [_tombstone(shape, change.old, origin)]
    new = _filled(change.new, change.old) if change.old is not None and not change.old_is_key else change.new
    records = []
    operation = "c" if change.kind == "insert" else "u"
    headers = origin.headers(operation)
    if unchanged := shape.unchanged_in(new):
        headers += (("unchanged", ",".join(unchanged).encode()),)
    key = shape.key_of(new)
    if change.old is not None and shape.differ_in_key(new, change.old):
        records.append(_tombstone(shape, change.old, origin))
    records.append(SourceRecord(shape.topic, shape.value_of(new), key, origin.time_ms, headers))
    return records


def _filled(new: RowTexts, old: RowTexts) -> RowTexts:
    """With the identity of all columns the old row has what did not change."""
    return tuple(_either(text, before) for text, before in zip(new, old, strict=True))


def _either(text: ColumnText, before: ColumnText) -> ColumnText:
    return before if text is UNCHANGED else text


def _tombstone(shape: TableShape, old: RowTexts, origin: Origin) -> SourceRecord:
    return SourceRecord(shape.topic, None, shape.key_of(old), origin.time_ms, origin.headers("d"))
