"""A driver whose queries are killed together, at chosen moments. test_restart runs it in its own process group.

    python restart_driver.py BOOTSTRAP TOPIC COPY FOLDER STAGES

STAGES says which queries run and where each of them dies, as `early:plan,copy:write`. A query that gets there
waits until the others are where they are to be; then all are killed. `end` is the end of a query's work; where
that is so for all, the driver ends by itself.

`early`, `late` and `last` count the records of TOPIC from `latest` on, with state, and write the counts of each
batch to a file that bears the number of the batch:

    plan     the first batch is in the checkpoint, nothing was read    (planning of the first batch)
    offsets  the end of a batch is chosen, but not yet written down    (latestOffset)
    read     rows of a batch are under way                             (a task)
    sink     a batch is done, but not yet committed                    (after foreachBatch)
    commit   a batch is committed, the next is being built             (the source's commit)

`copy` writes the first partition of TOPIC to the topic COPY, PER_COPY rows in a batch, up to what is there:

    write    some rows of the second batch are in the topic, others are with the producer or still to come (a task)
    done     a batch is written, but not yet committed                 (after all tasks)
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import confluent_kafka as ck
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.datasource import (
    DataSourceStreamReader,
    DataSourceStreamWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from headrace.spark.datasource import HeadraceDataSource
from headrace.spark.sink.columns import SinkColumns, sink_columns
from headrace.spark.sink.options import SinkOptions, parse_sink_options
from headrace.spark.sink.writer import StreamWriter
from headrace.spark.source.stream_reader import HeadraceStreamReader

if TYPE_CHECKING:
    import pyarrow as pa

Doom = dict[str, str]
OURS = ("folder", "query", "stage", "queries", "group")
"""Options of the data source that only concern its death."""
END = "end"
PER_BATCH = 200
PER_COPY = 200
COPY_PARTITIONS = 2
PER_ARROW_BATCH = 50
SMALL_BATCH_BYTES = "100"
"""A request for every few rows: what is not waited for is not sent either."""
NEW = 500
"""Records that are to be counted in each partition."""
DEADLINE_S = 580


def split(options: dict[str, str]) -> tuple[Doom, dict[str, str]]:
    return {name: options[name] for name in OURS}, {n: v for n, v in options.items() if n not in OURS}


def reach(doom: Doom) -> None:
    """Stay here until all queries are where they die, then kill the driver with its Java, and this process."""
    reached = Path(doom["folder"], "reached", doom["queries"])
    (reached / doom["query"]).touch()
    while len(list(reached.iterdir())) < len(doom["queries"].split(",")):
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):  # another of us was faster
        os.killpg(int(doom["group"]), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


class DyingReader(HeadraceStreamReader):
    """The reader as it is, with a death in one of its methods."""

    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        self._doom, given = split(options)
        super().__init__(given, schema)
        self._moves = 0

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        found = super().initialOffset()
        folder = Path(self._doom["folder"])
        (folder / f"started-{self._doom['query']}").touch()
        while not (folder / "filled").exists():  # now there is something after `latest`
            time.sleep(0.05)
        return found

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, Any]:  # noqa: N802
        end = super().latestOffset(start, limit)
        self._moves += end != start
        if self._doom["stage"] == "offsets" and self._moves == 2:
            reach(self._doom)
        return end

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        planned = super().partitions(start, end)
        if self._doom["stage"] == "plan" and planned:
            reach(self._doom)
        return planned

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        for rows in super().read(partition):
            yield rows
            if self._doom["stage"] == "read":
                reach(self._doom)

    def commit(self, end: dict[str, Any]) -> None:
        super().commit(end)
        if self._doom["stage"] == "commit":
            reach(self._doom)


class DyingWriter(StreamWriter):
    """The writer as it is, with a death while it writes or afterwards."""

    def __init__(self, options: SinkOptions, columns: SinkColumns, doom: Doom) -> None:
        super().__init__(options, columns)
        self._doom = doom

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return super().write(self._until_doom(iterator))

    def _until_doom(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        assert task is not None
        doomed = self._doom["stage"] == "write" and task.getLocalProperty("streaming.sql.batchId") == "1"
        for number, rows in enumerate(batches):
            if doomed and number == 2:
                self._wait_for_rows()
                reach(self._doom)
            yield rows

    def _wait_for_rows(self) -> None:
        """Until something of this batch is in the topic."""
        address = self._options.client.bootstrap
        consumer = ck.Consumer({"bootstrap.servers": address, "group.id": "nobody"})
        places = [ck.TopicPartition(str(self._options.topic), number) for number in range(COPY_PARTITIONS)]
        while sum(consumer.get_watermark_offsets(place)[1] for place in places) <= PER_COPY:
            time.sleep(0.02)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        super().commit(list(messages), batchId)
        if self._doom["stage"] == "done":
            reach(self._doom)


class DyingSource(HeadraceDataSource):
    @classmethod
    def name(cls) -> str:
        return "dying"

    def schema(self) -> str:
        return "partition int, offset bigint"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return DyingReader(dict(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        doom, given = split(dict(self.options))
        options = parse_sink_options(given)
        return DyingWriter(options, sink_columns(schema, options), doom)


def keep_counts(doom: Doom) -> Callable[[DataFrame, int], None]:
    """A batch that is done again replaces what it wrote before."""

    def keep(rows: DataFrame, batch: int) -> None:
        counts = {row.partition: [row.records, row.total] for row in rows.collect()}
        folder = Path(doom["folder"], doom["query"])
        unfinished = folder / "unfinished"
        unfinished.write_text(json.dumps(counts))
        unfinished.rename(folder / f"batch-{batch:04}.json")
        if doom["stage"] == "sink" and batch >= 1:
            reach(doom)

    return keep


def counted(folder: Path) -> int:
    written = sorted(folder.glob("batch-*.json"))
    return sum(records for records, _ in json.loads(written[-1].read_text()).values()) if written else 0


class Driver:
    def __init__(self, bootstrap: str, topic: str, copy: str, folder: str) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._copy = copy
        self._folder = Path(folder)
        self._spark = make_session()
        self._queries: dict[str, StreamingQuery] = {}
        self._starts: dict[str, Callable[[], StreamingQuery]] = {}
        self._shown: dict[str, int] = {}

    def run(self, stages: str) -> None:
        dooms = self._dooms(stages)
        for query, doom in dooms.items():
            self._starts[query] = partial(self._start_copying if query == "copy" else self._start_counting, doom)
            self._queries[query] = self._starts[query]()
        for query in [query for query, doom in dooms.items() if doom["stage"] == END]:
            self._wait_until(partial(self._complete, query))
            Path(self._folder, "reached", stages, query).touch()
        if any(doom["stage"] != END for doom in dooms.values()):
            self._wait_until(lambda: False)
        for one in self._queries.values():
            one.stop()
        self._spark.stop()

    def _dooms(self, stages: str) -> dict[str, Doom]:
        given = dict(one.split(":") for one in stages.split(","))
        (self._folder / "reached" / stages).mkdir(parents=True)
        common = {"folder": str(self._folder), "queries": stages, "group": str(os.getpgid(0))}
        return {query: {**common, "query": query, "stage": stage} for query, stage in given.items()}

    def _start_counting(self, doom: Doom) -> StreamingQuery:
        (self._folder / doom["query"]).mkdir(exist_ok=True)
        reader = self._spark.readStream.format("dying").options(**doom, subscribe=self._topic)
        reader = reader.option("maxOffsetsPerTrigger", PER_BATCH)
        return (
            reader.option("kafka.bootstrap.servers", self._bootstrap)
            .load()
            .groupBy("partition")
            .agg(functions.count("*").alias("records"), functions.sum("offset").alias("total"))
            .writeStream.outputMode("complete")
            .option("checkpointLocation", str(self._folder / doom["query"] / "checkpoint"))
            .foreachBatch(keep_counts(doom))
            .start()
        )

    def _start_copying(self, doom: Doom) -> StreamingQuery:
        self._wait_until((self._folder / "filled").exists)  # it goes as far as there is something
        reader = self._spark.readStream.format("headrace").option("assign", json.dumps({self._topic: [0]}))
        reader = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", PER_COPY)
        return (
            reader.option("kafka.bootstrap.servers", self._bootstrap)
            .load()
            .selectExpr("string(offset) AS key", "value")
            .writeStream.format("dying")
            .options(**doom, **{"kafka.bootstrap.servers": self._bootstrap, "topic": self._copy})
            .option("kafka.batch.size", SMALL_BATCH_BYTES)
            .option("delivery", "at-least-once")
            .option("checkpointLocation", str(self._folder / "copy-checkpoint"))
            .trigger(availableNow=True)
            .start()
        )

    def _complete(self, query: str) -> bool:
        if query == "copy":
            return not self._queries[query].isActive
        found = counted(self._folder / query)
        if self._shown.get(query) != found:
            self._shown[query] = found
            print(f"{query} has counted {found} of {2 * NEW}", flush=True)
        return found >= 2 * NEW

    def _wait_until(self, reached: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not reached():
            self._start_again()
            assert time.monotonic() < deadline, [f"{name}: {one.status}" for name, one in self._queries.items()]
            time.sleep(0.1)

    def _start_again(self) -> None:
        """A query whose Python took longer to start than Spark waits: ten seconds, too few on a busy machine."""
        for name, query in list(self._queries.items()):
            if (failure := query.exception()) is not None:
                assert "failed to connect back" in str(failure), failure
                self._queries[name] = self._starts[name]()


def make_session() -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.Builder().master("local[6]")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(PER_ARROW_BATCH),
        "spark.driver.memory": "512m",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.dataSource.register(DyingSource)
    return spark


if __name__ == "__main__":
    Driver(*sys.argv[1:5]).run(sys.argv[5])
