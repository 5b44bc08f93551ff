"""A file that uses everything becomes the definition it says (R-SPK-3)."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from headrace.spark.pipelines.definition import (
    BROKER_DEFAULT,
    KeyColumn,
    Pipeline,
    Place,
    SparkSettings,
    TopicCreation,
    Watermark,
)
from headrace.spark.pipelines.loading.files import load_pipeline

EVERYTHING = """\
name: access-logs
bootstrap: localhost:9092,other:9093
checkpoint: state/access-logs
every: 1s
spark: {master: "local[*]", conf: {spark.sql.shuffle.partitions: 4, spark.ui.enabled: False}}
sources:
  raw:
    topic: logs.raw
    format: json
    schema: "ts timestamp, host string, level string, message string"
    starting: -10m
    watermark: {column: ts, delay: 10 minutes}
    dead_letter: logs.dead
    options: {maxOffsetsPerTrigger: 10000, failOnDataLoss: false}
  many: {topics: [a, b], format: avro, schema_file: events.avsc}
  matching: {pattern: "logs\\\\..*", starting: 2026-01-01T00:00:00Z}
  users:
    table: users
    format: json
    schema: "user_id string, country string"
    key: user_id bigint
  old: {files: "in/*.json", schema: "id string", dead_letter: false}
  places: {files: s3://bucket/places, table: true, format: parquet}
steps:
  - name: parsed
    sql: |
      -- what people see
      SELECT *
        FROM raw JOIN users USING (host)
  - {name: enriched, python: "steps.py:enrich", from: [parsed, users]}
  - {name: unique, from: parsed, deduplicate: {columns: [id, host], within: 90s}}
  - {name: errors, from: parsed, filter: "level = 'ERROR'"}
  - {name: slim, from: parsed, select: [host, "upper(level) AS level"]}
  - {name: per_minute, from: parsed, watermark: {column: ts, delay: 1m}}
sinks:
  errors: {from: errors, topic: logs.errors, key: host, create: {partitions: 3, config: {retention.ms: 1000}}}
  by-service: {from: parsed, topic: "logs.{service}", format: csv, create: true}
  archive: {from: parsed, parquet: out/parsed, partition_by: day, mode: append}
  screen: {from: errors, console: true, mode: complete, options: {numRows: 5}}
"""


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    file = tmp_path / "everything.yml"
    file.write_text(EVERYTHING)
    return load_pipeline(file, {})


def test_the_pipeline_itself(pipeline: Pipeline, tmp_path: Path) -> None:
    assert pipeline.name == "access-logs"
    assert pipeline.path == str(tmp_path / "everything.yml")
    assert pipeline.bootstrap == "localhost:9092,other:9093"
    assert pipeline.checkpoint == str(tmp_path / "state/access-logs")
    assert (pipeline.every_s, pipeline.schedule_s) == (1.0, None)
    conf = {"spark.sql.shuffle.partitions": "4", "spark.ui.enabled": "false"}
    assert pipeline.spark == SparkSettings("local[*]", conf)


def test_the_sources(pipeline: Pipeline, tmp_path: Path) -> None:
    raw, many, matching, users, old, places = pipeline.sources
    assert (raw.kind, raw.topics, raw.format, raw.line, raw.column) == ("topics", ("logs.raw",), "json", 7, 3)
    assert raw.schema == "ts timestamp, host string, level string, message string"
    assert raw.starting == "-10m"
    assert raw.watermark == Watermark("ts", "10 minutes", 12)
    assert raw.dead_letter == "logs.dead"
    assert raw.options == {"maxOffsetsPerTrigger": "10000", "failOnDataLoss": "false"}
    assert (many.topics, many.schema_file) == (("a", "b"), str(tmp_path / "events.avsc"))
    assert (matching.pattern, matching.format, matching.dead_letter) == (r"logs\..*", "raw", None)
    assert matching.starting == "2026-01-01T00:00:00Z"
    assert (users.kind, users.topics, users.key) == ("table", ("users",), KeyColumn("user_id", "bigint"))
    assert users.dead_letter == "access-logs.dead-letter"
    assert (old.kind, old.files, old.format) == ("files", str(tmp_path / "in/*.json"), "json")
    assert (old.dead_letter, old.static) == (None, False)
    assert (places.files, places.static, places.format) == ("s3://bucket/places", True, "parquet")


def test_the_steps(pipeline: Pipeline, tmp_path: Path) -> None:
    parsed, enriched, unique, errors, slim, per_minute = pipeline.steps
    assert (parsed.kind, parsed.inputs, parsed.line) == ("sql", ("raw", "users"), 25)
    assert parsed.text == "-- what people see\nSELECT *\n  FROM raw JOIN users USING (host)\n"
    assert (enriched.inputs, enriched.python_file) == (("parsed", "users"), str(tmp_path / "steps.py"))
    assert (enriched.function, enriched.text) == ("enrich", "steps.py:enrich")
    assert (unique.kind, unique.columns, unique.within) == ("deduplicate", ("id", "host"), "90 seconds")
    assert (errors.kind, errors.inputs, errors.text) == ("filter", ("parsed",), "level = 'ERROR'")
    assert (slim.kind, slim.columns) == ("select", ("host", "upper(level) AS level"))
    assert (per_minute.kind, per_minute.watermark) == ("watermark", Watermark("ts", "1 minute", 34))


def test_the_sinks(pipeline: Pipeline, tmp_path: Path) -> None:
    errors, by_service, archive, screen = pipeline.sinks
    assert (errors.kind, errors.input, errors.topic, errors.format) == ("topic", "errors", "logs.errors", "json")
    assert (errors.key, errors.mode) == ("host", "append")
    assert errors.create == TopicCreation(3, BROKER_DEFAULT, {"retention.ms": "1000"}, 36)
    assert (by_service.topic, by_service.format, by_service.create) == (
        "logs.{service}",
        "csv",
        TopicCreation(line=37),
    )
    assert (archive.kind, archive.path, archive.partition_by) == (
        "parquet",
        str(tmp_path / "out/parsed"),
        ("day",),
    )
    assert (screen.kind, screen.mode, screen.options) == ("console", "complete", {"numRows": "5"})


def test_a_pipeline_can_travel_to_another_process(pipeline: Pipeline) -> None:
    assert pickle.loads(pickle.dumps(pipeline)) == pipeline


def test_places_of_keys(pipeline: Pipeline) -> None:
    raw = pipeline.sources[0]
    assert raw.at("topic") == Place(8, 12)
    assert raw.at("options.failOnDataLoss") == Place(14, 44)
    assert raw.at("schema_file") == Place(7, 3), "what the file does not give is at the part"


def load(tmp_path: Path, text: str, environment: dict[str, str] | None = None) -> Pipeline:
    file = tmp_path / "My Logs.v2.yml"
    file.write_text(text)
    return load_pipeline(file, environment or {})


SHORT = "sources:\n  raw: {topic: t}\nsinks:\n  out: {from: raw, topic: o, format: raw}\n"


def test_defaults(tmp_path: Path) -> None:
    pipeline = load(tmp_path, SHORT)
    assert pipeline.name == "my-logs-v2"
    assert (pipeline.bootstrap, pipeline.checkpoint, pipeline.schedule_s, pipeline.every_s) == (None,) * 4
    assert pipeline.spark == SparkSettings()
    (raw,), (out,) = pipeline.sources, pipeline.sinks
    assert (raw.format, raw.starting, raw.dead_letter, raw.options) == ("raw", "earliest", None, {})
    assert (out.format, out.mode, out.create, out.key) == ("raw", "append", None, None)


@pytest.mark.parametrize(
    ("environment", "topic"),
    [({"T": "orders"}, "orders-a-$HOME-${T}"), ({"T": ""}, "x-a-$HOME-${T}"), ({}, "x-a-$HOME-${T}")],
)
def test_variables_of_the_environment(tmp_path: Path, environment: dict[str, str], topic: str) -> None:
    text = SHORT.replace("{topic: t}", '{topic: t, options: {x: "${T:-x}-${NONE:-a}-$HOME-$${T}"}}')
    assert load(tmp_path, text, environment).sources[0].options == {"x": topic}


def test_variables_can_be_numbers(tmp_path: Path) -> None:
    text = SHORT.replace("format: raw}", 'format: raw, create: {partitions: "${N}"}}')
    assert load(tmp_path, text, {"N": "7"}).sinks[0].create == TopicCreation(7, line=4)


def test_merged_mappings(tmp_path: Path) -> None:
    text = """\
sources:
  a: &base {topic: a, format: json, schema: "id string"}
  b: {<<: *base, topic: b}
sinks: {out: {from: b, topic: o}}
"""
    _, second = load(tmp_path, text).sources
    assert (second.topics, second.format, second.schema) == (("b",), "json", "id string")


SQL_STYLES = {
    "block": ("    sql: |\n      SELECT a,\n        BAD\n      FROM raw\n", Place(7, 9)),
    "block with empty lines first": ("    sql: |\n\n\n      SELECT a,\n        BAD\n", Place(9, 9)),
    "block with its own indent": ("    sql: |2\n        SELECT a,\n      BAD\n", Place(7, 7)),
    "quoted": ('    sql: "SELECT BAD"\n', Place(5, 18)),
    "plain": ("    sql: SELECT BAD\n", Place(5, 17)),
    "folded": ("    sql: >\n      SELECT a,\n      BAD\n      FROM raw\n", Place(7, 7)),
    "folded, then deeper": ("    sql: >-\n      SELECT a,\n        BAD\n", Place(7, 9)),
    "plain over lines": ("    sql: SELECT a,\n      BAD\n", Place(6, 7)),
    "quoted over lines": ('    sql: "SELECT a,\n      BAD"\n', Place(6, 7)),
}


@pytest.mark.parametrize("style", SQL_STYLES)
def test_a_place_in_sql_is_found_in_the_file(tmp_path: Path, style: str) -> None:
    """Spark counts lines of the SQL; people look at the file (R-SPK-8)."""
    written, expected = SQL_STYLES[style]
    start, end = "sources:\n  raw: {topic: t}\nsteps:\n  - name: one\n", "sinks: {o: {from: one, console: true}}\n"
    text = f"{start}{written}{end}"
    (step,) = load(tmp_path, text).steps
    before = step.text[: step.text.index("BAD")]
    line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
    place = step.place_in_text(line, column)
    assert place == expected
    assert text.splitlines()[place.line - 1][place.column - 1 :].startswith("BAD")


def test_a_query_may_give_itself_the_name_of_its_step(tmp_path: Path) -> None:
    text = """\
sources: {raw: {topic: t}}
steps:
  - {name: one, sql: "WITH one AS (SELECT * FROM raw) SELECT * FROM one"}
  - {name: two, sql: "WITH one AS (SELECT * FROM one) SELECT * FROM one"}
sinks: {o: {from: two, console: true}}
"""
    one, two = load(tmp_path, text).steps
    assert one.inputs == ("raw",)
    assert two.inputs == ("one",)
