"""Text records: the value as a string, in a column `value`. Bytes that are not valid UTF-8 are malformed."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StringType, StructField, StructType

from headrace.spark.pipelines.formats import decoding
from headrace.spark.pipelines.formats.decoding import PARSED, Decoder, is_text


class TextDecoder(Decoder):
    def __init__(self) -> None:
        self.schema = StructType([StructField("value", StringType())])

    def parse(self, frame: DataFrame) -> DataFrame:
        return frame.withColumn(PARSED, F.struct(decoding.text_of_value().alias("value")))

    def fine(self) -> Column:
        return F.col("value").isNotNull() & is_text()

    def row(self) -> Column:
        return F.col(PARSED)

    def reason(self) -> Column:
        return decoding.first_reason(
            (F.col("value").isNull(), "the value is null"), (F.lit(True), "the value is not UTF-8 text")
        )
