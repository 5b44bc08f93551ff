"""Sources as DataFrames: opened, decoded, with the metadata columns that the pipeline uses, and their watermark.

`Opening` is where the bytes come from: a cluster and files in a run, empty frames in a check. Everything after it
is the same for both, so that a run executes what was checked.

Spark cannot drop columns inside our source, so only those that the text of some step or sink names are read. A
Python step can use any, so with one all are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.readwriter import DataStreamReader
from pyspark.sql.types import StringType, StructType

from headrace.spark.arrow.columns import ALL_COLUMNS, SPARK_TYPES, TIMESTAMP_TYPE
from headrace.spark.pipelines.compiling import exchanging, tables
from headrace.spark.pipelines.definition import MALFORMED, METADATA_COLUMNS, Pipeline, Source
from headrace.spark.pipelines.formats import decoding
from headrace.spark.pipelines.formats.choosing import (
    declared_schema,
    format_options,
    make_decoder,
    other_options,
)
from headrace.spark.pipelines.formats.decoding import Decoder, quoted
from headrace.spark.source import batch_watermark

FILE = "_file"
"""The column with the file that a row came from: the only metadata of files."""
HIDDEN = frozenset({*METADATA_COLUMNS, FILE})
"""Columns that a sink omits: to write one, give it a name of its own (`_offset AS offset`)."""
LETTER_COLUMNS = tuple(name for name in ALL_COLUMNS if name != TIMESTAMP_TYPE)
"""The columns of a record that a dead letter contains."""
LATE_ROW = "__late"
VALUE = "__value"
"""The column with the value before it was decoded, for steps that send records as dead letters."""
MARK = "source:"
"""The prefix of names for the parts of a plan that come from a source, see `checkpoints`."""


class Opening(Protocol):
    def topics(self, source: Source, columns: Sequence[str], *, streaming: bool) -> DataFrame:
        """A frame with some of the eight columns of format("headrace")."""

    def lines(self, source: Source, *, streaming: bool) -> DataFrame:
        """A frame with `value`, a line as text, and `FILE`."""

    def parquet(self, source: Source, *, streaming: bool) -> DataFrame:
        """A frame with the columns of the files, and `FILE`."""


@dataclass(frozen=True, slots=True)
class RealOpening:
    """Opens the real topics and files. `group` is the consumer group under which the query shows its progress."""

    session: SparkSession
    bootstrap: str
    group: str
    stop_file: Path | None = None
    checkpoint: str | None = None
    """The checkpoint of the query, with the watermarks by which late rows are recognised."""

    def topics(self, source: Source, columns: Sequence[str], *, streaming: bool) -> DataFrame:
        options = topic_options(source, self.bootstrap, columns)
        if streaming:
            options |= {"groupId": self.group, **starting_options(source)}
            if self.stop_file is not None:
                options["stopFile"] = str(self.stop_file)
            if batch_watermark.COLUMN in columns:
                options["offsetLog"] = f"{self.checkpoint}/offsets"
        reader = self.session.readStream if streaming else self.session.read
        ddl = ", ".join(f"{name} {SPARK_TYPES.get(name, batch_watermark.SPARK_TYPE)}" for name in columns)
        return reader.format("headrace").options(**options).schema(ddl).load()

    def lines(self, source: Source, *, streaming: bool) -> DataFrame:
        reader = self.session.readStream if streaming else self.session.read
        options = other_options(source.options, source.format)
        found = reader.format("text").options(**options).load(source.files)
        return found.select("value", F.col("_metadata.file_path").alias(FILE))

    def parquet(self, source: Source, *, streaming: bool) -> DataFrame:
        reader = self.session.readStream if streaming else self.session.read
        if source.format == "delta":
            return delta_rows(reader, source)
        schema = parquet_schema(self.session, source)
        found = reader.format("parquet").options(**source.options).schema(schema).load(source.files)
        return found.select("*", F.col("_metadata.file_path").alias(FILE))


@dataclass(frozen=True, slots=True)
class EmptyOpening:
    """Frames with the right columns and no rows; streams read an empty folder."""

    session: SparkSession
    folder: str

    def topics(self, source: Source, columns: Sequence[str], *, streaming: bool) -> DataFrame:
        return self._empty(", ".join(f"{name} {SPARK_TYPES[name]}" for name in columns), streaming)

    def lines(self, source: Source, *, streaming: bool) -> DataFrame:
        return self._empty(f"value string, {FILE} string", streaming)

    def parquet(self, source: Source, *, streaming: bool) -> DataFrame:
        schema = parquet_schema(self.session, source)
        return self._empty(StructType([*schema.fields]).add(FILE, StringType()), streaming)

    def _empty(self, schema: StructType | str, streaming: bool) -> DataFrame:
        if streaming:
            return self.session.readStream.format("parquet").schema(schema).load(self.folder)
        return self.session.read.format("parquet").schema(schema).load(self.folder)


def topic_options(source: Source, bootstrap: str, columns: Sequence[str]) -> dict[str, str]:
    chosen = {"subscribePattern": source.pattern} if source.pattern else {"subscribe": ",".join(source.topics)}
    headers = {"includeHeaders": "true"} if "headers" in columns else {}
    return {
        **other_options(source.options, source.format),
        **chosen,
        **headers,
        "kafka.bootstrap.servers": bootstrap,
    }


def starting_options(source: Source) -> dict[str, str]:
    """The options for the start of a source. Partitions without records since that time start at their end."""
    if source.starting in ("earliest", "latest"):
        return {"startingOffsets": source.starting}
    return {"startingOffsets": source.starting, "startingOffsetsByTimestampStrategy": "latest"}


def delta_rows(reader: DataFrameReader | DataStreamReader, source: Source) -> DataFrame:
    found = reader.format("headrace_delta").options(**source.options).load(source.files)
    return found.withColumn(FILE, F.lit(source.files))


def parquet_schema(session: SparkSession, source: Source) -> StructType:
    """The declared schema, or that of the existing files."""
    if source.schema is not None or source.schema_file is not None:
        return declared_schema(source)
    if source.format == "delta":
        return session.read.format("headrace_delta").options(**source.options).load(source.files).schema
    return session.read.parquet(str(source.files)).schema


def metadata_used(pipeline: Pipeline) -> tuple[str, ...]:
    """The metadata columns that something in the pipeline may read."""
    if any(step.kind in ("python", "python_rows") for step in pipeline.steps):
        return METADATA_COLUMNS
    words = set(re.findall(r"\w+", " ".join(_texts(pipeline))))
    return tuple(name for name in METADATA_COLUMNS if name in words)


def _texts(pipeline: Pipeline) -> Iterator[str]:
    for step in pipeline.steps:
        yield from (step.text, *step.columns)
        yield step.watermark.column if step.watermark else ""
    for source in pipeline.sources:
        yield source.watermark.column if source.watermark else ""
    for sink in pipeline.sinks:
        yield from (sink.key or "", sink.topic, *sink.partition_by)
        yield from (sink.timestamp or "", sink.delete or "", *sink.headers.values())


def with_watermark(rows: DataFrame, source: Source, *, shared: bool = False) -> DataFrame:
    """The rows of a source as its view. If it is shared, every branch must see the same watermark."""
    rows = rows.drop(VALUE)
    if source.watermark is not None:
        rows = rows.withWatermark(source.watermark.column, source.watermark.delay)
        rows = exchanging.fixed(rows) if shared else rows
    return rows.alias(MARK + source.name)


@dataclass(frozen=True, slots=True)
class Reading:
    """How one query reads a source."""

    branches: int = 1
    """The number of its branches that read the source, without the branch of dead letters."""
    letters: bool = False
    """Whether the query also has the dead letters of the source: sent where they have a topic, else counted; and
    its late rows where these have a topic."""
    lanes: int = 1
    """The number of tasks that process the rows further, if several branches do."""

    def sends(self, source: Source) -> bool:
        return self.sends_malformed(source) or self.sends_late(source)

    def sends_malformed(self, source: Source) -> bool:
        return self.letters and source.dead_letter is not None

    def sends_late(self, source: Source) -> bool:
        return self.letters and source.late_rows is not None

    def is_shared(self, source: Source) -> bool:
        return self.branches + self.sends(source) > 1 and is_stream(source)


class Opened(NamedTuple):
    rows: DataFrame
    malformed: DataFrame | None
    """The records that the source leaves out, with all columns and the reason; None if they are not needed. With
    `LATE_ROW` if late rows are sent too."""


def is_stream(source: Source) -> bool:
    return source.kind == "topics" or (source.kind == "files" and not source.static)


def open_source(opening: Opening, source: Source, metadata: Sequence[str], reading: Reading) -> Opened:
    """Open a source for the branches of a query that read it."""
    if reading.is_shared(source):
        return _open_shared(opening, source, metadata, reading)
    malformed = malformed_records(opening, source) if reading.sends(source) else None
    counted = f"{MALFORMED}.{source.name}" if reading.letters and malformed is None else None
    return Opened(read_source(opening, source, metadata, counted), malformed)


def _open_shared(opening: Opening, source: Source, metadata: Sequence[str], reading: Reading) -> Opened:
    decoder = make_decoder(source)
    kept = {name: _raw_name(name) for name in (_of_files(metadata) if source.kind == "files" else metadata)}
    sends_late = reading.sends_late(source)
    wanted = {*(LETTER_COLUMNS if reading.sends(source) else ()), *kept.values()}
    frame = _records(opening, source, decoder, wanted, late=sends_late)
    if decoder is None:
        parsed, fine = frame, F.lit(True)
        row = F.struct(*(quoted(name) for name in frame.columns if name != batch_watermark.COLUMN))
    else:
        parsed, fine = decoder.parse(frame), F.coalesce(decoder.fine(), F.lit(False))
        if reading.letters and not reading.sends_malformed(source):
            parsed = decoding.counting(parsed, decoder, f"{MALFORMED}.{source.name}")
        columns = [decoder.row().getField(name).alias(name) for name in decoder.schema.names]
        row = F.struct(*columns, *(F.col(quoted(raw)).alias(name) for name, raw in kept.items()))
    late = fine & _is_late(source, row) if sends_late else F.lit(False)
    bad = F.struct(*(F.col(quoted(name)) for name in parsed.columns), late.alias(LATE_ROW))
    sent = F.when(late | (~fine if reading.sends_malformed(source) else F.lit(False)), bad)
    entries = exchanging.exchanged(
        parsed, F.when(fine & ~late, row), sent if reading.sends(source) else None, reading.lanes
    )
    left_out = exchanging.branch(entries, exchanging.BAD) if reading.sends(source) else None
    if left_out is not None and decoder is not None:
        left_out = decoding.with_reason(left_out, decoder)
    return Opened(exchanging.branch(entries, exchanging.ROW), left_out)


def _is_late(source: Source, row: Column) -> Column:
    """Whether a row is late, as Spark judges before operators with state; without an event time it is not."""
    assert source.watermark is not None
    at = row.getField(source.watermark.column)
    return F.coalesce(at <= F.col(batch_watermark.COLUMN), F.lit(False))


def _records(
    opening: Opening,
    source: Source,
    decoder: Decoder | None,
    wanted: Iterable[str],
    *,
    late: bool = False,
) -> DataFrame:
    """The records as a stream, not decoded: the value and the wanted columns, or without a decoder all.

    `late` adds the watermark by which the rows of a batch are judged.
    """
    if source.kind == "files":
        return (
            opening.parquet(source, streaming=True)
            if decoder is None
            else _lines(opening, source, decoder, streaming=True)
        )
    names = set(ALL_COLUMNS if decoder is None else ("value", *wanted))
    columns = [name for name in ALL_COLUMNS if name in names]
    return opening.topics(source, [*columns, batch_watermark.COLUMN] if late else columns, streaming=True)


def read_source(
    opening: Opening, source: Source, metadata: Sequence[str], counted: str | None = None
) -> DataFrame:
    """The rows of a source: a stream, or a table for a join. `counted` is the metric of malformed ones."""
    decoder = make_decoder(source)
    if source.kind == "files":
        if decoder is None:
            return opening.parquet(source, streaming=not source.static)
        lines = _lines(opening, source, decoder, streaming=not source.static)
        kept = _of_files(metadata)
        return decoding.good_rows(_with_value(lines, kept), decoder, kept, counted)
    if source.kind == "table":
        return tables.latest_rows(opening.topics(source, ALL_COLUMNS, streaming=False), source, decoder, metadata)
    raw = {_raw_name(name): name for name in metadata}
    frame = _records(opening, source, decoder, raw)
    if decoder is None:
        return frame
    names = {column: name for column, name in raw.items() if name != VALUE}
    return decoding.good_rows(_with_value(renamed(frame, names), metadata), decoder, metadata, counted)


def _raw_name(name: str) -> str:
    """The source's own name of a metadata column."""
    return {VALUE: "value", FILE: FILE}.get(name, name.removeprefix("_"))


