"""The protocol of the exactly-once sink, without I/O: what its log says, and what follows from it.

Every sink has a log: its records in one partition of a compacted topic, in this order for each batch:

    fence      by the driver that plans a batch: it owns the name now, and previous owners are refused
    decision   the batch is to be committed: these are its transactions. This is the commit point
    abandoned  in the place of a decision: the batch will never be decided under this fence
    done       all transactions of the decision are committed

A driver gets the epoch of its transactional id with every batch that it plans (the *token*), and writes under it,
idempotently: fence at sequence 0, then what an earlier driver left to do, then decision *or* abandoned in one
slot. The broker refuses an epoch below one that the partition has seen, so a driver first fences, then reads:
after that nobody else can decide. What was decided is final, and rolled forward before anything else happens.

The offset of its fence tells which of two drivers is the newer one, whatever ids and epochs they have: a decision
that refers to a fence before the last one is void. That holds also where the broker has forgotten the epochs
(`producer.id.expiration.ms`), or the driver got a new producer id because the epochs of the old one were used up.
The old id is then closed with the highest epoch there is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, NamedTuple

from headrace.spark.client.transactions import Identity

FORMAT = 1
NO_OFFSET = -1
CLOSING_EPOCH = 32767
"""The highest epoch, above every epoch that a producer is given."""


class SinkLogDamaged(Exception):
    """A record is damaged, or was written by a newer version of the sink."""


class Entry(NamedTuple):
    """One transaction of a decided batch."""

    transactional_id: str
    identity: Identity
    """The identity that may end it, unless another has taken it over since."""
    records: Identity
    """The identity that wrote the records; it stays."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of a query, and a hash of the offsets that it covers, where they could be read."""

    query_id: str
    batch_id: int
    offsets: str | None = None


@dataclass(frozen=True, slots=True)
class Fence:
    token: Identity


@dataclass(frozen=True, slots=True)
class Decision:
    fence: int
    """Offset of the fence under which it was taken."""
    batch: Batch
    entries: tuple[Entry, ...]
    rows: int
    again: bool = False
    """Whether it repeats an earlier one, because a void one came after it. It takes no slot."""


@dataclass(frozen=True, slots=True)
class Abandoned:
    fence: int
    batch_id: int


@dataclass(frozen=True, slots=True)
class Done:
    batch: Batch


@dataclass(frozen=True, slots=True)
class Closed:
    """The driver's old producer id is closed: this is written under it."""

    producer_id: int


LogRecord = Fence | Decision | Abandoned | Done | Closed


@dataclass(frozen=True, slots=True)
class SinkLog:
    """The content of a sink's log, read in order."""

    fence: Identity | None = None
    fence_offset: int = NO_OFFSET
    slot_taken: bool = False
    """Whether something was decided or abandoned under the last fence."""
    decision: Decision | None = None
    done: bool = True
    """Whether nothing is left to do about the last decision."""
    void_last: bool = False
    """Whether a void decision is the last one with its key: compaction would keep it instead of the valid one."""

    def after(self, offset: int, record: LogRecord) -> SinkLog:
        match record:
            case Fence(token):
                return replace(self, fence=token, fence_offset=offset, slot_taken=False)
            case Decision(again=True) if record.fence >= self.fence_offset:
                return replace(self, decision=record, void_last=False)
            case Decision():
                if record.again or record.fence < self.fence_offset or self.slot_taken:
                    return replace(self, void_last=True)
                return replace(self, decision=record, done=False, slot_taken=True, void_last=False)
            case Abandoned(fence):
                return replace(self, slot_taken=self.slot_taken or fence >= self.fence_offset)
            case Done(batch):
                same = self.decision is not None and self.decision.batch == batch
                return replace(self, done=self.done or same)
            case Closed():
                return self

    def read(self, records: Iterable[tuple[int, LogRecord]]) -> SinkLog:
        log = self
        for offset, record in records:
            log = log.after(offset, record)
        return log


# --- decisions


class Course(StrEnum):
    """What a task does with its rows, and what the driver does with the batch."""

    WRITE = "write"
    SKIP = "skip"
    """The batch was decided before, and committed by the driver that planned this one."""
    TOO_OLD = "too old"
    """The sink has a later batch of this query: the checkpoint is old."""
    ANOTHER = "another"
    """The sink has the same batch with other offsets: the checkpoint is old."""


