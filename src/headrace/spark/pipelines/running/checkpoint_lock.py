"""One run at a time may use a checkpoint, whatever it is called and wherever its other files are.

The lock is a file in the pipeline's checkpoint directory, `.lock`, held (flock) until the process ends, however it
ends. It says who holds it. Where there can be no such file (HDFS, an object store, a directory that only Spark may
write to), the lock is in the state directory and holds for this machine and user. Of runs on two machines Spark
then stops the one that finds the other's entry in its log.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import socket
from pathlib import Path
from urllib.parse import unquote, urlsplit

from headrace.spark.pipelines.running.run_files import state_directory


class CheckpointInUse(Exception):
    """Another run, of this or another machine, uses the same checkpoint."""

    def __init__(self, directory: str, holder: str) -> None:
        by = f" by {holder}" if holder else ""
        super().__init__(f"The checkpoint {directory} is in use{by}")


class CheckpointLock:
    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._descriptor = -1

    def __enter__(self) -> None:
        descriptor = self._open()
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 1000, 0).decode(errors="replace").strip()
            os.close(descriptor)
            raise CheckpointInUse(self._directory, holder) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        self._descriptor = descriptor

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def _open(self) -> int:
        local = local_path(self._directory)
        if local is not None:
            # Not ours to write to: Spark will say so if it cannot either.
            with contextlib.suppress(OSError):
                return _opened(local / ".lock")
        name = hashlib.sha256(self._directory.encode()).hexdigest()[:32]
        return _opened(state_directory() / "checkpoint-locks" / name)


def local_path(directory: str) -> Path | None:
    """None for an address of something else than this machine's files."""
    if "://" not in directory and not directory.startswith("file:"):
        return Path(directory)
    parts = urlsplit(directory)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def _opened(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
