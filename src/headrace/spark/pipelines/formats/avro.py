"""Avro records, decoded by fastavro in Spark's Python workers: PySpark does not include Avro.

A value is one record of the schema in `schema_file`: bare, or with `avro.framing: confluent` behind five bytes, a
zero and the id of the schema in a registry, which is not looked up: all records must be of the one schema.
A sink with that framing takes the id from `avro.schema_id`.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import fastavro
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from headrace.spark.pipelines.checking.option_names import FRAMINGS
from headrace.spark.pipelines.formats.avro_schema import AvroRecord, AvroSchemaError, load_avro_schema
from headrace.spark.pipelines.formats.decoding import PARSED, Decoder

ROW, ERROR = "row", "error"
CONFLUENT = struct.Struct(">bI")

UNREADABLE = (
    EOFError, ValueError, LookupError, ArithmeticError, TypeError, AttributeError, struct.error, MemoryError,
    StopIteration, pa.ArrowException,
)  # fmt: skip
"""Errors that fastavro, or the conversion to Arrow, raises for bytes that are not of the schema."""


class BadRecord(ValueError):
    """A value that is not a record, with the reason."""


class AvroReading(NamedTuple):
    """Runs in the workers: adds `PARSED`, a struct of the row and of what is wrong with it."""

    schema_text: str
    confluent: bool

    def convert(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = load_avro_schema(self.schema_text)
        for batch in batches:
            values = batch.column(batch.schema.get_field_index("value")).to_pylist()
            rows, errors = self._rows(schema, values)
            parsed = pa.StructArray.from_arrays([rows, errors], names=[ROW, ERROR])
            yield pa.RecordBatch.from_arrays([*batch.columns, parsed], names=[*batch.schema.names, PARSED])

    def _rows(self, schema: AvroRecord, values: list[bytes | None]) -> tuple[pa.Array, pa.Array]:
        rows: list[Any] = []
        errors: list[str | None] = []
        for value in values:
            row, error = self._read(schema, value)
            rows.append(row)
            errors.append(error)
        try:
            made = pa.array(rows, type=schema.mapped.arrow)
        except UNREADABLE:
            made = pa.array(self._fitting(schema, rows, errors), type=schema.mapped.arrow)
        return made, pa.array(errors, type=pa.string())

    def _read(self, schema: AvroRecord, value: bytes | None) -> tuple[Any, str | None]:
        try:
            return schema.mapped.read(self._record(schema, value)), None
        except UNREADABLE as error:
            return None, _said(error)

    def _record(self, schema: AvroRecord, value: bytes | None) -> Any:
        if value is None:
            raise BadRecord("the value is null")
        body = io.BytesIO(_unframed(value) if self.confluent else value)
        record = fastavro.schemaless_reader(body, schema.parsed, None)
        left = len(body.read())
        if left:
            raise BadRecord(f"{left} bytes follow the Avro record: it is probably of another schema")
        return record

    def _fitting(self, schema: AvroRecord, rows: list[Any], errors: list[str | None]) -> list[Any]:
        """The rows; None and an error for those that cannot be Arrow values, such as too long decimals."""
        kept: list[Any] = []
        for number, row in enumerate(rows):
            try:
                pa.array([row], type=schema.mapped.arrow)
                kept.append(row)
            except UNREADABLE as error:
                kept.append(None)
                errors[number] = _said(error)
        return kept


def _unframed(value: bytes) -> bytes:
    if len(value) < CONFLUENT.size or value[0] != 0:
        raise BadRecord("the value does not begin with a zero and the id of a schema (avro.framing: confluent)")
    return value[CONFLUENT.size :]


def _said(error: BaseException) -> str:
    if isinstance(error, BadRecord):
        return str(error)
    what = str(error) or type(error).__name__
    return f"the value is not an Avro record of the schema: {what}"


def is_framed(options: Mapping[str, str]) -> bool:
    framing = options.get("framing", "none")
    if framing not in FRAMINGS:
        raise AvroSchemaError(f"avro.framing is {' or '.join(FRAMINGS)}, not {framing}")
    return framing == "confluent"


class AvroDecoder(Decoder):
    def __init__(self, schema_text: str, options: Mapping[str, str]) -> None:
        schema = load_avro_schema(schema_text).mapped.spark
        assert isinstance(schema, StructType)
        self.schema = schema
        self._reading = AvroReading(schema_text, is_framed(options))

    def parse(self, frame: DataFrame) -> DataFrame:
        parsed = StructType([StructField(ROW, self.schema), StructField(ERROR, StringType())])
        columns = StructType([*frame.schema.fields, StructField(PARSED, parsed)])
        return frame.mapInArrow(self._reading.convert, columns)

    def fine(self) -> Column:
        return F.col(PARSED).getField(ERROR).isNull()

    def row(self) -> Column:
        return F.col(PARSED).getField(ROW)

    def reason(self) -> Column:
        return F.col(PARSED).getField(ERROR)


class AvroWriting(NamedTuple):
    """Runs in the workers: turns the struct column into `value`."""

    schema_text: str
    column: str
    schema_id: int | None

    def convert(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = load_avro_schema(self.schema_text)
        for batch in batches:
            index = batch.schema.get_field_index(self.column)
            values = pa.array([self._value(schema, row) for row in batch.column(index).to_pylist()], pa.binary())
            columns = [*batch.columns[:index], values, *batch.columns[index + 1 :]]
            names = [*batch.schema.names[:index], "value", *batch.schema.names[index + 1 :]]
            yield pa.RecordBatch.from_arrays(columns, names=names)

    def _value(self, schema: AvroRecord, row: Mapping[str, Any]) -> bytes:
        out = io.BytesIO()
        if self.schema_id is not None:
            out.write(CONFLUENT.pack(0, self.schema_id))
        try:
            fastavro.schemaless_writer(out, schema.parsed, schema.mapped.write(row))
        except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError) as error:
            raise CannotEncode(f"a row does not fit the Avro schema: {error or type(error).__name__}") from None
        return out.getvalue()


class CannotEncode(Exception):
    """A row that does not fit the schema of the sink."""


def encode_avro(frame: DataFrame, column: str, schema_text: str, options: Mapping[str, str]) -> DataFrame:
    """The frame with `value` in place of the struct column."""
    writing = AvroWriting(schema_text, column, schema_id(options))
    fields = [
        StructField("value", BinaryType()) if field.name == column else field for field in frame.schema.fields
    ]
    return frame.mapInArrow(writing.convert, StructType(fields))


def schema_id(options: Mapping[str, str]) -> int | None:
    """The id of the schema in a registry, for framed records."""
    if not is_framed(options):
        return None
    text = options.get("schema_id", "")
    if not text.isdecimal():
        raise AvroSchemaError("avro.framing: confluent needs the id of the schema in the registry: avro.schema_id")
    return int(text)


def avro_columns(schema_text: str, available: Iterable[str]) -> list[tuple[str, str]]:
    """The name and Spark type of each column to write: the schema's columns that exist, cast to its types."""
    names = set(available)
    return [
        (field.name, field.mapped.spark.simpleString())
        for field in load_avro_schema(schema_text).fields
        if field.name in names
    ]


def missing_columns(schema_text: str, available: Iterable[str]) -> list[str]:
    """Fields that a row must have and does not have."""
    names = set(available)
    return [
        field.name
        for field in load_avro_schema(schema_text).fields
        if field.name not in names and not field.has_default and not field.mapped.nullable
    ]
