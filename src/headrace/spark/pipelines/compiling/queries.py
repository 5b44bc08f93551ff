"""From a pipeline to streaming queries: as few as Spark allows, see `grouping`.

A query is compiled for itself, with the sources and steps that it needs: a source belongs to one query, which
carries its consumer group. Query and group are called as the pipeline when all its sinks are in one query; others
`<pipeline>.<first sink>` or `<pipeline>.<source>.dead-letter`. For their checkpoints see `checkpoint_folders`.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from headrace.spark.client.cluster import shared_cluster
from headrace.spark.client.creating import TopicShape, ensure_topic
from headrace.spark.compat import without_call_sites
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
    operations_of,
    what_it_reads,
)
from headrace.spark.pipelines.compiling.dead_letters import dead_letters, late_letters, row_letters
from headrace.spark.pipelines.compiling.grouping import (
    SHARED,
    Membership,
    SinkFacts,
    apart,
    decide_queries,
    folder_of,
    mode_of,
)
from headrace.spark.pipelines.compiling.output_modes import check_output_mode
from headrace.spark.pipelines.compiling.sinks import template_columns
from headrace.spark.pipelines.compiling.sources import (
    EmptyOpening,
    Reading,
    RealOpening,
    is_stream,
    malformed_records,
)
from headrace.spark.pipelines.compiling.views import Blaming, compile_views, sink_rows
from headrace.spark.pipelines.compiling.writing import Branches, Letters
from headrace.spark.pipelines.connecting import cluster_settings, connection_options
from headrace.spark.pipelines.definition import Part, Pipeline, PipelineError, Problem, Sink, Source, Step
from headrace.spark.pipelines.explaining.spark_words import Told, told
from headrace.spark.pipelines.explaining.sql_errors import NO_WORKER
from headrace.spark.pipelines.formats.choosing import DECODED
from headrace.spark.pipelines.graph import upstream

TOPIC_TIMEOUT_S = 5.0
MOST_LANES = 200
INITIALIZING = "Initializing sources"
"""Spark's status of a query whose sources have not started yet."""
BEGIN_S = 30.0
POLL_S = 0.02
MORE_STARTS = 3


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """A query that can be started repeatedly, one run after the other."""

    name: str
    sinks: tuple[str, ...]
    letters: tuple[str, ...]
    """The sources and steps whose dead letters it sends or counts."""
    checkpoint: str
    _start: Callable[[Mapping[str, Any]], StreamingQuery]

    def start(self, trigger: Mapping[str, Any]) -> StreamingQuery:
        """`trigger` as Spark's writer takes it: {"availableNow": True} or {"processingTime": "1 second"}."""
        return self._start(trigger)


@dataclass(frozen=True, slots=True)
class Building:
    """The parts that the queries of a pipeline share."""

    pipeline: Pipeline
    session: SparkSession
    bootstrap: str
    checkpoints: CheckpointFolder
    stop_file: Path | None

    def opening(self, name: str, query: Membership) -> RealOpening:
        checkpoint = self.checkpoints.own(query.folder) if query.is_shared else None
        return RealOpening(self.session, self.bootstrap, name, self.stop_file, checkpoint)

    def ensure_topic(self, name: str, wanted: TopicShape) -> None:
        """The start of the queries waits for this, so a broker that cannot be reached is reported early."""
        settings = cluster_settings(self.pipeline, self.bootstrap, request_timeout_s=TOPIC_TIMEOUT_S)
        with explained(self.bootstrap):
            ensure_topic(shared_cluster(settings), name, wanted)

    def ensure_topics(self, query: Membership) -> None:
        for sink in members(self.pipeline.sinks, query.sinks):
            if sink.kind == "topic" and sink.create is not None and not template_columns(sink.topic):
                made = sink.create
                shape = TopicShape(made.partitions, made.replication, tuple(made.config.items()))
                self.ensure_topic(sink.topic, shape)
        sources = members(self.pipeline.sources, query.letters)
        topics = [topic for source in sources for topic in (source.dead_letter, source.late_rows)]
        topics += [step.dead_letter for step in members(self.pipeline.steps, query.letters)]
        for topic in topics:
            if topic is not None:
                self.ensure_topic(topic, TopicShape())


PartT = TypeVar("PartT", bound=Part)


def members(parts: Sequence[PartT], names: Sequence[str]) -> list[PartT]:
    return [part for part in parts if part.name in names]


