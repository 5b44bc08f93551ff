"""Mistakes that only Spark finds, told without Java; and our list of its options beside Spark's own. R-SPK-8."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.spark.pipelines.checking.option_names import (
    FILE_OPTIONS,
    FORMAT_OPTIONS,
    PARQUET_FILE_OPTIONS,
    PARQUET_SINK_OPTIONS,
    WITHOUT_USE,
)
from headrace.spark.pipelines.checking.spark import check_spark
from headrace.spark.pipelines.compiling.checkpoint_folders import CheckpointPlace
from headrace.spark.pipelines.compiling.queries import build_queries
from headrace.spark.pipelines.definition import Pipeline, SparkSettings
from headrace.spark.pipelines.explaining.sql_errors import explain_failure
from headrace.spark.pipelines.loading.files import load_pipeline
from headrace.spark.pipelines.running.runner import CANNOT_START
from headrace.spark.pipelines.running.session import SHUFFLE_PARTITIONS, make_session

ONCE: Mapping[str, Any] = {"availableNow": True}
NOBODY = "127.0.0.1:1"
WAIT_S = 300
SOURCE = 'sources:\n  raw: {files: "in/*.json", schema: "id int, host string", dead_letter: false}\n'
SINK = "sinks:\n  out: {from: one, parquet: out}\n"
STEPS = """\
import pyspark.sql.functions as F

def no_format(raw):
    return raw.sparkSession.read.format("nope").load()

def no_file(raw):
    return raw.join(raw.sparkSession.read.parquet("/nope/at/all"), "id")

def no_parquet(raw):
    return raw.join(raw.sparkSession.read.parquet(BAD), "id")

def looks(raw):
    raw.show()
    return raw

def tries(raw):
    raw.sparkSession.range(1).select(F.udf(fails, "int")("id")).collect()
    return raw

def fails(number):
    raise LookupError(f"no {number} here")

def returns_nonsense(raw):
    return raw.select(F.udf(lambda number: object(), "int")("id").alias("id"))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mistakes")
    (folder / "in").mkdir()
    (folder / "in" / "a.json").write_text('{"id": 1, "host": "a"}\n{"id": 0, "host": "b"}\n')
    (folder / "bad").mkdir()
    (folder / "bad" / "a.parquet").write_text("this is no Parquet file")
    (folder / "steps.py").write_text(f"BAD = {str(folder / 'bad')!r}\n{STEPS}")
    return folder


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    return make_session(SparkSettings(), "mistakes")


def load(folder: Path, *parts: str) -> Pipeline:
    path = folder / "p.yml"
    path.write_text("".join(parts))
    return load_pipeline(str(path))


def python(function: str) -> str:
    return f'steps:\n  - {{name: one, from: raw, python: "steps.py:{function}"}}\n'


def run(session: SparkSession, pipeline: Pipeline, checkpoint: Path) -> str:
    """What the user is told of the query of the sink; "" when all went well."""
    try:
        plans = build_queries(pipeline, session, bootstrap=NOBODY, checkpoint=CheckpointPlace(str(checkpoint)))
        assert plans[0].start(ONCE).awaitTermination(WAIT_S)
    except CANNOT_START as error:
        return explain_failure(error, pipeline, plans[0].name).message
    return ""


@pytest.mark.parametrize(
    ("function", "line", "what", "advice"),
    [
        ("no_format", 5, "Spark has no format nope here", "Check the name."),
        ("no_file", 8, "Path does not exist: file:/nope/at/all.", "Check the path."),
        ("no_parquet", 11, "Encountered error while reading file", "ignoreCorruptFiles"),
        ("looks", 14, "a stream has no rows while", "Remove show"),
        ("tries", 22, "LookupError: no 0 here", ""),
    ],
)
def test_a_python_step(
    session: SparkSession, folder: Path, function: str, line: int, what: str, advice: str
) -> None:
    (problem,) = check_spark(load(folder, SOURCE, python(function), SINK), session)
    assert (problem.line, problem.column) == (4, 36)
    assert problem.what.startswith(f"step one: {folder}/steps.py:{line}: {what}")
    assert advice in (problem.advice or "")
    assert "\n" not in problem.what
    assert "org.apache" not in str(problem)


def test_files_that_cannot_be_read(session: SparkSession, folder: Path) -> None:
    unread = 'sources:\n  one: {files: "bad/*.parquet"}\n'
    (problem,) = check_spark(load(folder, unread, SINK), session)
    assert (problem.line, problem.column) == (2, 3)
    assert problem.what.startswith("source one: Encountered error while reading file")
    declared = load(folder, 'sources:\n  one: {files: "bad/*.parquet", schema: "id int"}\n', SINK)
    assert check_spark(declared, session) == []
    message = run(session, declared, folder / "unread")
    assert message.startswith(f"{declared.path}:2:16: source one: Encountered error while reading file")
    assert "ignoreCorruptFiles" in message
    assert "\tat " not in message


def test_rows_that_python_cannot_return(session: SparkSession, folder: Path) -> None:
    message = run(session, load(folder, SOURCE, python("returns_nonsense"), SINK), folder / "nonsense")
    assert message.startswith(f"{folder}/p.yml:4:36: step one: ")
    assert "Could not convert <object object" in message
    assert "\n" not in message


