"""A directory whose files are read as they appear, each once, in the order of their age."""

from __future__ import annotations

import fnmatch
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from headrace.connect.api import ConnectorError, Position, Source, SourceBatch, SourceRecord, SourceTask
from headrace.connect.files.reading import FORMATS, format_of, read_values
from headrace.connect.options import ConfigOption, ConnectorConfig


class FilesSource(Source):
    """Rows of CSV (with a header) and Parquet, and lines of JSON, become JSON objects; lines of text stay as they
    are. Files that end in `.gz` are decompressed.

    A file counts as complete when it has not changed for `settle`. It is better to write it elsewhere and to move
    it into the directory. It is read once, under its name: one that changes afterwards is not read again.
    """

    summary = "Watches a directory: CSV, JSON lines, Parquet and text, each file once."
    options = (
        ConfigOption("directory", "text", "The directory to watch.", required=True),
        ConfigOption("topic", "text", "The topic to write to.", required=True),
        ConfigOption("pattern", "text", "Which files, such as `*.csv`.", "*"),
        ConfigOption("format", "text", "Format of the files.", "by extension", choices=("by extension", *FORMATS)),
        ConfigOption("key", "text", "A column that becomes the key of the records."),
        ConfigOption("delimiter", "text", "Separator of the fields of CSV.", "a comma; a tab in .tsv"),
        ConfigOption("settle", "duration", "How long a file must be unchanged before it is read.", "2s"),
        ConfigOption("interval", "duration", "How long to wait when there is nothing new.", "2s"),
        ConfigOption("batch_records", "whole number", "How many records are read at a time.", 1000, minimum=1),
    )

    def __init__(self, name: str, config: ConnectorConfig) -> None:
        super().__init__(name, config)
        self.idle_pause_s = config.seconds("interval")

    def open(self, task: str, position: Position | None) -> SourceTask:
        directory = Path(self.config.text("directory"))
        if not directory.is_dir():
            raise ConnectorError(f"there is no directory {directory}")
        return DirectoryTask(self.config, directory, position or {"done": {}, "file": None, "records": 0})


class DirectoryTask(SourceTask):
    """The position names the files that are done, with how many records they had, and how far the next is read.

    Of the files that are done only those stay in it that still exist: the position is as large as the directory.
    """

    def __init__(self, config: ConnectorConfig, directory: Path, position: Position) -> None:
        self._config = config
        self._directory = directory
        self._done: dict[str, int] = dict(position["done"])
        self._current: str | None = position["file"]
        self._records: int = position["records"]
        self._values: Iterator[bytes] | None = None

    def poll(self) -> SourceBatch | None:
        if self._current is None:
            waiting = self._waiting()
            if not waiting:
                return None
            self._current, self._records = waiting[0], 0
        if self._values is None:
            self._values = self._open(self._current)
        limit = self._config.number("batch_records")
        values = list(islice(self._values, limit))
        self._records += len(values)
        if len(values) < limit:
            self._finish()
        return SourceBatch([self._record(value) for value in values], self._position())

    def caught_up(self) -> bool:
        return self._current is None and not self._waiting(settled=False)

    def _waiting(self, settled: bool = True) -> Sequence[str]:
        """Files that are not done, the oldest first."""
        until = time.time() - (self._config.seconds("settle") if settled else 0.0)
        found = []
        for path in self._directory.iterdir():
            if path.name.startswith((".", "_")) or not fnmatch.fnmatch(path.name, self._config.text("pattern")):
                continue
            if path.name not in self._done and path.is_file():
                changed = path.stat().st_mtime
                if changed <= until:
                    found.append((changed, path.name))
        return [name for _, name in sorted(found)]

    def _open(self, name: str) -> Iterator[bytes]:
        path = self._directory / name
        format = self._config.text("format")
        if format == "by extension":
            known = format_of(path)
            if known is None:
                raise ConnectorError(
                    f"the extension of {path} names no known format: set format, or a pattern that excludes it"
                )
            format = known
        if not path.exists():
            raise ConnectorError(f"{path} was removed before all of it was read")
        delimiter = self._config.text("delimiter")
        return read_values(path, format, self._records, delimiter if len(delimiter) == 1 else None)

    def _finish(self) -> None:
        assert self._current is not None
        there = {path.name for path in self._directory.iterdir()}
        self._done = {name: at for name, at in self._done.items() if name in there}
        self._done[self._current] = self._records
        self._current, self._records, self._values = None, 0, None

    def _position(self) -> Position:
        return {"done": dict(self._done), "file": self._current, "records": self._records}

    def _record(self, value: bytes) -> SourceRecord:
        return SourceRecord(self._config.text("topic"), value, self._key(value))

    def _key(self, value: bytes) -> bytes | None:
        if "key" not in self._config:
            return None
        return key_of(value, self._config.text("key"))


def key_of(value: bytes, column: str) -> bytes:
    import json

    try:
        found = json.loads(value)[column]
    except (ValueError, KeyError, TypeError):
        raise ConnectorError(f"a record has no column {column}, which should be its key: {value[:80]!r}") from None
    return found.encode() if isinstance(found, str) else json.dumps(found).encode()
