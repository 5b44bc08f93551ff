"""Rows of an archived range, put together from its files in the order of their offsets."""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.spark.archive import manifest as m
from headrace.spark.archive.errors import ArchiveError
from headrace.spark.archive.store import ArchiveStore
from headrace.spark.arrow import columns as c


def rows_of_range(store: ArchiveStore, archived: m.ArchivedRange) -> pa.Table:
    """All of them, from files whose bytes are those that were written."""
    tables = [_rows(store, file) for file in archived.files]
    rows = pa.concat_tables(tables) if tables else c.arrow_schema(c.ALL_COLUMNS).empty_table()
    if len(tables) > 1:
        rows = rows.take(np.argsort(rows.column(c.OFFSET).combine_chunks().to_numpy(), kind="stable"))
    return rows.combine_chunks()


def _rows(store: ArchiveStore, file: m.DataFile) -> pa.Table:
    data = store.read(m.place_of(store, file))
    if data is None:
        raise ArchiveError(f"{file.path} is missing.")
    if hashlib.sha256(data).hexdigest() != file.sha256:
        raise ArchiveError(f"{file.path} is damaged: its checksum is wrong.")
    try:
        rows = pq.ParquetFile(pa.BufferReader(data)).read(list(c.ALL_COLUMNS))
    except pa.ArrowInvalid as error:
        raise ArchiveError(f"{file.path} cannot be read: {error}.") from None
    if rows.num_rows != file.rows:
        raise ArchiveError(f"{file.path} has {rows.num_rows} rows instead of {file.rows}.")
    return rows.cast(c.arrow_schema(c.ALL_COLUMNS))
