"""Sinks that read the same streams: one query that reads them once, and results that agree. ADR 11."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.spark.pipelines.compiling.checkpoint_folders import HadoopFiles
from headrace.spark.pipelines.compiling.sources import EmptyOpening, Reading, open_source
from headrace.spark.pipelines.definition import Source
from headrace.spark.pipelines.running.progress import QueryProgress
from tests.spark.conftest import MakeTopic
from tests.spark.pipeline_runs import ONCE, WAIT_S, Runs, lines, objects
from tests.spark.topics import Topics


@pytest.fixture
def runs(spark: SparkSession, bootstrap: str, tmp_path: Path) -> Runs:
    return Runs(spark, bootstrap, tmp_path)


AGREEING = """\
name: {name}
sources:
  raw:
    topic: {name}
    format: json
    schema: "n int, at timestamp"
    watermark: {{column: at, delay: 1 second}}
    options: {{maxOffsetsPerTrigger: "20"}}
steps:
  - name: windows
    sql: SELECT window.start AS since, count(*) AS rows, sum(n) AS total FROM raw GROUP BY window(at, '10 seconds')
  - {{name: odd, from: raw, filter: n % 2 = 1}}
sinks:
  one: {{from: windows, topic: {name}.one, key: since, create: true}}
  other: {{from: windows, topic: {name}.other, create: true}}
  odd: {{from: odd, topic: {name}.odd, create: true}}
"""


def test_sinks_of_one_step_agree_and_the_topic_is_read_once(
    runs: Runs, make_topic: MakeTopic, topics: Topics
) -> None:
    """Rows come out of order, in small batches: many are late, and late for everybody alike."""
    name = make_topic()
    seconds = [second if second % 7 else max(0, second - 45) for second in range(120)]
    rows = [{"n": n, "at": f"2026-01-01T00:{s // 60:02}:{s % 60:02}Z"} for n, s in enumerate(seconds)]
    topics.send(name, [*lines(*rows), "{"])
    reports = runs.once(runs.load("agreeing", AGREEING.format(name=name)))

    assert set(reports) == {name}
    progress = QueryProgress(name, name)
    for report in reports[name]:
        progress.see(report)
    assert (progress.rows, progress.malformed) == (121, 1), "every branch of the query had its own scan"
    one, other = ({row["since"]: row for row in objects(topics, f"{name}.{sink}")} for sink in ("one", "other"))
    assert one == other
    assert 5 < len(one) <= 12
    assert progress.late > 0
    assert sum(row["rows"] for row in one.values()) < 110, "some rows were late"
    assert [row["n"] for row in objects(topics, f"{name}.odd")] == list(range(1, 120, 2)), "in their order"
    assert len(topics.read(f"{name}.dead-letter")) == 1


GROWING = """\
name: {name}
sources:
  raw: {{topic: {name}, format: json, schema: "n int", dead_letter: {letters}}}
sinks:
  first: {{from: raw, parquet: first}}
"""


def test_files_are_there_once_for_every_reader_and_what_is_added_starts_by_itself(
    runs: Runs, make_topic: MakeTopic, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run ends in the middle of giving files their names, as when it is killed there."""
    name = make_topic(partitions=2)
    topics.send(name, lines(*({"n": n} for n in range(10))), keys=[str(n) for n in range(10)])
    growing = runs.load("growing", GROWING.format(name=name, letters="false"))
    named: list[str] = []
    really = HadoopFiles.rename

    def rename(self: HadoopFiles, path: str, to: str) -> None:
        if path.endswith(".parquet") and named:
            raise OSError("killed")
        really(self, path, to)
        named.extend([to] if path.endswith(".parquet") else [])

    monkeypatch.setattr(HadoopFiles, "rename", rename)
    (plan,) = runs.plans(growing)
    with pytest.raises(Exception, match="killed"):
        plan.start(ONCE).awaitTermination(WAIT_S)
    monkeypatch.undo()
    before = numbers(runs.folder / "first")
    assert 0 < len(before) < 10, "a part of the batch, and none of it twice"

    # As an earlier version left it: a query for the sink alone. It goes on; what is new has its own query.
    added = GROWING + "  second: {{from: raw, topic: {name}.second, create: true}}\n"
    topics.send(name, [*lines({"n": 10}), "{"])
    reports = runs.once(runs.load("growing", added.format(name=name, letters=f"{name}.bad")))
    assert set(reports) == {f"{name}.first", f"{name}.second"}
    assert numbers(runs.folder / "first") == list(range(11)), "every row once, for a reader that knows no Spark"
    assert sorted(row["n"] for row in objects(topics, f"{name}.second")) == list(range(11))
    assert len(topics.read(f"{name}.bad")) == 1
    assert {path.suffix for path in (runs.folder / "first").rglob("[!.]*")} == {".parquet"}


def numbers(folder: Path) -> list[Any]:
    return sorted(pyarrow.parquet.read_table(str(folder)).column("n").to_pylist())


class Tables(EmptyOpening):
    """Spark plans a table without running it."""

    def topics(self, source: Source, columns: Sequence[str], *, streaming: bool) -> DataFrame:
        return super().topics(source, columns, streaming=False)


LONGEST_COMPILED = 8000
"""Bytes of a method. Java interprets longer ones for ever."""


def test_java_compiles_what_every_record_goes_through(spark: SparkSession, runs: Runs) -> None:
    """Why a record is malformed takes much code: it is not asked where the others are."""
    session = spark.newSession()
    session.conf.set("spark.sql.adaptive.enabled", "false")
    columns = "n int, id bigint, carrier string, origin string, miles int"
    (source,) = runs.load("wide", AGREEING.format(name="any").replace("n int", columns)).sources
    opening = Tables(session, str(runs.folder))
    rows = open_source(opening, source, (), Reading(branches=3, letters=True, lanes=2)).rows
    assert session._jvm is not None
    of_spark = getattr(getattr(session._jvm.org.apache.spark.sql.execution.debug, "package$"), "MODULE$")
    stages = of_spark.codegenStringSeq(rows._jdf.queryExecution().executedPlan())
    sizes = [stages.apply(number)._3().maxMethodCodeSize() for number in range(stages.size())]
    assert 0 < min(sizes) <= max(sizes) < LONGEST_COMPILED, sizes
