"""Whether Spark accepts a plan in an output mode."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession


def check_output_mode(session: SparkSession, rows: DataFrame, mode: str) -> None:
    """What Spark checks when a query starts."""
    jvm = session.sparkContext._jvm
    assert jvm is not None
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    chosen = {"append": modes.Append, "update": modes.Update, "complete": modes.Complete}[mode]()
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    checker.checkForStreaming(rows._jdf.queryExecution().analyzed(), chosen)
