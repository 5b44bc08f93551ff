"""A compacted topic as a table: the latest value of each key. A record without a value deletes its key.

In a join with a stream Spark reads it again for every batch, so that the table follows its topic. Within a
partition the highest offset is the latest, as for compaction. A key can stand in two partitions after a topic got
more of them: then the younger record counts. A malformed record is skipped: the key keeps its previous value.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from headrace.spark.pipelines.definition import KeyColumn, Source
from headrace.spark.pipelines.formats import decoding
from headrace.spark.pipelines.formats.decoding import Decoder, quoted

_LATEST, _GONE, _ROW, _KEY = "__latest", "__gone", "__row", "__key"


class TableDecoder(Decoder):
    """Like another decoder, but a record without a value is a deletion, and the key must have its type."""

    def __init__(self, inner: Decoder, key: KeyColumn | None) -> None:
        self.schema = inner.schema
        self._inner = inner
        self._key = key

    def parse(self, frame: DataFrame) -> DataFrame:
        return self._inner.parse(frame)

    def fine(self) -> Column:
        value_fine = F.coalesce(F.col("value").isNull() | self._inner.fine(), F.lit(False))
        return value_fine & typed_key(self._key).isNotNull()

    def row(self) -> Column:
        return self._inner.row()

    def reason(self) -> Column:
        wanted = self._key.type if self._key else "binary"
        return decoding.first_reason(
            (F.col("key").isNull(), "a record of a table needs a key"),
            (typed_key(self._key).isNull(), f"the key is not a value of type {wanted}"),
            (F.lit(True), self._inner.reason()),
        )


def typed_key(key: KeyColumn | None) -> Column:
    """Numbers, times and the like are text in a key."""
    raw = F.col("key")
    if key is None or key.type.lower() == "binary":
        return raw
    text = F.when(F.is_valid_utf8(raw.cast("string")), raw.cast("string"))
    return text if key.type.lower() == "string" else text.try_cast(key.type)


def latest_rows(records: DataFrame, source: Source, decoder: Decoder | None, metadata: Sequence[str]) -> DataFrame:
    """From the eight columns to the view. Without a decoder the view has these columns too."""
    if decoder is None:
        names = list(records.columns)
        rows = records.where(F.col("key").isNotNull())
        row = F.struct(*names)
        metadata = ()
    else:
        names = list(decoder.schema.names)
        table_decoder = TableDecoder(decoder, source.key)
        rows = table_decoder.parse(records).where(table_decoder.fine())
        row = table_decoder.row()
    latest = _latest(rows, row, source.key, metadata)
    columns = {name: F.col(_LATEST).getField(_ROW).getField(name) for name in names}
    if source.key is not None:
        columns[source.key.name] = F.col(_LATEST).getField(_KEY)
    columns |= {name: F.col(_LATEST).getField(name) for name in metadata}
    return latest.select(*(column.alias(name) for name, column in columns.items()))


def _latest(rows: DataFrame, row: Column, key: KeyColumn | None, metadata: Sequence[str]) -> DataFrame:
    """All records of a key meet once, and both steps of choosing happen there."""
    kept = F.struct(
        row.alias(_ROW),
        typed_key(key).alias(_KEY),
        F.col("value").isNull().alias(_GONE),
        *(F.col(quoted(name.removeprefix("_"))).alias(name) for name in metadata),
    )
    age = F.struct("timestamp", "offset")
    per_partition = (
        rows.select("key", "partition", "offset", age.alias("age"), kept.alias("kept"))
        .repartition("key")
        .groupBy("key", "partition")
        .agg(F.max_by(F.struct("age", "kept"), "offset").alias("last"))
    )
    latest = per_partition.groupBy("key").agg(F.max_by("last.kept", "last.age").alias(_LATEST))
    return latest.where(~F.col(_LATEST).getField(_GONE))
