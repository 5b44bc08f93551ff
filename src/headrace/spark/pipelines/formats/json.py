"""JSON records: one object per value, by Spark's own parser.

That parser is lenient in ways that lose data quietly: it stops after the first value, so that what follows is
ignored; `null` and an empty text give a row of nulls. So each value is parsed inside an object of ours that it
must leave intact: `{"row": VALUE, "end": 1}`. What follows the value breaks that object, and an empty one too.
Options `json.*` go to the parser and the writer: json.timestampFormat, json.ignoreNullFields, ...
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from headrace.spark.pipelines.formats import decoding
from headrace.spark.pipelines.formats.decoding import PARSED, Decoder, is_text, text_of_value

ROW, END, BROKEN = "row", "end", "__broken"
STRICT = {"allowSingleQuotes": "false"}


class JsonDecoder(Decoder):
    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        self.schema = schema
        ours = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": BROKEN}
        self._options = STRICT | dict(options) | ours
        self._wrapped = StructType(
            [
                StructField(ROW, schema),
                StructField(END, IntegerType()),
                StructField(BROKEN, StringType()),
            ]
        )

    def parse(self, frame: DataFrame) -> DataFrame:
        wrapped = F.concat(F.lit(f'{{"{ROW}":'), text_of_value(), F.lit(f',"{END}":1}}'))
        return decoding.parsed_once(frame, F.from_json(wrapped, self._wrapped, self._options))

    def fine(self) -> Column:
        parsed = F.col(PARSED)
        whole = parsed.getField(BROKEN).isNull() & (parsed.getField(END) == 1) & self.row().isNotNull()
        return whole & is_text() & decoding.required_are_there(self.row(), self.schema)

    def row(self) -> Column:
        return F.col(PARSED).getField(ROW)

    def reason(self) -> Column:
        text, parsed = text_of_value(), F.col(PARSED)
        written = {name: F.get_json_object(text, _path(name)) for name in self.schema.names}
        wrong_type = decoding.wrong_type_reason(self.row(), self.schema, written)
        missing = decoding.missing_reason(self.row(), self.schema)
        return decoding.first_reason(
            (F.col("value").isNull(), "the value is null"),
            (~is_text(), "the value is not UTF-8 text"),
            (F.trim(text) == "", "the value is empty"),
            (parsed.getField(END).isNull() & F.try_parse_json(text).isNull(), "the value is not valid JSON"),
            (parsed.getField(END).isNull(), "something follows the JSON value"),
            (self.row().isNull(), "the value is JSON, but not an object"),
            (wrong_type.isNotNull(), wrong_type),
            (parsed.getField(BROKEN).isNotNull(), "a field inside does not have the type that the schema says"),
            (missing.isNotNull(), missing),
        )


def _path(name: str) -> str:
    return f"$['{name}']"


def encode_json(row: Column, options: Mapping[str, str]) -> Column:
    return F.to_json(row, dict(options))
