"""From a pipeline to streaming queries: one for each sink, and one for each source whose records can be malformed.

Every query is compiled for itself, with the sources and steps that it needs: a source belongs to one query, which
carries its consumer group. Query and group are called `<pipeline>.<sink>` or `<pipeline>.<source>.dead-letter`;
the checkpoint is a folder of the same name, see `checkpoint_folders`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from headrace.spark.client.cluster import ClusterSettings, shared_cluster
from headrace.spark.client.creating import TopicShape, ensure_topic
from headrace.spark.errors import explained
from headrace.spark.pipelines.compiling.checkpoint_folders import (
    CheckpointFolder,
    CheckpointPlace,
    CheckpointRefused,
    HadoopFiles,
)
from headrace.spark.pipelines.compiling.checkpoints import (
    Fingerprint,
    changes,
    fingerprint_of,
    what_it_reads,
)
from headrace.spark.pipelines.compiling.dead_letters import dead_letters
from headrace.spark.pipelines.compiling.sinks import SinkProblem, rows_to_write, template_columns, writer_for
from headrace.spark.pipelines.compiling.sources import (
    Opening,
    RealOpening,
    malformed_records,
    metadata_used,
    read_source,
    with_watermark,
)
from headrace.spark.pipelines.compiling.steps import run_step
from headrace.spark.pipelines.definition import Part, Pipeline, PipelineError, Problem, Sink, Source, Step
from headrace.spark.pipelines.explaining.spark_words import SPARK_ERRORS, told
from headrace.spark.pipelines.explaining.sql_errors import NO_WORKER, step_problem
from headrace.spark.pipelines.formats.avro_schema import AvroSchemaError
from headrace.spark.pipelines.formats.choosing import DECODED, SchemaFileError
from headrace.spark.pipelines.graph import upstream

DEAD_LETTER = "dead-letter"
TOPIC_TIMEOUT_S = 5.0
INITIALIZING = "Initializing sources"
"""What Spark says of a query whose sources are not there yet."""
BEGIN_S = 30.0
POLL_S = 0.02
MORE_STARTS = 3


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """A query that can be started, any number of times, one after the other."""

    name: str
    kind: Literal["sink", "dead_letter"]
    part: str
    """The sink, or the source whose dead letters it sends."""
    checkpoint: str
    _start: Callable[[Mapping[str, Any]], StreamingQuery]

    def start(self, trigger: Mapping[str, Any]) -> StreamingQuery:
        """`trigger` as Spark's writer takes it: {"availableNow": True} or {"processingTime": "1 second"}."""
        return self._start(trigger)


@dataclass(frozen=True, slots=True)
class Building:
    """What all queries of a pipeline have in common."""

    pipeline: Pipeline
    session: SparkSession
    bootstrap: str
    checkpoints: CheckpointFolder
    stop_file: Path | None

    def opening(self, query: str) -> RealOpening:
        return RealOpening(self.session, self.bootstrap, query, self.stop_file)

    def ensure_topic(self, name: str, wanted: TopicShape) -> None:
        """Whoever starts queries waits for this: a broker that is away is told soon."""
        settings = ClusterSettings(self.bootstrap, request_timeout_s=TOPIC_TIMEOUT_S)
        with explained(self.bootstrap):
            ensure_topic(shared_cluster(settings), name, wanted)


def build_queries(
    pipeline: Pipeline,
    session: SparkSession,
    *,
    bootstrap: str,
    checkpoint: CheckpointPlace,
    stop_file: Path | None = None,
) -> list[QueryPlan]:
    """Raises `PipelineError` with what Spark says of the steps and sinks; nothing is started or written yet.

    `stop_file`: while it is there, sources hand out nothing new.
    """
    checkpoints = CheckpointFolder(HadoopFiles(session), checkpoint, pipeline.name)
    building = Building(pipeline, session, bootstrap, checkpoints, stop_file)
    with _refusals(pipeline, pipeline):
        checkpoints.check()
    plans = [_sink_plan(building, sink) for sink in pipeline.sinks]
    for source in pipeline.sources:
        if not has_dead_letters(source):
            continue
        readers = [
            plan
            for plan, sink in zip(plans, pipeline.sinks, strict=False)
            if source.name in {part.name for part in upstream(pipeline, sink.input)}
        ]
        if readers:
            plans.append(_dead_letter_plan(building, source, readers))
    return plans


def has_dead_letters(source: Source) -> bool:
    """Whether records can be malformed. A static table is read once, by nobody who could tell."""
    return source.format in DECODED and not source.static


def _sink_plan(building: Building, sink: Sink) -> QueryPlan:
    pipeline = building.pipeline
    name = f"{pipeline.name}.{sink.name}"
    views = compile_views(building.session, pipeline, building.opening(name), sink.input)
    rows = sink_rows(pipeline, sink, views[sink.input])
    fingerprint = fingerprint_of(views[sink.input], pipeline)
    with _refusals(pipeline, sink):
        location = building.checkpoints.locate(sink.name, fingerprint)

    def start(trigger: Mapping[str, Any]) -> StreamingQuery:
        _check_checkpoint(building, sink, location, fingerprint)
        if sink.kind == "topic" and sink.create is not None and not template_columns(sink.topic):
            wanted = TopicShape(sink.create.partitions, sink.create.replication, tuple(sink.create.config.items()))
            building.ensure_topic(sink.topic, wanted)
        return _started(writer_for(rows, sink, building.bootstrap), location, name, trigger)

    return QueryPlan(
        name,
        "sink",
        sink.name,
        location,
        start,
    )


