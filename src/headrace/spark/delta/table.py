"""A Delta table: its place, its log, and which tables can be read and written here.

Options:

    path               the table's folder, or an address such as s3://bucket/table
    partitionBy        columns, separated by commas, for a table that is made
    txnAppId           who writes; of a stream the id of its query, if it is not given
    txnVersion         which of its writes this is; of a stream the number of the batch
    startingVersion    of a stream that is read: the first version that is read, instead of the whole table
    storage.*          settings of deltalake's object store, as storage.AWS_ENDPOINT_URL

Tables with deletion vectors or renamed columns are refused: they need a reader that knows of them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from headrace.spark.errors import SourceError

STORAGE = "storage."
READABLE_FEATURES = frozenset({"timestampNtz"})
PLAIN_READER = 1


@dataclass(frozen=True, slots=True)
class TableOptions:
    path: str
    partition_by: tuple[str, ...] = ()
    app_id: str = ""
    version: int | None = None
    starting_version: int | None = None
    storage: Mapping[str, str] = field(default_factory=dict)


def parse_options(given: Mapping[str, str]) -> TableOptions:
    """Raises SourceError for the first mistake. Spark passes names in lower case."""
    options = {name.lower(): value for name, value in given.items()}
    path = options.get("path", "").strip()
    if not path:
        raise SourceError("a Delta table needs its folder: give it with the option path, or to load() or save()")
    app_id = options.get("txnappid", "")
    version = _number(options, "txnversion")
    if version is not None and not app_id:
        raise SourceError("txnVersion counts the writes of an application: give txnAppId too")
    columns = (one.strip() for one in options.get("partitionby", "").split(","))
    # Settings of stores are upper case in all documentation; Spark has made them lower case.
    storage = {
        name.removeprefix(STORAGE).upper(): value for name, value in options.items() if name.startswith(STORAGE)
    }
    return TableOptions(
        path.removeprefix("file://"),
        tuple(filter(None, columns)),
        app_id,
        version,
        _number(options, "startingversion"),
        storage,
    )


def _number(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if not text.strip().isdigit():
        raise SourceError(f"{name} must be a whole number, not {text!r}")
    return int(text)


def find_table(options: TableOptions, version: int | None = None) -> DeltaTable | None:
    """None if the table does not exist yet."""
    try:
        return DeltaTable(options.path, version=version, storage_options=dict(options.storage) or None)
    except TableNotFoundError:
        return None


def open_table(options: TableOptions, version: int | None = None) -> DeltaTable:
    """Open an existing table for reading."""
    found = find_table(options, version)
    if found is None:
        raise SourceError(f"there is no Delta table in {options.path}")
    protocol = found.protocol()
    unknown = sorted(set(protocol.reader_features or ()) - READABLE_FEATURES)
    if unknown or (protocol.min_reader_version > PLAIN_READER and not protocol.reader_features):
        what = ", ".join(unknown) or f"version {protocol.min_reader_version} of the protocol"
        raise SourceError(f"the Delta table in {options.path} uses {what}, which cannot be read here")
    return found


def spark_schema(table: DeltaTable) -> StructType:
    return from_arrow_schema(arrow_schema(table))


def arrow_columns(schema: StructType) -> pa.Schema:
    """As Spark hands them over; times are in UTC, whatever the session's zone."""
    convert: Callable[..., pa.Schema] = to_arrow_schema
    takes_zone = "timezone" in inspect.signature(to_arrow_schema).parameters  # not before PySpark 4.2
    return convert(schema, timezone="UTC") if takes_zone else convert(schema)


def arrow_schema(table: DeltaTable) -> pa.Schema:
    return pa.schema(table.schema().to_arrow())
