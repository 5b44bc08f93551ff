"""Python for one row at a time: a function of the user's that may fail for single rows.

    def clean(row): return {"id": row["id"], "each": row["cents"] / row["items"]}

Rules:
- The function gets a dict and returns one with the columns of `schema`, a list of them, or None to drop the row.
- A record for which it raises, or returns what does not fit, leaves the pipeline with the reason; other records
  continue.
- It is called once for each row, however many branches of the query follow: see `exchanging`.
- Columns with the metadata of the record stay beside what it returns.

What leaves is the record as it was: sources that such a step reads carry it in the column `RECORD`. It is lost in
SQL that does not select it with *; then the row itself leaves, as JSON.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import ArrayType, StringType, StructField, StructType

from headrace.spark.pipelines.compiling import exchanging
from headrace.spark.pipelines.compiling.row_calls import ERROR, EXCEPTION, OUT, ROWS, RowCalls, RowFunction
from headrace.spark.pipelines.compiling.sources import FILE, HIDDEN, VALUE, Opened, Reading
from headrace.spark.pipelines.definition import MALFORMED, METADATA_COLUMNS, Source, Step
from headrace.spark.pipelines.formats.decoding import REASON, quoted
from headrace.spark.pipelines.formats.json import encode_json

RECORD = "__record"
MADE = "__rows"
EXCEPTION_NAME = "__exception"
UTC = "UTC"
RECORD_TYPE = (
    "struct<source: string, key: binary, value: binary, headers: array<struct<key: string, value: binary>>, "
    "topic: string, partition: int, offset: bigint, timestamp: timestamp, file: string>"
)


def with_record(rows: DataFrame, source: Source) -> DataFrame:
    """The rows of a source with `RECORD`, the record before it was decoded, if that is known."""
    raw = VALUE not in rows.columns
    found: dict[str, Column] = {"source": F.lit(source.name)}
    if source.kind == "files":
        if raw:
            return rows
        found |= {"value": F.col(VALUE).cast("binary"), "file": F.col(FILE)}
    else:
        found |= {
            name.removeprefix("_"): F.col(name.removeprefix("_") if raw else name) for name in METADATA_COLUMNS
        }
        found["value"] = F.col("value" if raw else VALUE)
    kind = _record_type()
    parts = [found.get(field.name, F.lit(None)).cast(field.dataType).alias(field.name) for field in kind.fields]
    others = [F.col(quoted(name)) for name in rows.columns if name != VALUE]
    return rows.select(*others, F.struct(*parts).alias(RECORD))


def _record_type() -> StructType:
    made = StructType.fromDDL(f"record {RECORD_TYPE}")
    assert isinstance(made, StructType)
    kind = made["record"].dataType
    assert isinstance(kind, StructType)
    return kind


def run_row_step(step: Step, function: RowFunction, frame: DataFrame, reading: Reading) -> Opened:
    """The rows that the function makes, with `RECORD` if they had it; and the rows on which it fails, if wanted.

    The watermark of the frame, if it has one, ends here.
    """
    assert step.schema is not None
    schema = StructType.fromDDL(step.schema)
    assert isinstance(schema, StructType), "names with types, as the file was checked for"
    called = _called(step, function, frame, schema)
    failed = F.col(OUT)[ERROR].isNotNull()
    sends = reading.letters and step.dead_letter is not None
    if reading.letters and not sends and frame.isStreaming:
        called = called.observe(f"{MALFORMED}.{step.name}", F.count(F.when(failed, F.lit(1))).alias("count"))
    stays = [name for name in called.columns if name in (*HIDDEN, RECORD) and name not in schema.names]
    row = [F.col(OUT)[ROWS].alias(MADE), *(F.col(quoted(name)) for name in stays)]
    bad = [
        *(F.col(quoted(name)) for name in called.columns if name != OUT),
        F.col(OUT)[ERROR].alias(REASON),
        F.col(OUT)[EXCEPTION].alias(EXCEPTION_NAME),
    ]
    if not frame.isStreaming or reading.branches + sends < 2:
        left_out = called.where(failed).select(*bad) if sends or not frame.isStreaming else None
        return Opened(_unpacked(called.where(~failed).select(*row), stays), left_out)
    entries = exchanging.exchanged(
        called,
        F.when(~failed, F.struct(*row)),
        F.when(failed, F.struct(*bad)) if sends else None,
        reading.lanes,
    )
    malformed = exchanging.branch(entries, exchanging.BAD) if sends else None
    return Opened(_unpacked(exchanging.branch(entries, exchanging.ROW), stays), malformed)


def _called(step: Step, function: RowFunction, frame: DataFrame, schema: StructType) -> DataFrame:
    """The columns of the frame that are kept, and `OUT`."""
    given = [name for name in frame.columns if name != RECORD]
    kept = [name for name in frame.columns if name in HIDDEN or name == RECORD or RECORD not in frame.columns]
    calls = RowCalls(
        function,
        str(step.python_file),
        {field.name: to_arrow_type(field.dataType, timezone=UTC) for field in schema.fields},
        frozenset(field.name for field in schema.fields if not field.nullable),
        given,
        kept,
    )
    # Columns without Spark's metadata: a watermark would seem to continue, but does not.
    fields = [StructField(name, frame.schema[name].dataType) for name in kept]
    fields.append(StructField(OUT, out_type(schema)))
    return frame.mapInArrow(calls.convert, StructType(fields))


def out_type(schema: StructType) -> StructType:
    row = StructType([StructField(field.name, field.dataType) for field in schema.fields])
    return StructType().add(ROWS, ArrayType(row)).add(ERROR, StringType()).add(EXCEPTION, StringType())


def _unpacked(frame: DataFrame, stays: list[str]) -> DataFrame:
    return frame.select(F.inline(MADE), *(F.col(quoted(name)) for name in stays))


def row_as_json(failed: DataFrame) -> Column:
    """The row as JSON, for rows whose record is not known."""
    own = (*HIDDEN, RECORD, REASON, EXCEPTION_NAME)
    return encode_json(F.struct(*(F.col(quoted(name)) for name in failed.columns if name not in own)), {})