def _of_files(metadata: Sequence[str]) -> list[str]:
    return [FILE, *(name for name in metadata if name == VALUE)]


def _with_value(frame: DataFrame, kept: Sequence[str]) -> DataFrame:
    return frame.withColumn(VALUE, F.col("value")) if VALUE in kept else frame


def malformed_records(opening: Opening, source: Source) -> DataFrame:
    """The records that the source leaves out, with all columns and the reason, as a stream of their own."""
    decoder = make_decoder(source)
    assert decoder is not None, "raw values are never malformed"
    if source.kind == "table":
        decoder = tables.TableDecoder(decoder, source.key)
        return decoding.malformed_rows(opening.topics(source, LETTER_COLUMNS, streaming=True), decoder)
    return decoding.malformed_rows(_records(opening, source, decoder, LETTER_COLUMNS), decoder)


def _lines(opening: Opening, source: Source, decoder: Decoder, *, streaming: bool) -> DataFrame:
    """The lines of files, without empty lines, and for CSV without headers and comments."""
    lines = opening.lines(source, streaming=streaming)
    if source.format != "text":
        lines = lines.where(F.trim("value") != "")
    return _only_rows(lines, source, decoder) if source.format == "csv" else lines


def _only_rows(lines: DataFrame, source: Source, decoder: Decoder) -> DataFrame:
    own = {name.lower(): value for name, value in format_options(source.options, source.format).items()}
    if own.get("comment"):
        lines = lines.where(~F.col("value").startswith(own["comment"]))
    if own.get("header", "").lower() == "true":
        header = own.get("sep", own.get("delimiter", ",")).join(decoder.schema.names)
        lines = lines.where(F.lower(_bare_line(F.col("value"))) != F.lower(_bare_line(F.lit(header))))
    return lines


def _bare_line(text: Column) -> Column:
    """A line without quotes and white space, so that a separator of white space does not count either."""
    return F.regexp_replace(text, r'["\s]', "")


def renamed(frame: DataFrame, names: Mapping[str, str]) -> DataFrame:
    return frame.select(*(F.col(quoted(name)).alias(names.get(name, name)) for name in frame.columns))
