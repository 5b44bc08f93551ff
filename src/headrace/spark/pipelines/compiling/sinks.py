"""Sinks: the columns that are written, and the streaming writer they go to.

    topic     key, value, and topic when the name holds {column}; raw: key, value, headers, ... as they are
    parquet   the columns, without metadata
    console   all columns

A topic's name made of columns must be a name: null becomes "null", and what names may not hold becomes "_".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StringType, StructType

from headrace.spark.pipelines.compiling.sources import HIDDEN
from headrace.spark.pipelines.definition import Sink
from headrace.spark.pipelines.formats import avro
from headrace.spark.pipelines.formats.choosing import format_options, other_options, read_schema_file
from headrace.spark.pipelines.formats.csv import encode_csv
from headrace.spark.pipelines.formats.decoding import quoted
from headrace.spark.pipelines.formats.json import encode_json

ROW = "__row"
RAW_COLUMNS = ("key", "value", "topic", "partition", "headers", "timestamp")
MAX_TOPIC_NAME = 249
_TEMPLATE = re.compile(r"\{([^{}]+)\}")
_NOT_IN_NAMES = "[^a-zA-Z0-9._-]"


class SinkProblem(Exception):
    """Rows that the sink cannot write. `key` is the key of the sink in the file that is to blame."""

    def __init__(self, key: str, what: str, advice: str | None = None) -> None:
        super().__init__(what)
        self.key = key
        self.what = what
        self.advice = advice


def template_columns(topic: str) -> list[str]:
    return [name.strip() for name in _TEMPLATE.findall(topic)]


def written_columns(frame: DataFrame, sink: Sink) -> list[str]:
    """The columns of the rows themselves: metadata stays out."""
    names = [name for name in frame.columns if name not in HIDDEN]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SinkProblem(
            "from", f"{sink.input} has several columns called {twice[0]}", "Give each a name of its own."
        )
    if not names:
        raise SinkProblem(
            "from", f"{sink.input} has no columns to write", "Metadata is not written: _offset AS offset"
        )
    return names


def rows_to_write(frame: DataFrame, sink: Sink) -> DataFrame:
    """What goes to the writer."""
    if sink.kind == "topic":
        return _raw_records(frame) if sink.format == "raw" else _records(frame, sink)
    names = written_columns(frame, sink) if sink.kind == "parquet" else list(dict.fromkeys(frame.columns))
    missing = [name for name in sink.partition_by if name not in names]
    if missing:
        raise SinkProblem("partition_by", f"{sink.input} has no column {missing[0]}", _listed(names))
    return frame.select(*(F.col(quoted(name)) for name in names)) if sink.kind == "parquet" else frame


def _raw_records(frame: DataFrame) -> DataFrame:
    names = [name for name in frame.columns if name in RAW_COLUMNS]
    if "value" not in names:
        raise SinkProblem("format", "raw needs a column value", f"It takes {', '.join(RAW_COLUMNS)}.")
    return frame.select(*names)


def _records(frame: DataFrame, sink: Sink) -> DataFrame:
    _require(frame, "key", [sink.key] if sink.key else [])
    _require(frame, "topic", template_columns(sink.topic))
    columns = [_row(frame, sink).alias(ROW)]
    if sink.key:
        columns.append(key_bytes(frame, sink.key).alias("key"))
    if template_columns(sink.topic):
        columns.append(topic_name(sink.topic).alias("topic"))
    return _encoded(frame.select(*columns), sink)


def _require(frame: DataFrame, key: str, names: Sequence[str]) -> None:
    for name in names:
        if name not in frame.columns:
            raise SinkProblem(key, f"there is no column {name}", _listed(frame.columns))


def _row(frame: DataFrame, sink: Sink) -> Column:
    names = written_columns(frame, sink)
    if sink.format == "text":
        return F.col(quoted(_text_column(frame, sink, names)))
    if sink.format == "csv":
        _require_flat(frame, names)
    if sink.format == "avro":
        return _avro_row(sink, names)
    return F.struct(*(F.col(quoted(name)) for name in names))


def _text_column(frame: DataFrame, sink: Sink, names: Sequence[str]) -> str:
    """The column `value`, or the only one that is not the key."""
    others = [name for name in names if name != sink.key] or list(names)
    chosen = "value" if "value" in names else others[0]
    if "value" not in names and len(others) > 1:
        raise SinkProblem(
            "format", f"text writes one column, and there are {', '.join(others)}", "Call one of them value."
        )
    if not isinstance(frame.schema[chosen].dataType, StringType | BinaryType):
        kind = frame.schema[chosen].dataType.simpleString()
        raise SinkProblem("format", f"text writes strings, and {chosen} is {kind}", f"CAST({chosen} AS STRING)")
    return chosen


def _require_flat(frame: DataFrame, names: Sequence[str]) -> None:
    for name in names:
        if _is_nested(frame.schema[name].dataType):
            kind = frame.schema[name].dataType.simpleString()
            raise SinkProblem(
                "format", f"a line of CSV cannot hold {name}, which is {kind}", f"Use to_json({name})."
            )


def _avro_row(sink: Sink, names: Sequence[str]) -> Column:
    schema_text = read_schema_file(str(sink.schema_file))
    columns = avro.avro_columns(schema_text, names)
    known = {name for name, _ in columns}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SinkProblem(
            "schema_file", f"the schema has no field {unknown[0]}", "Leave the column out, or add the field."
        )
    missing = avro.missing_columns(schema_text, names)
    if missing:
        raise SinkProblem(
            "schema_file", f"the schema needs a field {missing[0]}", f"There are {', '.join(names)}."
        )
    return F.struct(*(F.col(quoted(name)).cast(kind).alias(name) for name, kind in columns))


def _encoded(frame: DataFrame, sink: Sink) -> DataFrame:
    options = format_options(sink.options, sink.format)
    if sink.format == "avro":
        return avro.encode_avro(frame, ROW, read_schema_file(str(sink.schema_file)), options)
    row = F.col(ROW)
    text = {"json": encode_json, "csv": encode_csv}.get(sink.format)
    value = text(row, options) if text is not None else row
    return frame.withColumn("value", value.cast("binary")).drop(ROW)


def key_bytes(frame: DataFrame, name: str) -> Column:
    """Numbers and times as text, structures as JSON, bytes as they are."""
    column, kind = F.col(quoted(name)), frame.schema[name].dataType
    if isinstance(kind, BinaryType):
        return column
    return (F.to_json(column) if _is_nested(kind) else column.cast("string")).cast("binary")


def _is_nested(kind: DataType) -> bool:
    return isinstance(kind, StructType | ArrayType | MapType)


def topic_name(template: str) -> Column:
    parts = []
    for number, piece in enumerate(_TEMPLATE.split(template)):
        if number % 2 == 0:
            parts.append(F.lit(piece))
        else:
            text = F.coalesce(F.col(quoted(piece.strip())).cast("string"), F.lit("null"))
            parts.append(F.regexp_replace(text, _NOT_IN_NAMES, "_"))
    return F.substring(F.concat(*parts), 1, MAX_TOPIC_NAME)


def writer_for(rows: DataFrame, sink: Sink, bootstrap: str) -> DataStreamWriter:
    """Not yet named, and without checkpoint and trigger."""
    options = other_options(sink.options, sink.format) if sink.kind == "topic" else dict(sink.options)
    writer = rows.writeStream.outputMode(sink.mode)
    if sink.kind == "parquet":
        return (
            writer.format("parquet").options(**options).option("path", sink.path).partitionBy(*sink.partition_by)
        )
    if sink.kind == "console":
        return writer.format("console").options(**{"truncate": "false", **options})
    if not template_columns(sink.topic) and "topic" not in rows.columns:
        options["topic"] = sink.topic
    options = {**options, **create_options(sink), "kafka.bootstrap.servers": bootstrap}
    if sink.mode == "update":
        return writer.foreachBatch(BatchWrite(options).write)
    return writer.format("headrace").options(**options)


class BatchWrite(NamedTuple):
    """Spark gives no stream of updates to sinks in Python: each batch of them is written by itself."""

    options: dict[str, str]

    def write(self, rows: DataFrame, batch_id: int) -> None:
        rows.write.format("headrace").options(**self.options).mode("append").save()


def create_options(sink: Sink) -> dict[str, str]:
    """Topics named after columns are known only when rows come: then the writer makes them."""
    if sink.create is None or not template_columns(sink.topic):
        return {}
    options = {
        "create.partitions": str(sink.create.partitions),
        "create.replication": str(sink.create.replication),
    }
    return options | {f"create.config.{name}": value for name, value in sink.create.config.items()}


def _listed(names: Sequence[str]) -> str:
    return f"There are {', '.join(names)}."
