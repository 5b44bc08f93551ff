"""Captures PostgreSQL tables into topics: their rows, then every change, each exactly once."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing

from headrace.connect.api import (
    ConnectorError,
    EmptiedTopic,
    Position,
    Source,
    SourceBatch,
    SourceTask,
    TryAgain,
)
from headrace.connect.options import ConfigOption
from headrace.connect.postgres.catalog import FULL, NOTHING, Catalog, TableInfo, TableName
from headrace.connect.postgres.pgoutput import lsn_text, parse_lsn
from headrace.connect.postgres.replication import ReplicationConnection
from headrace.connect.postgres.snapshot import snapshot_batches
from headrace.connect.postgres.stream import ChangeStream, Progress
from headrace.model.errors import KafkaError
from headrace.model.topics import check_topic_name

log = logging.getLogger(__name__)

LOOK_EVERY_S = 10.0
"""How often the slot is looked at."""
_PLACES = re.compile(r"\{(\w*)\}")
_NO_SLOT_NAME = re.compile(r"[^a-z0-9_]")


class PostgresSource(Source):
    """Every row of a table becomes a record: the key is the primary key, the value the row, both as JSON objects.

    An update is a record with the new row, a delete one without a value (a tombstone). The headers say the
    operation (`op`: r snapshot, c insert, u update, d delete, t truncate), its place in the log (`lsn`) and its
    transaction (`xid`).

    The server needs `wal_level = logical`, the user the right to replicate. The connector makes a publication and
    a replication slot. While the slot is there, the server keeps its log until the connector has read it: when it
    is not to run again, `headrace connector remove` takes both away.
    """

    summary = "Captures tables of PostgreSQL: their rows, then every change."
    idle_pause_s = 0.0  # the stream waits by itself
    options = (
        ConfigOption(
            "connection", "text", "`postgresql://user:password@host/database`.", required=True, secret=True
        ),
        ConfigOption(
            "tables", "list", "What to capture: `schema.table`, or `schema.*` for all of a schema.", required=True
        ),
        ConfigOption("topic", "text", "The topic of a table.", "{schema}.{table}"),
        ConfigOption("slot", "text", "The replication slot.", "headrace_<name>"),
        ConfigOption("publication", "text", "The publication.", "headrace_<name>"),
        ConfigOption(
            "snapshot", "text", "`initial` starts with the existing rows; `never` with the changes.",
            "initial", choices=("initial", "never"),
        ),
        ConfigOption(
            "transactions", "text",
            "`whole` makes a transaction of the database visible at once; `split` may show a large one in parts.",
            "whole", choices=("whole", "split"),
        ),
        ConfigOption(
            "replica_identity", "text",
            "`full` sets REPLICA IDENTITY FULL on the tables, so that large values (TOAST) that an update did "
            "not change are there too. `keep` leaves the tables alone: such a column is left out of the record, "
            "and the header `unchanged` names it.",
            "keep", choices=("keep", "full"),
        ),
        ConfigOption(
            "truncate", "text",
            "When a table is truncated: `delete` writes a tombstone for every key of its topic, `keep` nothing.",
            "delete", choices=("delete", "keep"),
        ),
        ConfigOption("batch_records", "whole number", "How many changes are read at a time.", 1000, minimum=1),
        ConfigOption("snapshot_timeout", "duration", "How long the snapshot of one table may take.", "15m"),
        ConfigOption("transaction_timeout", "duration", "How long one transaction of changes may take.", "1m"),
        ConfigOption("lag_warning", "size", "Warn when the slot makes the server keep more than this.", "1GiB"),
    )  # fmt: skip

    def check(self) -> None:
        unknown = set(_PLACES.findall(self.config.text("topic"))) - {"schema", "table"}
        if unknown:
            raise ConnectorError(f"topic has {{{min(unknown)}}}; it may have {{schema}} and {{table}}")

    @property
    def slot(self) -> str:
        return self._named("slot")

    @property
    def publication(self) -> str:
        return self._named("publication")

    def _named(self, option: str) -> str:
        given = self.config.text(option)
        return _NO_SLOT_NAME.sub("_", f"headrace_{self.name}") if "<name>" in given else given

    def topic_of(self, table: TableName) -> str:
        topic = self.config.text("topic").format(schema=table.schema, table=table.table)
        try:
            check_topic_name(topic)
        except KafkaError:
            raise ConnectorError(
                f"{topic!r} is not a valid topic name: choose another for table {table}"
            ) from None
        return topic

    def topic_configs(self, topic: str) -> Mapping[str, str]:
        return {"cleanup.policy": "compact"}

    def transaction_timeout_s(self, positions: Mapping[str, Position]) -> float:
        stored = [position["tables"] for position in positions.values()]
        has_all = bool(stored) and all(
            name.endswith(".*") is False and (name in stored[0] or f"public.{name}" in stored[0])
            for name in self.config.texts("tables")
        )
        return self.config.seconds("transaction_timeout" if has_all else "snapshot_timeout")

    def open(self, task: str, position: Position | None) -> SourceTask:
        catalog = Catalog(self.config.text("connection"))
        try:
            return Capture(self, catalog, None if position is None else Progress.from_json(position))
        except BaseException:
            catalog.close()
            raise

    def remove(self) -> None:
        with closing(Catalog(self.config.text("connection"))) as catalog:
            catalog.drop_slot(self.slot)
            catalog.drop_publication(self.publication)


class Capture(SourceTask):
    def __init__(self, owner: PostgresSource, catalog: Catalog, progress: Progress | None) -> None:
        self._owner = owner
        self._catalog = catalog
        self._replication: ReplicationConnection | None = None
        self._stream: ChangeStream | None = None
        self._gauges: dict[str, float] = {}
        self._looked_at = float("-inf")
        self._warned_bytes = owner.config.number("lag_warning")
        catalog.check_server()
        self._tables = self._prepared_tables()
        lost = [] if progress is None else self._lost(progress, self._tables)
        if not lost:
            catalog.ensure_publication(owner.publication, [table.name for table in self._tables])
        self._progress = self._begin_slot() if progress is None else self._continue_slot(progress)
        self._snapshots = self._start_over(lost) if lost else self._snapshot()
        self._target = parse_lsn(catalog.flushed_lsn())

    # --- the beginning

    def _prepared_tables(self) -> Sequence[TableInfo]:
        config = self._owner.config
        tables = self._catalog.tables(config.texts("tables"))
        for table in tables:
            self._owner.topic_of(table.name)
            if config.text("replica_identity") == "full" and table.identity != FULL:
                self._catalog.set_identity_full(table.name)
            elif table.identity == NOTHING or (table.identity != FULL and not table.key):
                raise ConnectorError(
                    f"table {table.name} has no primary key, and no replica identity in its place: add a primary "
                    "key, or set replica_identity: full"
                )
        return tables

    def _begin_slot(self) -> Progress:
        """Nothing is stored: a slot that is there is of a run that was killed before it stored anything."""
        self._catalog.drop_slot(self._owner.slot)
        with closing(ReplicationConnection(self._owner.config.text("connection"))) as replication:
            made = replication.create_slot(self._owner.slot, temporary=False)
        if self._catalog.keeps_all():
            log.warning(
                "The server keeps its log for the slot %s without a limit while this connector does not run; "
                "max_slot_wal_keep_size in postgresql.conf sets one.",
                self._owner.slot,
            )
        return Progress(made.consistent_lsn)

    def _continue_slot(self, progress: Progress) -> Progress:
        slot = self._catalog.slot(self._owner.slot)
        if slot is None or slot.lost:
            what = "is gone" if slot is None else "is no longer usable: the server removed the log it needs"
            raise ConnectorError(
                f"the replication slot {self._owner.slot} {what}, so changes are missing. Reset it with "
                "`headrace connector remove`; the next run starts with a snapshot"
            )
        named = {str(table.name) for table in self._tables}
        for table in set(progress.tables) - named:
            progress.drop(table)
        for one in self._tables:
            if str(one.name) in progress.tables:
                progress.oids.setdefault(str(one.name), one.oid)  # an earlier version did not store it
        return progress

    def _lost(self, progress: Progress, tables: Sequence[TableInfo]) -> list[TableName]:
        """The tables that were captured, and whose names stand for other tables now; or whose changes the server
        no longer sends: one that is dropped leaves the publication, and one that is created again is not in it."""
        published = self._catalog.published(self._owner.publication)
        if published is None:
            raise ConnectorError(
                f"the publication {self._owner.publication} is gone, so changes are missing. Reset it with "
                "`headrace connector remove`; the next run starts with a snapshot"
            )
        captured = [table for table in tables if str(table.name) in progress.tables]
        return [
            table.name
            for table in captured
            if table.name not in published or progress.oids.get(str(table.name), table.oid) != table.oid
        ]

    def _start_over(self, lost: Sequence[TableName]) -> Iterator[SourceBatch]:
        """These tables are forgotten, with the keys of their topics: who opens them next finds them new. Only then
        are they published, so that a run that is killed here leaves no trace."""
        config = self._owner.config
        copied = config.text("snapshot") == "initial"
        emptied = []
        headers = (("op", b"t"), ("lsn", lsn_text(self._progress.lsn).encode()))
        for name in lost:
            what = (
                "Table %s was dropped and created again, or replaced by another, or taken out of the publication: "
                "changes are missing.%s"
            )
            log.warning(what, name, " It is copied again." if copied else "")
            self._progress.drop(str(name))
            if copied and config.text("truncate") == "delete":
                emptied.append(EmptiedTopic(self._owner.topic_of(name), None, headers))
        yield SourceBatch((), self._progress.to_json(), (), emptied)
        raise TryAgain(f"changes of {', '.join(map(str, lost))} are missing")

    def _snapshot(self) -> Iterator[SourceBatch]:
        owner = self._owner
        tables = [table for table in self._tables if str(table.name) not in self._progress.tables]
        if owner.config.text("snapshot") == "never":
            for table in tables:
                self._progress.add(table, self._progress.lsn)
            tables = []
        if not tables:
            return iter(())
        return snapshot_batches(
            owner.config.text("connection"), self._catalog, tables, self._progress, owner.topic_of, owner.slot
        )

    def _start_stream(self) -> ChangeStream:
        config = self._owner.config
        self._replication = ReplicationConnection(config.text("connection"))
        self._replication.start(self._owner.slot, self._progress.lsn, self._owner.publication)
        return ChangeStream(
            self._replication,
            self._catalog,
            self._progress,
            self._owner.topic_of,
            batch_records=config.number("batch_records"),
            split=config.text("transactions") == "split",
            keep_truncated=config.text("truncate") == "keep",
        )

    # --- what the runtime calls

    def poll(self) -> SourceBatch | None:
        self._look_at_slot()
        if self._stream is None:
            part = next(self._snapshots, None)
            if part is not None:
                return part
            self._stream = self._start_stream()
        return self._stream.poll()

    def committed(self, position: Position) -> None:
        if self._stream is not None:
            self._stream.committed(position)

    def caught_up(self) -> bool:
        stream = self._stream
        if stream is None:
            return False
        if stream.between_transactions and stream.received_lsn >= self._target:
            return True
        stream.ask()
        return False

    def metrics(self) -> Mapping[str, float]:
        return dict(self._gauges)

    def close(self) -> None:
        self._snapshots = iter(())
        if self._replication is not None:
            self._replication.close()
        self._catalog.close()

    def _look_at_publication(self) -> None:
        """A table that is gone may be created again soon, and then its changes are not sent."""
        there = [found for one in self._tables if (found := self._catalog.table(one.name)) is not None]
        for name in self._lost(self._progress, there):
            raise TryAgain(
                f"table {name} is another one, or no longer in the publication {self._owner.publication}"
            )

    def _look_at_slot(self) -> None:
        if time.monotonic() - self._looked_at < LOOK_EVERY_S:
            return
        self._looked_at = time.monotonic()
        if self._stream is not None:
            self._look_at_publication()
        slot = self._catalog.slot(self._owner.slot)
        if slot is None:
            return
        self._gauges = {
            "slot_retained_bytes": float(slot.retained_bytes),
            "slot_behind_bytes": float(slot.behind_bytes),
            "truncated_tables": float(self._stream.truncated if self._stream is not None else 0),
        }
        if slot.retained_bytes > self._warned_bytes:
            self._warned_bytes = 2 * slot.retained_bytes
            log.warning(
                "The slot %s makes the server keep %d MB of its log: this connector is behind by %d MB.",
                self._owner.slot,
                slot.retained_bytes >> 20,
                slot.behind_bytes >> 20,
            )
