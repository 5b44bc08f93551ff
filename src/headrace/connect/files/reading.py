"""The records of one file, by its format, from the nth on. Each format is read in an order that never changes."""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO, cast

from headrace.connect.api import ConnectorError
from headrace.connect.tables.values import json_object

EXTENSIONS = {
    ".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json",
    ".parquet": "parquet", ".txt": "text", ".log": "text",
}  # fmt: skip
FORMATS = ("csv", "json", "parquet", "text")
PARQUET_BATCH_ROWS = 1000


def format_of(path: Path) -> str | None:
    """By its extension, without a `.gz` at the end."""
    return EXTENSIONS.get(Path(path.stem if path.suffix == ".gz" else path.name).suffix.lower())


def read_values(path: Path, format: str, start: int, delimiter: str | None) -> Iterator[bytes]:
    """The values of a file's records: rows as JSON objects, lines as they are. The first `start` are skipped."""
    readers: dict[str, Callable[[], Iterator[bytes]]] = {
        "csv": lambda: _csv(path, delimiter or ("\t" if ".tsv" in path.suffixes else ",")),
        "json": lambda: _json_lines(path),
        "parquet": lambda: _parquet(path),
        "text": lambda: (line for line in _lines(path)),
    }
    try:
        yield from islice(readers[format](), start, None)
    except (ValueError, EOFError, csv.Error, zlib.error, gzip.BadGzipFile) as error:
        raise ConnectorError(f"{path} cannot be read as {format}: {error}") from None


def _open(path: Path) -> BinaryIO:
    return cast(BinaryIO, gzip.open(path)) if path.suffix == ".gz" else path.open("rb")


def _lines(path: Path) -> Iterator[bytes]:
    with _open(path) as file:
        for line in file:
            yield line.rstrip(b"\r\n")


def _json_lines(path: Path) -> Iterator[bytes]:
    """A line that is not JSON is reported with its number; empty lines are left out."""
    for number, line in enumerate(_lines(path), 1):
        if line.strip():
            try:
                json.loads(line)
            except ValueError as error:
                raise ConnectorError(f"{path}, line {number}: not valid JSON: {error}") from None
            yield line


def _csv(path: Path, delimiter: str) -> Iterator[bytes]:
    with _open(path) as file, io.TextIOWrapper(file, encoding="utf-8-sig", newline="") as text:
        rows = csv.reader(text, delimiter=delimiter)
        names = next(rows, [])
        for row in rows:
            if not row:
                continue  # an empty line, as there often is one at the end
            if len(row) != len(names):
                raise ConnectorError(
                    f"{path}, line {rows.line_num}: {len(row)} fields, but the header has {len(names)}"
                )
            yield json_object(zip(names, row, strict=True))


def _parquet(path: Path) -> Iterator[bytes]:
    try:
        from pyarrow import parquet
    except ModuleNotFoundError:
        raise ConnectorError("Parquet files need pyarrow: pip install pyarrow") from None
    for batch in parquet.ParquetFile(path).iter_batches(PARQUET_BATCH_ROWS):
        for row in batch.to_pylist():
            yield json_object(row.items())
