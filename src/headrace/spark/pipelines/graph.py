"""What reads what in a pipeline: everything upstream of a view, and the pipeline drawn as text."""

from __future__ import annotations

import os
from collections.abc import Iterator

from headrace.spark.pipelines.definition import Pipeline, Sink, Source, Step

_MOST_TOPICS_SHOWN = 3


def upstream(pipeline: Pipeline, view: str) -> Iterator[Source | Step]:
    """The view itself and everything it reads, each once; unknown names are skipped."""
    parts = {part.name: part for part in pipeline.views}
    pending, seen = [view], set[str]()
    while pending:
        name = pending.pop()
        part = parts.get(name)
        if name in seen or part is None:
            continue
        seen.add(name)
        yield part
        if isinstance(part, Step):
            pending.extend(part.inputs)


def used_views(pipeline: Pipeline) -> set[str]:
    """Everything that some sink needs."""
    return {part.name for sink in pipeline.sinks for part in upstream(pipeline, sink.input)}


def picture(pipeline: Pipeline) -> list[str]:
    """One line for each part: what it is, its name, and what it reads or where it goes."""
    rows: list[tuple[str, str, str]] = []
    rows += [("source", source.name, f"<- {read_by(source)}") for source in pipeline.sources]
    rows += [("step", step.name, f"<- {', '.join(step.inputs)}  ({step.kind})") for step in pipeline.steps]
    rows += [("sink", sink.name, f"{sink.input} -> {written_by(sink)}") for sink in pipeline.sinks]
    width = max(len(name) for _, name, _ in rows)
    return [f"{kind:<6}  {name:<{width}}  {what}" for kind, name, what in rows]


def read_by(source: Source) -> str:
    if source.kind == "files":
        what = f"files {shown_path(source.files or '')}" + (" as a table" if source.static else "")
    elif source.kind == "table":
        what = f"table {source.topics[0]}"
    elif source.pattern is not None:
        what = f"topics like {source.pattern}"
    else:
        shown = ", ".join(source.topics[:_MOST_TOPICS_SHOWN])
        more = len(source.topics) - _MOST_TOPICS_SHOWN
        what = f"topic{'s' if len(source.topics) > 1 else ''} {shown}" + (f" and {more} more" if more > 0 else "")
    return f"{what}  ({source.format})"


def written_by(sink: Sink) -> str:
    if sink.kind == "topic":
        return f"topic {sink.topic}  ({sink.format})"
    return "console" if sink.kind == "console" else f"{sink.kind} {shown_path(sink.path)}"


def shown_path(path: str) -> str:
    """As a person at this directory would name it."""
    relative = path if "://" in path else os.path.relpath(path)
    return path if relative.startswith("..") else relative