def _dead_letter_plan(building: Building, source: Source, readers: Sequence[QueryPlan]) -> QueryPlan:
    """`readers` are the queries of sinks that read the same source."""
    part = f"{source.name}.{DEAD_LETTER}"
    name = f"{building.pipeline.name}.{part}"
    with Blaming(building.pipeline, source, "schema"):
        letters = dead_letters(malformed_records(building.opening(name), source), building.pipeline.name, source)
    fingerprint = Fingerprint(((source.name, what_it_reads(source)),), (), building.pipeline.name)
    with _refusals(building.pipeline, source):
        location = building.checkpoints.locate(part, fingerprint, [plan.checkpoint for plan in readers])

    def start(trigger: Mapping[str, Any]) -> StreamingQuery:
        with _refusals(building.pipeline, source):
            building.checkpoints.record(location, fingerprint)
        writer = letters.writeStream.outputMode("append")
        if source.dead_letter is None:
            return _started(writer.format("noop"), location, name, trigger)
        building.ensure_topic(source.dead_letter, TopicShape())
        to_topic = {"kafka.bootstrap.servers": building.bootstrap, "topic": source.dead_letter}
        return _started(writer.format("headrace").options(**to_topic), location, name, trigger)

    return QueryPlan(
        name,
        "dead_letter",
        source.name,
        location,
        start,
    )


def _started(writer: DataStreamWriter, location: str, name: str, trigger: Mapping[str, Any]) -> StreamingQuery:
    """A query whose sources are there. On a busy machine Spark may not wait long enough for their processes."""
    named = writer.queryName(name).option("checkpointLocation", location).trigger(**trigger)
    query = _begun(named.start())
    for _ in range(MORE_STARTS):
        failure = None if query.isActive else query.exception()
        if failure is None or NO_WORKER not in str(failure):
            break
        query = _begun(named.start())
    return query


def _begun(query: StreamingQuery) -> StreamingQuery:
    """Queries begin one after the other: each starts Python processes, which would slow each other down."""
    give_up_s = time.monotonic() + BEGIN_S
    while query.isActive and query.status["message"] == INITIALIZING and time.monotonic() < give_up_s:
        time.sleep(POLL_S)
    return query


def _check_checkpoint(building: Building, sink: Sink, location: str, fingerprint: Fingerprint) -> None:
    before = building.checkpoints.recorded(location)
    found = [] if before is None else changes(before, fingerprint)
    if found:
        what = f"sink {sink.name} cannot continue from its checkpoint: {'; '.join(found)}"
        advice = (
            f"To start over, give it another name or a new checkpoint:, or remove {location}; or undo the change."
        )
        raise PipelineError([Problem(building.pipeline.path, sink.line, sink.column, what, advice)])
    with _refusals(building.pipeline, sink):
        building.checkpoints.record(location, fingerprint)


@contextmanager
def _refusals(pipeline: Pipeline, part: Part) -> Iterator[None]:
    """A checkpoint that is not this pipeline's becomes a problem at the part that it was meant for."""
    try:
        yield
    except CheckpointRefused as refused:
        kind = type(part).__name__.lower()
        line, column = part.at("checkpoint")
        what = f"{kind} {part.name}: {refused.what}"
        raise PipelineError([Problem(pipeline.path, line, column, what, refused.advice)]) from None


def compile_views(
    session: SparkSession, pipeline: Pipeline, opening: Opening, wanted: str
) -> dict[str, DataFrame]:
    """The view and all it is made of, registered for SQL. The first mistake is raised as a `PipelineError`."""
    needed = {part.name for part in upstream(pipeline, wanted)}
    metadata = metadata_used(pipeline)
    views: dict[str, DataFrame] = {}
    for source in pipeline.sources:
        if source.name in needed:
            views[source.name] = compile_source(pipeline, opening, source, metadata)
    for step in pipeline.steps:
        if step.name in needed:
            views[step.name] = compile_step(session, pipeline, step, views)
    return views


def compile_source(pipeline: Pipeline, opening: Opening, source: Source, metadata: Sequence[str]) -> DataFrame:
    with Blaming(pipeline, source, "schema"):
        rows = read_source(opening, source, metadata)
    with Blaming(pipeline, source, "watermark"):
        view = with_watermark(rows, source)
    view.createOrReplaceTempView(source.name)
    return view


def compile_step(
    session: SparkSession, pipeline: Pipeline, step: Step, views: Mapping[str, DataFrame]
) -> DataFrame:
    try:
        view = run_step(session, step, views, pipeline.path)
        view.createOrReplaceTempView(step.name)
    except SPARK_ERRORS as error:
        raise PipelineError([step_problem(pipeline, step, error)]) from error
    return view


def sink_rows(pipeline: Pipeline, sink: Sink, view: DataFrame) -> DataFrame:
    with Blaming(pipeline, sink, "from"):
        return rows_to_write(view, sink)


class Blaming:
    """What Spark or a schema file says about a part becomes a problem at the place of one of its keys."""

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
        kind = "sink" if isinstance(self._part, Sink) else "source"
        return PipelineError(
            [Problem(self._pipeline.path, line, column, f"{kind} {self._part.name}: {what}", advice)]
        )
