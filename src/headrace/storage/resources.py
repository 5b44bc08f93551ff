"""What all logs of a directory share: the world, bounded caches for old segments, files waiting to be removed."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from headrace.env import Env
from headrace.storage.files import OpenFile
from headrace.storage.health import DirectoryHealth
from headrace.storage.segment_index import SegmentIndex
from headrace.storage.strays import Strays
from headrace.storage.transaction_index import TransactionIndex

if TYPE_CHECKING:
    from headrace.storage.segment import Segment

DEFAULT_INDEX_CACHE_BYTES = 16 * 1024 * 1024
MAX_OPEN_OLD_FILES = 512


class FileCache:
    """The most recently used files of old segments; one that went closes when its last range is sent."""

    __slots__ = ("_files", "_limit")

    def __init__(self, limit: int = MAX_OPEN_OLD_FILES) -> None:
        self._limit = limit
        self._files: OrderedDict[Segment, OpenFile] = OrderedDict()

    def get(self, segment: Segment) -> OpenFile | None:
        """Hold on to the result while using its descriptor: the cache may drop it at any moment."""
        # Taken out and put in again, each in one step: searches by time run in threads.
        file = self._files.pop(segment, None)
        if file is not None:
            self._files[segment] = file
        return file

    def put(self, segment: Segment, file: OpenFile) -> None:
        self._files[segment] = file
        if len(self._files) > self._limit:
            self._files.popitem(last=False)

    def drop(self, segment: Segment) -> None:
        self._files.pop(segment, None)


class _Index(Protocol):
    @property
    def memory_bytes(self) -> int: ...


IndexT = TypeVar("IndexT", bound=_Index)


class IndexCache(Generic[IndexT]):
    """The indexes of old segments, the least recently used given up first."""

    __slots__ = ("_changing", "_indexes", "_limit_bytes", "used_bytes")

    def __init__(self, limit_bytes: int = DEFAULT_INDEX_CACHE_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._indexes: OrderedDict[Segment, IndexT] = OrderedDict()
        self.used_bytes = 0
        self._changing = Lock()
        """Searches by time run in threads."""

    def get(self, segment: Segment) -> IndexT | None:
        index = self._indexes.get(segment)
        if index is not None:
            # Without the lock: it may have gone between the two steps, but what was found is still right.
            try:
                self._indexes.move_to_end(segment)
            except KeyError:
                return index
        return index

    def put(self, segment: Segment, index: IndexT) -> None:
        with self._changing:
            self._forget(segment)
            self._indexes[segment] = index
            self.used_bytes += index.memory_bytes
            while self.used_bytes > self._limit_bytes and len(self._indexes) > 1:
                _, oldest = self._indexes.popitem(last=False)
                self.used_bytes -= oldest.memory_bytes

    def drop(self, segment: Segment) -> None:
        with self._changing:
            self._forget(segment)

    def _forget(self, segment: Segment) -> None:
        index = self._indexes.pop(segment, None)
        if index is not None:
            self.used_bytes -= index.memory_bytes


class Graveyard:
    """Files and directories renamed away that are removed some time later, off the loop's thread.

    Whatever is still here when the process ends carries its suffix and is removed at the next start.
    """

    __slots__ = ("_env", "_waiting")

    def __init__(self, env: Env) -> None:
        self._env = env
        self._waiting: list[tuple[float, str, bool]] = []

    def add_file(self, path: str, delay_ms: int) -> None:
        self._waiting.append((self._env.clock.monotonic() + delay_ms / 1000, path, False))

    def add_directory(self, path: str, delay_ms: int) -> None:
        self._waiting.append((self._env.clock.monotonic() + delay_ms / 1000, path, True))

    def take_due(self) -> list[tuple[str, bool]]:
        """(path, is a directory) of everything whose time has come; the caller removes it with `remove`."""
        now = self._env.clock.monotonic()
        due = [(path, is_directory) for at, path, is_directory in self._waiting if at <= now]
        self._waiting = [entry for entry in self._waiting if entry[0] > now]
        return due

    def remove(self, due: list[tuple[str, bool]]) -> None:
        """Blocking. A file that is gone already (with its directory) counts as removed."""
        for path, is_directory in due:
            try:
                (self._env.disk.remove_tree if is_directory else self._env.disk.unlink)(path)
            except FileNotFoundError:
                continue


@dataclass(frozen=True, slots=True)
class StorageResources:
    env: Env
    index_cache: IndexCache[SegmentIndex]
    file_cache: FileCache
    graveyard: Graveyard
    strays: Strays
    transaction_cache: IndexCache[TransactionIndex] = field(default_factory=IndexCache)
    health: DirectoryHealth = field(default_factory=DirectoryHealth)

    @classmethod
    def create(cls, env: Env, path: str = "") -> StorageResources:
        return cls(env, IndexCache(), FileCache(), Graveyard(env), Strays(env), health=DirectoryHealth(path))
