"""How the branches of a query are written: as one stream of records, or batch by batch.

A query whose sinks are all topics is one stream of records with the topic in a column: one writer, so that with
exactly-once delivery the records of all its sinks become visible together. Everything else (files, the screen, the
modes that Spark offers no stream for, options that differ) is written batch by batch: the batch is computed once,
kept, and given to each sink in turn. A batch that is repeated after a failure has the same number, by which files
and jobs are named and written once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from headrace.spark.pipelines.compiling.checkpoint_folders import HadoopFiles
from headrace.spark.pipelines.compiling.parquet_files import ParquetFolder, write_parquet
from headrace.spark.pipelines.compiling.sinks import (
    TopicWrite,
    exploded,
    records_together,
    rows_to_write,
    topic_write,
)
from headrace.spark.pipelines.definition import OutputMode, Sink

BRANCH, ROW = "__branch", "__row"
EXACTLY_ONCE_NEEDS = {
    "delivery": ("exactly-once",),
    "kafka.acks": ("all", "-1"),
    "kafka.enable.idempotence": ("true",),
}
"""Values of options; if an option has another value, records are written at least once."""
BLAME = "[sink {name}] "
"""The prefix of an error from writing a batch: it names the sink that failed."""


@dataclass(frozen=True, slots=True)
class Letters:
    """Dead letters of a source on the way to their topic."""

    frame: DataFrame
    topic: str


@dataclass(frozen=True, slots=True)
class Branches:
    """All that a query writes: views with their sinks, and dead letters."""

    views: Mapping[str, DataFrame]
    sinks: Sequence[Sink]
    letters: Sequence[Letters]
    mode: OutputMode
    connection: Mapping[str, str] = field(default_factory=dict)
    """Options with which dead letters reach the cluster."""

    def of_view(self, view: str) -> list[Sink]:
        return [sink for sink in self.sinks if sink.input == view]

    def writer(self, name: str, bootstrap: str, checkpoint: str) -> DataStreamWriter:
        """The writer, still without name, checkpoint and trigger."""
        together = self._one_topic_write()
        if together is not None:
            return self._stream(together, bootstrap)
        if len(self.sinks) == 1 and self.sinks[0].kind == "console" and not self.letters:
            return self._console(self.sinks[0])
        batches = BatchWrites(self, name, bootstrap, checkpoint)
        return self.frame().writeStream.outputMode(self.mode).foreachBatch(batches.write)

    def frame(self) -> DataFrame:
        """The rows of all branches, each in a column of its own. A single view is used unchanged."""
        frames = [*self.views.values(), *(one.frame for one in self.letters)]
        if len(frames) == 1:
            return frames[0]
        types = [frame.schema for frame in frames]
        return reduce(DataFrame.unionAll, (_branch(frame, number, types) for number, frame in enumerate(frames)))

    def topic_writes(self) -> list[tuple[TopicWrite, list[Sink]]]:
        return topic_writes(self.sinks, self.connection if self.letters else None)

    def _one_topic_write(self) -> TopicWrite | None:
        """How to write all records together, as a stream; None if that is impossible."""
        if self.mode != "append" or any(sink.kind != "topic" for sink in self.sinks):
            return None
        if any(sink.format == "avro" and len(self.of_view(sink.input)) > 1 for sink in self.sinks):
            return None
        writes = self.topic_writes()
        return writes[0][0] if len(writes) == 1 else None

    def _stream(self, write: TopicWrite, bootstrap: str) -> DataStreamWriter:
        frames = []  # in the order of `frame`, by which Spark assigns the offsets in the checkpoint to sources
        for view, frame in self.views.items():
            sinks = self.of_view(view)
            several = len(sinks) > 1
            frames.append((exploded(frame, sinks) if several else rows_to_write(frame, sinks[0]), sinks[0].topic))
        frames += [(one.frame, one.topic) for one in self.letters]
        return _to_topics(frames, write, bootstrap)

    def _console(self, sink: Sink) -> DataStreamWriter:
        rows = rows_to_write(self.views[sink.input], sink)
        return rows.writeStream.outputMode(self.mode).format("console").options(**_console_options(sink))


def _to_topics(frames: Sequence[tuple[DataFrame, str]], write: TopicWrite, bootstrap: str) -> DataStreamWriter:
    rows, options = _records(frames, write.all_options(bootstrap))
    return rows.writeStream.outputMode("append").format("headrace").options(**options)


def _records(frames: Sequence[tuple[DataFrame, str]], options: dict[str, str]) -> tuple[DataFrame, dict[str, str]]:
    """The records of all frames. A single frame needs no column for its topic."""
    (rows, topic), *more = frames
    if more:
        return records_together(frames), options
    return rows, options if "topic" in rows.columns else {**options, "topic": topic}


def topic_writes(sinks: Sequence[Sink], letters: Mapping[str, str] | None) -> list[tuple[TopicWrite, list[Sink]]]:
    """The sinks that are topics, by how they are written. Dead letters go with sinks of the same options."""
    writes: list[tuple[TopicWrite, list[Sink]]] = [] if letters is None else [(TopicWrite(letters, {}), [])]
    for sink in sinks:
        if sink.kind != "topic":
            continue
        own = topic_write(sink)
        for number, (write, members) in enumerate(writes):
            both = write.together(own)
            if both is not None:
                writes[number] = (both, [*members, sink])
                break
        else:
            writes.append((own, [sink]))
    return writes


def _branch(frame: DataFrame, number: int, types: Sequence[StructType]) -> DataFrame:
    columns = [
        (F.struct("*") if place == number else F.lit(None).cast(kind)).alias(f"{ROW}{place}")
        for place, kind in enumerate(types)
    ]
    return frame.select(F.lit(number).alias(BRANCH), *columns)


def _console_options(sink: Sink) -> dict[str, str]:
    return {"truncate": "false", **sink.options}


@dataclass(frozen=True, slots=True)
class BatchWrites:
    """Writes each batch. Called by Spark."""

    branches: Branches
    name: str
    """The name of the query. With the number of a batch, it names what is written once."""
    bootstrap: str
    checkpoint: str

    def write(self, batch: DataFrame, batch_id: int) -> None:
        writes = self.branches.topic_writes()
        others = [sink for sink in self.branches.sinks if sink.kind != "topic"]
        several = len(self.branches.sinks) + len(self.branches.letters) > 1  # each reads the batch
        kept = batch.persist(StorageLevel.MEMORY_AND_DISK) if several else batch
        try:
            parts = self._parts(kept)
            series = f"{self.name}/{self._query_id(batch.sparkSession)}"
            if not writes and all(sink.kind == "console" for sink in others):
                kept.count()  # the console looks at some rows; those with state must all be computed
            for number, (write, sinks) in enumerate(writes):
                letters = self.branches.letters if number == 0 else ()
                self._write_topics(parts, write, sinks, letters, f"{series}/{number}/{batch_id}")
            for sink in others:
                self._write_other(parts[sink.input], sink, batch_id)
        finally:
            if several:
                kept.unpersist()

    def _parts(self, batch: DataFrame) -> dict[str, DataFrame]:
        """The rows of each branch: by view, and dead letters by number behind a slash."""
        names = [*self.branches.views, *(f"/{number}" for number in range(len(self.branches.letters)))]
        if len(names) == 1:
            return {names[0]: batch}
        return {
            name: batch.where(F.col(BRANCH) == number).select(f"{ROW}{number}.*")
            for number, name in enumerate(names)
        }

    def _write_topics(
        self,
        parts: Mapping[str, DataFrame],
        write: TopicWrite,
        sinks: Sequence[Sink],
        letters: Sequence[Letters],
        job: str,
    ) -> None:
        frames = [(rows_to_write(parts[sink.input], sink), sink.topic) for sink in sinks]
        frames += [(parts[f"/{number}"], one.topic) for number, one in enumerate(letters)]
        rows, options = _records(frames, write.all_options(self.bootstrap))
        with _Blaming(sinks):
            write_job(rows, options, job)

    def _write_other(self, rows: DataFrame, sink: Sink, batch_id: int) -> None:
        with _Blaming([sink]):
            if sink.kind == "parquet":
                write_parquet(self._folder(rows.sparkSession, sink), rows_to_write(rows, sink), sink, batch_id)
            elif sink.kind == "delta":
                writer = f"headrace-{self._query_id(rows.sparkSession)}-{sink.name}"
                write_delta(rows_to_write(rows, sink), sink, self.branches.mode, writer, batch_id)
            else:
                _show(rows_to_write(rows, sink), sink, batch_id)

    def _folder(self, session: SparkSession, sink: Sink) -> ParquetFolder:
        return ParquetFolder(HadoopFiles(session), sink.path, f"{self._query_id(session)[:8]}-{sink.name}")

    def _query_id(self, session: SparkSession) -> str:
        """The query's id in this checkpoint: another checkpoint starts over, and counts its batches from 0."""
        return str(json.loads(HadoopFiles(session).read(f"{self.checkpoint}/metadata"))["id"])


