"""The messages of PostgreSQL's output plugin `pgoutput`, protocol version 1: bytes in, values out.

    Begin      B  final LSN int64 · commit time int64 · xid int32
    Commit     C  flags int8 · commit LSN int64 · end LSN int64 · commit time int64
    Relation   R  relation id int32 · schema · name · replica identity int8 · columns int16 ·
                  (flags int8 · name · type oid int32 · type modifier int32)...
    Insert     I  relation id int32 · N row
    Update     U  relation id int32 · [K key | O old row] · N row
    Delete     D  relation id int32 · K key | O old row
    Truncate   T  relations int32 · options int8 · relation id int32...

A row is the number of its columns, then for each n (null), u (an unchanged TOASTed value, which is not sent), or t
with the length and the text of the value. Others (Type, Origin, Message) say nothing that we need.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

_BEGIN = struct.Struct(">qqi")
_COMMIT = struct.Struct(">bqqq")
_INT32 = struct.Struct(">i")
_INT16 = struct.Struct(">h")
POSTGRES_EPOCH_MS = 946_684_800_000
"""2000-01-01, from which PostgreSQL counts microseconds."""


class Unsent(Enum):
    """A value that did not change, is stored apart from its row, and was not sent."""

    UNCHANGED = "unchanged"


UNCHANGED = Unsent.UNCHANGED
ColumnText = bytes | None | Unsent
RowTexts = tuple[ColumnText, ...]


class MalformedMessage(Exception):
    """The data is not pgoutput as we know it."""


class BeginMessage(NamedTuple):
    final_lsn: int
    """The LSN of the commit."""
    commit_ms: int
    xid: int


class CommitMessage(NamedTuple):
    commit_lsn: int
    end_lsn: int
    """The LSN after the commit, where reading continues."""


class RelationColumn(NamedTuple):
    name: str
    type_oid: int
    in_identity: bool
    """Whether it is part of the replica identity, which is sent with every update and delete."""


class RelationMessage(NamedTuple):
    id: int
    schema: str
    table: str
    identity: str
    """The replica identity. d: the primary key; n: nothing; f: all columns; i: an index."""
    columns: tuple[RelationColumn, ...]


class ChangeMessage(NamedTuple):
    kind: str
    """One of insert, update and delete."""
    relation_id: int
    old: RowTexts | None
    """The old row. For an update, only if the key changed, or if all columns are the replica identity."""
    old_is_key: bool
    """Whether `old` has only the columns of the identity."""
    new: RowTexts | None


class TruncateMessage(NamedTuple):
    relation_ids: tuple[int, ...]


StreamMessage = BeginMessage | CommitMessage | RelationMessage | ChangeMessage | TruncateMessage


def decode(data: bytes) -> StreamMessage | None:
    """Decode a message; None if we do not need it."""
    try:
        decoder = _DECODERS.get(data[:1])
        return None if decoder is None else decoder(data)
    except (struct.error, IndexError, ValueError) as error:
        raise MalformedMessage(f"a message of type {data[:1]!r} cannot be read: {error}") from error


def _begin(data: bytes) -> BeginMessage:
    final_lsn, commit_us, xid = _BEGIN.unpack_from(data, 1)
    return BeginMessage(final_lsn, POSTGRES_EPOCH_MS + commit_us // 1000, xid)


def _commit(data: bytes) -> CommitMessage:
    _, commit_lsn, end_lsn, _ = _COMMIT.unpack_from(data, 1)
    return CommitMessage(commit_lsn, end_lsn)


def _relation(data: bytes) -> RelationMessage:
    (relation_id,) = _INT32.unpack_from(data, 1)
    schema, at = _text(data, 5)
    table, at = _text(data, at)
    identity = chr(data[at])
    (count,) = _INT16.unpack_from(data, at + 1)
    at += 3
    columns = []
    for _ in range(count):
        in_identity = bool(data[at] & 1)
        name, at = _text(data, at + 1)
        (type_oid,) = _INT32.unpack_from(data, at)
        at += 8
        columns.append(RelationColumn(name, type_oid, in_identity))
    return RelationMessage(relation_id, schema or "pg_catalog", table, identity, tuple(columns))


def _insert(data: bytes) -> ChangeMessage:
    new, _ = _row(data, 6)
    return ChangeMessage("insert", _INT32.unpack_from(data, 1)[0], None, False, new)


def _update(data: bytes) -> ChangeMessage:
    kind, at, old = data[5:6], 5, None
    if kind in (b"K", b"O"):
        old, at = _row(data, 6)
    if data[at : at + 1] != b"N":
        raise ValueError(f"{data[at : at + 1]!r} where the new row should be")
    new, _ = _row(data, at + 1)
    return ChangeMessage("update", _INT32.unpack_from(data, 1)[0], old, kind == b"K", new)


def _delete(data: bytes) -> ChangeMessage:
    old, _ = _row(data, 6)
    return ChangeMessage("delete", _INT32.unpack_from(data, 1)[0], old, data[5:6] == b"K", None)


def _truncate(data: bytes) -> TruncateMessage:
    (count,) = _INT32.unpack_from(data, 1)
    return TruncateMessage(struct.unpack_from(f">{count}i", data, 6))


def _text(data: bytes, at: int) -> tuple[str, int]:
    end = data.index(b"\0", at)
    return data[at:end].decode(), end + 1


def _row(data: bytes, at: int) -> tuple[RowTexts, int]:
    (count,) = _INT16.unpack_from(data, at)
    at += 2
    values: list[ColumnText] = []
    for _ in range(count):
        kind = data[at : at + 1]
        at += 1
        if kind == b"t":
            (size,) = _INT32.unpack_from(data, at)
            at += 4
            values.append(data[at : at + size])
            at += size
        elif kind == b"n":
            values.append(None)
        elif kind == b"u":
            values.append(UNCHANGED)
        else:
            raise ValueError(f"a column of kind {kind!r}")
    if at > len(data):
        raise ValueError("a row that ends in the middle")
    return tuple(values), at


_DECODERS: dict[bytes, Callable[[bytes], StreamMessage]] = {
    b"B": _begin,
    b"C": _commit,
    b"R": _relation,
    b"I": _insert,
    b"U": _update,
    b"D": _delete,
    b"T": _truncate,
}


def lsn_text(lsn: int) -> str:
    """An LSN as PostgreSQL writes it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def parse_lsn(text: str) -> int:
    high, _, low = text.partition("/")
    return int(high, 16) << 32 | int(low, 16)
