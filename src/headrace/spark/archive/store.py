"""The files of an archive, in a folder of this machine or in any store that pyarrow knows (s3, gs, abfs, hdfs).

Names are relative to the archive, with slashes. Files appear atomically: on this machine it is written
under another name, synced, and renamed; in an object store a written object appears when it is complete.

One process writes at a time. On this machine a kernel lock ensures that; it ends with the process. Elsewhere a
file names the writer, and a writer that finds another name in it before a commit stops. That leaves a moment
between check and commit, so do not start two runs for one archive there.
"""

from __future__ import annotations

import fcntl
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
from pyarrow import fs

from headrace.spark.archive.errors import ArchiveError

OWN = "_headrace"
"""The folder for everything but data. Readers of Parquet folders skip names that begin with an underscore."""
LOCK = f"{OWN}/lock"
TEMPORARY = f"{OWN}/tmp"


class ArchiveStore:
    def __init__(self, uri: str, system: fs.FileSystem, root: str) -> None:
        self.uri = uri
        self.system = system
        self._root = root.rstrip("/")
        self.local = isinstance(system, fs.LocalFileSystem)
        self._writer = ""

    @classmethod
    def open(cls, uri: str) -> ArchiveStore:
        """Open an archive by its path, or by an address such as `s3://bucket/folder`."""
        try:
            if "://" not in uri:
                return cls(uri, fs.LocalFileSystem(), os.path.abspath(uri))
            system, root = fs.FileSystem.from_uri(uri.replace("s3a://", "s3://", 1))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
            raise ArchiveError(
                f"{uri} cannot be opened: {error}",
                "Give a path, or an address such as s3://bucket/folder, hdfs://host/folder, gs://bucket/folder.",
            ) from None
        if not root.strip("/"):
            raise ArchiveError(f"{uri} names no bucket or folder.", "Write it as s3://bucket/folder.")
        return cls(uri, system, root)

    def full(self, name: str) -> str:
        return f"{self._root}/{name}"

    def size(self, name: str) -> int | None:
        """The size of a file; None if it does not exist."""
        (found,) = self.system.get_file_info([self.full(name)])
        return int(found.size or 0) if found.type == fs.FileType.File else None

    def read(self, name: str) -> bytes | None:
        try:
            with self.system.open_input_stream(self.full(name)) as stream:
                return stream.read()
        except FileNotFoundError:
            return None

    def open_file(self, name: str) -> pa.NativeFile:
        return self.system.open_input_file(self.full(name))

    def names(self, folder: str) -> list[str]:
        """The names of all files in a folder and below it, in order."""
        selector = fs.FileSelector(self.full(folder), allow_not_found=True, recursive=True)
        start = len(self._root) + 1
        found = (one for one in self.system.get_file_info(selector) if one.type == fs.FileType.File)
        return sorted(one.path[start:] for one in found)

    def write(self, name: str, data: bytes) -> None:
        """Write a file, replacing an existing one."""
        if self.local:
            os.replace(self._written(data), self._placed(name))
            _sync_folder(Path(self.full(name)).parent)
        else:
            self._put(name, data)

    def create(self, name: str, data: bytes) -> bool:
        """Create a file. False if it exists already; it is not changed."""
        if not self.local:
            if self.size(name) is not None:
                return False
            self._put(name, data)
            return True
        written, path = self._written(data), self._placed(name)
        try:
            os.link(written, path)
        except FileExistsError:
            return False
        finally:
            os.unlink(written)
        _sync_folder(path.parent)
        return True

    def move(self, name: str, place: str) -> None:
        if self.local:
            os.replace(self.full(name), self._placed(place))
            _sync_folder(Path(self.full(place)).parent)
        else:
            self._make_folder(place)
            self.system.move(self.full(name), self.full(place))

    def delete(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self.system.delete_file(self.full(name))

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Prevents other writers inside the block."""
        if not self.local:
            self._writer = str(uuid.uuid4())
            self._put(LOCK, self._writer.encode())
            yield
            return
        path = self._placed(LOCK)
        with open(path, "a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ArchiveError(
                    f"Another run is writing to {self.uri}.", "Wait until it has finished."
                ) from None
            yield

    def check_writer(self) -> None:
        """Check before a commit that no other writer has taken over."""
        if not self.local and self.read(LOCK) != self._writer.encode():
            raise ArchiveError(
                f"Another run has started to write to {self.uri}.", "Leave it running; this one stops."
            )

    def _put(self, name: str, data: bytes) -> None:
        self._make_folder(name)
        with self.system.open_output_stream(self.full(name)) as stream:
            stream.write(data)

    def _make_folder(self, name: str) -> None:
        if not isinstance(self.system, fs.S3FileSystem | fs.GcsFileSystem):  # these have none
            self.system.create_dir(self.full(name).rpartition("/")[0], recursive=True)

    def _placed(self, name: str) -> Path:
        path = Path(self.full(name))
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def _written(self, data: bytes) -> Path:
        path = self._placed(f"{TEMPORARY}/{uuid.uuid4()}")
        with open(path, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        return path


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
