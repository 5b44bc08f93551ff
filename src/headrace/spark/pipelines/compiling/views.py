"""The views of a pipeline as DataFrames, registered for SQL.

Spark follows a watermark from where it is set to the operations with state above it, but not through a shuffle
that it uses again: that is a leaf of its plan. A step of `python_rows` has such a shuffle (see `row_steps`). So
its input is built again without a watermark, and the watermark is set on its output, if the column still exists.
Spark refuses a second watermark above a first one: exactly one of the two forms is below any view.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import TimestampNTZType, TimestampType

from headrace.spark.compat import without_call_sites
from headrace.spark.pipelines.compiling import exchanging
from headrace.spark.pipelines.compiling.checkpoints import has_state, has_watermark
from headrace.spark.pipelines.compiling.python_steps import load_function
from headrace.spark.pipelines.compiling.row_steps import RECORD, run_row_step, with_record
from headrace.spark.pipelines.compiling.sinks import SinkProblem, rows_to_write
from headrace.spark.pipelines.compiling.sources import (
    MARK,
    VALUE,
    Opening,
    Reading,
    is_stream,
    metadata_used,
    open_source,
    with_watermark,
)
from headrace.spark.pipelines.compiling.steps import run_step
from headrace.spark.pipelines.definition import Part, Pipeline, PipelineError, Problem, Sink, Source, Step
from headrace.spark.pipelines.explaining.spark_words import SPARK_ERRORS, told
from headrace.spark.pipelines.explaining.sql_errors import step_problem
from headrace.spark.pipelines.formats.avro_schema import AvroSchemaError
from headrace.spark.pipelines.formats.choosing import DECODED, SchemaFileError
from headrace.spark.pipelines.graph import upstream

DELAY = "spark.watermarkDelayMs"
"""The key of Spark's metadata for a column with a watermark."""


class Views:
    """The views that were created so far, in the order of the file."""

    def __init__(
        self,
        session: SparkSession,
        pipeline: Pipeline,
        opening: Opening,
        readings: Mapping[str, Reading] | None = None,
    ) -> None:
        self.views: dict[str, DataFrame] = {}
        self.malformed: dict[str, DataFrame] = {}
        """The malformed rows by source or step, where dead letters are sent."""
        self._session = session
        self._pipeline = pipeline
        self._opening = opening
        self._readings = readings or {}
        self._metadata = metadata_used(pipeline)
        rows = [step.name for step in pipeline.steps if step.kind == "python_rows"]
        self._unmarked_wanted = {part.name for name in rows for part in upstream(pipeline, name)}
        self._unmarked: dict[str, DataFrame | None] = {}

    def add_source(self, source: Source) -> None:
        """Add the view of a source. Raises `PipelineError`, as `add_step` does."""
        reading = self._reading(source)
        carries = source.name in self._unmarked_wanted and is_stream(source)
        decoded = source.format in DECODED
        metadata = (*self._metadata, VALUE) if carries and decoded else self._metadata
        with Blaming(self._pipeline, source, "schema"):
            opened = open_source(self._opening, source, metadata, reading)
        with Blaming(self._pipeline, source, "watermark"):
            view = with_watermark(opened.rows, source, shared=reading.is_shared(source))
        view.createOrReplaceTempView(source.name)
        self.views[source.name] = view
        if carries:
            self._unmarked[source.name] = with_record(opened.rows, source).alias(MARK + source.name)
        if opened.malformed is not None:
            self.malformed[source.name] = opened.malformed

    def add_step(self, step: Step) -> None:
        try:
            if step.kind == "python_rows":
                view = self._rows_of_function(step)
            else:
                view = run_step(self._session, step, self.views, self._pipeline.path)
            view.createOrReplaceTempView(step.name)
        except SPARK_ERRORS as error:
            raise PipelineError([step_problem(self._pipeline, step, error)]) from error
        self.views[step.name] = view
        if step.name in self._unmarked_wanted and step.kind != "python_rows":
            self._unmarked[step.name] = self._without_watermark(step)

    def _reading(self, part: Part) -> Reading:
        return self._readings.get(part.name, Reading())

    def _rows_of_function(self, step: Step) -> DataFrame:
        (name,) = step.inputs
        function, reading = load_function(step, self._pipeline.path), self._reading(step)
        unmarked = self._unmarked.get(name)
        frame = self.views[name] if unmarked is None else unmarked
        with Blaming(self._pipeline, step, "schema"):
            made = run_row_step(step, function, frame, reading)
        if made.malformed is not None:
            self.malformed[step.name] = made.malformed
        rows = made.rows.drop(RECORD)
        if unmarked is None:
            self._unmarked[step.name] = None if has_watermark(rows) else made.rows
            return rows
        self._unmarked[step.name] = made.rows
        times = {field.name for field in rows.schema.fields if isinstance(field.dataType, _TIMES)}
        for column, delay_ms in watermarks(self.views[name]).items():
            if column in times:
                rows = rows.withWatermark(column, f"{delay_ms} milliseconds")
                return exchanging.fixed(rows) if made.malformed is not None or reading.branches > 1 else rows
        return rows

    def _without_watermark(self, step: Step) -> DataFrame | None:
        """A step without its watermark; None if that is impossible because its state needs the watermark."""
        inputs = {name: self._unmarked.get(name, self.views[name]) for name in step.inputs}
        found = {name: frame for name, frame in inputs.items() if frame is not None}
        if len(found) < len(inputs) or step.kind == "deduplicate":
            return None
        if step.kind == "watermark":
            return found[step.inputs[0]]
        if step.kind == "select" and RECORD in found[step.inputs[0]].columns:
            return found[step.inputs[0]].selectExpr(*step.columns, RECORD)
        bare = {name: frame.drop(RECORD) for name, frame in found.items()}
        for frames in (found, bare):  # there may be several columns
            made = self._tried(step, frames)
            if made is not None:
                return None if has_state(made) or has_watermark(made) else made
        return None

    def _tried(self, step: Step, frames: Mapping[str, DataFrame]) -> DataFrame | None:
        try:
            with self._registered(frames):
                return run_step(self._session, step, frames, self._pipeline.path)
        except (PipelineError, *SPARK_ERRORS):
            return None

    @contextmanager
    def _registered(self, frames: Mapping[str, DataFrame]) -> Iterator[None]:
        """Make SQL find these frames under the names of the views."""
        for name, frame in frames.items():
            frame.createOrReplaceTempView(name)
        try:
            yield
        finally:
            for name in frames:
                self.views[name].createOrReplaceTempView(name)


