"""A source that several branches of one query read: read and decoded once, by a shuffle that Spark uses again.

Spark plans every branch of a union for itself, scans included. It does recognise a shuffle that it has already
planned ("ReusedExchange"), if everything below it is the same in all branches. So the decoded records go through a
shuffle, and nothing of a branch may move below it:
- all columns are one struct: its columns cannot be dropped one by one below the shuffle;
- the first condition above it is one that Spark does not move, because it is not deterministic; it also needs the
  whole struct, or Spark would take single fields out of it before the shuffle.

Records of one task stay together and in order: the lane of a record is the task that read it. Without this the
records of a partition would be written in another order.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from headrace.spark.pipelines.formats.decoding import unmoved

ENTRY = "__entry"
LANE, ROW, BAD = "lane", "row", "bad"


def exchanged(frame: DataFrame, row: Column, bad: Column | None, lanes: int) -> DataFrame:
    """One column `ENTRY`. `row` is null where a record is malformed; `bad` where it is not."""
    parts = [F.spark_partition_id().alias(LANE), row.alias(ROW)]
    if bad is not None:
        parts.append(bad.alias(BAD))
    entry = F.when(unmoved(), F.struct(*parts))  # Spark believes that it may be null: `branch` checks that
    return frame.select(entry.alias(ENTRY)).repartitionById(lanes, F.col(f"{ENTRY}.{LANE}"))


def branch(entries: DataFrame, part: str) -> DataFrame:
    """The rows, or the malformed records, of what `exchanged` gave."""
    there = F.col(f"{ENTRY}.{part}").isNotNull()
    return entries.where(F.when(unmoved(), there).otherwise(F.col(ENTRY).isNull())).select(f"{ENTRY}.{part}.*")


def fixed(frame: DataFrame) -> DataFrame:
    """Conditions of a branch stay above this: a watermark below it sees all rows, in every branch the same."""
    return frame.where(unmoved())
