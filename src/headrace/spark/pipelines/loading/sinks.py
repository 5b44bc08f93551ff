"""One sink of a pipeline file."""

from __future__ import annotations

import re
from typing import cast

import yaml

from headrace.spark.pipelines.definition import BROKER_DEFAULT, OutputMode, Place, Sink, SinkKind, TopicCreation
from headrace.spark.pipelines.loading.keys import CREATE_KEYS, MODES, SINK_KEYS, TOPIC_FORMATS
from headrace.spark.pipelines.loading.parts import check_topic, one_of, places_of, refuse_keys_of_others, resolved
from headrace.spark.pipelines.loading.reading import Fields

_KINDS = ("topic", "parquet", "delta", "console")
_CALLED = {"topic": "a topic", "parquet": "parquet", "delta": "a Delta table", "console": "console"}
_COLUMN = re.compile(r"\{([^{}]*)\}")


def load_sink(fields: Fields, name: str, at: Place) -> Sink | None:
    kind = one_of(fields, _KINDS, "Give a destination: topic: logs.parsed")
    view = fields.string("from")
    if kind is None:
        return None
    refuse_keys_of_others(fields, SINK_KEYS, kind, _CALLED[kind])
    if kind == "console" and not fields.flag("console"):
        fields.problem("console", "console can only be true", "Leave the sink out to show nothing.")
    path = fields.string("delta" if kind == "delta" else "parquet")
    schema_file = fields.string("schema_file")
    return Sink(
        name,
        at.line,
        cast(SinkKind, kind),
        view or "",
        topic=_topic(fields),
        format=fields.choice("format", TOPIC_FORMATS) or "json",
        key=fields.string("key"),
        timestamp=fields.string("timestamp"),
        headers=fields.table("headers"),
        delete=_delete(fields),
        schema_file=None if schema_file is None else fields.document.resolve(schema_file),
        path="" if path is None else fields.document.resolve(path),
        partition_by=fields.strings("partition_by"),
        mode=_mode(fields, kind),
        create=_create(fields),
        options=fields.table("options"),
        connector=resolved(fields, "connector"),
        column=at.column,
        places=places_of(fields, "options", "headers"),
    )


def _topic(fields: Fields) -> str:
    topic = fields.string("topic")
    if topic is None:
        return ""
    around = _COLUMN.sub("x", topic)
    if "{" in around or "}" in around or any(not column.strip() for column in _COLUMN.findall(topic)):
        fields.problem(
            "topic", f"the brackets in {topic!r} do not match", "A column goes between them: logs.{service}"
        )
    else:
        check_topic(fields, "topic", around, shown=topic)
    return topic


def _mode(fields: Fields, kind: str) -> OutputMode:
    mode = fields.choice("mode", MODES) or "append"
    if kind == "parquet" and mode != "append":
        advice = "Files can only be appended. Use a topic for changing rows, or a window with a watermark."
        fields.problem("mode", f"parquet cannot have the mode {mode}", advice)
    if kind == "delta" and mode == "update":
        fields.problem("mode", "delta cannot have the mode update", "Use append, or complete for the whole table.")
    return cast(OutputMode, mode)


def _delete(fields: Fields) -> str | None:
    condition = fields.string("delete")
    if condition is not None and "key" not in fields:
        fields.problem("delete", "delete needs a key: a tombstone deletes what its key had", "Add key: COLUMN.")
    for name in ("timestamp", "headers", "delete"):
        if name in fields and fields.string("format") == "raw":
            fields.problem(name, f"{name} does not go with format: raw", "Give the columns their names in a step.")
    return condition


def _create(fields: Fields) -> TopicCreation | None:
    flag = fields.flag("create")
    if flag is not None:
        line = fields.nodes["create"].start_mark.line + 1
        return TopicCreation(line=line) if flag else None
    node = fields.nodes.get("create")
    if node is not None and not isinstance(node, yaml.MappingNode):
        fields.problem("create", "create needs true or a mapping", "For example: create: {partitions: 3}")
    if not isinstance(node, yaml.MappingNode):
        return None
    own = Fields(fields.document, node, CREATE_KEYS, "create")
    partitions, replication = (own.count(key) or BROKER_DEFAULT for key in ("partitions", "replication"))
    return TopicCreation(partitions, replication, own.table("config"), node.start_mark.line + 1)
