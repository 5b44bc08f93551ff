"""Python steps and Avro in a run, and what the user is told when a run fails. R-SPK-6, R-BEY-4."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import fastavro
import pytest
from pyspark.errors import utils as error_utils
from pyspark.sql import SparkSession

from headrace.spark.pipelines.definition import Pipeline, PipelineError
from headrace.spark.pipelines.running.progress import malformed_in
from tests.spark.conftest import MakeTopic
from tests.spark.pipeline_runs import ONCE, Runs, lines, objects
from tests.spark.topics import Topics

NOBODY = "127.0.0.1:9"


@pytest.fixture
def runs(spark: SparkSession, bootstrap: str, tmp_path: Path) -> Runs:
    return Runs(spark, bootstrap, tmp_path)


SCHEMA = {
    "type": "record",
    "name": "Sale",
    "fields": [{"name": "item", "type": "string"}, {"name": "cents", "type": ["null", "int"], "default": None}],
}
STEPS = """\
from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import functions as F

import rates


@dataclass
class Shop:
    name: str = "corner"


@F.udf("int")
def doubled(cents):
    return rates.twice(cents)


def enrich(sales):
    return sales.select("item", doubled("cents").alias("cents"), F.lit(Shop().name).alias("shop"), "_offset")


def as_records(enriched):
    return enriched.selectExpr("item AS key", "concat(shop, ':', item) AS value", "named_struct('x', 1) AS other")
"""
PIPELINE = """\
name: {name}
sources:
  sales: {{topic: {sales}, format: avro, schema_file: sale.avsc}}
steps:
  - {{name: enriched, from: sales, python: "steps.py:enrich"}}
  - {{name: slim, from: enriched, select: [item, cents]}}
  - {{name: records, from: enriched, python: "steps.py:as_records"}}
sinks:
  slim: {{from: slim, topic: {sales}.slim, format: avro, schema_file: sale.avsc, create: true}}
  records: {{from: records, topic: {sales}.records, format: raw, create: true}}
"""


NOTED = """\
name: noted
sources:
  lines: {topic: never-read, format: json, schema: "n int"}
steps:
  - {name: more, from: lines, filter: n > 0}
  - {name: most, from: more, python: "noted.py:add"}
sinks:
  out: {from: most, topic: never-written, key: n}
"""


@pytest.mark.skipif(not hasattr(error_utils, "_capture_call_site"), reason="this PySpark notes no call sites")
def test_only_columns_of_a_user_note_where_they_were_made(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes many round trips to Java, which everybody waits for."""
    (runs.folder / "noted.py").write_text("def add(frame):\n    return frame.withColumn('more', frame.n + 1)\n")
    noted: list[str] = []

    def note(depth: int) -> str:
        noted.append(capture(depth + 1).splitlines()[-1])  # the first is this one
        return noted[-1]

    capture = error_utils._capture_call_site
    monkeypatch.setattr(error_utils, "_enable_debugging_cache", None)
    monkeypatch.setattr(error_utils, "_capture_call_site", note)
    runs.plans(runs.load("noted", NOTED))
    assert noted
    assert {Path(one.partition(":")[0]).name for one in noted} == {"noted.py"}
    assert error_utils._enable_debugging_cache is None, "as it was before"


def avro(record: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(SCHEMA), record)
    return out.getvalue()


def test_python_steps_and_avro(runs: Runs, make_topic: MakeTopic, topics: Topics) -> None:
    sales = make_topic()
    (runs.folder / "sale.avsc").write_text(json.dumps(SCHEMA))
    (runs.folder / "steps.py").write_text(STEPS)
    (runs.folder / "rates.py").write_text("def twice(cents):\n    return None if cents is None else 2 * cents\n")
    topics.send(sales, [avro({"item": "pen", "cents": 120}), avro({"item": "cap", "cents": None}), b"\x06ab"])
    runs.once(runs.load("code", PIPELINE.format(name=sales, sales=sales)))
    written = [record.value for record in topics.read(f"{sales}.slim")]
    assert written == [avro({"item": "pen", "cents": 240}), avro({"item": "cap", "cents": None})]
    raw = [(record.key, record.value) for record in topics.read(f"{sales}.records")]
    assert raw == [(b"pen", b"corner:pen"), (b"cap", b"corner:cap")]
    (letter,) = topics.read(f"{sales}.dead-letter")
    assert letter.value == b"\x06ab"


