"""Checks of a loaded pipeline that need neither Spark nor a cluster: do its parts fit together?

Every check is a function from the pipeline to its problems; `CHECKS` is the list. Files that the pipeline names
are looked into and never run: Python is parsed, schemas are read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator

from headrace.spark.pipelines.checking.cluster import check_cluster
from headrace.spark.pipelines.checking.connectors import check_connectors
from headrace.spark.pipelines.checking.files import check_files
from headrace.spark.pipelines.checking.options import check_options
from headrace.spark.pipelines.checking.sessions import check_sessions
from headrace.spark.pipelines.definition import Pipeline, Problem, Sink, Source, Step
from headrace.spark.pipelines.graph import upstream, used_views
from headrace.spark.pipelines.nearest import suggestion

__all__ = ["check_cluster", "check_static"]

Problems = Iterator[Problem]

_COLUMN = re.compile(r"\\\{[^{}]*\\\}")
_FIRST_WORD = re.compile(r"(?:\s|\(|--[^\n]*\n|/\*.*?\*/)*([A-Za-z]\w*)", re.DOTALL)
_QUERIES = frozenset({"SELECT", "WITH", "FROM", "VALUES", "TABLE"})
_NEEDS_SCHEMA = frozenset({"json", "csv", "avro"})
_GOES_ROUND = "Records would loop forever. Write somewhere else."


def check_static(pipeline: Pipeline) -> list[Problem]:
    """All problems and warnings, in the order of the file."""
    found = [problem for check in CHECKS for problem in check(pipeline)]
    return sorted(found, key=lambda problem: (problem.path != pipeline.path, problem.line, problem.column))


def _inputs_exist(pipeline: Pipeline) -> Problems:
    earlier = [source.name for source in pipeline.sources]
    steps = [step.name for step in pipeline.steps]
    for step in pipeline.steps:
        key = "from" if "from" in step.places else step.kind
        for name in step.inputs:
            if name not in earlier:
                yield _missing(pipeline, step, key, name, earlier, steps)
        earlier.append(step.name)
    for sink in pipeline.sinks:
        if sink.input not in earlier:
            yield _missing(pipeline, sink, "from", sink.input, earlier, [])


def _missing(
    pipeline: Pipeline, part: Step | Sink, key: str, name: str, earlier: list[str], steps: list[str]
) -> Problem:
    kind = "step" if isinstance(part, Step) else "sink"
    if name == part.name and kind == "step":
        return pipeline.problem(part, key, f"step {name} reads itself", "It can read what comes before it.")
    if name in steps:
        advice = f"Put {name} before {part.name}."
        return pipeline.problem(part, key, f"step {part.name} reads {name}, which comes later", advice)
    advice = suggestion(name, earlier, f"Available: {', '.join(earlier)}.")
    return pipeline.problem(part, key, f"{kind} {part.name} reads {name}, which does not exist", advice)


def _all_is_used(pipeline: Pipeline) -> Problems:
    if any(_inputs_exist(pipeline)):
        return  # another part uses an unknown name
    used = used_views(pipeline)
    for part in pipeline.views:
        if part.name not in used:
            kind = "source" if isinstance(part, Source) else "step"
            advice = "Use it in a step or sink, or remove it."
            yield pipeline.problem(part, "", f"{kind} {part.name} is not used by any sink", advice, warning=True)


def _sources_have_schemas(pipeline: Pipeline) -> Problems:
    for source in pipeline.sources:
        given = source.schema or source.schema_file
        if source.format in _NEEDS_SCHEMA and not given:
            advice = 'For example: schema: "id string, at timestamp"'
            if source.format == "avro":
                advice = "Name the file with its Avro schema: schema_file: events.avsc"
            yield pipeline.problem(
                source, "format", f"source {source.name} is {source.format} without a schema", advice
            )
        elif source.format == "avro" and source.schema:
            advice = "Put it into a file: schema_file: events.avsc"
            yield pipeline.problem(source, "schema", "an avro source takes its schema from a file", advice)
        elif source.format in ("raw", "text") and given:
            key = "schema" if source.schema else "schema_file"
            what = f"source {source.name} has a schema, which its format {source.format} does not use"
            yield pipeline.problem(
                source, key, what, "Give its format, such as format: json, or leave the schema out."
            )


def _sinks_have_schemas(pipeline: Pipeline) -> Problems:
    for sink in pipeline.sinks:
        if sink.format == "avro" and not sink.schema_file:
            advice = "Name the file with its Avro schema: schema_file: events.avsc"
            yield pipeline.problem(sink, "format", f"sink {sink.name} is avro without a schema", advice)
        elif sink.format != "avro" and sink.schema_file:
            what = f"sink {sink.name} has a schema_file, which its format {sink.format} does not use"
            yield pipeline.problem(sink, "schema_file", what, "Set format: avro, or leave it out.")
        if sink.format == "raw" and sink.key:
            what = f"sink {sink.name} has key and the format raw, which takes the column named key"
            yield pipeline.problem(sink, "key", what, "Name the column key in a step, or use format: json.")


def _sql_only_asks(pipeline: Pipeline) -> Problems:
    """Spark executes a command as soon as it parses it, even in a check."""
    for step in pipeline.steps:
        verb = _FIRST_WORD.match(step.text) if step.kind == "sql" else None
        if verb is not None and verb[1].upper() not in _QUERIES:
            at = step.place_in_text(*_line_and_column(step.text, verb.start(1)))
            what = f"step {step.name}: a step must be a query, not {verb[1].upper()}"
            advice = "Start it with SELECT, or WITH ... SELECT; sinks do the writing."
            yield Problem(pipeline.path, at.line, at.column, what, advice)


def _line_and_column(text: str, index: int) -> tuple[int, int]:
    return text.count("\n", 0, index) + 1, index - text.rfind("\n", 0, index)


def _sinks_read_streams(pipeline: Pipeline) -> Problems:
    for sink in pipeline.sinks:
        names = {part.name for part in upstream(pipeline, sink.input)}
        sources = [source for source in pipeline.sources if source.name in names]
        if sources and all(source.kind == "table" or source.static for source in sources):
            tables = ", ".join(source.name for source in sources)
            advice = "A table can only be joined with a stream. Read its topic as a stream: topic: ..."
            yield pipeline.problem(sink, "from", f"sink {sink.name} reads no stream, only {tables}", advice)


def _deduplication_is_bounded(pipeline: Pipeline) -> Problems:
    """Rows are forgotten after `within` of the watermark, or with it when its column is one of those compared."""
    for step in pipeline.steps:
        before = list(upstream(pipeline, step.name))
        if step.kind != "deduplicate" or any(isinstance(part, Step) and part.kind == "python" for part in before):
            continue  # Python may have set a watermark: what it does is not known here
        marked = {part.watermark.column for part in before if part.watermark is not None}
        if not marked and step.within is not None:
            what = f"step {step.name} deduplicates within {step.within}, but nothing before it has a watermark"
            advice = "Add to its source: watermark: {column: ..., delay: 10 minutes}"
            yield pipeline.problem(step, "deduplicate", what, advice)
        elif step.within is None and marked.isdisjoint(step.columns):
            what = f"step {step.name} remembers every row forever"
            advice = "Add within: 10 minutes" + ("." if marked else ", and to its source a watermark.")
            yield pipeline.problem(step, "deduplicate", what, advice, warning=True)


def _nothing_runs_in_circles(pipeline: Pipeline) -> Problems:
    for sink in pipeline.sinks:
        for source in upstream(pipeline, sink.input):
            if not isinstance(source, Source) or not (what := _written_and_read(sink, source)):
                continue
            split = sink.kind == "topic" and "{" in sink.topic
            verb = "can write" if split else "writes"
            told = f"sink {sink.name} {verb} what its own source {source.name} reads: {what}"
            yield pipeline.problem(sink, sink.kind, told, _GOES_ROUND, warning=split)


def _written_and_read(sink: Sink, source: Source) -> str | None:
    """What both name. Of a topic with {column} in it only some value may give that name."""
    if sink.kind == "parquet" and source.files is not None:
        inside = os.path.dirname(source.files) + os.sep
        return f"files in {sink.path}" if inside.startswith(sink.path.rstrip(os.sep) + os.sep) else None
    if sink.kind == "delta" and source.files is not None:
        return f"the table {sink.path}" if source.files.rstrip(os.sep) == sink.path.rstrip(os.sep) else None
    if sink.kind != "topic":
        return None
    written = re.compile(_COLUMN.sub(".+", re.escape(sink.topic)))
    topic = next((topic for topic in source.topics if written.fullmatch(topic)), None)
    if topic is None and _matches(source, re.sub(r"\{[^{}]*\}", "x", sink.topic)):
        topic = sink.topic
    return None if topic is None else f"topic {topic}"


def _matches(source: Source, topic: str) -> bool:
    return source.pattern is not None and re.fullmatch(source.pattern, topic) is not None


def _dead_letters_go_elsewhere(pipeline: Pipeline) -> Problems:
    for part in pipeline.views:
        topic = part.dead_letter
        if topic is None:
            continue
        kind = type(part).__name__.lower()
        for reader in pipeline.sources:
            if topic in reader.topics or _matches(reader, topic):
                what = f"the dead letters of {kind} {part.name} go to {topic}, which source {reader.name} reads"
                yield pipeline.problem(part, "dead_letter", what, "Name another topic: dead_letter: ...")


def _functions_read_streams(pipeline: Pipeline) -> Problems:
    """Rows of a table cannot go to dead letters: every batch reads the table again."""
    for step in pipeline.steps:
        if step.kind != "python_rows":
            continue
        before = [part for part in upstream(pipeline, step.name) if isinstance(part, Source)]
        if before and all(source.kind == "table" or source.static for source in before):
            tables = ", ".join(source.name for source in before)
            advice = "Use it on a stream, after the join; or use python: with a function of DataFrames."
            what = f"step {step.name} reads no stream, only {tables}, but python_rows takes the rows of a stream"
            yield pipeline.problem(step, "from", what, advice)


def _sinks_differ(pipeline: Pipeline) -> Problems:
    first: dict[str, Sink] = {}
    for sink in pipeline.sinks:
        target = {"parquet": sink.path, "delta": sink.path, "console": "console", "topic": ""}[sink.kind]
        if not target:
            continue
        other = first.setdefault(target, sink)
        if other is sink:
            continue
        if sink.kind == "console":
            what = f"sinks {other.name} and {sink.name} both write to the console: their rows will be mixed"
            yield pipeline.problem(sink, "console", what, warning=True)
        else:
            what = f"sinks {other.name} and {sink.name} write to the same directory"
            advice = "Two queries would corrupt each other's list of files. Give each its own directory."
            yield pipeline.problem(sink, sink.kind, what, advice)


CHECKS: tuple[Callable[[Pipeline], Problems], ...] = (
    _inputs_exist,
    _all_is_used,
    _sources_have_schemas,
    _sinks_have_schemas,
    _sql_only_asks,
    _sinks_read_streams,
    _deduplication_is_bounded,
    check_sessions,
    _nothing_runs_in_circles,
    _dead_letters_go_elsewhere,
    _functions_read_streams,
    _sinks_differ,
    check_options,
    check_files,
    check_connectors,
)
