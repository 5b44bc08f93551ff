"""Records beside a checkpoint which query it was made for, so that changes that Spark cannot handle are reported.
Spark notices them late and reports them obscurely, or not at all: offsets belong to sources by their order, and
state has the columns it was written with. A changed filter or column is no problem; another source, another order
of them, or another stateful operation is. The file `<query>.json` in the checkpoint directory holds both, as they
were; `checkpoint_folders` says where it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from headrace.spark.pipelines.compiling.sources import MARK, is_stream
from headrace.spark.pipelines.definition import Pipeline, Source

_STATEFUL = frozenset({"Aggregate", "Deduplicate", "DeduplicateWithinWatermark", "Join", "TransformWithState"})
_KEEPS = re.compile("State|^Distinct|^GlobalLimit|^Intersect|^Except")
ALIAS = "SubqueryAlias"
_IDS = re.compile(r"#\d+L?")


@dataclass(frozen=True, slots=True)
class Fingerprint:
    sources: tuple[tuple[str, tuple[str, ...]], ...]
    """The topics or files that each source reads, in the order of the plan."""
    stateful: tuple[str, ...]
    """The operations with state, with their columns."""
    pipeline: str | None = None
    """The name of the pipeline; versions before this field did not record it."""

    def as_json(self) -> str:
        sources = [{"name": name, "reads": list(reads)} for name, reads in self.sources]
        facts = {"pipeline": self.pipeline, "sources": sources, "stateful": list(self.stateful)}
        return json.dumps(facts, indent=1)


def fingerprint_from(text: str) -> Fingerprint | None:
    """The fingerprint in a file; None if it was not written by a pipeline."""
    try:
        found = json.loads(text)
        sources = tuple((str(one["name"]), tuple(map(str, one["reads"]))) for one in found["sources"])
        owner = found.get("pipeline")
        return Fingerprint(sources, tuple(map(str, found["stateful"])), None if owner is None else str(owner))
    except (ValueError, LookupError, TypeError, AttributeError):
        return None


def fingerprint_of(frame: DataFrame, pipeline: Pipeline) -> Fingerprint:
    return operations_of(frame, pipeline).fingerprint


@dataclass(frozen=True, slots=True)
class Operations:
    """The result of one walk through a plan."""

    fingerprint: Fingerprint
    has_state: bool
    """Whether earlier batches affect the result. This includes operations that are not in the fingerprint."""


def operations_of(frame: DataFrame, pipeline: Pipeline) -> Operations:
    """The operations of a query.

    Each access to a node is a round trip to Java, and a pipeline waits for all of them before it starts. So nodes
    below a source, which have no state, are skipped, and a node is only asked what its name does not show.
    """
    sources: list[tuple[str, tuple[str, ...]]] = []
    stateful: list[str] = []
    keeps = False
    for node, name in _nodes(frame._jdf.queryExecution().analyzed(), above_sources=True):
        source = pipeline.source(_source_name(node) or "") if name == ALIAS else None
        if source is not None and is_stream(source):
            sources.append((source.name, what_it_reads(source)))
        operation = _stateful(node, name)
        stateful += [] if operation is None else [operation]
        keeps = keeps or operation is not None or (_KEEPS.search(name) is not None and node.isStreaming())
    return Operations(Fingerprint(tuple(sources), tuple(stateful), pipeline.name), keeps)


def what_it_reads(source: Source) -> tuple[str, ...]:
    if source.kind == "files":
        return (f"files {source.files}",)
    return (f"pattern {source.pattern}",) if source.pattern else source.topics


def _nodes(plan: Any, *, above_sources: bool = False) -> Iterator[tuple[Any, str]]:
    """The nodes of a logical plan, top down and left to right, each with its name."""
    name = str(plan.nodeName())
    yield plan, name
    if above_sources and name == ALIAS and _source_name(plan) is not None:
        return
    children = plan.children()
    for number in range(children.size()):
        yield from _nodes(children.apply(number), above_sources=above_sources)


def _source_name(alias: Any) -> str | None:
    name = str(alias.alias())
    return name.removeprefix(MARK) if name.startswith(MARK) else None


def _stateful(node: Any, name: str) -> str | None:
    """The kind of a stateful operation, and the columns with their types, of which its state consists."""
    if name not in _STATEFUL or not node.isStreaming():
        return None
    if name == "Join" and not all(child.isStreaming() for child in (node.left(), node.right())):
        return None
    columns = node.schema().simpleString()
    keys = ""
    if name == "Aggregate":
        keys = f" by {node.groupingExpressions().mkString(', ')}"
    elif name.startswith("Deduplicate"):
        keys, columns = f" by {node.keys().mkString(', ')}", ""
    return _IDS.sub("", f"{name}{keys} {columns}".strip())


def has_state(frame: DataFrame) -> bool:
    """Whether earlier batches affect the result, including below sources."""
    return any(
        _stateful(node, name) is not None or (_KEEPS.search(name) is not None and node.isStreaming())
        for node, name in _nodes(frame._jdf.queryExecution().analyzed())
    )


def has_watermark(frame: DataFrame) -> bool:
    """Whether a watermark is set anywhere below."""
    nodes = _nodes(frame._jdf.queryExecution().analyzed())
    return any(name == "EventTimeWatermark" for _, name in nodes)


def changes(before: Fingerprint, now: Fingerprint) -> list[str]:
    """The changes that the checkpoint cannot handle, in words. New topics are fine: they are read from their
    start.
    """
    found = []
    old_names, new_names = [name for name, _ in before.sources], [name for name, _ in now.sources]
    if old_names != new_names and list(dict.fromkeys(old_names)) == list(dict.fromkeys(new_names)):
        return ["the sinks that share its query, or what they read, are not the same"]
    if old_names != new_names:
        return [f"it read {_listed(old_names)}, and now reads {_listed(new_names)}"]
    for (name, old), (_, new) in zip(before.sources, now.sources, strict=True):
        gone = [one for one in old if one not in new]
        said = f"source {name} read {_listed(old)}, and now reads {_listed(new)}"
        if gone and said not in found:  # several branches read it
            found.append(said)
    if before.stateful != now.stateful:
        found.append(
            "what it keeps in its state is not the same: the aggregate, join or deduplication was changed"
        )
    return found


def _listed(names: list[str] | tuple[str, ...]) -> str:
    return ", ".join(names) or "nothing"
