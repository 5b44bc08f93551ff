"""A driver that is killed at a chosen moment of a batch. test_source_restart runs it in its own process group.

    python source_restart_driver.py BOOTSTRAP TOPIC FOLDER STAGE EXPECTED

Counts the records of a topic from `latest` on, with state, and writes the counts of each batch to a file that
bears the number of the batch. Ends when EXPECTED records were counted. STAGE says when the driver dies (once):

    plan     the first batch is in the checkpoint, nothing was read    (planning of the first batch)
    offsets  the end of a batch is chosen, but not yet written down    (latestOffset)
    read     rows of a batch are under way                             (a task)
    sink     a batch is done, but not yet committed                    (after foreachBatch)
    commit   a batch is committed, the next is being built             (the source's commit)
    none     never
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from headrace.spark.datasource import HeadraceDataSource
from headrace.spark.source.stream_reader import HeadraceStreamReader

if TYPE_CHECKING:
    import pyarrow as pa

PER_BATCH = 100
DEADLINE_S = 120


def die(options: Any) -> None:
    """The whole driver at once: this program and its Java, not the workers, which end by themselves."""
    Path(options["folder"], f"died-{options['stage']}").touch()
    os.killpg(int(options["group"]), signal.SIGKILL)
    time.sleep(60)


class DyingReader(HeadraceStreamReader):
    """The reader as it is, with a death in one of its methods."""

    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        ours = ("folder", "stage", "group")
        super().__init__({name: value for name, value in options.items() if name not in ours}, schema)
        self._doom = {name: options[name] for name in ours}
        self._moves = 0

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        found = super().initialOffset()
        folder = Path(self._doom["folder"])
        (folder / "started").touch()
        while not (folder / "filled").exists():  # now there is something after `latest`
            time.sleep(0.05)
        return found

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, Any]:  # noqa: N802
        end = super().latestOffset(start, limit)
        self._moves += end != start
        if self._doom["stage"] == "offsets" and self._moves == 2:
            die(self._doom)
        return end

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        planned = super().partitions(start, end)
        if self._doom["stage"] == "plan" and planned:
            die(self._doom)
        return planned

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        for rows in super().read(partition):
            yield rows
            if self._doom["stage"] == "read":
                die(self._doom)

    def commit(self, end: dict[str, Any]) -> None:
        super().commit(end)
        if self._doom["stage"] == "commit":
            die(self._doom)


class DyingSource(HeadraceDataSource):
    @classmethod
    def name(cls) -> str:
        return "dying"

    def schema(self) -> str:
        return "partition int, offset bigint"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return DyingReader(dict(self.options), schema)


def keep_counts(doom: dict[str, str]) -> Any:
    """A batch that is done again replaces what it wrote before."""

    def keep(rows: DataFrame, batch: int) -> None:
        counts = {row.partition: [row.records, row.total] for row in rows.collect()}
        folder = Path(doom["folder"])
        unfinished = folder / "unfinished"
        unfinished.write_text(json.dumps(counts))
        unfinished.rename(folder / f"batch-{batch:04}.json")
        if doom["stage"] == "sink" and batch >= 1:
            die(doom)

    return keep


def counted(folder: Path) -> int:
    written = sorted(folder.glob("batch-*.json"))
    return sum(records for records, _ in json.loads(written[-1].read_text()).values()) if written else 0


def main(bootstrap: str, topic: str, folder: str, stage: str, expected: str) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.Builder().master("local[1]")
    for name in ("spark.ui.enabled", "spark.ui.showConsoleProgress"):
        builder = builder.config(name, "false")
    spark = builder.config("spark.sql.shuffle.partitions", "1").config("spark.driver.memory", "512m").getOrCreate()
    spark.dataSource.register(DyingSource)
    doom = {"folder": folder, "stage": stage, "group": str(os.getpgid(0))}
    reader = spark.readStream.format("dying").options(**doom, subscribe=topic, maxOffsetsPerTrigger=str(PER_BATCH))
    frame = reader.option("kafka.bootstrap.servers", bootstrap).load()
    query = (
        frame.groupBy("partition")
        .agg(functions.count("*").alias("records"), functions.sum("offset").alias("total"))
        .writeStream.outputMode("complete")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .foreachBatch(keep_counts(doom))
        .start()
    )
    deadline = time.monotonic() + DEADLINE_S
    while counted(Path(folder)) < int(expected):
        failed = query.exception()
        assert failed is None, failed
        assert time.monotonic() < deadline, f"{counted(Path(folder))} of {expected} were counted"
        time.sleep(0.1)
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
