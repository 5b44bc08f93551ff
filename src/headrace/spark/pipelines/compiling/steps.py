"""Steps: each creates a view from earlier ones. They are temporary views of Spark, so SQL finds them by name."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from headrace.spark.pipelines.compiling.python_steps import run_python_step
from headrace.spark.pipelines.definition import Step


def run_step(session: SparkSession, step: Step, views: Mapping[str, DataFrame], path: str) -> DataFrame:
    """Raises PySparkException when Spark refuses it, `PipelineError` when the user's Python does."""
    if step.kind == "sql":
        return session.sql(step.text)
    if step.kind == "python":
        return run_python_step(step, path, [views[name] for name in step.inputs])
    frame = views[step.inputs[0]]
    if step.kind == "filter":
        return frame.where(F.expr(step.text))
    if step.kind == "select":
        return frame.selectExpr(*step.columns)
    if step.kind == "watermark":
        assert step.watermark is not None
        return frame.withWatermark(step.watermark.column, step.watermark.delay)
    assert step.kind == "deduplicate"
    columns = list(step.columns)
    # Only a stream can forget keys after a span; a table has all its rows at once.
    if step.within is not None and frame.isStreaming:
        return frame.dropDuplicatesWithinWatermark(columns)
    return frame.dropDuplicates(columns)
