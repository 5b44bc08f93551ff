"""From records to rows: every record is parsed once, and is then either a row or malformed, never both or neither.

A decoder adds one column, `PARSED`, to a frame that has `value` (bytes, or null). From it, it derives which
records are good, their columns, and for the others why they are malformed.

Of a stream, parsing stands in a column that Spark believes to be different everywhere (`unmoved`). It moves no
condition below such a column, and does not write it out twice, so that neither our own condition nor the user's
makes it parse every record a second time. For a table it is in a generator (`inline` over an array of one), which
has the same effect and is allowed everywhere: Spark wants some subqueries to be deterministic.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 (everybody's name for it)
from pyspark.sql.types import StructType

PARSED = "__parsed"
REASON = "__reason"
MAX_EXCERPT = 80


class Decoder(ABC):
    """One format with one schema."""

    schema: StructType
    """The columns that a good record gives."""

    @abstractmethod
    def parse(self, frame: DataFrame) -> DataFrame:
        """The frame with `PARSED`."""

    @abstractmethod
    def fine(self) -> Column:
        """Whether a record is good; null counts as no."""

    @abstractmethod
    def row(self) -> Column:
        """A struct of the schema, of a good record."""

    @abstractmethod
    def reason(self) -> Column:
        """Why a record is malformed, as text; only asked where it is."""


def good_rows(frame: DataFrame, decoder: Decoder, kept: Sequence[str], counted: str | None = None) -> DataFrame:
    """The decoded columns, and those of the frame that are to be kept. `counted`: the metric of the malformed."""
    parsed = decoder.parse(frame)
    if counted is not None:
        parsed = counting(parsed, decoder, counted)
    parsed = parsed.where(F.coalesce(decoder.fine(), F.lit(False)))
    row = decoder.row()
    columns = [row.getField(name).alias(name) for name in decoder.schema.names]
    return parsed.select(*columns, *(F.col(quoted(name)) for name in kept))


def counting(parsed: DataFrame, decoder: Decoder, metric: str) -> DataFrame:
    """The same rows; how many are malformed shows in the progress of the query."""
    malformed = F.when(~F.coalesce(decoder.fine(), F.lit(False)), F.lit(1))
    return parsed.observe(metric, F.count(malformed).alias("count"))


def malformed_rows(frame: DataFrame, decoder: Decoder) -> DataFrame:
    """The malformed records of the frame, unchanged, with `REASON`."""
    parsed = decoder.parse(frame).where(~F.coalesce(decoder.fine(), F.lit(False)))
    return with_reason(parsed, decoder)


def with_reason(malformed: DataFrame, decoder: Decoder) -> DataFrame:
    """`REASON` in place of `PARSED`. Among other columns it is costly even where nobody asks for it: Java compiles
    no method as long as the one that Spark then makes of them, and interprets it for every record."""
    return malformed.withColumn(REASON, decoder.reason()).drop(PARSED)


def parsed_once(frame: DataFrame, parsed: Column) -> DataFrame:
    """The frame with `PARSED`, in place of one that it may have."""
    return computed_once(frame, PARSED, parsed, in_place_of=(PARSED,))


def computed_once(frame: DataFrame, name: str, column: Column, in_place_of: Sequence[str] = ()) -> DataFrame:
    """The frame with one column more, that Spark computes where it stands."""
    others = [F.col(quoted(one)) for one in frame.columns if one not in in_place_of]
    if frame.isStreaming:
        return frame.select(*others, F.when(unmoved(), column).alias(name))
    return frame.select(*others, F.inline(F.array(F.struct(column.alias(name)))))


def unmoved() -> Column:
    """Always true, but not deterministic for Spark, so Spark does not move it."""
    return F.spark_partition_id() >= 0


def text_of_value() -> Column:
    return F.col("value").cast("string")


def is_text() -> Column:
    return F.is_valid_utf8(text_of_value())


def required_are_there(row: Column, schema: StructType) -> Column:
    """That no column is null which the schema calls NOT NULL."""
    fine = F.lit(True)
    for field in schema.fields:
        if not field.nullable:
            fine = fine & row.getField(field.name).isNotNull()
    return fine


def first_reason(*reasons: tuple[Column, Column | str]) -> Column:
    """The reason of the first condition that holds."""
    chosen = F.lit("the value cannot be read")
    for condition, reason in reversed(reasons):
        said = F.lit(reason) if isinstance(reason, str) else reason
        chosen = F.when(condition, said).otherwise(chosen)
    return chosen


def missing_reason(row: Column, schema: StructType) -> Column:
    """Which required column is missing, or null."""
    reasons = [
        F.when(
            row.getField(field.name).isNull(), F.lit(f"'{field.name}' is missing, and the schema says NOT NULL")
        )
        for field in schema.fields
        if not field.nullable
    ]
    return F.coalesce(*reasons, F.lit(None).cast("string"))


def wrong_type_reason(row: Column, schema: StructType, written: dict[str, Column]) -> Column:
    """Which column holds what its type does not allow, as `written` has it; or null."""
    reasons = []
    for field in schema.fields:
        text = written[field.name]
        what = f"'{field.name}' is not a value of type {field.dataType.simpleString()}: "
        wrong = row.getField(field.name).isNull() & text.isNotNull()
        reasons.append(F.when(wrong, F.concat(F.lit(what), F.substring(text, 1, MAX_EXCERPT))))
    return F.coalesce(*reasons, F.lit(None).cast("string"))


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
