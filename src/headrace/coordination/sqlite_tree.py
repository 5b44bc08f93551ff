"""The tree of nodes in one SQLite file: every call blocks, and belongs to the one thread that opened it.

What SQLite itself raises (`sqlite3.Error`: full disk, I/O error, busy for too long) passes through to the caller.

Format (WAL mode, synchronous=FULL, `user_version` is the schema version):
- nodes(parent, name): '/a/b' is ('/a', 'b'). `modified` and `children_modified` are the number of the transaction
  that last changed the value or the set of children: a watch compares them, so it also sees what other
  processes did, and a node that was deleted and created again.
- sessions(token): those with ephemeral nodes. Each has a file `<store>.sessions/<token>` with a lock and a lease
  (`sqlite_sessions`). Whoever can take the lock, or sees that the lease has ended, removes session and nodes.
Session files are made and removed only inside a write transaction, so no two processes disagree about one.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from headrace.coordination.contract import (
    ANY_VERSION,
    BadVersion,
    Check,
    Create,
    Delete,
    IncompatibleStore,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Op,
    Put,
    SessionLost,
    TreeNode,
    ancestors_of,
)
from headrace.coordination.sqlite_sessions import SessionFile, overdue, remove
from headrace.env import Disk, Env
from headrace.env.env import CREATE, READ_WRITE

SCHEMA_VERSION = 1
BUSY_TIMEOUT_SECONDS = 10.0
"""How long a write waits for other processes' writes."""
WAL_ATTEMPTS = 100

Stamp = tuple[int, int]
"""When a node's value and its set of children last changed."""

ABSENT: Stamp = (-1, -1)

_logger = logging.getLogger(__name__)

_SCHEMA = (
    """CREATE TABLE nodes (
        parent TEXT NOT NULL, name TEXT NOT NULL, value BLOB NOT NULL, version INTEGER NOT NULL, session TEXT,
        modified INTEGER NOT NULL, children_modified INTEGER NOT NULL, PRIMARY KEY (parent, name)
    ) WITHOUT ROWID""",
    "CREATE INDEX ephemerals ON nodes (session) WHERE session IS NOT NULL",
    "CREATE TABLE sessions (token TEXT PRIMARY KEY) WITHOUT ROWID",
    "CREATE TABLE transactions (last INTEGER NOT NULL)",
    "INSERT INTO transactions VALUES (0)",
    "INSERT INTO nodes VALUES ('', '', x'', 0, NULL, 0, 0)",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)


