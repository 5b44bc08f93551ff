"""The changes of a slot as batches of records, with the place in the log behind each.

Rules:
- A place is behind a whole transaction. What is longer than a batch is handed out in parts without a position, so
  that the runtime keeps it together; with `split` a part has one: the transaction, and how many changes are done.
- A transaction that was stored already is left out, and so is a change that the snapshot of its table has.
- What was read is confirmed to the server only when the runtime has stored it. Where none of our records are in
  flight, the end of the server's log is: other tables may be busy, and the slot must not hold back the log for
  them.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import Any

from headrace.connect.api import ConnectorError, EmptiedTopic, Position, SourceBatch, SourceRecord, TryAgain
from headrace.connect.postgres.catalog import Catalog, TableInfo, TableName, parse_table_name
from headrace.connect.postgres.pgoutput import (
    UNCHANGED,
    BeginMessage,
    ChangeMessage,
    CommitMessage,
    RelationMessage,
    TruncateMessage,
    decode,
    lsn_text,
    parse_lsn,
)
from headrace.connect.postgres.replication import Keepalive, ReplicationConnection, StreamData
from headrace.connect.postgres.rows import Origin, TableShape, TopicOf, change_records, identity_key
from headrace.connect.schema import TopicSchema

log = logging.getLogger(__name__)

WAIT_S = 0.5
REPORT_EVERY_S = 10.0


@dataclass(slots=True)
class Progress:
    """Where the capture is: the position that is stored."""

    lsn: int
    """Behind the last transaction that was read."""
    tables: dict[str, int] = field(default_factory=dict)
    """Table -> where its snapshot was taken: commits from there on are not in it."""
    oids: dict[str, int] = field(default_factory=dict)
    """Table -> what PostgreSQL tells it by: another table may get its name."""
    part_of: int = 0
    """The commit of a transaction that is done in part."""
    part_done: int = 0
    """How many of its changes."""

    def to_json(self) -> dict[str, Any]:
        stored: dict[str, Any] = {
            "lsn": lsn_text(self.lsn),
            "tables": {table: lsn_text(lsn) for table, lsn in self.tables.items()},
            "oids": self.oids,
        }
        if self.part_of:
            stored["part"] = {"of": lsn_text(self.part_of), "done": self.part_done}
        return stored

    @classmethod
    def from_json(cls, stored: Position) -> Progress:
        tables = {table: parse_lsn(lsn) for table, lsn in stored["tables"].items()}
        part = stored.get("part", {"of": "0/0", "done": 0})
        oids = dict(stored.get("oids", {}))
        return cls(parse_lsn(stored["lsn"]), tables, oids, parse_lsn(part["of"]), part["done"])

    def add(self, table: TableInfo, snapshot_lsn: int) -> None:
        self.tables[str(table.name)] = snapshot_lsn
        self.oids[str(table.name)] = table.oid

    def drop(self, table: str) -> None:
        del self.tables[table]
        self.oids.pop(table, None)


class ChangeStream:
    """Reads on from `progress`, which it moves on."""

    def __init__(
        self,
        connection: ReplicationConnection,
        catalog: Catalog,
        progress: Progress,
        topic_of: TopicOf,
        *,
        batch_records: int,
        split: bool,
        keep_truncated: bool,
    ) -> None:
        self._connection = connection
        self._catalog = catalog
        self._progress = progress
        self._topic_of = topic_of
        self._batch_records = batch_records
        self._split = split
        self._keep_truncated = keep_truncated
        self._shapes: dict[int, TableShape] = {}
        self._begin: BeginMessage | None = None
        self._index = 0
        """Changes of the open transaction so far."""
        self._records: list[SourceRecord] = []
        self._schemas: list[TopicSchema] = []
        self._emptied: list[EmptiedTopic] = []
        """After `_records`: a batch ends with them."""
        self._in_parts = False
        """A part of a transaction was handed out without a position, and what ends it was not yet."""
        self._pending = False
        """Some of our records are not stored yet."""
        self._flushed = progress.lsn
        self._reported_at = time.monotonic()
        self.received_lsn = progress.lsn
        """All our records before it were read."""
        self.truncated = 0

    @property
    def between_transactions(self) -> bool:
        return self._begin is None and not self._has_more

    @property
    def _has_more(self) -> bool:
        """Also a position alone: the last part of a transaction may have taken all of its records."""
        return bool(self._records or self._schemas or self._emptied or self._in_parts)

    def poll(self) -> SourceBatch | None:
        while True:
            ready = self._begin is None and self._has_more
            received = self._connection.receive(0.0 if ready else WAIT_S)
            self._report_in_time()
            if received is None:
                return self._taken() if ready else None
            if isinstance(received, Keepalive):
                self._keepalive(received)
            else:
                self._take(received)
            if len(self._records) >= self._batch_records or self._emptied:
                return self._taken()

    def ask(self) -> None:
        """Ask the server how far it is."""
        self._connection.report(self._flushed, reply_wanted=True)

    def committed(self, position: Position) -> None:
        self._pending = self._has_more
        self._flushed = max(self._flushed, parse_lsn(position["lsn"]))
        self._report()

    def _taken(self) -> SourceBatch:
        records, schemas, emptied = self._records, self._schemas, self._emptied
        self._records, self._schemas, self._emptied = [], [], []
        self._pending = True
        self._in_parts = self._begin is not None and not self._split
        if self._begin is not None:
            if not self._split:
                return SourceBatch(records, None, schemas, emptied)
            self._progress.part_of, self._progress.part_done = self._begin.final_lsn, self._index
        return SourceBatch(records, self._progress.to_json(), schemas, emptied)

    # --- what comes

    def _take(self, received: StreamData) -> None:
        message = decode(received.message)
        match message:
            case BeginMessage():
                self._begin = message
                self._index = 0
            case CommitMessage():
                self._commit(message)
            case RelationMessage():
                self._relation(message)
            case ChangeMessage():
                self._change(message)
            case TruncateMessage():
                self._truncate(message)

    def _commit(self, message: CommitMessage) -> None:
        assert self._begin is not None
        self._begin = None
        progress = self._progress
        self.received_lsn = max(self.received_lsn, message.end_lsn)
        if message.end_lsn > progress.lsn:
            progress.lsn, progress.part_of, progress.part_done = message.end_lsn, 0, 0

    def _relation(self, relation: RelationMessage) -> None:
        table = TableName(relation.schema, relation.table)
        self._check_name(relation.id, table)
        info = self._catalog.table(table)
        primary_key = () if info is None else info.key  # it is gone by now
        columns = [(column.name, column.type_oid) for column in relation.columns]
        shape = TableShape.of(table, self._topic_of(table), columns, identity_key(relation, primary_key))
        self._shapes[relation.id] = shape
        if str(table) in self._progress.tables:
            self._schemas.append(shape.schema())

    def _check_name(self, oid: int, name: TableName) -> None:
        """Tables are captured by name: the changes of one that is renamed would be left out silently, and
        those of another that has its name now would be mixed with its own."""
        captured = next((table for table, known in self._progress.oids.items() if known == oid), str(name))
        if captured != str(name) and self._is_new(captured):
            if self._catalog.table(parse_table_name(captured)) is None:
                raise ConnectorError(
                    f"table {captured} is now called {name}. Change the option tables: its rows are then captured "
                    "again, under the new name"
                )
            raise TryAgain(f"another table is called {captured} now")
        if self._progress.oids.get(str(name), oid) != oid and self._is_new(str(name)):
            raise TryAgain(f"another table is called {name} now")

    def _change(self, change: ChangeMessage) -> None:
        assert self._begin is not None
        self._index += 1
        shape = self._shapes[change.relation_id]
        if not self._is_new(str(shape.table)):
            return
        begin = self._begin
        origin = Origin(lsn_text(begin.final_lsn), begin.xid, begin.commit_ms)
        self._records += change_records(shape, self._completed(shape, change), origin)

    def _completed(self, shape: TableShape, change: ChangeMessage) -> ChangeMessage:
        """A record with another key cannot leave out what did not change: nobody has it under that key. What the
        table has by now is right, or a change that follows has the right value."""
        new, old = change.new, change.old
        names = [] if new is None else shape.unchanged_in(new)
        if new is None or old is None or not change.old_is_key or not names or not shape.differ_in_key(new, old):
            return change
        values = self._catalog.values_now(shape.table, shape.key_texts(new), names)
        if values is None:
            return change
        found = iter(values)
        return change._replace(new=tuple(next(found) if text is UNCHANGED else text for text in new))

    def _is_new(self, table: str) -> bool:
        assert self._begin is not None
        final_lsn, progress = self._begin.final_lsn, self._progress
        if final_lsn < progress.lsn:
            return False  # it was stored, and the server had not been told
        if progress.part_of == final_lsn and self._index <= progress.part_done:
            return False
        snapshot = progress.tables.get(table)
        return snapshot is not None and final_lsn >= snapshot

    def _truncate(self, message: TruncateMessage) -> None:
        """PostgreSQL does not say which rows there were: the runtime finds the keys in the topic."""
        assert self._begin is not None
        self._index += 1
        begin = self._begin
        for relation_id in message.relation_ids:
            shape = self._shapes[relation_id]
            if not self._is_new(str(shape.table)):
                continue
            self.truncated += 1
            if self._keep_truncated:
                log.warning("Table %s was truncated; topic %s keeps its rows.", shape.table, shape.topic)
                continue
            log.warning("Table %s was truncated.", shape.table)
            headers = Origin(lsn_text(begin.final_lsn), begin.xid, begin.commit_ms).headers("t")
            self._emptied.append(EmptiedTopic(shape.topic, begin.commit_ms, headers))

    # --- how far we are

    def _keepalive(self, message: Keepalive) -> None:
        if self.between_transactions:
            self.received_lsn = max(self.received_lsn, message.end_lsn)
            if not self._pending:
                self._flushed = max(self._flushed, message.end_lsn)
        if message.reply_wanted:
            self._report()

    def _report_in_time(self) -> None:
        if time.monotonic() - self._reported_at >= REPORT_EVERY_S:
            self._report()

    def _report(self) -> None:
        self._connection.report(self._flushed)
        self._reported_at = time.monotonic()