def course_of(decided: Batch | None, batch: Batch) -> Course:
    """What to do with a batch if `decided` was decided last. Another query starts over."""
    if decided is None or decided.query_id != batch.query_id or decided.batch_id < batch.batch_id:
        return Course.WRITE
    if decided.batch_id > batch.batch_id:
        return Course.TOO_OLD
    known = decided.offsets is not None and batch.offsets is not None
    return Course.ANOTHER if known and decided.offsets != batch.offsets else Course.SKIP


def is_superseded(log: SinkLog, fence_offset: int) -> bool:
    """Whether a task that was planned under a fence is too late: it was fenced, or its batch is decided."""
    return log.fence_offset > fence_offset or log.slot_taken


def orphans(open_ids: Sequence[str], log: SinkLog) -> list[str]:
    """The open transactions of a sink that belong to no decision that is still to be carried out."""
    decided = () if log.done or log.decision is None else log.decision.entries
    kept = {entry.transactional_id for entry in decided}
    return [one for one in open_ids if one not in kept]


# --- records: JSON, with a key that keeps the last of each kind

_KINDS = {Fence: "fence", Decision: "decision", Abandoned: "abandoned", Done: "done", Closed: "closed"}


def encode_key(sink_id: str, record: LogRecord) -> bytes:
    return f"{_KINDS[type(record)]}:{sink_id}".encode()


def decode_key(key: bytes | None) -> tuple[str, str] | None:
    """(kind, sink id); None for a key that is not a sink's."""
    kind, colon, sink_id = (key or b"").decode(errors="replace").partition(":")
    return (kind, sink_id) if colon and kind in _KINDS.values() else None


def encode_value(record: LogRecord) -> bytes:
    return json.dumps({"format": FORMAT, **_fields(record)}, separators=(",", ":")).encode()


def _fields(record: LogRecord) -> dict[str, Any]:
    match record:
        case Fence(token):
            return {"token": list(token)}
        case Decision(fence, batch, entries, rows, again):
            listed = [[one.transactional_id, *one.identity, *one.records] for one in entries]
            what = {"batch": _batch_fields(batch), "entries": listed, "rows": rows}
            return {"fence": fence, **what, "again": again}
        case Abandoned(fence, batch_id):
            return {"fence": fence, "batch_id": batch_id}
        case Done(batch):
            return {"batch": _batch_fields(batch)}
        case Closed(producer_id):
            return {"producer_id": producer_id}


def _batch_fields(batch: Batch) -> dict[str, Any]:
    return {"query": batch.query_id, "id": batch.batch_id, "offsets": batch.offsets}


def decode(kind: str, value: bytes | None) -> LogRecord | None:
    """The record; None for a tombstone. SinkLogDamaged if it cannot be understood."""
    if value is None:
        return None
    try:
        fields = json.loads(value)
        if fields["format"] != FORMAT:
            raise SinkLogDamaged(
                f"the sink's log has format {fields['format']}, but this version knows only {FORMAT}"
            )
        return _record(kind, fields)
    except (ValueError, KeyError, TypeError) as error:
        raise SinkLogDamaged(f"the sink's log has an invalid record: {error!r}") from None


def _record(kind: str, fields: Mapping[str, Any]) -> LogRecord:
    match kind:
        case "fence":
            return Fence(Identity(*map(int, fields["token"])))
        case "decision":
            entries = [
                Entry(str(name), Identity(int(a), int(b)), Identity(int(c), int(d)))
                for name, a, b, c, d in fields["entries"]
            ]
            again = bool(fields["again"])
            return Decision(int(fields["fence"]), _batch(fields), tuple(entries), int(fields["rows"]), again)
        case "abandoned":
            return Abandoned(int(fields["fence"]), int(fields["batch_id"]))
        case "done":
            return Done(_batch(fields))
        case _:
            return Closed(int(fields["producer_id"]))


def _batch(fields: Mapping[str, Any]) -> Batch:
    batch = fields["batch"]
    return Batch(str(batch["query"]), int(batch["id"]), batch["offsets"])
