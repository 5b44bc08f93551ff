"""The data files of a table, through pyarrow's file systems."""

from __future__ import annotations

import os
from contextlib import suppress

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from headrace.spark.delta.table import TableOptions


class TableFiles:
    def __init__(self, system: fs.FileSystem, root: str) -> None:
        self._system = system
        self._root = root.rstrip("/")
        self._folders = isinstance(system, fs.LocalFileSystem)

    @classmethod
    def open(cls, options: TableOptions) -> TableFiles:
        if "://" not in options.path:
            return cls(fs.LocalFileSystem(), os.path.abspath(options.path))
        address = options.path.replace("s3a://", "s3://", 1)  # as Hadoop calls it; pyarrow knows only the other
        if address.startswith("s3://") and options.storage:
            return cls(_s3(options), address.partition("://")[2])
        return cls(*fs.FileSystem.from_uri(address))

    def write(self, path: str, data: bytes) -> None:
        full = f"{self._root}/{path}"
        if self._folders:
            self._system.create_dir(full.rpartition("/")[0], recursive=True)
        with self._system.open_output_stream(full) as stream:
            stream.write(data)

    def read(self, path: str, columns: list[str]) -> pa.Table:
        with self._system.open_input_file(f"{self._root}/{path}") as file:
            return pq.ParquetFile(file).read(columns)

    def text(self, path: str) -> str | None:
        try:
            with self._system.open_input_stream(f"{self._root}/{path}") as stream:
                return stream.read().decode()
        except FileNotFoundError:
            return None

    def delete(self, path: str) -> None:
        with suppress(FileNotFoundError):
            self._system.delete_file(f"{self._root}/{path}")


def _s3(options: TableOptions) -> fs.FileSystem:
    """With the same settings that deltalake's own store is given."""
    given = options.storage
    endpoint = given.get("AWS_ENDPOINT_URL", "")
    return fs.S3FileSystem(
        access_key=given.get("AWS_ACCESS_KEY_ID"),
        secret_key=given.get("AWS_SECRET_ACCESS_KEY"),
        session_token=given.get("AWS_SESSION_TOKEN"),
        region=given.get("AWS_REGION"),
        scheme=endpoint.partition("://")[0] or None,
        endpoint_override=endpoint.partition("://")[2] or None,
    )
