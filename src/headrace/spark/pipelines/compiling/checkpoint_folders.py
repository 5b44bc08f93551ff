"""Where the queries of a pipeline keep their state, and whose state is there.

    <checkpoint>/<pipeline>/<query>/         Spark's own files
    <checkpoint>/<pipeline>/<query>.json     what they were made for, see `checkpoints`
    <checkpoint>/<pipeline>/queries.json     which sinks and dead letters each query has, see `grouping`

Earlier versions left `<pipeline>` out: two pipelines with one `checkpoint:` and a sink of the same name shared one
state, and the second one silently had nothing to do. Such state is recognised. It stays where it is and is used by
the pipeline that it fits, whose name is then noted in `<query>.json`; others begin in their own folders. If its
owner is unknown, nothing runs until somebody decides.

A pipeline without `checkpoint:` has its own folder in the state directory, which was never shared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from pyspark.sql import SparkSession

from headrace.spark.pipelines.compiling.checkpoints import Fingerprint, changes, fingerprint_from
from headrace.spark.pipelines.compiling.grouping import Membership, memberships_as_json, memberships_from

QUERIES = "queries.json"


@dataclass(frozen=True, slots=True)
class CheckpointPlace:
    directory: str
    """The directory of this pipeline alone."""
    shared: str | None = None
    """The directory above it, where earlier versions kept the state of every pipeline that named it."""
    sharers: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Other pipelines whose last run, by an earlier version, kept state in `shared`: their queries."""


class CheckpointRefused(Exception):
    """The state that was found belongs to another pipeline, or its owner is unknown."""

    def __init__(self, what: str, advice: str) -> None:
        super().__init__(what)
        self.what = what
        self.advice = advice


class Files(Protocol):
    """The necessary operations of a file system; paths are absolute."""

    def exists(self, path: str) -> bool: ...
    def is_file(self, path: str) -> bool: ...
    def read(self, path: str) -> str: ...
    def write(self, path: str, text: str) -> None: ...


class HadoopFiles:
    """The files of any system where Spark can keep checkpoints: a disk, HDFS, an object store."""

    def __init__(self, session: SparkSession) -> None:
        context = session.sparkContext
        assert context._jvm is not None
        self._jvm = context._jvm
        self._conf = context._jsc.hadoopConfiguration()

    def exists(self, path: str) -> bool:
        files, place = self._at(path)
        return bool(files.exists(place))

    def is_file(self, path: str) -> bool:
        files, place = self._at(path)
        return bool(files.exists(place)) and bool(files.getFileStatus(place).isFile())

    def read(self, path: str) -> str:
        files, place = self._at(path)
        stream = files.open(place)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, path: str, text: str) -> None:
        files, place = self._at(path)
        files.mkdirs(place.getParent())
        stream = files.create(place, True)
        try:
            self._jvm.org.apache.commons.io.IOUtils.write(text, stream, "UTF-8")
        finally:
            stream.close()

    def rename(self, path: str, to: str) -> None:
        files, place = self._at(path)
        target = self._at(to)[1]
        files.mkdirs(target.getParent())
        if not files.rename(place, target):
            raise OSError(f"{path} cannot be renamed to {to}")

    def remove(self, path: str) -> None:
        files, place = self._at(path)
        files.delete(place, True)

    def files_below(self, path: str) -> list[str]:
        found: list[str] = []
        for status in self._statuses(path):
            name = str(status.getPath().getName())
            if name.startswith((".", "_")):
                continue
            if status.isFile():
                found.append(name)
            else:
                found += [f"{name}/{below}" for below in self.files_below(f"{path}/{name}")]
        return found

    def names_in(self, path: str) -> list[str]:
        return [str(status.getPath().getName()) for status in self._statuses(path)]

    def _statuses(self, path: str) -> list[Any]:
        files, place = self._at(path)
        return list(files.listStatus(place)) if files.exists(place) else []

    def _at(self, path: str) -> tuple[Any, Any]:
        place = self._jvm.org.apache.hadoop.fs.Path(path)
        return place.getFileSystem(self._conf), place


