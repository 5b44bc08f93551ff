"""The calls of pyarrow.parquet that headrace.spark and the tests make."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from pyarrow import BufferOutputStream, BufferReader, NativeFile, RecordBatch, Table

class ParquetFile:
    def __init__(self, source: str | Path | NativeFile | BufferReader) -> None: ...
    def read(self, columns: Sequence[str] | None = None) -> Table: ...
    def iter_batches(self, batch_size: int = ...) -> Iterator[RecordBatch]: ...

def read_table(source: str | Path) -> Table: ...
def write_table(
    table: Table,
    where: str | Path | BufferOutputStream,
    row_group_size: int | None = None,
    *,
    compression: str = "snappy",
    use_dictionary: bool | list[str] = True,
    write_page_index: bool = False,
) -> None: ...
