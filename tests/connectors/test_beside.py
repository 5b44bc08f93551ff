"""The connectors of a pipeline run beside it: before and after one that ends, and as long as one that does not."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
import time
from pathlib import Path

import pytest

from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.client.producer import Producer
from headrace.env.real import real_env
from headrace.records.builder import NewRecord
from headrace.spark.pipelines.checking.static import check_static
from headrace.spark.pipelines.definition import Pipeline
from headrace.spark.pipelines.loading.files import load_pipeline
from headrace.spark.pipelines.running.connectors import ConnectorFailed, connectors_beside
from headrace.testing.connectors import committed_values

PIPELINE = """
name: {name}
sources:
  lines: {{topic: {name}.in, connector: lines.yaml}}
sinks:
  out: {{from: lines, topic: {name}.out, connector: table.yaml, format: raw, create: {{partitions: 1}}}}
"""
LINES = """
name: {name}-lines
connector: files-source
partitions: 2
config: {{directory: in, topic: {name}.in, settle: 0s, interval: 50ms}}
"""
TABLE = """
name: {name}-table
connector: table-sink
topics: [{name}.out]
config: {{connection: "sqlite:out.db", table: words, key: [word], columns: {{word: text, count: integer}}}}
"""
WAIT_S = 120.0


def declared(folder: Path, name: str) -> Pipeline:
    for file, text in (("pipeline.yaml", PIPELINE), ("lines.yaml", LINES), ("table.yaml", TABLE)):
        (folder / file).write_text(text.format(name=name))
    (folder / "in").mkdir(exist_ok=True)
    return load_pipeline(folder / "pipeline.yaml")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def stored(folder: Path) -> list[tuple[str, int]]:
    if not (folder / "out.db").exists():
        return []
    with sqlite3.connect(folder / "out.db") as database:
        if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'words'").fetchall():
            return []
        return database.execute("SELECT word, count FROM words ORDER BY word").fetchall()


def copy(bootstrap: str, name: str) -> list[bytes | None]:
    """What a pipeline would do: from one topic to the other; the lines that it read."""

    async def work() -> list[bytes | None]:
        async with Cluster(real_env(), parse_bootstrap(bootstrap)) as cluster:
            lines = await committed_values(cluster, f"{name}.in")
            producer = Producer(cluster, f"{name}.out")
            await producer.start()
            await producer.send(
                [
                    NewRecord(json.dumps({"word": (line or b"").decode(), "count": 1}).encode(), line)
                    for line in lines
                ]
            )
            return lines

    return asyncio.run(work())


def test_before_and_after_a_run_that_ends(folder: Path, bootstrap: str) -> None:
    pipeline = declared(folder, "ends")
    assert check_static(pipeline) == []
    (folder / "in" / "words.txt").write_text("tea\ncup\n")
    with connectors_beside([pipeline], lambda _: bootstrap, threading.Event(), once=True):
        assert stored(folder) == []
        assert sorted(copy(bootstrap, "ends"), key=str) == [b"cup", b"tea"]
    assert stored(folder) == [("cup", 1), ("tea", 1)]


def test_beside_a_run_that_does_not_end(folder: Path, bootstrap: str) -> None:
    pipeline = declared(folder, "stays")
    stop = threading.Event()
    deadline = time.monotonic() + WAIT_S
    with connectors_beside([pipeline], lambda _: bootstrap, stop, once=False):
        (folder / "in" / "words.txt").write_text("tea\n")
        while copy(bootstrap, "stays") != [b"tea"]:
            assert time.monotonic() < deadline
        while stored(folder) != [("tea", 1)]:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert not stop.is_set()


def test_a_connector_that_fails_ends_the_run_with_its_reason(folder: Path, bootstrap: str) -> None:
    pipeline = declared(folder, "fails")
    (folder / "in").rmdir()
    stop = threading.Event()
    with (
        pytest.raises(ConnectorFailed, match="connector fails-lines failed: there is no directory in"),
        connectors_beside([pipeline], lambda _: bootstrap, stop, once=False),
    ):
        assert stop.wait(WAIT_S)


def test_what_does_not_fit_is_told_by_the_check(folder: Path) -> None:
    declared(folder, "wrong")
    (folder / "table.yaml").write_text(TABLE.format(name="other"))
    (folder / "lines.yaml").write_text("connector: files-source\nconfig: {directory: in}\n")
    found = [problem.what for problem in check_static(load_pipeline(folder / "pipeline.yaml"))]
    assert found == [
        "connector lines.yaml: topic is missing: the topic to write to",
        "connector other-table does not read topic wrong.out, which sink out writes",
    ]
    (folder / "lines.yaml").write_text(TABLE.format(name="wrong"))
    found = [problem.what for problem in check_static(load_pipeline(folder / "pipeline.yaml"))]
    assert found[0] == "connector wrong-table is a sink, so sources cannot name it"
