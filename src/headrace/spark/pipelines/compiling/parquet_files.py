"""Parquet files of a sink: every row exactly once, for every reader, however a run ends.

Spark's own stream of files keeps a list of those that count (`_spark_metadata`), which only Spark reads: after a
crash everybody else also sees the files of the batch that was broken off. Here a file has its name in the folder
only once its batch is decided:

    .<folder>.staging/<writer>/batch-7/...      what Spark writes, beside the folder and not in it
    .<folder>.staging/<writer>/decided-7        its files with their final names; written whole or not at all

1. Spark writes the batch to the staging folder. The remains of an interrupted attempt are removed first.
2. The decision is written. From now on the batch counts, and is never computed again.
3. The files are renamed, one by one. A run that dies in between is followed by one that finds the decision and
   renames the rest.

The writer is the id in the query's checkpoint and the sink: a pipeline that starts over is another writer. Folders
with a `_spark_metadata` of an earlier version are taken over: files that it does not list are moved away.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812

from headrace.spark.pipelines.definition import Sink

SPARK_LIST = "_spark_metadata"
DECIDED = "decided-"
BATCH = "batch-"


class Files(Protocol):
    """The necessary operations of a file system; paths are absolute."""

    def exists(self, path: str) -> bool: ...
    def read(self, path: str) -> str: ...
    def write(self, path: str, text: str) -> None: ...
    def rename(self, path: str, to: str) -> None:
        """Rename a file; a missing folder is created."""

    def remove(self, path: str) -> None:
        """Remove a file, or a folder with everything below it; nothing happens if it does not exist."""

    def files_below(self, path: str) -> list[str]:
        """The files below a folder that are not hidden, relative to it; none if it does not exist."""

    def names_in(self, path: str) -> list[str]:
        """The names of files and folders in a folder; none if it does not exist."""


class FilesAhead(Exception):
    """The folder has batches that the checkpoint does not have."""


@dataclass(frozen=True, slots=True)
class ParquetFolder:
    """A folder in which files appear batch by batch."""

    files: Files
    root: str
    writer: str

    @property
    def staging(self) -> str:
        parent, _, name = self.root.rstrip("/").rpartition("/")
        top = not parent or parent.endswith(("/", ":"))
        return f"{self.root}/_staging" if top else f"{parent}/.{name}.staging"

    def staged(self, batch_id: int) -> str:
        return f"{self.staging}/{self.writer}/{BATCH}{batch_id}"

    def is_done(self, batch_id: int) -> bool:
        """Whether the batch is already decided; if so, its files are moved to their places here."""
        taken_over = self._take_over()
        decided = self._decided()
        if any(number > batch_id for number in decided):
            raise FilesAhead(
                f"{self.root} has the files of batch {max(decided)}, and the checkpoint repeats batch {batch_id}: "
                "it is older than the files"
            )
        if batch_id in decided:
            self._name_files(batch_id)
            return True
        self.files.remove(self.staged(batch_id))
        return taken_over == batch_id

    def decide(self, batch_id: int) -> None:
        """Make the files in the batch's staging folder part of the folder."""
        before = self._decided()
        moves = {}
        for number, path in enumerate(sorted(self.files.files_below(self.staged(batch_id)))):
            folder, slash, name = path.rpartition("/")
            extension = name[name.find(".") :]
            moves[path] = f"{folder}{slash}batch-{batch_id:08d}-{number:04d}-{self.writer}{extension}"
        fresh = f"{self.staging}/{self.writer}/new-{batch_id}"
        self.files.write(fresh, json.dumps(moves, indent=0))
        self.files.rename(fresh, self._decision(batch_id))
        self._name_files(batch_id)
        for number in before:
            self.files.remove(self._decision(number))

    def _name_files(self, batch_id: int) -> None:
        moves: Mapping[str, str] = json.loads(self.files.read(self._decision(batch_id)))
        for path, name in moves.items():
            staged, final = f"{self.staged(batch_id)}/{path}", f"{self.root}/{name}"
            if self.files.exists(staged) and not self.files.exists(final):  # an object store copies, then deletes
                self.files.rename(staged, final)
        self.files.remove(self.staged(batch_id))

    def _decision(self, batch_id: int) -> str:
        return f"{self.staging}/{self.writer}/{DECIDED}{batch_id}"

    def _decided(self) -> list[int]:
        names = self.files.names_in(f"{self.staging}/{self.writer}")
        return [int(name.removeprefix(DECIDED)) for name in names if name.startswith(DECIDED)]

    def _take_over(self) -> int | None:
        """Take over a folder of an earlier version: without Spark's list every file would count, so files that are
        not listed are moved away. Returns the last batch in the list, or None."""
        listing = f"{self.root}/{SPARK_LIST}"
        if not self.files.exists(listing):
            return None
        counted, last = self._listed_by_spark(listing)
        for path in self.files.files_below(self.root):
            if path.rpartition("/")[2] not in counted and path.endswith(".parquet"):
                self.files.rename(f"{self.root}/{path}", f"{self.staging}/orphans/{path}.orphan")
        self.files.rename(listing, f"{self.staging}/{SPARK_LIST}")
        return last

    def _listed_by_spark(self, listing: str) -> tuple[set[str], int]:
        """The names of the files that count, and the number of the last batch."""
        logs = {
            int(name.removesuffix(".compact")): name
            for name in self.files.names_in(listing)
            if name.removesuffix(".compact").isdecimal()
        }
        whole = max((number for number, name in logs.items() if name.endswith(".compact")), default=-1)
        counted = {
            path.rpartition("/")[2]
            for number, name in logs.items()
            if number >= whole
            for path in _added(self.files.read(f"{listing}/{name}"))
        }
        return counted, max(logs, default=-1)


def _added(log: str) -> Iterator[str]:
    for line in log.splitlines()[1:]:
        entry = json.loads(line)
        if entry.get("action", "add") == "add":
            yield str(entry["path"])


def write_parquet(folder: ParquetFolder, rows: DataFrame, sink: Sink, batch_id: int) -> None:
    if folder.is_done(batch_id):
        # A window or a join must see its rows again: Spark keeps no state of a batch that was not computed.
        rows.write.format("noop").mode("overwrite").save()
        return
    seen = Observation()
    counted = rows.observe(seen, F.count(F.lit(1)).alias("rows"))
    writer = counted.write.options(**dict(sink.options)).partitionBy(*sink.partition_by)
    writer.parquet(folder.staged(batch_id))
    if seen.get["rows"]:  # without rows Spark leaves a file with nothing but its columns
        folder.decide(batch_id)
    else:
        folder.files.remove(folder.staged(batch_id))