@without_call_sites()
def build_queries(
    pipeline: Pipeline,
    session: SparkSession,
    *,
    bootstrap: str,
    checkpoint: CheckpointPlace,
    stop_file: Path | None = None,
) -> list[QueryPlan]:
    """Compile the queries. Nothing is started or written yet.

    Raises `PipelineError` with the problems that Spark finds in steps and sinks.

    `stop_file`: while it exists, sources return nothing new.
    """
    checkpoints = CheckpointFolder(HadoopFiles(session), checkpoint, pipeline.name)
    building = Building(pipeline, session, bootstrap, checkpoints, stop_file)
    with _refusals(pipeline, pipeline):
        checkpoints.check()
    found = look_at(pipeline, session)
    letters = found.letters(pipeline)
    plans: list[QueryPlan] = []
    counted: set[str] = set()
    pending = decide_queries(found.sinks, letters, _begun_queries(building, found, letters))
    while pending:
        query = pending.pop(0)
        try:
            plans.append(_plan(building, found, query, found.only_counted(pipeline, query) - counted))
            counted |= set(plans[-1].letters)
        except NotTogether:
            pending = [*apart(query), *pending]
    check_late_rows(building, found, plans)
    return plans


def check_late_rows(building: Building, found: Found, plans: Sequence[QueryPlan]) -> None:
    """Late rows need a single query, because each query has its own batches and its own watermark."""
    pipeline = building.pipeline
    for source in pipeline.sources:
        if source.late_rows is None:
            continue
        readers = [plan for plan in plans if any(source.name in found.reads[sink] for sink in plan.sinks)]
        if len(readers) != 1:
            names = "; ".join(", ".join(plan.sinks) for plan in readers)
            what = (
                f"late_rows needs one query for all sinks of source {source.name}, and they need several: {names}"
            )
            advice = "Give each of them a source of its own, or a pipeline."
            raise PipelineError([pipeline.problem(source, "late_rows", what, advice)])
        if "://" in readers[0].checkpoint and not readers[0].checkpoint.startswith("file://"):
            what = f"late_rows needs a checkpoint on this machine's disk, not {readers[0].checkpoint}"
            raise PipelineError([pipeline.problem(source, "late_rows", what, "Give another checkpoint:.")])


class NotTogether(Exception):
    """Spark refuses the sinks in one query, although it accepts each alone."""


def has_dead_letters(source: Source) -> bool:
    """Whether records can be malformed. A static table is read once, and has no dead letters."""
    return source.format in DECODED and not source.static


def sends_letters(part: Source | Step) -> bool:
    if isinstance(part, Step):
        return part.dead_letter is not None
    return part.late_rows is not None or (has_dead_letters(part) and part.dead_letter is not None)


@dataclass(frozen=True, slots=True)
class Found:
    """The result of compiling a pipeline without reading anything."""

    sinks: tuple[SinkFacts, ...]
    reads: Mapping[str, frozenset[str]]
    """The sources and steps of each sink, tables too."""
    fingerprints: Mapping[str, Fingerprint]
    """The fingerprint of each sink in a query of its own."""

    def letters(self, pipeline: Pipeline) -> dict[str, frozenset[str]]:
        """The sources and steps whose dead letters or late rows are sent, each with the sinks that read it."""
        sources = [one.name for one in pipeline.views if sends_letters(one)]
        readers = {name: frozenset(sink for sink, read in self.reads.items() if name in read) for name in sources}
        return {name: sinks for name, sinks in readers.items() if sinks}

    def only_counted(self, pipeline: Pipeline, query: Membership) -> set[str]:
        """The sources and steps whose malformed records are counted and dropped, which needs no further query."""
        read = frozenset[str]().union(*(self.reads[sink] for sink in query.sinks))
        streams = [one for one in pipeline.sources if has_dead_letters(one) and is_stream(one)]
        names = [one.name for one in streams if one.dead_letter is None]
        names += [step.name for step in pipeline.steps if step.kind == "python_rows" and step.dead_letter is None]
        return {name for name in names if name in read}


def look_at(pipeline: Pipeline, session: SparkSession) -> Found:
    """Compile everything on empty frames."""
    facts, reads, fingerprints = [], {}, {}
    with tempfile.TemporaryDirectory(prefix="headrace-look-") as folder:
        inputs = {sink.input for sink in pipeline.sinks}
        views = compile_views(session, pipeline, EmptyOpening(session, folder), inputs).views
        for sink in pipeline.sinks:
            view = views[sink.input]
            sink_rows(pipeline, sink, view)
            before = list(upstream(pipeline, sink.input))
            sources = [part for part in before if isinstance(part, Source)]
            streams = frozenset(source.name for source in sources if is_stream(source))
            operations = operations_of(view, pipeline)
            facts.append(SinkFacts(sink.name, sink.input, sink.mode, streams, operations.has_state))
            reads[sink.name] = frozenset(part.name for part in before)
            fingerprints[sink.name] = operations.fingerprint
    return Found(tuple(facts), reads, fingerprints)


