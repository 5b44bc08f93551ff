"""Connectors that a pipeline names: their files are complete, and are on the right side of the right topic."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from headrace.connect.api import ConnectorError
from headrace.connect.definition import ConnectorDefinition, load_file
from headrace.connect.options import ConfigProblems
from headrace.spark.pipelines.definition import Pipeline, Problem, Sink, Source


def check_connectors(pipeline: Pipeline) -> Iterator[Problem]:
    for part in pipeline.ends:
        if part.connector is None:
            continue
        try:
            definition = load_file(Path(part.connector))
        except (ConnectorError, ConfigProblems) as error:
            told = error.problems if isinstance(error, ConfigProblems) else (str(error),)
            for problem in told:
                yield pipeline.problem(part, "connector", f"connector {Path(part.connector).name}: {problem}")
            continue
        yield from _fits(pipeline, part, definition)


def _fits(pipeline: Pipeline, part: Source | Sink, definition: ConnectorDefinition) -> Iterator[Problem]:
    is_source = definition.sink_input is None
    if is_source != isinstance(part, Source):
        kind, other = ("source", "sinks") if is_source else ("sink", "sources")
        what = f"connector {definition.name} is a {kind}, so {other} cannot name it"
        yield pipeline.problem(part, "connector", what, f"Name it in {kind}s.")
        return
    read = () if definition.sink_input is None else definition.sink_input.topics
    if isinstance(part, Sink) and part.topic not in read:
        what = f"connector {definition.name} does not read topic {part.topic}, which sink {part.name} writes"
        yield pipeline.problem(part, "connector", what, "Add the topic to the file of the connector.")