def test_a_checkpoint_keeps_its_shuffle_and_is_of_one_query(session: SparkSession, folder: Path) -> None:
    counted = "steps:\n  - {name: one, sql: 'SELECT id, count(*) AS n FROM raw GROUP BY id'}\n"
    shown = "sinks:\n  out: {from: one, console: true, mode: complete}\n"
    checkpoint = folder / "kept"
    session.conf.set(SHUFFLE_PARTITIONS, "3")
    assert run(session, load(folder, SOURCE, counted, shown), checkpoint) == ""
    (folder / "in" / "b.json").write_text('{"id": 7, "host": "c"}\n')
    session.conf.set(SHUFFLE_PARTITIONS, "5")
    assert run(session, load(folder, SOURCE, counted, shown), checkpoint) == ""
    state = [one for one in os.listdir(checkpoint / "out" / "state" / "0") if one.isdecimal()]
    assert sorted(state) == ["0", "1", "2"]
    (checkpoint / "out.json").unlink()  # as if another program had made it
    (folder / "in" / "c.json").write_text('{"id": 8, "host": "d"}\n')
    other = counted.replace("id", "host")
    message = run(session, load(folder, SOURCE, other, shown), checkpoint)
    assert message.startswith(
        f"{folder}/p.yml:6:29: sink out: the state in the checkpoint was made by another query"
    )


def test_pipelines_with_one_checkpoint_each_read_everything(session: SparkSession, tmp_path: Path) -> None:
    """The second one had nothing to do once. What an earlier version left is used by the one that it fits."""
    (tmp_path / "in").mkdir()

    def rows(name: str, shared: bool = True) -> int:
        """Written by one run."""
        before = written(name)
        sink = f"sinks:\n  out: {{from: raw, parquet: {name}}}\n"
        pipeline = load(tmp_path, f"name: {name}\n", SOURCE, sink)
        own = CheckpointPlace(f"{tmp_path}/ck/{name}", f"{tmp_path}/ck")
        place = own if shared else CheckpointPlace(f"{tmp_path}/ck")
        (plan, *_) = build_queries(pipeline, session, bootstrap=NOBODY, checkpoint=place)
        assert plan.start(ONCE).awaitTermination(WAIT_S)
        return written(name) - before

    def written(name: str) -> int:
        files = (tmp_path / name).glob("*.parquet")
        return sum(session.read.parquet(str(file)).count() for file in files)

    (tmp_path / "in" / "a.json").write_text('{"id": 1, "host": "a"}\n{"id": 0, "host": "b"}\n')
    assert rows("one", shared=False) == 2
    noted = tmp_path / "ck" / "out.json"
    noted.write_text(noted.read_text().replace('"pipeline": "one"', '"pipeline": null'))
    (tmp_path / "ck" / ".out.json.crc").unlink()
    (tmp_path / "in" / "b.json").write_text('{"id": 2, "host": "c"}\n')
    assert rows("one") == 1
    assert rows("two") == 3
    (tmp_path / "in" / "c.json").write_text('{"id": 3, "host": "d"}\n')
    assert (rows("one"), rows("two")) == (1, 1)


def test_headers_and_comments_are_no_rows(session: SparkSession, folder: Path) -> None:
    (folder / "lines.csv").write_text("ID;Host\n# the first\n1;a\n")
    for option in ("csv.sep", "csv.DELIMITER"):
        options = f'{{csv.header: true, csv.comment: "#", {option}: ";"}}'
        columns = '"id int, host string", dead_letter: false'
        source = f'sources:\n  one: {{files: "*.csv", schema: {columns}, options: {options}}}\n'
        written = folder / option
        pipeline = load(folder, source, SINK.replace("parquet: out", f"parquet: {written}"))
        assert run(session, pipeline, folder / f"{option}.state") == ""
        assert [tuple(row) for row in session.read.parquet(str(written)).collect()] == [(1, "a")]


def test_our_tables_of_options_have_all_that_spark_knows(spark: SparkSession) -> None:
    """Of the Spark that is installed: a new one may bring some, and a name that is missing here is refused."""
    jvm: Any = spark.sparkContext._jvm
    sql = jvm.org.apache.spark.sql
    sets = {
        "csv": sql.catalyst.csv.CSVOptions,
        "json": sql.catalyst.json.JSONOptions,
        "text": sql.execution.datasources.text.TextOptions,
        "parquet": sql.execution.datasources.parquet.ParquetOptions,
    }
    ours = {
        "csv": {*_names(FORMAT_OPTIONS["csv"]), *WITHOUT_USE},
        "json": {*_names(FORMAT_OPTIONS["json"]), *WITHOUT_USE},
        "text": {*_names(FILE_OPTIONS), *WITHOUT_USE},
        "parquet": {*_names(PARQUET_FILE_OPTIONS), *_names(PARQUET_SINK_OPTIONS)},
    }
    for name, options in sets.items():
        known = options.getAllOptions().toList()
        theirs = {str(known.apply(index)).lower() for index in range(known.size())}
        assert theirs - ours[name] == set(), name


def _names(options: Any) -> set[str]:
    return {option.name.lower() for option in options}
