"""JSON records: one object per value, by Spark's own parser.

That parser is lenient in ways that lose data quietly: it stops after the first value, so that what follows is
ignored; of a repeated field it takes the last; `null` and an empty text give a row of nulls. So each
value is parsed inside an array, inside an object, both of which it must leave intact:
`{"headrace:row": [VALUE], "headrace:end": 1}`. What follows a value breaks one of them, or is a second element.

A number without a fraction fits a whole number, however it is written (12.0, 1.2e1): many writers know only one
kind of number. Such a record is parsed again, more leniently; all others are parsed once.

Written are times to the microsecond (2026-01-01T00:00:00.000000Z), and what is not a number as the texts "NaN",
"Infinity" and "-Infinity", which are also read as such. Options `json.*` go to the parser and the writer:
json.timestampFormat, json.ignoreNullFields, ...
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, IntegerType, IntegralType, StringType, StructField, StructType

from headrace.spark.pipelines.formats import decoding
from headrace.spark.pipelines.formats.decoding import PARSED, Decoder, is_text, text_of_value
from headrace.spark.pipelines.formats.whole_numbers import ROOM, all_whole, has_whole, relaxed, with_whole

ROW, END, BROKEN = "headrace:row", "headrace:end", "__broken"
AGAIN = "__again"
"""The result of parsing a broken record more leniently. It is a column of its own, so that the parser is in the
plan once, and not wherever a field of its row is used."""
FOLLOWED = "something follows the JSON value"
STRICT = {"allowSingleQuotes": "false"}
MICROSECONDS = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


class JsonDecoder(Decoder):
    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        self.schema = schema
        ours = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": BROKEN}
        self._options = STRICT | dict(options) | ours

    def parse(self, frame: DataFrame) -> DataFrame:
        parsed = decoding.parsed_once(frame, self._read(self.schema))
        if not has_whole(self.schema):
            return parsed
        broken = F.col(PARSED).getField(BROKEN).isNotNull()
        again = F.when(broken, self._read(relaxed(self.schema)))
        both = decoding.computed_once(parsed, AGAIN, again)
        return decoding.computed_once(both, PARSED, self._better(), in_place_of=(PARSED, AGAIN))

    def _better(self) -> Column:
        """The strict result, unless only the lenient one could be read and every number in it is whole."""
        again = F.col(AGAIN)
        row = _only(again)
        whole = _is_whole_text(again) & row.isNotNull() & all_whole(row, self.schema)
        narrowed = F.struct(
            F.array(with_whole(row, self.schema)).alias(ROW),
            F.lit(1).alias(END),
            F.lit(None).cast("string").alias(BROKEN),
        )
        return F.coalesce(F.when(F.coalesce(whole, F.lit(False)), narrowed), F.col(PARSED))

    def _read(self, schema: StructType) -> Column:
        wrapped = F.concat(F.lit(f'{{"{ROW}":['), text_of_value(), F.lit(f'],"{END}":1}}'))
        kind = StructType(
            [
                StructField(ROW, ArrayType(schema)),
                StructField(END, IntegerType()),
                StructField(BROKEN, StringType()),
            ]
        )
        return F.from_json(wrapped, kind, self._options)

    def fine(self) -> Column:
        whole = _is_whole_text(F.col(PARSED)) & self.row().isNotNull()
        return whole & is_text() & decoding.required_are_there(self.row(), self.schema)

    def row(self) -> Column:
        return _only(F.col(PARSED))

    def reason(self) -> Column:
        text, parsed = text_of_value(), F.col(PARSED)
        written = {field.name: _unfit(F.get_json_object(text, _path(field.name)), field) for field in self.schema}
        wrong_type = decoding.wrong_type_reason(self.row(), self.schema, written)
        missing = decoding.missing_reason(self.row(), self.schema)
        broken = parsed.getField(BROKEN).isNotNull()
        in_array = F.json_array_length(F.concat(F.lit("["), text, F.lit("]")))  # null where that is not JSON
        return decoding.first_reason(
            (F.col("value").isNull(), "the value is null"),
            (~is_text(), "the value is not UTF-8 text"),
            (F.trim(text) == "", "the value is empty"),
            (broken & F.try_parse_json(text).isNull(), "the value is not valid JSON"),
            ((broken & in_array.isNull()) | (F.size(parsed.getField(ROW)) > 1), FOLLOWED),
            (self.row().isNull(), "the value is JSON, but not an object"),
            (wrong_type.isNotNull(), wrong_type),
            (broken, "a field inside does not have the type that the schema says"),
            (missing.isNotNull(), missing),
        )


def _is_whole_text(parsed: Column) -> Column:
    """Whether the value left our object intact, and its array with one element."""
    return parsed.getField(BROKEN).isNull() & (parsed.getField(END) == 1) & (F.size(parsed.getField(ROW)) == 1)


def _only(parsed: Column) -> Column:
    return F.get(parsed.getField(ROW), F.lit(0))


def _unfit(text: Column, field: StructField) -> Column:
    """The text of a field; null if it is a whole number and the field is of that kind."""
    if not isinstance(field.dataType, IntegralType):
        return text
    return F.when(~all_whole(F.coalesce(text.try_cast(ROOM), F.lit("0.5").cast(ROOM)), field.dataType), text)


def _path(name: str) -> str:
    return f"$['{name}']"


def encode_json(row: Column, options: Mapping[str, str]) -> Column:
    given = {name.lower() for name in options}
    ours = {name: value for name, value in MICROSECONDS.items() if name.lower() not in given}
    return F.to_json(row, ours | dict(options))