FAILING = """\
name: {name}
sources:
  raw: {{topics: [{topics}], format: json, schema: "text string"}}
  gone: {{topic: {name}-gone, format: text}}
steps:
  - name: numbers
    sql: |
      SELECT text,
        CAST(text AS INT) AS number
      FROM raw
  - {{name: raised, from: raw, python: "failing.py:raised"}}
sinks:
"""
FAILING_SINKS = {
    "numbers": "{{from: numbers, topic: {name}.out, create: true}}",
    "raised": "{{from: raised, topic: {name}.out, create: true}}",
    "gone": "{{from: gone, topic: {name}.out, create: true}}",
    "nowhere": "{{from: raw, topic: {name}-nowhere}}",
}
RAISES = """\
from pyspark.sql import functions as F


@F.udf("string")
def fails(text):
    raise LookupError(f"no {text} here")


def raised(raw):
    return raw.select(fails("text").alias("text"))
"""


def test_failures_are_told_in_one_line(runs: Runs, make_topic: MakeTopic, topics: Topics) -> None:
    raw = make_topic()
    topics.send(raw, lines({"text": "1"}, {"text": "x"}))
    (runs.folder / "failing.py").write_text(RAISES)

    def with_sink(name: str) -> Pipeline:
        text = f"{FAILING}  {name}: {FAILING_SINKS[name]}\n"
        return runs.load("failing", text.format(name=raw, topics=raw))

    pipeline = with_sink("numbers")
    told = runs.failure(pipeline, "numbers").splitlines()
    assert told[0].startswith(
        f"{pipeline.path}:9:9: step numbers: The value 'x' of the type \"STRING\" cannot be cast"
    )
    assert "try_cast" in told[1]
    assert len(told) == 2
    raised = runs.failure(with_sink("raised"), "raised")
    assert raised == (f"{pipeline.path}:11:39: step raised: {runs.folder}/failing.py:6: LookupError: no 1 here")
    gone = runs.failure(with_sink("gone"), "gone")
    assert gone.startswith(f"{raw}: ")
    assert f"{raw}-gone" in gone
    nowhere = runs.failure(with_sink("nowhere"), "nowhere")
    assert f"the topic '{raw}-nowhere' does not exist" in nowhere
    unreachable = Runs(runs.spark, NOBODY, runs.folder / "elsewhere")
    unreachable.folder.mkdir()
    away = unreachable.failure(with_sink("nowhere"), "nowhere")
    assert f"cannot reach a broker: {NOBODY}" in away
    for message in (raised, gone, nowhere, away):
        assert "\n" not in message
        assert "org.apache" not in message


CHANGING = """\
name: {name}
sources:
  raw: {{topics: [{topics}], format: json, schema: "text string"}}
steps:
  - {{name: counts, sql: "SELECT {columns} FROM raw GROUP BY text"}}
sinks:
  counts: {{from: counts, topic: {name}.counts, mode: update, create: true}}
  plain: {{from: raw, topic: {name}.plain, create: true}}
"""


def test_a_checkpoint_tells_what_it_cannot_follow(runs: Runs, make_topic: MakeTopic, topics: Topics) -> None:
    one, other = make_topic(), make_topic()
    topics.send(one, [*lines({"text": "a"}), "{"])
    topics.send(other, lines({"text": "b"}))

    def load(read: str, columns: str = "text, count(*) AS n") -> Any:
        return runs.load("changing", CHANGING.format(name=one, topics=read, columns=columns))

    reports = runs.once(load(one))
    assert set(reports) == {one}, "an update and what is appended share a query"
    assert sum(map(malformed_in, reports[one])) == 1, "the batch was computed once for all its sinks"
    # More topics can be followed, as can other columns where nothing is kept.
    runs.once(load(f"{one}, {other}"))
    assert [row["text"] for row in objects(topics, f"{one}.plain")] == ["a", "b"]
    for changed, expected in (
        (load(other), f"source raw read {one}, {other}, and now reads {other}"),
        (load(one, "text, max(text) AS m"), "what it keeps in its state is not the same"),
    ):
        (plan,) = runs.plans(changed)
        with pytest.raises(PipelineError) as refused:
            plan.start(ONCE)
        (problem,) = refused.value.problems
        assert (problem.line, expected in problem.what) == (7, True), problem
        assert "checkpoints" in (problem.advice or "")
