"""A source and a sink in one command, before the topic between them exists."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest
from click.testing import CliRunner

from headrace.cli.main import command_line
from headrace.client.cluster import Cluster
from headrace.connect.definition import load_file
from headrace.connect.runner import Runner
from headrace.model.errors import ErrorCode, KafkaError

SOURCE = """
name: {name}-lines
connector: files-source
partitions: 1
config: {{directory: in, topic: {name}, settle: 0s, interval: 50ms}}
"""
SINK = """
name: {name}-table
connector: table-sink
topics: [{name}]
config: {{connection: "sqlite:out.db", table: lines, key: [text], columns: {{text: text}}}}
"""
WAIT_S = 120.0


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    return tmp_path


def declare(folder: Path, name: str) -> None:
    (folder / "lines.yaml").write_text(SOURCE.format(name=name))
    (folder / "table.yaml").write_text(SINK.format(name=name))
    (folder / "in" / "a.jsonl").write_text('{"text": "one"}\n{"text": "two"}\n')


def stored(folder: Path) -> list[str]:
    if not (folder / "out.db").exists():
        return []
    with sqlite3.connect(folder / "out.db") as database:
        if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'lines'").fetchall():
            return []
        return [text for (text,) in database.execute("SELECT text FROM lines ORDER BY text")]


def test_once_copies_from_one_end_to_the_other(
    folder: Path, bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the order in which they are given the sink would come first."""
    monkeypatch.setenv("HEADRACE_BOOTSTRAP_SERVERS", bootstrap)
    declare(folder, "together-once")
    command = ["connector", "run", "--once", "table.yaml", "lines.yaml"]
    done = CliRunner().invoke(command_line, command, catch_exceptions=False, standalone_mode=False)
    assert done.exception is None
    assert stored(folder) == ["one", "two"]


async def test_a_sink_waits_for_the_topic_of_a_source_beside_it(folder: Path, cluster: Cluster) -> None:
    declare(folder, "together")
    sink = Runner(cluster, load_file(folder / "table.yaml"), sources_beside=True)
    running = asyncio.create_task(sink.run())
    async with asyncio.timeout(WAIT_S):
        while not sink.counts.restarts:
            assert not running.done(), "it gave up"
            await asyncio.sleep(0.05)
        await Runner(cluster, load_file(folder / "lines.yaml"), once=True).run()
        while await asyncio.to_thread(stored, folder) != ["one", "two"]:
            await asyncio.sleep(0.05)
        sink.stop()
        await running


async def test_alone_a_missing_topic_is_an_error(folder: Path, cluster: Cluster) -> None:
    declare(folder, "together-alone")
    with pytest.raises(KafkaError) as caught:
        await Runner(cluster, load_file(folder / "table.yaml")).run()
    assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
