"""One source of a pipeline file."""

from __future__ import annotations

import os
import re
from datetime import datetime

from headrace.spark.pipelines.definition import KeyColumn, Place, Source, SourceKind
from headrace.spark.pipelines.durations import parse_milliseconds
from headrace.spark.pipelines.loading.keys import FILE_FORMATS, SOURCE_KEYS, TOPIC_FORMATS
from headrace.spark.pipelines.loading.parts import (
    check_topic,
    load_dead_letter,
    load_watermark,
    one_of,
    places_of,
    refuse_keys_of_others,
    resolved,
)
from headrace.spark.pipelines.loading.reading import Fields

_KINDS: dict[str, SourceKind] = {
    "topic": "topics",
    "topics": "topics",
    "pattern": "topics",
    "table": "table",
    "files": "files",
}
_CALLED = {"topics": "a topic that is read as a stream", "table": "a table", "files": "files"}
_EXTENSIONS = {
    ".json": "json", ".jsonl": "json", ".ndjson": "json", ".csv": "csv",
    ".txt": "text", ".log": "text", ".parquet": "parquet",
}  # fmt: skip
_HOW_STARTING = "Use earliest, latest, an age such as -10m, or a time such as 2026-01-31T00:00:00Z."
_KEY = re.compile(r"([A-Za-z_]\w*)(?:\s+(.+))?")


def load_source(fields: Fields, name: str, at: Place) -> Source | None:
    given = _what_is_read(fields)
    if given is None:
        return None
    kind = _KINDS[given]
    static = kind == "files" and "table" in fields
    if static and not fields.flag("table"):
        fields.problem("table", "beside files, table can only be true", "For a topic as a table leave files out.")
    refuse_keys_of_others(fields, SOURCE_KEYS, kind, _CALLED[kind])
    files = fields.string("files")
    return Source(
        name,
        at.line,
        kind,
        topics=_topics(fields, given),
        pattern=_pattern(fields),
        files=None if files is None else fields.document.resolve(files),
        format=_format(fields, kind, files),
        schema=fields.string("schema"),
        schema_file=_schema_file(fields),
        starting=_starting(fields),
        watermark=load_watermark(fields),
        dead_letter=load_dead_letter(fields),
        late_rows=_late_rows(fields),
        key=_key(fields),
        options=fields.table("options"),
        static=static,
        connector=resolved(fields, "connector"),
        column=at.column,
        places=places_of(fields, "options"),
    )


def _what_is_read(fields: Fields) -> str | None:
    if "files" in fields and "table" in fields:  # a static table, said with two keys
        others = [key for key in ("topic", "topics", "pattern") if key in fields]
        for other in others:
            fields.problem(other, f"{fields.what} has files and {other}", "Keep one of them.")
        return None if others else "files"
    return one_of(fields, tuple(_KINDS), "Give an input: topic: logs.raw")


def _topics(fields: Fields, given: str) -> tuple[str, ...]:
    if given not in ("topic", "topics", "table"):
        return ()
    if given == "table" and fields.flag("table") is not None:
        fields.problem("table", "table needs the name of a topic", "table: true goes with files only.")
        return ()
    names = fields.strings("topics") if given == "topics" else tuple(filter(None, [fields.string(given)]))
    for topic in names:
        check_topic(fields, given, topic)
    return names


def _pattern(fields: Fields) -> str | None:
    pattern = fields.string("pattern")
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            fields.problem("pattern", f"pattern is not a valid regular expression: {error}")
    return pattern


def _format(fields: Fields, kind: SourceKind, files: str | None) -> str:
    given = fields.choice("format", FILE_FORMATS if kind == "files" else TOPIC_FORMATS)
    if given is not None or "format" in fields:
        return given or "raw"
    if kind != "files":
        return "raw"
    by_extension = _EXTENSIONS.get(os.path.splitext(files or "")[1].lower())
    if by_extension is None:
        advice = f"Add format: with one of {', '.join(FILE_FORMATS)}."
        fields.problem("files", f"{fields.what} has no format for its files", advice)
    return by_extension or "text"


def _schema_file(fields: Fields) -> str | None:
    path = fields.string("schema_file")
    if path is not None and "schema" in fields:
        fields.problem("schema_file", f"{fields.what} has schema and schema_file", "Keep one of them.")
    return None if path is None else fields.document.resolve(path)


def _starting(fields: Fields) -> str:
    text = fields.string("starting")
    if text is None:
        return "earliest"
    if text.startswith("-"):
        try:
            parse_milliseconds(text[1:])
        except ValueError:
            fields.problem("starting", f"{text!r} is not a duration", _HOW_STARTING)
    elif text not in ("earliest", "latest"):
        _check_time(fields, text)
    return text


def _check_time(fields: Fields, text: str) -> None:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        fields.problem("starting", f"starting cannot be {text!r}", _HOW_STARTING)
        return
    if time.tzinfo is None:
        fields.problem("starting", f"the time {text} has no zone", f"Write {time.isoformat()}Z for UTC.")


def _late_rows(fields: Fields) -> str | None:
    topic = fields.string("late_rows")
    if topic is not None:
        check_topic(fields, "late_rows", topic)
        if "watermark" not in fields:
            advice = "Add watermark: {column: at, delay: 10 minutes}."
            fields.problem("late_rows", "late_rows needs a watermark, which says what is late", advice)
    return topic


def _key(fields: Fields) -> KeyColumn | None:
    text = fields.string("key")
    if text is None:
        return None
    match = _KEY.fullmatch(text.strip())
    if match is None:
        fields.problem(
            "key", f"{text!r} is not a column", "Write a name, or a name and a type: key: user_id string"
        )
        return None
    return KeyColumn(match[1], match[2] or "string")