class CheckpointFolder:
    """The checkpoint folder of one pipeline."""

    def __init__(self, files: Files, place: CheckpointPlace, pipeline: str) -> None:
        self._files = files
        self._place = place
        self._pipeline = pipeline

    def check(self) -> None:
        """Raises `CheckpointRefused` if the directory itself is the checkpoint of some query."""
        for directory in (self._place.shared, self._place.directory):
            if directory is not None and self._files.is_file(f"{directory}/metadata"):
                raise CheckpointRefused(
                    f"the checkpoint directory {directory} holds the state of a single Spark query",
                    "Give the pipeline another checkpoint:, or another name.",
                )

    def locate(self, query: str, fingerprint: Fingerprint, beside: Sequence[str] | None = None) -> str:
        """The folder with the state of a query. Raises `CheckpointRefused`.

        Earlier versions recorded nothing about dead letters: their state is at the old place if that of `beside`,
        the sinks that read the same source, is.
        """
        own = f"{self._place.directory}/{query}"
        if self._place.shared is None or self._begun(own):
            return own
        old = f"{self._place.shared}/{query}"
        if not self._begun(old):
            return own
        before = self.recorded(old)
        if before is not None and before.pipeline is not None:
            return old if before.pipeline == self._pipeline else own
        if beside is not None and not any(self._is_old(location) for location in beside):
            return own
        self._check_whose(query, old, fingerprint if beside is not None else before, fingerprint)
        return old

    def own(self, query: str) -> str:
        return f"{self._place.directory}/{query}"

    def begun_at(self, location: str) -> bool:
        return self._begun(location)

    def has_begun(self, query: str) -> bool:
        return self._begun(self.own(query))

    def listed(self) -> list[Membership]:
        """The queries that were started here; none if an earlier version with one query per sink did it."""
        path = self.own(QUERIES)
        return memberships_from(self._files.read(path)) if self._files.exists(path) else []

    def list_query(self, query: Membership) -> None:
        others = [one for one in self.listed() if one.folder != query.folder]
        self._files.write(self.own(QUERIES), memberships_as_json([*others, query]))

    def recorded(self, location: str) -> Fingerprint | None:
        """The fingerprint of a query; None if it has not begun, or if its checkpoint's purpose is unknown."""
        if not self._begun(location) or not self._files.exists(f"{location}.json"):
            return None
        return fingerprint_from(self._files.read(f"{location}.json"))

    def record(self, location: str, fingerprint: Fingerprint) -> None:
        """Record a fingerprint. `CheckpointRefused` if another pipeline took over its unnamed state first."""
        before = self.recorded(location) if self._is_old(location) else None
        if before is not None and before.pipeline not in (None, self._pipeline):
            raise CheckpointRefused(
                f"pipeline {before.pipeline} took over the checkpoint {location}", "Start this one again."
            )
        self._files.write(f"{location}.json", fingerprint.as_json())

    def _is_old(self, location: str) -> bool:
        return not location.startswith(f"{self._place.directory}/")

    def _begun(self, location: str) -> bool:
        return self._files.exists(f"{location}/offsets")

    def _check_whose(self, query: str, old: str, before: Fingerprint | None, now: Fingerprint) -> None:
        """Refuse state without a name, unless it cannot belong to another pipeline."""
        begin_anew = f"give this one another checkpoint:, or remove {old} to start over."
        others = sorted(name for name, queries in self._place.sharers.items() if query in queries)
        if others:
            all_of_them = " and ".join([*others, self._pipeline])
            raise CheckpointRefused(
                f"pipelines {all_of_them} shared the checkpoint {old} in an earlier version, which may have "
                "made one of them skip records",
                f"Move {old} and {old}.json into {self._place.shared}/<pipeline> for the pipeline that is to "
                f"continue from it; or {begin_anew}",
            )
        if before is None:
            raise CheckpointRefused(
                f"the checkpoint {old} was not made by a pipeline", f"Is it another program's? If so, {begin_anew}"
            )
        different = changes(before, now)
        if different:
            raise CheckpointRefused(
                f"the checkpoint {old} is from an earlier version and does not fit: {'; '.join(different)}",
                "If it belongs to another pipeline, run that one first: it takes it over. "
                f"If the change is intended, {begin_anew}",
            )
