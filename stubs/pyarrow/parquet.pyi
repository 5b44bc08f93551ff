"""The calls of pyarrow.parquet that the tests make."""

from pathlib import Path

from pyarrow import Table

def read_table(source: str | Path) -> Table: ...
def write_table(table: Table, where: str | Path) -> None: ...
