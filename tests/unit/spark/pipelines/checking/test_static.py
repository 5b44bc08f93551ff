"""Pipelines whose parts do not fit together are told so before anything runs (R-SPK-8)."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.spark.pipelines.checking.static import check_static
from headrace.spark.pipelines.graph import picture
from headrace.spark.pipelines.loading.files import load_pipeline
from tests.unit.spark.pipelines.told_cases import told_cases

FILES = {
    "steps.py": """\
def enrich(events, users):
    return events

async def later(events):
    return events

from os import path
two = enrich

def optional(a, b=None):
    return a
""",
    "broken.py": "def enrich(:\n",
    "events.avsc": '{"type": "record", "name": "e", "fields": [{"name": "a", "type": "string"}]}',
    "type.avsc": '{"type": "record", "name": "e", "fields": [{"name": "a", "type": "strin"}]}',
    "list.avsc": '["string"]',
    "nofields.avsc": '{"type": "record", "name": "e"}',
    "bad.json": '{"type": "struct",\n "fields": [}',
    "other.json": '{"a": 1}',
    "good.json": '{"type": "struct", "fields": []}',
    "empty.ddl": " ",
    "good.ddl": "a int",
}


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(("text", "told"), told_cases("checking/misfits.txt"))
def test_how_parts_fit_together(directory: Path, text: str, told: str) -> None:
    Path("p.yml").write_text(text)
    problems = check_static(load_pipeline("p.yml", {}))
    shown = "\n".join(str(problem).removeprefix("p.yml:") for problem in problems)
    assert shown.replace(str(directory), "DIR") == told


def test_there_are_many_of_them() -> None:
    assert len(told_cases("checking/misfits.txt")) > 50


def test_a_file_that_may_not_be_read(directory: Path) -> None:
    (directory / "secret.avsc").mkdir()
    Path("p.yml").write_text(
        "sources:\n  raw: {topic: t, format: avro, schema_file: secret.avsc}\nsinks:\n  o: {from: raw, topic: o}\n"
    )
    (problem,) = check_static(load_pipeline("p.yml", {}))
    assert str(problem) == "p.yml:2:46: secret.avsc cannot be read: is a directory"


def test_nothing_of_a_python_step_is_run(directory: Path) -> None:
    (directory / "steps.py").write_text("open('ran', 'w')\ndef enrich(raw):\n    return raw\n")
    Path("p.yml").write_text(
        "sources:\n  raw: {topic: t}\nsteps:\n  - {name: one, from: raw, python: 'steps.py:enrich'}\n"
        "sinks:\n  o: {from: one, topic: o}\n"
    )
    assert check_static(load_pipeline("p.yml", {})) == []
    assert not (directory / "ran").exists()


def test_the_picture(directory: Path) -> None:
    Path("p.yml").write_text("""\
sources:
  raw: {topics: [a, b, c, d, e], format: json, schema: a int}
  logs: {pattern: "logs.*"}
  users: {table: users}
  places: {files: "s3://b/*.csv", table: true}
steps:
  - {name: joined, sql: "SELECT * FROM raw JOIN users JOIN places JOIN logs"}
sinks:
  out: {from: joined, topic: "out.{a}", format: csv}
  archive: {from: joined, parquet: s3://b/out}
  screen: {from: joined, console: true}
""")
    assert picture(load_pipeline("p.yml", {})) == [
        "source  raw      <- topics a, b, c and 2 more  (json)",
        "source  logs     <- topics like logs.*  (raw)",
        "source  users    <- table users  (raw)",
        "source  places   <- files s3://b/*.csv as a table  (csv)",
        "step    joined   <- raw, users, places, logs  (sql)",
        "sink    out      joined -> topic out.{a}  (csv)",
        "sink    archive  joined -> parquet s3://b/out",
        "sink    screen   joined -> console",
    ]
