"""Sinks: the columns that are written, and the streaming writer they go to.

    topic     key, value, and topic when the name holds {column}; raw: key, value, headers, ... as they are, but
              not the topic, which is that of the source: records would go back to where they came from
    parquet   the columns, without metadata; delta the same
    console   all columns

A topic's name made of columns must be a name: null becomes "null", and what names may not hold becomes "_".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StringType, StructType, TimestampType

from headrace.spark.pipelines.compiling.sources import HIDDEN
from headrace.spark.pipelines.definition import Sink
from headrace.spark.pipelines.formats import avro
from headrace.spark.pipelines.formats.choosing import format_options, other_options, read_schema_file
from headrace.spark.pipelines.formats.csv import encode_csv
from headrace.spark.pipelines.formats.decoding import quoted
from headrace.spark.pipelines.formats.json import encode_json

ROW, GONE = "__row", "__gone"
FOLDERS = ("parquet", "delta")
HEADERS_TYPE = "array<struct<key:string,value:binary>>"
RAW_TYPES = {
    "key": "binary",
    "value": "binary",
    "partition": "int",
    "headers": HEADERS_TYPE,
    "timestamp": "timestamp",
}
"""The columns that a raw sink takes."""
MAX_TOPIC_NAME = 249
_TEMPLATE = re.compile(r"\{([^{}]+)\}")
_NOT_IN_NAMES = "[^a-zA-Z0-9._-]"


class SinkProblem(Exception):
    """Rows that the sink cannot write. `key` is the key in the file that caused it."""

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
            "from", f"{sink.input} has several columns called {twice[0]}", "Give each a different name."
        )
    if not names:
        raise SinkProblem(
            "from", f"{sink.input} has no columns to write", "Metadata is not written: _offset AS offset"
        )
    return names


def rows_to_write(frame: DataFrame, sink: Sink) -> DataFrame:
    """The rows for the writer."""
    if sink.kind == "topic":
        return _records(frame, sink)
    names = written_columns(frame, sink) if sink.kind in FOLDERS else list(dict.fromkeys(frame.columns))
    missing = [name for name in sink.partition_by if name not in names]
    if missing:
        raise SinkProblem("partition_by", f"{sink.input} has no column {missing[0]}", _listed(names))
    return frame.select(*(F.col(quoted(name)) for name in names)) if sink.kind in FOLDERS else frame


def _raw_columns(frame: DataFrame, sink: Sink) -> dict[str, Column]:
    _require(frame, "topic", template_columns(sink.topic))
    if "value" not in frame.columns:
        raise SinkProblem("format", "raw needs a column value", f"It takes {', '.join(RAW_TYPES)}.")
    columns = {name: F.col(name) for name in frame.columns if name in RAW_TYPES}
    return columns | ({"topic": topic_name(sink.topic)} if template_columns(sink.topic) else {})


def _records(frame: DataFrame, sink: Sink) -> DataFrame:
    if sink.format != "avro":
        return frame.select(*(column.alias(name) for name, column in record_columns(frame, sink).items()))
    others = [column.alias(name) for name, column in _beside_the_value(frame, sink).items()]
    if sink.delete is not None:
        others.append(F.coalesce(F.expr(sink.delete), F.lit(False)).alias(GONE))
    rows = frame.select(_row(frame, sink).alias(ROW), *others)
    options = format_options(sink.options, sink.format)
    records = avro.encode_avro(rows, ROW, read_schema_file(str(sink.schema_file)), options)
    if sink.delete is None:
        return records
    return records.withColumn("value", F.when(~F.col(GONE), F.col("value"))).drop(GONE)


def record_columns(frame: DataFrame, sink: Sink) -> dict[str, Column]:
    """The columns of the record for each row. Avro is not built from columns."""
    if sink.format == "raw":
        return _raw_columns(frame, sink)
    options = format_options(sink.options, sink.format)
    text = {"json": encode_json, "csv": encode_csv}.get(sink.format)
    row = _row(frame, sink)
    value = (text(row, options) if text is not None else row).cast("binary")
    return {**_beside_the_value(frame, sink), "value": _unless_deleted(value, sink)}


def _unless_deleted(value: Column, sink: Sink) -> Column:
    """Null, a tombstone, where the row says that its key is gone."""
    if sink.delete is None:
        return value
    return F.when(F.coalesce(F.expr(sink.delete), F.lit(False)), F.lit(None)).otherwise(value)


def _beside_the_value(frame: DataFrame, sink: Sink) -> dict[str, Column]:
    _require(frame, "key", [sink.key] if sink.key else [])
    _require(frame, "topic", template_columns(sink.topic))
    _require(frame, "timestamp", [sink.timestamp] if sink.timestamp else [])
    _require(frame, "headers", list(sink.headers.values()))
    columns = {"key": key_bytes(frame, sink.key)} if sink.key else {}
    if template_columns(sink.topic):
        columns["topic"] = topic_name(sink.topic)
    if sink.timestamp:
        columns["timestamp"] = _record_time(frame, sink.timestamp)
    if sink.headers:
        columns["headers"] = F.array(*(_header(frame, *one) for one in sink.headers.items())).cast(HEADERS_TYPE)
    return columns


def _record_time(frame: DataFrame, name: str) -> Column:
    kind = frame.schema[name].dataType
    if not isinstance(kind, TimestampType):
        what = f"{name} is {kind.simpleString()}, and the time of a record is a timestamp"
        raise SinkProblem("timestamp", what, f"CAST({name} AS TIMESTAMP) AS {name}")
    return F.col(quoted(name))


def _header(frame: DataFrame, header: str, name: str) -> Column:
    return F.struct(F.lit(header).alias("key"), key_bytes(frame, name).alias("value"))


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
            "format", f"text writes one column, but there are {', '.join(others)}", "Call one of them value."
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


class TopicWrite(NamedTuple):
    """Options for writing records to topics. Writes that differ only in how topics are created can be combined."""

    options: Mapping[str, str]
    create: Mapping[str, str]

    def together(self, other: TopicWrite) -> TopicWrite | None:
        if self.options != other.options or (self.create and other.create and self.create != other.create):
            return None
        return TopicWrite(self.options, self.create or other.create)

    def all_options(self, bootstrap: str) -> dict[str, str]:
        return {**self.options, **self.create, "kafka.bootstrap.servers": bootstrap}


def topic_write(sink: Sink) -> TopicWrite:
    return TopicWrite(other_options(sink.options, sink.format), create_options(sink))


def create_options(sink: Sink) -> dict[str, str]:
    """Topics named after columns are known only when rows come: then the writer makes them."""
    if sink.create is None or not template_columns(sink.topic):
        return {}
    options = {
        "create.partitions": str(sink.create.partitions),
        "create.replication": str(sink.create.replication),
    }
    return options | {f"create.config.{name}": value for name, value in sink.create.config.items()}


def records_together(frames: Sequence[tuple[DataFrame, str]]) -> DataFrame:
    """Records for several topics as one frame. A frame with a column `topic` says itself where a record goes."""
    names = [name for name in RAW_TYPES if any(name in frame.columns for frame, _ in frames)]
    return reduce(DataFrame.unionAll, (_with_columns(frame, topic, names) for frame, topic in frames))


def _with_columns(frame: DataFrame, topic: str, names: Sequence[str]) -> DataFrame:
    there = {name: F.col(name) for name in frame.columns}
    columns = [F.col("topic") if "topic" in there else F.lit(topic).alias("topic")]
    columns += [there.get(name, F.lit(None)).cast(RAW_TYPES[name]).alias(name) for name in names]
    return frame.select(*columns)


def exploded(view: DataFrame, sinks: Sequence[Sink]) -> DataFrame:
    """The records of several sinks of one view, which is computed once."""
    made = [record_columns(view, sink) for sink in sinks]
    names = [name for name in RAW_TYPES if any(name in columns for columns in made)]
    structs = [
        F.struct(
            columns.get("topic", F.lit(sink.topic)).alias("topic"),
            *(columns.get(name, F.lit(None)).cast(RAW_TYPES[name]).alias(name) for name in names),
        )
        for sink, columns in zip(sinks, made, strict=True)
    ]
    return view.select(F.explode(F.array(*structs)).alias(ROW)).select(f"{ROW}.*")


def _listed(names: Sequence[str]) -> str:
    return f"There are {', '.join(names)}."
