"""A replication connection to PostgreSQL: slots, the stream of one, and how far we are.

psycopg has no calls for replication, but its libpq has all that is needed: a command over `exec_`, then the COPY
stream in both directions.

    w  start LSN int64 · end LSN int64 · clock int64 · the message     from the server
    k  end LSN int64 · clock int64 · reply wanted int8                 from the server
    r  written LSN · flushed LSN · applied LSN · clock int64 · reply wanted int8
"""

from __future__ import annotations

import select
import struct
import time
from collections.abc import Mapping
from typing import NamedTuple

from psycopg import OperationalError, pq
from psycopg.conninfo import make_conninfo

from headrace.connect.api import ConnectorError, TryAgain
from headrace.connect.postgres.pgoutput import POSTGRES_EPOCH_MS, lsn_text, parse_lsn

SESSION = (
    "-c client_encoding=UTF8 -c datestyle=ISO -c timezone=UTC -c bytea_output=hex -c extra_float_digits=3 "
    "-c intervalstyle=iso_8601"
)
"""Settings that give values the same text whatever the settings of the server, the database and the user are."""
_DATA = struct.Struct(">cqqq")
_KEEPALIVE = struct.Struct(">cqqb")
_STATUS = struct.Struct(">cqqqqb")
OBJECT_IN_USE = "55006"
_MAY_PASS = (OBJECT_IN_USE, "42710", "42P07", "42701")
"""SQLSTATEs that may pass: a slot that is in use; an object, table or column that was just created."""
_USER_MUST_ACT = ("28", "42", "0A", "22", "3D")
"""Classes of SQLSTATE that do not pass: password, rights and names, not supported, values, the database."""


class StreamData(NamedTuple):
    message: bytes


class Keepalive(NamedTuple):
    end_lsn: int
    """Everything before it that concerns the slot has been sent."""
    reply_wanted: bool


class NewSlot(NamedTuple):
    consistent_lsn: int
    """Commits before it are in the snapshot, commits from it on in the stream."""
    snapshot: str | None


class ReplicationConnection:
    def __init__(self, conninfo: str) -> None:
        text = make_conninfo(conninfo, replication="database", options=SESSION)
        self._pgconn = pq.PGconn.connect(text.encode())
        if self._pgconn.status != pq.ConnStatus.OK:
            problem = self._pgconn.error_message.decode(errors="replace").strip()
            self._pgconn.finish()
            raise connect_problem(problem)

    def close(self) -> None:
        self._pgconn.finish()

    def create_slot(self, name: str, *, temporary: bool) -> NewSlot:
        """Create a slot. A temporary one ends with the connection; its snapshot lives until the next command."""
        kind = f'"{name}" TEMPORARY' if temporary else f'"{name}"'
        action = "EXPORT_SNAPSHOT" if temporary else "NOEXPORT_SNAPSHOT"
        (row,) = self._rows(f"CREATE_REPLICATION_SLOT {kind} LOGICAL pgoutput {action}")
        return NewSlot(parse_lsn(row["consistent_point"] or ""), row["snapshot_name"])

    def start(self, slot: str, lsn: int, publication: str) -> None:
        self._execute(
            f'START_REPLICATION SLOT "{slot}" LOGICAL {lsn_text(lsn)} '
            f"(proto_version '1', publication_names '{publication}')",
            pq.ExecStatus.COPY_BOTH,
        )

    def receive(self, timeout_s: float) -> StreamData | Keepalive | None:
        """The next message that arrives within that time."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                count, data = self._pgconn.get_copy_data(1)
            except OperationalError as error:
                raise _lost(error) from None
            if count > 0:
                found = _received(bytes(data))
                if found is not None:
                    return found
                continue
            if count < 0:
                raise TryAgain(f"PostgreSQL has ended the stream: {self._problem()}")
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return None
            select.select([self._pgconn.socket], [], [], left_s)
            self._consume()

    def report(self, flushed_lsn: int, *, reply_wanted: bool = False) -> None:
        """Report that everything before this position is stored: the server may remove it."""
        clock_us = (time.time_ns() // 1_000_000 - POSTGRES_EPOCH_MS) * 1000
        status = _STATUS.pack(b"r", flushed_lsn, flushed_lsn, flushed_lsn, clock_us, reply_wanted)
        try:
            self._pgconn.put_copy_data(status)
            self._pgconn.flush()
        except OperationalError as error:
            raise _lost(error) from None

    def _consume(self) -> None:
        try:
            self._pgconn.consume_input()
        except OperationalError as error:
            raise _lost(error) from None

    def _rows(self, command: str) -> list[Mapping[str, str | None]]:
        result = self._execute(command, pq.ExecStatus.TUPLES_OK)
        names = [(result.fname(index) or b"").decode() for index in range(result.nfields)]
        rows: list[Mapping[str, str | None]] = []
        for row in range(result.ntuples):
            values = [result.get_value(row, index) for index in range(result.nfields)]
            texts = [None if value is None else bytes(value).decode() for value in values]
            rows.append(dict(zip(names, texts, strict=True)))
        return rows

    def _execute(self, command: str, expected: pq.ExecStatus) -> pq.abc.PGresult:
        result = self._pgconn.exec_(command.encode())
        if result.status != expected:
            state = (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()
            raise problem_of(state, result.error_message.decode(errors="replace").strip())
        return result

    def _problem(self) -> str:
        result = self._pgconn.get_result()
        told = result.error_message if result is not None else self._pgconn.error_message
        return told.decode(errors="replace").strip() or "without a reason"


def _lost(error: OperationalError) -> TryAgain:
    return TryAgain(f"the connection to PostgreSQL was lost: {error}")


def _received(data: bytes) -> StreamData | Keepalive | None:
    if data[:1] == b"w":
        return StreamData(data[_DATA.size :])
    if data[:1] == b"k":
        _, end_lsn, _, reply_wanted = _KEEPALIVE.unpack(data)
        return Keepalive(end_lsn, bool(reply_wanted))
    return None


def problem_of(state: str, told: str) -> Exception:
    """The error of the run for an error of PostgreSQL."""
    told = told.removeprefix("ERROR:").strip()
    if state == OBJECT_IN_USE:
        told += " (another run of this connector? It can only run once at a time)"
    if state in _MAY_PASS or not state.startswith(_USER_MUST_ACT):
        return TryAgain(f"PostgreSQL says: {told}")
    return ConnectorError(f"PostgreSQL says: {told}")


def connect_problem(told: str) -> Exception:
    """The error for a failed connection: a server may come back, but a wrong password stays wrong."""
    final = (
        "authentication failed",
        "does not exist",
        "no pg_hba.conf entry",
        "no password supplied",
        "permission",
        "replication role",
        "certificate",
        "does not support SSL",
    )
    kind = ConnectorError if any(sign in told for sign in final) else TryAgain
    return kind(f"PostgreSQL cannot be reached: {told}")
