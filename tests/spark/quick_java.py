"""Java that starts Spark in half the time: the classes that Spark loads, as an image in the virtual environment.

The tests start Spark a dozen times, and each start reads ten thousand classes out of jars. Java can keep them as
it has them in memory (class data sharing). The image is made by one run of this file, with a bit of everything
that the tests use. Its name says which Java and which PySpark it fits; Java ignores one that does not.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark
from pyspark.sql import DataFrame, SparkSession, functions

MAKE_TIMEOUT_S = 400
SILENT = "-Xlog:disable"
"""Java reports every class that an image cannot hold on its standard output."""


def quick_options(java_home: Path) -> str:
    """What Java is to be started with. The first time this takes some twenty seconds."""
    image = _image(java_home)
    with image.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # workers that begin together make it once
        if not image.exists():
            _make(java_home, image)
    return f"-XX:SharedArchiveFile={image} {SILENT}" if image.exists() else ""


def _image(java_home: Path) -> Path:
    release = java_home / "release"
    fits = [str(java_home), release.read_text() if release.exists() else "", pyspark.__version__, pyspark.__file__]
    return Path(sys.prefix) / f"spark-classes-{hashlib.sha256(repr(fits).encode()).hexdigest()[:12]}.jsa"


def _make(java_home: Path, image: Path) -> None:
    """Java writes the image when it ends, which is after the end of Python: when it closes its output."""
    fresh = image.with_name(f"{image.name}.{os.getpid()}")
    options = f"-XX:ArchiveClassesAtExit={fresh} {SILENT}"
    with contextlib.suppress(subprocess.SubprocessError):  # without an image all is only slower
        subprocess.run(
            [sys.executable, __file__],
            env=os.environ | {"JAVA_HOME": str(java_home), "SPARK_SUBMIT_OPTS": options},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=MAKE_TIMEOUT_S,
            check=True,
        )
    if fresh.exists():
        fresh.replace(image)


def _collect(batch: DataFrame, number: int) -> None:
    batch.collect()


def use_a_bit_of_everything(folder: Path) -> None:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.Builder().master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.warehouse.dir", str(folder / "warehouse"))
    spark = builder.config("spark.sql.shuffle.partitions", "1").getOrCreate()
    spark.conf.set(
        "spark.sql.streaming.stateStore.providerClass",
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    )
    (folder / "in").mkdir()
    (folder / "in" / "1.txt").write_text('{"id": 1, "at": "2026-01-01T00:00:00Z"}\n')
    upper = functions.udf(str.upper, "string")
    rows = (
        spark.readStream.text(str(folder / "in"))
        .select(functions.from_json("value", "id int, at timestamp").alias("row"), upper("value").alias("loud"))
        .select("row.*", "loud")
    )
    counts = rows.withWatermark("at", "1 minute").groupBy("id", functions.window("at", "1 minute")).count()
    to_files = rows.writeStream.format("parquet").option("path", str(folder / "out"))
    to_python = counts.writeStream.foreachBatch(_collect)
    for number, writer in enumerate((to_files, to_python)):
        located = writer.option("checkpointLocation", str(folder / f"checkpoint-{number}"))
        located.trigger(availableNow=True).start().awaitTermination()
    spark.read.parquet(str(folder / "out")).selectExpr("to_json(struct(*))").collect()
    spark.stop()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        use_a_bit_of_everything(Path(name))