class SqliteTree:
    """One connection, one session."""

    def __init__(self, env: Env, path: str, token: str, timeout: float) -> None:
        self._disk = env.disk
        self._clock = env.clock
        self._path = path
        self._token = token
        self._timeout = timeout
        self.session_file = SessionFile(env.disk, env.clock, self._session_file(token), timeout)
        self._last_look = env.clock.boottime()
        self._judges_from = self._last_look
        self._other_sessions: list[str] | None = None
        """The sessions as last read; None when they may have changed."""
        self._transaction = 0
        self._touched_parents: set[str] = set()
        self.wrote = False
        """Set by each of our commits; the owner clears it when it has checked its watches."""
        self._disk.make_directory(self._session_directory())
        self._connection = _open(self._disk, path)
        self._data_version = self._read_data_version()
        self.remove_dead_sessions()
        self._sweep_session_files()

    # Reading

    def get(self, path: str) -> TreeNode | None:
        row = self._connection.execute(
            "SELECT value, version FROM nodes WHERE parent = ? AND name = ?", _split(path)
        ).fetchone()
        return TreeNode(*row) if row else None

    def get_many(self, paths: Sequence[str]) -> list[TreeNode | None]:
        self._connection.execute("BEGIN")
        try:
            return [self.get(path) for path in paths]
        finally:
            self._connection.execute("ROLLBACK")

    def children(self, path: str) -> list[str]:
        rows = self._connection.execute("SELECT name FROM nodes WHERE parent = ? ORDER BY name", (path,))
        return [name for (name,) in rows]

    def stamp(self, path: str) -> Stamp:
        row = self._connection.execute(
            "SELECT modified, children_modified FROM nodes WHERE parent = ? AND name = ?", _split(path)
        ).fetchone()
        return (row[0], row[1]) if row else ABSENT

    def look_for_others(self) -> None:
        """Note whether another connection has committed since the last look."""
        before, self._data_version = self._data_version, self._read_data_version()
        if before != self._data_version:
            self._other_sessions = None
            self.wrote = True

    def _read_data_version(self) -> int:
        return int(self._connection.execute("PRAGMA data_version").fetchone()[0])

    # Writing

    def apply(self, ops: Sequence[Op], make_parents: bool = False) -> list[int]:
        with self._write():
            for op in ops:
                if make_parents:
                    self._make_parents(op.path)
                if isinstance(op, Create) and op.ephemeral:
                    self._begin_session()
            return [self._apply(op) for op in ops]

    def ensure(self, path: str) -> None:
        if self.get(path) is None:
            with self._write():
                self._make_parents(f"{path}/")

    def _apply(self, op: Op) -> int:
        match op:
            case Create():
                return self._create(op)
            case Put():
                return self._put(op)
            case Delete():
                return self._delete(op)
            case Check():
                return self._expect(op.path, op.expected_version)

    def _create(self, op: Create) -> int:
        parent, name = _split(op.path)
        row = self._connection.execute(
            "SELECT session FROM nodes WHERE parent = ? AND name = ?", _split(parent)
        ).fetchone()
        if row is None:
            raise NoNode(parent, "the parent is missing")
        if row[0] is not None:
            raise NoChildrenForEphemerals(parent)
        owner = self._token if op.ephemeral else None
        try:
            self._connection.execute(
                "INSERT INTO nodes VALUES (?, ?, ?, 0, ?, ?, ?)",
                (parent, name, op.value, owner, self._transaction, self._transaction),
            )
        except sqlite3.IntegrityError as error:
            raise NodeExists(op.path) from error
        self._touched_parents.add(parent)
        return 0

    def _put(self, op: Put) -> int:
        version = self._expect(op.path, op.expected_version) + 1
        self._connection.execute(
            "UPDATE nodes SET value = ?, version = ?, modified = ? WHERE parent = ? AND name = ?",
            (op.value, version, self._transaction, *_split(op.path)),
        )
        return version

    def _delete(self, op: Delete) -> int:
        self._expect(op.path, op.expected_version)
        if self._connection.execute("SELECT 1 FROM nodes WHERE parent = ? LIMIT 1", (op.path,)).fetchone():
            raise NotEmpty(op.path)
        parent, name = _split(op.path)
        self._connection.execute("DELETE FROM nodes WHERE parent = ? AND name = ?", (parent, name))
        self._touched_parents.add(parent)
        return -1

    def _expect(self, path: str, expected_version: int) -> int:
        row = self._connection.execute(
            "SELECT version FROM nodes WHERE parent = ? AND name = ?", _split(path)
        ).fetchone()
        if row is None:
            raise NoNode(path)
        version = int(row[0])
        if expected_version not in (ANY_VERSION, version):
            raise BadVersion(path, f"expected {expected_version}, found {version}")
        return version

    def _make_parents(self, path: str) -> None:
        for ancestor in ancestors_of(path):
            if self.get(ancestor) is None:
                self._create(Create(ancestor, b""))

    @contextmanager
    def _write(self) -> Iterator[None]:
        """One durable transaction; whatever is raised inside undoes all of it."""
        began_before = self.session_file.begun
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            self._check_session()
            (last,) = self._connection.execute("SELECT last FROM transactions").fetchone()
            self._transaction = last + 1
            self._touched_parents.clear()
            yield
            self._connection.executemany(
                "UPDATE nodes SET children_modified = ? WHERE parent = ? AND name = ?",
                [(self._transaction, *_split(parent)) for parent in self._touched_parents],
            )
            self._connection.execute("UPDATE transactions SET last = ?", (self._transaction,))
            self._connection.execute("COMMIT")
        except BaseException:
            self._roll_back(began_before)
            raise
        self.wrote = True

    def _roll_back(self, began_before: bool) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")
        if not began_before:
            self.session_file.end()

    # Sessions

    def session_alive(self) -> bool:
        """False once somebody has removed our session; before our first ephemeral node there is none to remove."""
        return not self.session_file.begun or self._session_row(self._token)

    def renew_late(self, sent: float) -> None:
        """Renew a lease that has ended, unless the session was already removed for that."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            self._check_session()
            self.session_file.revive(sent)
        finally:
            self._connection.execute("ROLLBACK")

    def end_session(self) -> None:
        if self.session_file.begun and self._session_row(self._token):
            with self._write():
                self._remove_session(self._token)
        self.session_file.end()

    def close(self) -> None:
        self._connection.close()
        self.session_file.end()

    def remove_dead_sessions(self) -> None:
        """Remove sessions of dead processes at once, and of stopped or stuck ones when their lease has ended."""
        judges = self._judges_leases()
        if self._other_sessions is None:
            rows = self._connection.execute("SELECT token FROM sessions WHERE token <> ?", (self._token,))
            self._other_sessions = [token for (token,) in rows]
        for token in self._other_sessions:
            lock = self._disk.lock(self._session_file(token))
            if lock is not None:
                self._bury(token, lock)
                self._other_sessions = None
            elif judges and overdue(self._disk, self._clock, self._session_file(token)):
                self._remove_overdue(token)
                self._other_sessions = None

    def _judges_leases(self) -> bool:
        """Whether leases are checked: a broker that was away itself (a machine that slept) first gives the others
        time to renew."""
        now = self._clock.boottime()
        if now - self._last_look > self._timeout / 2:
            self._judges_from = now + self._timeout / 2
        self._last_look = now
        return now >= self._judges_from

    def _remove_overdue(self, token: str) -> None:
        with self._write():
            # Under the write lock a late owner cannot renew any more: look once again.
            if self._session_row(token) and overdue(self._disk, self._clock, self._session_file(token)):
                self._remove_session(token)
                remove(self._disk, self._session_file(token))
                _logger.warning("Removed session %s: its process is running but has not renewed its lease", token)

    def _bury(self, token: str, lock: int) -> None:
        try:
            with self._write():
                if self._session_row(token):
                    self._remove_session(token)
                remove(self._disk, self._session_file(token))
        finally:
            self._disk.close(lock)

    def _remove_session(self, token: str) -> None:
        rows = self._connection.execute("SELECT parent FROM nodes WHERE session = ?", (token,))
        self._touched_parents.update(parent for (parent,) in rows)
        self._connection.execute("DELETE FROM nodes WHERE session = ?", (token,))
        self._connection.execute("DELETE FROM sessions WHERE token = ?", (token,))

    def _begin_session(self) -> None:
        if self.session_file.begun:
            return
        self.session_file.begin()
        self._connection.execute("INSERT INTO sessions VALUES (?)", (self._token,))

    def _check_session(self) -> None:
        if not self.session_alive():
            raise SessionLost(self._path, "the session was removed by another process")

    def _session_row(self, token: str) -> bool:
        found = self._connection.execute("SELECT 1 FROM sessions WHERE token = ?", (token,)).fetchone()
        return found is not None

    def _sweep_session_files(self) -> None:
        """Remove files of sessions that never came to be: their process died before its first commit."""
        directory = self._session_directory()
        if all(self._session_row(token) for token in self._disk.list_directory(directory)):
            return
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            for token in self._disk.list_directory(directory):
                if not self._session_row(token):
                    remove(self._disk, self._session_file(token))
        finally:
            self._connection.execute("ROLLBACK")

    def _session_directory(self) -> str:
        return f"{self._path}.sessions"

    def _session_file(self, token: str) -> str:
        return f"{self._session_directory()}/{token}"


def _split(path: str) -> tuple[str, str]:
    position = path.rindex("/")
    if position == 0:
        return ("/", path[1:]) if len(path) > 1 else ("", "")
    return path[:position], path[position + 1 :]


def _open(disk: Disk, path: str) -> sqlite3.Connection:
    if not disk.exists(path):
        # SQLite would create it readable by all; its companions take the mode of this one.
        disk.close(disk.open(path, READ_WRITE | CREATE))
    connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_SECONDS, isolation_level=None)
    try:
        _check_schema(connection, path)
        connection.execute("PRAGMA synchronous = FULL")
    except BaseException:
        connection.close()
        raise
    return connection


def _check_schema(connection: sqlite3.Connection, path: str) -> None:
    try:
        version = _schema_version(connection)
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError):
            raise
        raise IncompatibleStore(path, f"this is not a coordination store ({error})") from error
    if version == 0:
        version = _create_schema(connection)
    if version > SCHEMA_VERSION:
        detail = (
            f"its format {version} is newer than {SCHEMA_VERSION}, which this release knows; use a newer release"
        )
        raise IncompatibleStore(path, detail)


def _create_schema(connection: sqlite3.Connection) -> int:
    _switch_to_wal(connection)
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Another process may have made it while we waited.
        if _schema_version(connection) == 0:
            for statement in _SCHEMA:
                connection.execute(statement)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # SQLite itself rolls back where the disk is full
            connection.execute("ROLLBACK")
        raise
    return _schema_version(connection)


def _switch_to_wal(connection: sqlite3.Connection) -> None:
    """Switch to WAL mode. SQLite does not wait for others here, and processes that start together all try it."""
    for _ in range(WAL_ATTEMPTS):
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorname != "SQLITE_BUSY":
                raise
        # This statement waits: afterwards whoever was in the way is done.
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
    connection.execute("PRAGMA journal_mode = WAL")


def _schema_version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])
