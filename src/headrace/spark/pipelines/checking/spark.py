"""Problems that Spark finds in a pipeline before it runs, without a cluster: every view is built from empty
frames.

Sources become empty streams of the right columns, so that Spark checks names, types, and also what only streams
forbid: an aggregate without watermark in append mode, a join of streams without a span of time, and so on. All
problems are found, not just the first; views that depend on a broken one are skipped.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from headrace.spark.compat import without_call_sites
from headrace.spark.pipelines.compiling.output_modes import check_output_mode
from headrace.spark.pipelines.compiling.sources import EmptyOpening
from headrace.spark.pipelines.compiling.views import Views, sink_rows
from headrace.spark.pipelines.definition import Pipeline, PipelineError, Problem, Sink, Step, Watermark
from headrace.spark.pipelines.durations import parse_milliseconds
from headrace.spark.pipelines.explaining.spark_words import told
from headrace.spark.pipelines.graph import upstream

_OUTPUT_MODE = "STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION"


@without_call_sites()
def check_spark(pipeline: Pipeline, session: SparkSession) -> list[Problem]:
    """In the order of the file."""
    with tempfile.TemporaryDirectory(prefix="headrace-check-") as folder:
        try:
            found = list(_problems(pipeline, session, EmptyOpening(session, folder)))
        finally:
            for part in (*pipeline.sources, *pipeline.steps):
                session.catalog.dropTempView(part.name)
    return sorted(found, key=lambda problem: (problem.line, problem.column))


def _problems(pipeline: Pipeline, session: SparkSession, opening: EmptyOpening) -> Iterator[Problem]:
    made = Views(session, pipeline, opening)
    views = made.views
    for source in pipeline.sources:
        try:
            made.add_source(source)
        except PipelineError as error:
            yield from error.problems
    for step in pipeline.steps:
        yield from _span_problems(pipeline, step)
        if not all(name in views for name in step.inputs):
            continue
        try:
            made.add_step(step)
        except PipelineError as error:
            yield from error.problems
    for sink in pipeline.sinks:
        if sink.input in views:
            yield from _sink_problems(pipeline, session, sink, views[sink.input])


def _sink_problems(pipeline: Pipeline, session: SparkSession, sink: Sink, view: DataFrame) -> Iterator[Problem]:
    if not view.isStreaming:
        what = f"{sink.input} is a table, but a sink writes a stream"
        yield _sink_problem(
            pipeline, sink, "from", what, "Join it with a stream, or read its topic as one: topic:"
        )
        return
    try:
        rows = sink_rows(pipeline, sink, view)
    except PipelineError as error:
        yield from error.problems
        return
    try:
        check_output_mode(session, rows, sink.mode)
    except PySparkException as error:
        yield _sink_problem(pipeline, sink, "mode" if "mode" in sink.places else "from", *_explained(error, sink))


def _explained(error: PySparkException, sink: Sink) -> tuple[str, str | None]:
    if error.getCondition() != _OUTPUT_MODE:
        return told(error)
    operation = (error.getMessageParameters() or {}).get("operation", "")
    if sink.mode == "append" and "without watermark" in operation:
        return (
            f"the aggregate in {sink.input} has no watermark: in append mode a group is written once no more rows "
            "can come for it, and without a watermark that is never known",
            "Give its source a watermark: {column: ..., delay: 1 minute} and group by a window of that column; or "
            "write every change with mode: update.",
        )
    if sink.mode == "complete":
        return "complete writes all groups of an aggregate, but there is no aggregate", "Leave mode: out."
    if "session window" in operation:
        return (
            f"mode {sink.mode} cannot write session windows",
            "Leave mode: out. A session is written when it is over.",
        )
    return f"mode {sink.mode} cannot write {operation}", None


def _span_problems(pipeline: Pipeline, step: Step) -> Iterator[Problem]:
    """Duplicates are remembered for as long as the watermark is late, not longer."""
    if step.kind != "deduplicate" or step.within is None:
        return
    delays = [part.watermark for part in upstream(pipeline, step.name) if part.watermark is not None]
    longest = max((parse_milliseconds(watermark.delay) for watermark in delays), default=None)
    if longest is not None and parse_milliseconds(step.within) > longest:
        line, column = step.at("deduplicate")
        what = (
            f"step {step.name}: within {step.within} is longer than the delay of the watermark ({_shown(delays)})"
        )
        yield Problem(pipeline.path, line, column, what, f"Make the delay of the watermark {step.within}.")


def _shown(watermarks: list[Watermark]) -> str:
    return ", ".join(watermark.delay for watermark in watermarks)


def _sink_problem(pipeline: Pipeline, sink: Sink, key: str, what: str, advice: str | None = None) -> Problem:
    line, column = sink.at(key)
    return Problem(pipeline.path, line, column, f"sink {sink.name}: {what}", advice)