def write_job(rows: DataFrame, options: Mapping[str, str], job: str) -> None:
    """Write a batch's records to their topics, all or none, and once: `job` stays the same if it is repeated."""
    lower = {name.lower(): value.lower() for name, value in options.items()}
    weaker = any(lower.get(name, good[0]) not in good for name, good in EXACTLY_ONCE_NEEDS.items())
    named = {} if weaker else {"jobId": job}
    rows.write.format("headrace").options(**options, **named).mode("append").save()


def write_delta(rows: DataFrame, sink: Sink, mode: OutputMode, writer: str, batch_id: int) -> None:
    """Commit a batch to the table, with the batch's number: repeated, it adds nothing."""
    made = rows.write.format("headrace_delta").options(**sink.options).option("path", sink.path)
    if sink.partition_by:
        made = made.option("partitionBy", ",".join(sink.partition_by))
    made = made.option("txnAppId", writer).option("txnVersion", str(batch_id))
    made.mode("overwrite" if mode == "complete" else "append").save()


def _show(rows: DataFrame, sink: Sink, batch_id: int) -> None:
    """Show a batch in the format of Spark's own stream to the console."""
    jvm = rows.sparkSession.sparkContext._jvm
    assert jvm is not None
    line = "-" * 43
    jvm.System.out.println(f"{line}\nBatch: {batch_id} ({sink.name})\n{line}")
    rows.write.format("console").options(**_console_options(sink)).mode("append").save()


class _Blaming:
    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = sinks

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Raise an error that names the sink. It is not one of our own types: the text goes through Java, and is
        parsed again as a message of Spark."""
        if isinstance(error, Exception) and len(self._sinks) == 1:
            raise RuntimeError(BLAME.format(name=self._sinks[0].name) + str(error)) from None
