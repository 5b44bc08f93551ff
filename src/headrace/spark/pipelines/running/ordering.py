"""Pipelines that feed pipelines: the order in which they run when each processes existing records and exits."""

from __future__ import annotations

import re
from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter

from headrace.spark.pipelines.definition import Pipeline, Sink, Source

_COLUMN = re.compile(r"\\\{[^{}]*\\\}")


def stages(pipelines: Sequence[Pipeline]) -> list[list[Pipeline]]:
    """The pipelines in stages, within which none feeds another. If they feed each other in a circle, one stage."""
    sorter: TopologicalSorter[int] = TopologicalSorter()
    for number, reader in enumerate(pipelines):
        feeders = (other for other, writer in enumerate(pipelines) if other != number and feeds(writer, reader))
        sorter.add(number, *feeders)
    try:
        sorter.prepare()
    except CycleError:
        return [list(pipelines)]
    found: list[list[Pipeline]] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready())
        found.append([pipelines[number] for number in ready])
        sorter.done(*ready)
    return found


def feeds(writer: Pipeline, reader: Pipeline) -> bool:
    return any(_reads(source, sink) for sink in writer.sinks for source in reader.sources)


def _reads(source: Source, sink: Sink) -> bool:
    if sink.kind in ("parquet", "delta"):
        return source.files is not None and source.files.startswith(sink.path)
    if sink.kind != "topic" or source.kind == "files":
        return False
    written = re.compile(_COLUMN.sub(".+", re.escape(sink.topic)))
    if any(written.fullmatch(topic) for topic in source.topics):
        return True
    # A pattern on one side and a template on the other cannot be compared: only whole names can.
    return source.pattern is not None and re.fullmatch(source.pattern, sink.topic) is not None
