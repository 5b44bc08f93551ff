"""Malformed records on their way to the dead-letter topic: as they were, with headers that say why and from where.

    headrace.error.reason      headrace.error.pipeline   headrace.error.source
    headrace.origin.topic      headrace.origin.partition  headrace.origin.offset   headrace.origin.timestamp
    headrace.origin.file       for a line of a file, which has no topic

They are counted in the query's progress, under `MALFORMED` and the name of the source.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from headrace.spark.pipelines.compiling.sinks import HEADERS_TYPE
from headrace.spark.pipelines.compiling.sources import FILE
from headrace.spark.pipelines.definition import MALFORMED, Source
from headrace.spark.pipelines.formats.decoding import REASON

ISO_TIME = "yyyy-MM-dd'T'HH:mm:ss.SSSXXX"


def dead_letters(malformed: DataFrame, pipeline: str, source: Source) -> DataFrame:
    """Columns key, value, headers: what format("headrace") writes."""
    said = {
        "headrace.error.reason": F.col(REASON),
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
    letters = malformed.select(
        key.alias("key"), F.col("value").cast("binary").alias("value"), headers.alias("headers")
    )
    return letters.observe(f"{MALFORMED}.{source.name}", F.count(F.lit(1)).alias("count"))


def _header(name: str, text: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), text.cast("string").cast("binary").alias("value"))
