"""CSV records: one line per value, without a header. Quotes inside quotes are doubled, as spreadsheets write them.

Options `csv.*` go to Spark's parser and writer: csv.delimiter, csv.quote, csv.nullValue, csv.timestampFormat, ...
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from headrace.spark.pipelines.formats import decoding
from headrace.spark.pipelines.formats.decoding import PARSED, Decoder, is_text, quoted

BROKEN = "__broken"
DOUBLED_QUOTES = {"escape": '"'}


class CsvDecoder(Decoder):
    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        self.schema = schema
        ours = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": BROKEN}
        self._options = DOUBLED_QUOTES | dict(options) | ours

    def parse(self, frame: DataFrame) -> DataFrame:
        types = {field.name: field.dataType.simpleString() for field in self.schema.fields}
        return decoding.parsed_once(frame, self._read(types))

    def _read(self, types: Mapping[str, str]) -> Column:
        columns = [f"{quoted(name)} {type_name}" for name, type_name in types.items()]
        return F.from_csv(_line(), ", ".join([*columns, f"{BROKEN} string"]), self._options)

    def fine(self) -> Column:
        whole = F.col(PARSED).getField(BROKEN).isNull() & (_line() != "")
        return whole & is_text() & decoding.required_are_there(self.row(), self.schema)

    def row(self) -> Column:
        return F.col(PARSED)

    def reason(self) -> Column:
        as_text = self._read(dict.fromkeys(self.schema.names, "string"))
        written = {name: as_text.getField(name) for name in self.schema.names}
        wrong_type = decoding.wrong_type_reason(self.row(), self.schema, written)
        missing = decoding.missing_reason(self.row(), self.schema)
        count = len(self.schema.names)
        return decoding.first_reason(
            (F.col("value").isNull(), "the value is null"),
            (~is_text(), "the value is not UTF-8 text"),
            (_line() == "", "the value is empty"),
            (as_text.getField(BROKEN).isNotNull(), f"the line does not have the {count} columns of the schema"),
            (wrong_type.isNotNull(), wrong_type),
            (missing.isNotNull(), missing),
        )


def _line() -> Column:
    return F.rtrim(decoding.text_of_value(), F.lit("\r\n"))


def encode_csv(row: Column, options: Mapping[str, str]) -> Column:
    return F.to_csv(row, DOUBLED_QUOTES | dict(options))