_TIMES = (TimestampType, TimestampNTZType)


def watermarks(view: DataFrame) -> dict[str, int]:
    """The delay of the watermark by column, as Spark records it."""
    fields = view.schema.fields
    return {field.name: int(field.metadata[DELAY]) for field in fields if DELAY in (field.metadata or {})}


@without_call_sites()
def compile_views(
    session: SparkSession,
    pipeline: Pipeline,
    opening: Opening,
    wanted: Iterable[str],
    readings: Mapping[str, Reading] | None = None,
) -> Views:
    """The views and all they are made of, registered for SQL. The first mistake is raised as a `PipelineError`."""
    needed = {part.name for view in wanted for part in upstream(pipeline, view)}
    made = Views(session, pipeline, opening, readings)
    for source in pipeline.sources:
        if source.name in needed:
            made.add_source(source)
    for step in pipeline.steps:
        if step.name in needed:
            made.add_step(step)
    return made


def sink_rows(pipeline: Pipeline, sink: Sink, view: DataFrame) -> DataFrame:
    with Blaming(pipeline, sink, "from"):
        return rows_to_write(view, sink)


class Blaming:
    """Turns errors of Spark or of a schema file into a problem at one of the part's keys."""

    def __init__(self, pipeline: Pipeline, part: Part, key: str) -> None:
        self._pipeline = pipeline
        self._part = part
        self._key = key

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, SinkProblem):
            raise self._problem(error.key, error.what, error.advice) from None
        if isinstance(error, (SchemaFileError, AvroSchemaError)):
            raise self._problem("schema_file", str(error)) from None
        if isinstance(error, SPARK_ERRORS):
            raise self._problem(self._key, *told(error)) from error

    def _problem(self, key: str, what: str, advice: str | None = None) -> PipelineError:
        line, column = self._part.at(key)
        kind = type(self._part).__name__.lower()
        return PipelineError(
            [Problem(self._pipeline.path, line, column, f"{kind} {self._part.name}: {what}", advice)]
        )