def _begun_queries(building: Building, found: Found, letters: Mapping[str, frozenset[str]]) -> list[Membership]:
    """Queries that have a checkpoint: the recorded ones, and those of earlier versions, sink by sink."""
    checkpoints = building.checkpoints
    begun = [query for query in checkpoints.listed() if checkpoints.has_begun(query.folder)]
    listed = {query.folder for query in begun}
    for sink in building.pipeline.sinks:
        with _refusals(building.pipeline, sink):
            location = checkpoints.locate(sink.name, found.fingerprints[sink.name])
        if sink.name not in listed and checkpoints.begun_at(location):
            begun.append(Membership(sink.name, (sink.name,)))
    for part in members(building.pipeline.views, list(letters)):
        folder = folder_of((), (part.name,))
        if folder in listed:
            continue
        with _refusals(building.pipeline, part):
            location = _letters_location(building, found, part, letters[part.name])
        if checkpoints.begun_at(location):
            begun.append(Membership(folder, (), (part.name,)))
    return begun


def _letters_location(building: Building, found: Found, part: Source | Step, readers: Iterable[str]) -> str:
    beside = [building.checkpoints.locate(name, found.fingerprints[name]) for name in readers]
    folder = folder_of((), (part.name,))
    return building.checkpoints.locate(folder, letters_fingerprint(building.pipeline, part), beside)


def letters_fingerprint(pipeline: Pipeline, part: Source | Step) -> Fingerprint:
    """The fingerprint of a query of dead letters alone."""
    before = [one for one in upstream(pipeline, part.name) if isinstance(one, Source)]
    sources = [part] if isinstance(part, Source) else [one for one in before if is_stream(one)]
    return Fingerprint(tuple((one.name, what_it_reads(one)) for one in sources), (), pipeline.name)


def query_name(pipeline: Pipeline, query: Membership) -> str:
    """The name of a query: the pipeline's own for a query that has all its sinks."""
    if query.is_shared and set(query.sinks) == {sink.name for sink in pipeline.sinks}:
        return pipeline.name
    return f"{pipeline.name}.{query.folder.removesuffix(SHARED)}"


def _plan(building: Building, found: Found, query: Membership, counted: set[str]) -> QueryPlan:
    pipeline, name = building.pipeline, query_name(building.pipeline, query)
    branches = _branches(building, found, query, counted, name)
    part: Part = next(iter(members(pipeline.sinks, query.sinks)), pipeline)
    if query.is_shared:
        fingerprint = fingerprint_of(branches.frame(), pipeline)
        location = building.checkpoints.own(query.folder)
    elif query.sinks:
        fingerprint = found.fingerprints[query.sinks[0]]
        with _refusals(pipeline, part):
            location = building.checkpoints.locate(query.folder, fingerprint)
    else:
        (view,) = members(pipeline.views, query.letters)
        fingerprint, part = letters_fingerprint(pipeline, view), view
        readers = [sink for sink, read in found.reads.items() if view.name in read]
        with _refusals(pipeline, part):
            location = _letters_location(building, found, view, readers)

    @without_call_sites()
    def start(trigger: Mapping[str, Any]) -> StreamingQuery:
        _check_checkpoint(building, query, part, location, fingerprint)
        building.ensure_topics(query)
        return _started(branches.writer(name, building.bootstrap, location), location, name, trigger)

    return QueryPlan(name, query.sinks, (*query.letters, *sorted(counted)), location, start)


def _branches(building: Building, found: Found, query: Membership, counted: set[str], name: str) -> Branches:
    """The branches of this query: its sources have its consumer group, and know how many branches read them."""
    pipeline, session = building.pipeline, building.session
    sinks = members(pipeline.sinks, query.sinks)
    opening = building.opening(name, query)
    mode = mode_of([facts for facts in found.sinks if facts.name in query.sinks])
    if not sinks:
        (part,) = members(pipeline.views, query.letters)
        malformed = _only_malformed(building, opening, part)
        return Branches({}, (), _letters(pipeline, malformed), mode, connection_options(pipeline))
    reads = [found.reads[sink.name] for sink in _one_for_each_view(sinks)]
    readings = _readings(building, {*query.letters, *counted}, reads)
    compiled = compile_views(session, pipeline, opening, {sink.input for sink in sinks}, readings)
    views = {sink.input: compiled.views[sink.input] for sink in sinks}
    letters = _letters(pipeline, compiled.malformed)
    branches = Branches(views, sinks, letters, mode, connection_options(pipeline))
    if query.is_shared and len(query.sinks) + len(query.letters) > 1:
        try:
            check_output_mode(session, branches.frame(), mode)
        except PySparkException as error:
            raise NotTogether from error
    return branches


