"""Records on their way to the dead-letter topic, or to that of late rows: as they were, with headers that say why
and from where.

    headrace.error.reason      headrace.error.pipeline   headrace.error.source
    headrace.origin.topic      headrace.origin.partition  headrace.origin.offset   headrace.origin.timestamp
    headrace.origin.file       for a line of a file, which has no topic
    headrace.error.step        headrace.error.exception  when a function of `python_rows` failed

They are counted in the query's progress, under `MALFORMED` or `LATE` and the name of the source
or step.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from headrace.spark.pipelines.compiling.row_steps import EXCEPTION_NAME, RECORD, row_as_json
from headrace.spark.pipelines.compiling.sinks import HEADERS_TYPE
from headrace.spark.pipelines.compiling.sources import FILE, LATE_ROW
from headrace.spark.pipelines.definition import LATE, MALFORMED, Source, Step
from headrace.spark.pipelines.formats.decoding import REASON
from headrace.spark.source import batch_watermark

ISO_TIME = "yyyy-MM-dd'T'HH:mm:ss.SSSXXX"


def dead_letters(malformed: DataFrame, pipeline: str, source: Source) -> DataFrame:
    """Dead letters with the columns that format("headrace") writes: key, value, headers."""
    if LATE_ROW in malformed.columns:
        malformed = malformed.where(~F.col(LATE_ROW))
    return _letters(malformed, pipeline, source, F.col(REASON), f"{MALFORMED}.{source.name}")


def row_letters(failed: DataFrame, pipeline: str, step: Step) -> DataFrame:
    """Dead letters for records on which `python_rows` failed. If the record is unknown, the row as JSON."""
    said = {
        "headrace.error.reason": F.col(REASON),
        "headrace.error.pipeline": F.lit(pipeline),
        "headrace.error.step": F.lit(step.name),
        "headrace.error.exception": F.col(EXCEPTION_NAME),
    }
    key, value, own = F.lit(None).cast("binary"), row_as_json(failed), F.array().cast(HEADERS_TYPE)
    if RECORD in failed.columns:
        record = F.col(RECORD)
        said["headrace.error.source"] = record["source"]
        for name in ("topic", "partition", "offset", "file"):
            said[f"headrace.origin.{name}"] = record[name].cast("string")
        said["headrace.origin.timestamp"] = F.date_format(record["timestamp"], ISO_TIME)
        key, value, own = record["key"], record["value"], F.coalesce(record["headers"], own)
    listed = F.array(*(_header(name, text) for name, text in said.items())).cast(HEADERS_TYPE)
    known = F.filter(listed, lambda one: one["value"].isNotNull())
    letters = failed.select(
        key.alias("key"), value.cast("binary").alias("value"), F.concat(own, known).alias("headers")
    )
    return letters.observe(f"{MALFORMED}.{step.name}", F.count(F.lit(1)).alias("count"))


def late_letters(left_out: DataFrame, pipeline: str, source: Source) -> DataFrame:
    """Dead letters for the records that came too late, among those that a source leaves out."""
    assert source.watermark is not None
    until = F.date_format(batch_watermark.COLUMN, ISO_TIME)
    reason = F.concat(F.lit(f"late: {source.watermark.column} is not after the watermark "), until)
    late = left_out.where(F.col(LATE_ROW))
    return _letters(late, pipeline, source, reason, f"{LATE}.{source.name}")


def _letters(frame: DataFrame, pipeline: str, source: Source, reason: Column, metric: str) -> DataFrame:
    said = {
        "headrace.error.reason": reason,
        "headrace.error.pipeline": F.lit(pipeline),
        "headrace.error.source": F.lit(source.name),
    }
    if source.kind == "files":
        said["headrace.origin.file"] = F.col(FILE)
        key, own = F.lit(None).cast("binary"), F.array().cast(HEADERS_TYPE)
    else:
        for name in ("topic", "partition", "offset"):
            said[f"headrace.origin.{name}"] = F.col(name).cast("string")
        said["headrace.origin.timestamp"] = F.date_format("timestamp", ISO_TIME)
        key, own = F.col("key"), F.coalesce(F.col("headers"), F.array().cast(HEADERS_TYPE))
    headers = F.concat(own, F.array(*(_header(name, text) for name, text in said.items())).cast(HEADERS_TYPE))
    letters = frame.select(
        key.alias("key"), F.col("value").cast("binary").alias("value"), headers.alias("headers")
    )
    return letters.observe(metric, F.count(F.lit(1)).alias("count"))


def _header(name: str, text: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), text.cast("string").cast("binary").alias("value"))
