"""Which sinks share a streaming query, and which of them sends the dead letters of a source. ADR 11.

Sinks in one query see the same batches and the same watermark: their results agree, and their sources are read
and decoded once. Sinks are kept apart for these reasons:
- A query has one output mode. A sink without state writes the same in `append` and `update`; beside `complete`
  Spark allows nothing else.
- A query has one watermark, the smallest of its sources. A window over one topic must not wait for another topic
  just because another sink joins the two: sinks with state share a query only if they read the same streams.
- A query in `update` or `complete` mode can hold one operation with state: only sinks of the same view.
- A checkpoint belongs to the sinks it was made for. A sink that is added later starts a query of its own, where
  its source says; one that had its own query in an earlier version keeps it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from headrace.spark.pipelines.definition import OutputMode

SHARED = ".shared"
DEAD_LETTER = ".dead-letter"


@dataclass(frozen=True, slots=True)
class SinkFacts:
    """The properties that decide which query a sink can join."""

    name: str
    view: str
    mode: OutputMode
    streams: frozenset[str]
    """The streams that it reads, by the names of their sources."""
    stateful: bool

    @property
    def key(self) -> tuple[object, ...]:
        """Sinks with state share a query if they have the same key."""
        return (self.mode, self.streams, None if self.mode == "append" else self.view)


@dataclass(frozen=True, slots=True)
class Membership:
    """A query: its folder in the checkpoint, the sinks it writes, the sources whose dead letters it sends."""

    folder: str
    sinks: tuple[str, ...]
    letters: tuple[str, ...] = ()

    @property
    def is_shared(self) -> bool:
        return self.folder.endswith(SHARED)


def folder_of(sinks: Sequence[str], letters: Sequence[str]) -> str:
    """The folder of a query; with a single sink, or dead letters alone, it is that of earlier versions."""
    if not sinks:
        return f"{letters[0]}{DEAD_LETTER}"
    return sinks[0] if len(sinks) == 1 and not letters else f"{sinks[0]}{SHARED}"


def decide_queries(
    sinks: Sequence[SinkFacts], letters: Mapping[str, frozenset[str]], begun: Sequence[Membership]
) -> list[Membership]:
    """The queries of a pipeline. `letters` are the sources with dead letters, each with the sinks that read it.

    Queries that have begun, and so have a checkpoint, stay as they are, without the removed sinks.
    """
    names = [sink.name for sink in sinks]
    kept = [query for old in begun if (query := _still_there(old, names, letters)) is not None]
    taken = {name for query in kept for name in query.sinks}
    groups = _groups([sink for sink in sinks if sink.name not in taken])
    claimed = {name for query in kept for name in query.letters}
    sent: dict[int, list[str]] = {}
    alone = []
    for source, readers in letters.items():
        if source in claimed:
            continue
        chosen = next((n for n, group in enumerate(groups) if _can_send(group, readers)), None)
        if chosen is None:
            alone.append(source)
        else:
            sent.setdefault(chosen, []).append(source)
    fresh = [
        _membership([sink.name for sink in group], sent.get(number, ())) for number, group in enumerate(groups)
    ]
    return [*kept, *fresh, *(_membership((), (source,)) for source in alone)]


def _membership(sinks: Iterable[str], letters: Iterable[str]) -> Membership:
    members, sources = tuple(sinks), tuple(letters)
    return Membership(folder_of(members, sources), members, sources)


def _still_there(
    old: Membership, sinks: Sequence[str], letters: Mapping[str, frozenset[str]]
) -> Membership | None:
    members = tuple(name for name in old.sinks if name in sinks)
    sources = tuple(name for name in old.letters if name in letters)
    return Membership(old.folder, members, sources) if members or sources else None


def _groups(sinks: Sequence[SinkFacts]) -> list[list[SinkFacts]]:
    """The sinks that share a query. Sinks with state come first: the others can join any that reads the same."""
    groups: dict[tuple[object, ...], list[SinkFacts]] = {}
    for sink in sinks:
        if sink.stateful or sink.mode == "complete":
            groups.setdefault(sink.key, []).append(sink)
    for sink in sinks:
        if sink.stateful or sink.mode == "complete":
            continue
        host = next((group for group in groups.values() if _can_host(group, sink)), None)
        if host is not None:
            host.append(sink)
        else:
            groups.setdefault(("append", sink.streams, None), []).append(sink)
    order = {sink.name: number for number, sink in enumerate(sinks)}
    ordered = [sorted(group, key=lambda sink: order[sink.name]) for group in groups.values()]
    return sorted(ordered, key=lambda group: order[group[0].name])


def _can_host(group: Sequence[SinkFacts], sink: SinkFacts) -> bool:
    streams = frozenset[str]().union(*(member.streams for member in group))
    return sink.streams <= streams and all(member.mode != "complete" for member in group)


def _can_send(group: Sequence[SinkFacts], readers: frozenset[str]) -> bool:
    return any(sink.name in readers for sink in group) and all(sink.mode != "complete" for sink in group)


def mode_of(sinks: Sequence[SinkFacts]) -> OutputMode:
    """The output mode of a query: that of its sinks with state. Dead letters alone are appended."""
    return next((sink.mode for sink in sinks if sink.stateful or sink.mode == "complete"), "append")


def apart(query: Membership) -> list[Membership]:
    """The sinks and dead letters of a query, each in a query of its own."""
    return [
        *(_membership((sink,), ()) for sink in query.sinks),
        *(_membership((), (source,)) for source in query.letters),
    ]


def memberships_as_json(queries: Sequence[Membership]) -> str:
    return json.dumps([asdict(query) for query in queries], indent=1)


def memberships_from(text: str) -> list[Membership]:
    """The queries in a file; empty if the text is not ours: they then count as an earlier version's."""
    try:
        return [Membership(one["folder"], tuple(one["sinks"]), tuple(one["letters"])) for one in json.loads(text)]
    except (ValueError, LookupError, TypeError):
        return []
