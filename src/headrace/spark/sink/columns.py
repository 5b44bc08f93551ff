"""The columns of a frame that the sink writes: which there are, and that their types fit.

    value      string | binary    required; null is a tombstone
    key        string | binary    chooses the partition, as with every other client
    topic      string             the topic of the row, if the option `topic` is not set
    partition  int                overrides the key
    headers    array<struct<key:string,value:binary>>
    timestamp  timestamp          in milliseconds; the current time if it is null or missing

Other columns are left out, as Spark's own sink does, so what the source gave can be written back. Checked while
Spark plans, before any row moves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.types import StructType

from headrace.spark.arrow import columns as c
from headrace.spark.option_table import near_name
from headrace.spark.sink.errors import SinkError
from headrace.spark.sink.options import SinkOptions

BYTES = ("string", "binary")
NOTHING = "void"
"""The type of a column that is null in every row (`lit(None)`)."""
ALLOWED: Mapping[str, tuple[str, ...]] = {
    c.KEY: BYTES,
    c.VALUE: BYTES,
    c.TOPIC: ("string",),
    c.PARTITION: ("int",),
    c.HEADERS: ("array<struct<key:string,value:binary>>",),
    c.TIMESTAMP: ("timestamp",),
}


@dataclass(frozen=True, slots=True)
class SinkColumns:
    """Where the columns are in a frame's rows, by name."""

    places: Mapping[str, int]

    def __contains__(self, name: str) -> bool:
        return name in self.places

    def chosen(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The columns that are written, out of all that came."""
        return pa.RecordBatch.from_arrays(
            [rows.column(place) for place in self.places.values()], names=list(self.places)
        )


def sink_columns(schema: StructType, options: SinkOptions) -> SinkColumns:
    """The columns to write; SinkError when one is missing, or has a type that cannot be written."""
    names = schema.fieldNames()
    _check_spelling(names)
    if c.VALUE not in names:
        near = near_name(c.VALUE, names)
        hint = f"rename {near!r} to 'value'" if near else "make one, as with to_json(struct(*)) AS value"
        raise SinkError(f"the frame has no column 'value', only {', '.join(names)}: {hint}")
    if c.TOPIC not in names and options.topic is None:
        raise SinkError("no topic to write to: set the option topic, or give the frame a column 'topic'")
    places: dict[str, int] = {}
    for place, field in enumerate(schema.fields):
        if field.name in _written(options):
            _check_type(field.name, field.dataType.simpleString())
            if field.name in places:
                raise SinkError(f"the frame has the column {field.name!r} twice: drop or rename one")
            places[field.name] = place
    return SinkColumns(places)


def _written(options: SinkOptions) -> list[str]:
    """The names that count with these options."""
    left_out = set() if options.include_headers else {c.HEADERS}
    if options.topic is not None:
        left_out.add(c.TOPIC)
    return [name for name in ALLOWED if name not in left_out]


def _check_spelling(names: list[str]) -> None:
    """A column whose name differs only in case would be left out silently."""
    for name in names:
        if name.lower() in ALLOWED and name.lower() != name and name.lower() not in names:
            raise SinkError(f"the column {name!r} is written only as {name.lower()!r}: rename it, or drop it")


def _check_type(name: str, found: str) -> None:
    allowed = ALLOWED[name]
    if found in allowed or (found == NOTHING and name != c.TOPIC):
        return
    raise SinkError(
        f"the column {name!r} is {found}, and must be {' or '.join(allowed)}: "
        f"cast it, as CAST({name} AS {allowed[0].upper()})"
    )
