"""The coordination store: a small tree of versioned nodes that all brokers share (architecture D4).

The primitives are few and dumb on purpose, and mean what ZooKeeper's mean; all of Kafka's semantics live above.
- A path is '/a/b'. A node holds bytes and a version, which is 0 when created and grows by one with each put.
- A node needs its parent; a node with children cannot be deleted; an ephemeral node has no children.
- An ephemeral node goes when the session that created it ends: closed, expired, or its process dead.
- `multi` does all of its operations, in order, or none.
- A watch is called after a change of the node or of the set of its children. It may come late, once for many
  changes, or once too often, but never before the change can be read, and never not at all: watch, then read.
- What a call has written is durable when it returns. `Unknown` says that nobody can tell whether it was.

A store object belongs to one event loop and is one session. After `SessionLost` it is of no use: open another.

A session is a lease of `timeout` seconds. It lasts while `renew` is called, by the owner's loop and by nothing
else: a thread of a driver is no proof that the broker works. `deadline` is the moment, by `Clock.boottime`, until
which nobody else can have ended the session: `timeout` after the last renewal that was confirmed had been *sent*,
less a margin. After it the session may be lost or not; a later renewal tells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

MAX_WRITE_BYTES = 1_000_000
"""All operations of one write together: ZooKeeper refuses requests of 1 MiB."""
OP_OVERHEAD_BYTES = 64
"""What an operation takes beside its path and value; no less than in ZooKeeper's format."""
ANY_VERSION = -1
"""As an expected version: whatever it is."""


class StoreError(Exception):
    """A call that did nothing (but see `Unknown`); `path` is the node that stood in the way."""

    def __init__(self, path: str, detail: str = "") -> None:
        super().__init__(f"{type(self).__name__} {path}{': ' if detail else ''}{detail}")
        self.path = path


class NodeExists(StoreError):
    """Create found the node there already."""


class NoNode(StoreError):
    """The node, or the parent of one to be created, is not there."""


class BadVersion(StoreError):
    """The node has changed since: its version is not the expected one."""


class NotEmpty(StoreError):
    """Delete found children below the node."""


class NoChildrenForEphemerals(StoreError):
    """Create below an ephemeral node."""


class SessionLost(StoreError):
    """This store's session has ended and its ephemeral nodes with it."""


class Unknown(StoreError):
    """The connection or the file failed under the call: the write may have happened or not."""

    def __str__(self) -> str:
        """For people: what it means for a write is the caller's business."""
        return super().__str__().removeprefix(f"{type(self).__name__} ")


class AccessDenied(StoreError):
    """The store belongs to others, or to a login that this broker does not have."""

    def __str__(self) -> str:
        return (
            f"ZooKeeper denies access to {self.path}: it belongs to another login than the one in "
            "headrace.zookeeper.digest, or none is set"
        )


class IncompatibleStore(StoreError):
    """What is there is not a store, or one of a newer release; nothing was touched."""


@dataclass(frozen=True, slots=True)
class TreeNode:
    value: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Create:
    path: str
    value: bytes
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class Put:
    path: str
    value: bytes
    expected_version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    path: str
    expected_version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """The node is there and has this version; otherwise the whole `multi` fails."""

    path: str
    expected_version: int = ANY_VERSION


Op = Create | Put | Delete | Check


class Watch(Protocol):
    def cancel(self) -> None:
        """No call comes after this returns."""
        ...


class Session(Protocol):
    @property
    def id(self) -> str:
        """Never the same for two sessions of one store."""
        ...

    @property
    def lost(self) -> bool: ...

    @property
    def timeout(self) -> float:
        """Seconds without a renewal after which others may end the session."""
        ...

    @property
    def deadline(self) -> float:
        """Until then, by `Clock.boottime`, the session is surely alive; minus infinity once it is lost."""
        ...

    def on_lost(self, callback: Callable[[], None]) -> None:
        """Call back on the loop once the session has ended other than by `close` (at once if it has)."""
        ...


class Store(Protocol):
    @property
    def session(self) -> Session: ...

    async def get(self, path: str) -> TreeNode | None: ...

    async def get_many(self, paths: Sequence[str]) -> list[TreeNode | None]:
        """As many `get`s, cheaper; not one moment's picture unless the driver can."""
        ...

    async def children(self, path: str) -> list[str]:
        """The names (not paths) of the children, sorted; none if the node is not there."""
        ...

    async def create(
        self, path: str, value: bytes, *, ephemeral: bool = False, make_parents: bool = False
    ) -> None: ...

    async def ensure(self, path: str) -> None:
        """Create the node, empty, and its parents where they are missing."""
        ...

    async def put(self, path: str, value: bytes, expected_version: int) -> int:
        """Replace the value; returns the new version."""
        ...

    async def delete(self, path: str, expected_version: int) -> None: ...

    async def multi(self, ops: Sequence[Op]) -> list[int]:
        """All or nothing. Returns each node's version after its operation (-1 for a deleted one)."""
        ...

    async def watch(self, path: str, callback: Callable[[], None]) -> Watch:
        """Call back on the loop after each change from now on; the node need not be there yet."""
        ...

    async def renew(self) -> None:
        """Ask for another `timeout`, and move the deadline once it is granted.

        `Unknown` leaves the deadline as it was; `SessionLost` if the session has ended meanwhile.
        """
        ...

    async def close(self) -> None:
        """End the session, its ephemeral nodes and watches."""
        ...


def parent_of(path: str) -> str:
    """'/a/b' -> '/a', '/a' -> '/'."""
    return path[: path.rindex("/")] or "/"


def ancestors_of(path: str) -> Iterable[str]:
    """'/a/b/c' -> '/a', '/a/b'."""
    position = path.find("/", 1)
    while position > 0:
        yield path[:position]
        position = path.find("/", position + 1)


def check_size(ops: Sequence[Op]) -> None:
    """A write that ZooKeeper would refuse is our bug, whatever the driver: large decisions are cut."""
    size = sum(len(op.path) + len(getattr(op, "value", b"")) + OP_OVERHEAD_BYTES for op in ops)
    assert size <= MAX_WRITE_BYTES, (
        f"a write of {len(ops)} operations has {size} bytes, over {MAX_WRITE_BYTES}: split it"
    )


def check_path(path: str) -> None:
    """Paths are made by our own code: a malformed one is our bug."""
    assert path.startswith("/"), path
    assert path != "/", path
    assert not path.endswith("/"), path
    assert "//" not in path, path