def _only_malformed(building: Building, opening: RealOpening, part: Source | Step) -> dict[str, DataFrame]:
    """The malformed records for a query of dead letters alone."""
    pipeline = building.pipeline
    if isinstance(part, Step):
        readings = {part.name: Reading(0, letters=True)}
        return compile_views(building.session, pipeline, opening, [part.name], readings).malformed
    if part.late_rows is not None:
        what = "late_rows does not go with sinks of mode complete, which keep every row"
        raise PipelineError([pipeline.problem(part, "late_rows", what)])
    with Blaming(pipeline, part, "schema"):
        return {part.name: malformed_records(opening, part)}


def _one_for_each_view(sinks: Sequence[Sink]) -> list[Sink]:
    return list({sink.input: sink for sink in sinks}.values())


def _readings(building: Building, letters: set[str], reads: Sequence[frozenset[str]]) -> dict[str, Reading]:
    lanes = max(1, min(MOST_LANES, building.session.sparkContext.defaultParallelism))
    return {
        view.name: Reading(sum(view.name in one for one in reads), view.name in letters, lanes)
        for view in building.pipeline.views
    }


def _letters(pipeline: Pipeline, malformed: Mapping[str, DataFrame]) -> list[Letters]:
    found = []
    for source in pipeline.sources:
        left_out = malformed.get(source.name)
        if left_out is not None and source.dead_letter is not None:
            found.append(Letters(dead_letters(left_out, pipeline.name, source), source.dead_letter))
        if left_out is not None and source.late_rows is not None:
            found.append(Letters(late_letters(left_out, pipeline.name, source), source.late_rows))
    for step in pipeline.steps:
        failed = malformed.get(step.name)
        if failed is not None and step.dead_letter is not None:
            found.append(Letters(row_letters(failed, pipeline.name, step), step.dead_letter))
    return found


def _started(writer: DataStreamWriter, location: str, name: str, trigger: Mapping[str, Any]) -> StreamingQuery:
    """Start a query once its sources run. On a busy machine Spark may not wait long enough for their processes."""
    named = writer.queryName(name).option("checkpointLocation", location).trigger(**trigger)
    query = _begun(named.start())
    for _ in range(MORE_STARTS):
        failure = None if query.isActive else query.exception()
        if failure is None or NO_WORKER not in str(failure):
            break
        query = _begun(named.start())
    return query


def _begun(query: StreamingQuery) -> StreamingQuery:
    """Wait until a query has started, so that queries start one after the other: each starts Python processes,
    which would slow each other down."""
    give_up_s = time.monotonic() + BEGIN_S
    while query.isActive and query.status["message"] == INITIALIZING and time.monotonic() < give_up_s:
        time.sleep(POLL_S)
    return query


_OWN_NAME = (
    "Give them back their names; or give this pipeline a `name` or `checkpoint` of its own, or start over with "
    "`headrace pipeline reset FILE`."
)


def _check_checkpoint(
    building: Building, query: Membership, part: Part, location: str, fingerprint: Fingerprint
) -> None:
    before = building.checkpoints.recorded(location)
    if before is not None and query.is_shared and not query.sinks:
        # Spark refuses it too, but after the file beside the checkpoint was overwritten: undoing would not help.
        what = f"none of the sinks that checkpoint {query.folder} was made for are in the file any more"
        raise PipelineError([Problem(building.pipeline.path, part.line, part.column, what, _OWN_NAME)])
    found = [] if before is None or not query.sinks else changes(before, fingerprint)
    if found:
        several = len(query.sinks) > 1
        who = f"sinks {', '.join(query.sinks)}" if several else f"sink {part.name}"
        what = f"{who} cannot continue from {'their' if several else 'its'} checkpoint: {'; '.join(found)}"
        advice = (
            f"To start over, give it another name or a new checkpoint:, or remove {location}; or undo the change."
        )
        raise PipelineError([Problem(building.pipeline.path, part.line, part.column, what, advice)])
    with _refusals(building.pipeline, part):
        building.checkpoints.record(location, fingerprint)
        building.checkpoints.list_query(query)


@contextmanager
def _refusals(pipeline: Pipeline, part: Part) -> Iterator[None]:
    """Report a checkpoint that belongs to another pipeline, or cannot be opened, at the part that uses it."""
    try:
        yield
    except CheckpointRefused as refused:
        problem = Told(refused.what, refused.advice)
    except Py4JError as error:
        what, advice = told(error)
        problem = Told(f"the checkpoint cannot be opened: {what}", advice)
    else:
        return
    line, column = part.at("checkpoint")
    what = f"{type(part).__name__.lower()} {part.name}: {problem.what}"
    raise PipelineError([Problem(pipeline.path, line, column, what, problem.advice)]) from None
