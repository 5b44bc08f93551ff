"""What Spark finds wrong with a pipeline before it runs, without a broker: where, and in which words. R-BEY-4."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.spark.pipelines.checking.spark import check_spark
from headrace.spark.pipelines.definition import SparkSettings
from headrace.spark.pipelines.loading.files import load_pipeline
from headrace.spark.pipelines.running.session import make_session

SOURCES = """\
sources:
  raw:
    topic: logs
    format: json
    schema: "id int, ts timestamp, host string, level string"
    watermark: {column: ts, delay: 10 minutes}
  slow: {topic: slow, format: json, schema: "id int, at timestamp, cost double"}
  users: {table: users, format: json, schema: "name string", key: id int}
"""
GOOD = (
    SOURCES
    + """\
steps:
  - name: parsed
    sql: |
      SELECT id, ts, host, upper(level) AS level, _offset AS at_offset
      FROM raw
  - {name: unique, from: parsed, deduplicate: {columns: [id], within: 5 minutes}}
  - {name: errors, from: unique, filter: "level = 'ERROR'"}
  - {name: slim, from: errors, select: [id, "concat(host, '!') AS host"]}
  - {name: marked, from: slow, watermark: {column: at, delay: 1 minute}}
  - name: joined
    sql: |
      SELECT r.id, cost FROM raw r JOIN marked m
      ON r.id = m.id AND at BETWEEN ts AND ts + INTERVAL 1 HOUR
  - {name: named, sql: "SELECT p.*, u.name FROM parsed p LEFT JOIN users u ON p.id = u.id"}
  - name: counts
    sql: |
      SELECT window(ts, '1 minute').start AS at, count(*) AS n
      FROM raw GROUP BY window(ts, '1 minute')
  - {name: kept, from: [raw], python: "steps.py:keep"}
sinks:
  slim: {from: slim, topic: out, key: host}
  joined: {from: joined, console: true}
  named: {from: named, topic: "by.{host}"}
  counts: {from: counts, topic: counts}
  kept: {from: kept, parquet: out, partition_by: [host]}
"""
)


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    return make_session(SparkSettings(), "check")


def check(session: SparkSession, folder: Path, text: str) -> list[str]:
    path = folder / "p.yml"
    path.write_text(text)
    pipeline = load_pipeline(str(path))
    return [f"{problem.line}:{problem.column}: {problem.what}" for problem in check_spark(pipeline, session)]


def test_a_good_pipeline_has_no_problems(session: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text("def keep(raw):\n    return raw.where('id > 1')\n")
    assert check(session, tmp_path, GOOD) == []
    assert not [view for view in session.catalog.listTables() if view.name in ("raw", "parsed")]


MISTAKES = """\
  broken: {topic: b, format: json, schema: "a int, b strnig"}
  late: {topic: l, format: json, schema: "a int", watermark: {column: at, delay: 1 minute}}
steps:
  - name: columns
    sql: |
      SELECT id,
        hots FROM raw
  - name: syntax
    sql: |
      SELECT id
      FORM raw r
  - {name: view, from: raw, filter: "level = "}
  - {name: function, sql: "SELECT uper(host) AS h FROM raw"}
  - {name: select, from: raw, select: [id, nothing]}
  - {name: twice, from: raw, deduplicate: {columns: [id], within: 20 minutes}}
  - {name: of_broken, from: columns, filter: "id > 1"}
  - {name: returned, from: raw, python: "steps.py:nothing"}
  - {name: analysed, from: raw, python: "steps.py:wrong"}
  - {name: raised, from: raw, python: "steps.py:fails"}
  - {name: gone, from: raw, python: "steps.py:fial"}
  - {name: arguments, from: [raw, slow], python: "steps.py:fails"}
  - {name: per_host, sql: "SELECT host, count(*) AS n FROM raw GROUP BY host"}
  - {name: crossed, sql: "SELECT raw.id AS a, slow.id AS b FROM raw LEFT JOIN slow ON raw.id = slow.id"}
sinks:
  append: {from: per_host, topic: a}
  update: {from: per_host, topic: a, mode: update}
  complete:
    from: raw
    topic: a
    mode: complete
  key: {from: raw, topic: a, key: hots}
  split: {from: raw, topic: "a.{service}"}
  days: {from: raw, parquet: out, partition_by: [day]}
  table: {from: users, topic: a}
  outer: {from: crossed, topic: a}
  of_broken: {from: of_broken, topic: a}
"""


def test_every_mistake_is_found_at_its_place(session: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text(
        "def nothing(raw):\n    pass\n\n\ndef wrong(raw):\n    return raw.where('hots = 1')\n\n\n"
        "def fails(raw):\n    return {}['x']\n"
    )
    found = check(session, tmp_path, SOURCES + MISTAKES)
    steps = tmp_path / "steps.py"
    assert found == [
        '9:44: source broken: Unsupported data type "STRNIG".',
        "10:62: source late: there is no column at. Did you mean a?",
        "15:9: step columns: there is no column hots. Did you mean host?",
        "19:12: step syntax: a mistake in the SQL at or before 'raw'",
        "20:46: step view: the query ends too early",
        "21:35: step function: there is no function uper",
        "22:39: step select: there is no column nothing. There are id, ts, host.",
        "23:43: step twice: within 20 minutes is longer than the delay of the watermark (10 minutes)",
        "25:41: step returned: steps.py:nothing returned nothing, not a DataFrame",
        f"26:41: step analysed: {steps}:6: there is no column hots. Did you mean host?",
        f"27:39: step raised: {steps}:10: KeyError: 'x'",
        f"28:37: step gone: there is no function fial in {steps}",
        "29:50: step arguments: fails(raw) cannot be called with what from: names: raw, slow",
        "33:18: sink append: the aggregate in per_host has no watermark: in append mode a group is written once "
        "no more rows can come for it, and without a watermark that is never known",
        "38:11: sink complete: complete writes all groups of an aggregate, but there is no aggregate",
        "39:35: sink key: there is no column hots",
        "40:29: sink split: there is no column service",
        "41:49: sink days: raw has no column day",
        "42:17: sink table: users is a table, but a sink writes a stream",
        found[-1],
    ]
    assert found[-1].startswith("43:17: sink outer: ")
    assert "watermark" in found[-1]
