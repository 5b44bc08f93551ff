"""Which decoder reads a source, with its schema and options.

Options that begin with the name of the format (`csv.delimiter`, `json.timestampFormat`, `avro.framing`) are the
format's; all others go to the reader or the writer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql.types import StructType

from headrace.spark.pipelines.definition import Source
from headrace.spark.pipelines.formats.avro import AvroDecoder
from headrace.spark.pipelines.formats.csv import CsvDecoder
from headrace.spark.pipelines.formats.decoding import Decoder
from headrace.spark.pipelines.formats.json import JsonDecoder
from headrace.spark.pipelines.formats.text import TextDecoder

DECODED = frozenset({"json", "csv", "text", "avro"})


class SchemaFileError(Exception):
    """A schema file that cannot be read, in words."""


def format_options(options: Mapping[str, str], format_name: str) -> dict[str, str]:
    """What is meant for the format, without its name in front."""
    prefix = f"{format_name}."
    return {name.removeprefix(prefix): value for name, value in options.items() if name.startswith(prefix)}


def other_options(options: Mapping[str, str], format_name: str) -> dict[str, str]:
    return {name: value for name, value in options.items() if not name.startswith(f"{format_name}.")}


def make_decoder(source: Source) -> Decoder | None:
    """None where values are taken as they are. Needs a running Spark: it reads the DDL."""
    options = format_options(source.options, source.format)
    if source.format == "json":
        return JsonDecoder(declared_schema(source), options)
    if source.format == "csv":
        return CsvDecoder(declared_schema(source), options)
    if source.format == "avro":
        assert source.schema_file is not None
        return AvroDecoder(read_schema_file(source.schema_file), options)
    return TextDecoder() if source.format == "text" else None


def declared_schema(source: Source) -> StructType:
    """From `schema`, or from the file: DDL, or the JSON that Spark writes."""
    if source.schema is not None:
        return _from_ddl(source.schema)
    assert source.schema_file is not None
    text = read_schema_file(source.schema_file)
    if not source.schema_file.endswith(".json"):
        return _from_ddl(text)
    try:
        return StructType.fromJson(json.loads(text))
    except (json.JSONDecodeError, LookupError, TypeError, ValueError) as error:
        raise SchemaFileError(
            f"{source.schema_file} is not a schema as Spark writes it in JSON: {error}"
        ) from None


def _from_ddl(ddl: str) -> StructType:
    schema = StructType.fromDDL(ddl)
    assert isinstance(schema, StructType)
    return schema


def read_schema_file(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise SchemaFileError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SchemaFileError(f"{path} is not UTF-8 text") from None
