"""A disk in memory that knows what was synced, and what a crash of the machine takes.

Data. A file's writes are pending until it is synced. When the machine crashes, some of the pending writes have
reached the disk, in order, and the last of those may be torn or read as zeros.
Names. Creating, renaming and removing are journalled: any sync commits the journal, a crash keeps a part of it, in
order, as ext4 and XFS do.
A process that is killed loses nothing of that: the page cache is the machine's.

`ProcessDisk` is the disk as one process has it: its descriptors and locks end with it, and it can be made to die
at a chosen call (`die_after`), with what it was writing cut in half.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from functools import lru_cache

from headrace.env.env import EntryKind

CAPACITY_BYTES = 1 << 40
FIRST_DESCRIPTOR = 1000


class Killed(BaseException):
    """The process is gone: nothing may catch it and go on."""


class File:
    __slots__ = ("data", "durable", "modified_ms", "pending")

    def __init__(self) -> None:
        self.data = bytearray()
        self.durable = bytearray()
        self.pending: list[tuple[int, bytes | None]] = []
        """Writes by position; None is a cut to that size."""
        self.modified_ms = 0

    def write(self, position: int, data: bytes) -> None:
        _put(self.data, position, data)
        self.pending.append((position, data))

    def cut(self, size: int) -> None:
        _resize(self.data, size)
        self.pending.append((size, None))

    def sync(self) -> None:
        for position, data in self.pending:
            _apply(self.durable, position, data)
        self.pending = []

    def crash(self, rng: random.Random) -> None:
        """Keep what was synced and, by chance, some of what came after it."""
        kept = rng.randrange(len(self.pending) + 1) if self.pending else 0
        for position, data in self.pending[:kept]:
            _apply(self.durable, position, data)
        if kept < len(self.pending):
            position, data = self.pending[kept]
            if data is not None and rng.random() < 0.5:
                torn = data[: rng.randrange(len(data) + 1)]
                if rng.random() < 0.3:
                    torn += bytes(len(data) - len(torn))
                _put(self.durable, position, torn)
        self.pending = []
        self.data = bytearray(self.durable)


def _put(target: bytearray, position: int, data: bytes) -> None:
    if position > len(target):
        target.extend(bytes(position - len(target)))
    target[position : position + len(data)] = data


def _resize(target: bytearray, size: int) -> None:
    if size <= len(target):
        del target[size:]
    else:
        target.extend(bytes(size - len(target)))


def _apply(target: bytearray, position: int, data: bytes | None) -> None:
    if data is None:
        _resize(target, position)
    else:
        _put(target, position, data)


Names = dict[str, File | None]
"""What is at each path; None is a directory."""


class MachineDisk:
    def __init__(self, rng: random.Random, wall_ms: Callable[[], int]) -> None:
        self._rng = rng
        self.wall_ms = wall_ms
        self.names: Names = {"/": None}
        self._durable: Names = {"/": None}
        self._journal: list[Callable[[Names], None]] = []
        self.boots = 1
        self.full = False
        """Whether writes find no room."""
        self.broken = False
        """Whether syncs fail."""
        self.locks: dict[str, ProcessDisk] = {}

    def change(self, edit: Callable[[Names], None]) -> None:
        edit(self.names)
        self._journal.append(edit)

    def commit(self) -> None:
        """A sync takes the journal along."""
        for edit in self._journal:
            edit(self._durable)
        self._journal = []

    def crash(self) -> None:
        """Power is gone: what was neither synced nor lucky is lost."""
        kept = self._rng.randrange(len(self._journal) + 1)
        for edit in self._journal[:kept]:
            edit(self._durable)
        self._journal = []
        self.names = dict(self._durable)
        seen: dict[int, File] = {}
        for file in self.names.values():
            if file is not None:
                seen[id(file)] = file
        for file in seen.values():
            file.crash(self._rng)
        self.locks = {}
        self.boots += 1

    def wipe(self) -> None:
        """Another disk, which is empty."""
        self.names = {"/": None}
        self._durable = {"/": None}
        self._journal = []
        self.locks = {}
        self.boots += 1

    def entries(self, path: str) -> dict[str, EntryKind]:
        if path not in self.names:
            raise _missing(path)
        prefix = path.rstrip("/") + "/"
        found: dict[str, EntryKind] = {}
        for name, file in self.names.items():
            if name.startswith(prefix) and name != path and "/" not in name[len(prefix) :]:
                found[name[len(prefix) :]] = EntryKind.DIRECTORY if file is None else EntryKind.FILE
        return found


class ProcessDisk:
    def __init__(self, machine: MachineDisk, on_death: Callable[[], None]) -> None:
        self._machine = machine
        self._on_death = on_death
        self._open: dict[int, tuple[File | None, str]] = {}
        self._next = FIRST_DESCRIPTOR
        self._held: list[str] = []
        self.dead = False
        self._dies_after: int | None = None

    def die_after(self, changes: int) -> None:
        """Kill the process in the middle of the change after so many."""
        self._dies_after = changes

    def end(self) -> None:
        """The process is gone, and the kernel closes what it had open."""
        self.dead = True
        for path in self._held:
            if self._machine.locks.get(path) is self:
                del self._machine.locks[path]

    def _check(self) -> None:
        if self.dead:
            raise Killed

    def _change(self) -> bool:
        """Before every change. Whether this one is the last and cut in half."""
        self._check()
        if self._dies_after is None:
            return False
        self._dies_after -= 1
        return self._dies_after < 0

    def _die(self) -> None:
        self._on_death()
        raise Killed

    def _file(self, fd: int) -> File:
        file, path = self._open[fd]
        if file is None:
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return file

    # -- Disk

    def open(self, path: str, flags: int) -> int:
        self._check()
        path = _clean(path)
        names = self._machine.names
        if path not in names:
            if not flags & os.O_CREAT:
                raise _missing(path)
            if _parent(path) not in names:
                raise _missing(path)
            if self._machine.full:
                raise _no_room(path)
            if self._change():
                self._die()
            made = File()
            made.modified_ms = self._machine.wall_ms()

            def create(target: Names) -> None:
                target[path] = made

            self._machine.change(create)
        elif flags & os.O_CREAT and flags & os.O_EXCL:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        file = names[path]
        if file is not None and flags & os.O_TRUNC and file.data:
            if self._change():
                self._die()
            file.cut(0)
        self._next += 1
        self._open[self._next] = (file, path)
        return self._next

    def close(self, fd: int) -> None:
        self._open.pop(fd, None)

    def pread(self, fd: int, size: int, position: int) -> bytes:
        # Also for the dead: a check may look at what they left.
        return bytes(memoryview(self._file(fd).data)[position : position + size])

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, position: int) -> int:
        last = self._change()
        file = self._file(fd)
        raw = bytes(data)
        if self._machine.full and position + len(raw) > len(file.data):
            raise _no_room(self._open[fd][1])
        if last:
            file.write(position, raw[: len(raw) // 2])
            self._die()
        file.write(position, raw)
        file.modified_ms = self._machine.wall_ms()
        return len(raw)

    def size(self, fd: int) -> int:
        self._check()
        return len(self._file(fd).data)

    def truncate(self, fd: int, size: int) -> None:
        if self._change():
            self._die()
        self._file(fd).cut(size)

    def fsync(self, fd: int) -> None:
        self._check()
        file, path = self._open[fd]
        self._sync(path)
        if file is not None:
            file.sync()
        self._machine.commit()

    fdatasync = fsync

    def fsync_directory(self, path: str) -> None:
        self._check()
        if _clean(path) not in self._machine.names:
            raise _missing(path)
        self._sync(path)
        self._machine.commit()

    def _sync(self, path: str) -> None:
        if self._machine.broken:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    def sync_volume(self, fd: int) -> bool:
        self._check()
        self._sync(self._open[fd][1])
        for file in self._machine.names.values():
            if file is not None:
                file.sync()
        self._machine.commit()
        return True

    def exists(self, path: str) -> bool:
        self._check()
        return _clean(path) in self._machine.names

    def list_directory(self, path: str) -> list[str]:
        self._check()
        return list(self._machine.entries(_clean(path)))

    def list_entries(self, path: str) -> dict[str, EntryKind]:
        self._check()
        return self._machine.entries(_clean(path))

    def file_size(self, path: str) -> int:
        return len(self._at(path).data)

    def modified_ms(self, path: str) -> int:
        return self._at(path).modified_ms

    def _at(self, path: str) -> File:
        self._check()
        file = self._machine.names.get(_clean(path))
        if file is None:
            raise _missing(path)
        return file

    def make_directory(self, path: str) -> None:
        self._check()
        path = _clean(path)
        missing = []
        while path not in self._machine.names:
            missing.append(path)
            path = _parent(path)
        for name in reversed(missing):
            if self._machine.full:
                raise _no_room(name)
            if self._change():
                self._die()
            self._machine.change(_directory_maker(name))

    def rename(self, old: str, new: str) -> None:
        old, new = _clean(old), _clean(new)
        self._check()
        if old not in self._machine.names:
            raise _missing(old)
        if self._change():
            self._die()

        def move(target: Names) -> None:
            if target.get(old) is not None:
                target[new] = target.pop(old)
                return
            for name in [name for name in target if name == old or name.startswith(old + "/")]:
                target[new + name[len(old) :]] = target.pop(name)

        self._machine.change(move)

    def unlink(self, path: str) -> None:
        path = _clean(path)
        self._at(path)
        if self._change():
            self._die()

        def remove(target: Names) -> None:
            target.pop(path, None)

        self._machine.change(remove)

    def remove_tree(self, path: str) -> None:
        path = _clean(path)
        self._check()
        if path not in self._machine.names:
            raise _missing(path)
        if self._change():
            self._die()

        def remove(target: Names) -> None:
            for name in [name for name in target if name == path or name.startswith(path + "/")]:
                del target[name]

        self._machine.change(remove)

    def free_bytes(self, path: str) -> int:
        return 0 if self._machine.full else CAPACITY_BYTES // 2

    def total_bytes(self, path: str) -> int:
        return CAPACITY_BYTES

    def lock(self, path: str) -> int | None:
        path = _clean(path)
        if path in self._machine.locks:
            return None
        fd = self.open(path, os.O_RDWR | os.O_CREAT)
        self._machine.locks[path] = self
        self._held.append(path)
        return fd

    def boot_id(self) -> str:
        return f"boot-{self._machine.boots}"


def _directory_maker(path: str) -> Callable[[Names], None]:
    def make(target: Names) -> None:
        target[path] = None

    return make


@lru_cache(maxsize=4096)
def _clean(path: str) -> str:
    return os.path.normpath(path)


def _parent(path: str) -> str:
    return os.path.dirname(path) or "/"


def _missing(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def _no_room(path: str) -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
