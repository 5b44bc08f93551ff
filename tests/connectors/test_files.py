"""A directory that is watched: every format, each file once, whatever happens in between."""

from __future__ import annotations

import gzip
import json
import os
import time
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from headrace.client.cluster import Cluster
from headrace.connect import ConnectorError
from headrace.connect.definition import ConnectorDefinition, load
from headrace.testing.connectors import (
    committed_records,
    committed_values,
    killed_everywhere,
    run_to_the_end,
    steps_of,
)


def watched(directory: Path, **config: object) -> ConnectorDefinition:
    given = {"directory": str(directory), "topic": "rows", **config}
    return load({"connector": "files-source", "partitions": 1, "config": given}, "watched")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made = tmp_path / "in"
    made.mkdir()
    return made


def put(path: Path, content: bytes, age_s: float = 60.0) -> None:
    path.write_bytes(content)
    os.utime(path, (time.time() - age_s, time.time() - age_s))


async def test_every_format_and_each_file_once(cluster: Cluster, directory: Path) -> None:
    put(directory / "1.csv", b'id,name\r\n1,"a, b"\r\n\r\n2,\r\n\r\n', 90)
    put(directory / "2.jsonl", b'{"id": 3}\n\n{"id": 4}\n', 80)
    put(directory / "3.txt.gz", gzip.compress(b"plain\ntext"), 70)
    parquet.write_table(pa.table({"id": [5], "when": [None]}), directory / "4.parquet")
    os.utime(directory / "4.parquet", (time.time() - 60, time.time() - 60))
    put(directory / ".hidden.csv", b"id\n9\n")
    put(directory / "unfinished.csv", b"id\n9", -3600)
    for _ in range(2):
        await run_killed_free(cluster, directory)
    assert await committed_values(cluster, "rows") == [
        b'{"id":"1","name":"a, b"}',
        b'{"id":"2","name":""}',
        b'{"id": 3}',
        b'{"id": 4}',
        b"plain",
        b"text",
        b'{"id":5,"when":null}',
    ]


async def run_killed_free(cluster: Cluster, directory: Path) -> None:
    await run_to_the_end(cluster, watched(directory, pattern="[!u]*"))


async def test_a_directory_killed_at_every_step_loses_and_repeats_nothing(
    cluster: Cluster, directory: Path
) -> None:
    definition = watched(directory, batch_records=4, key="id", settle="0s")
    numbers: list[int] = []

    async def feed(number: int) -> None:
        mine = range(number * 10, number * 10 + 10)
        numbers.extend(mine)
        put(directory / f"{number:03}.jsonl", b"".join(b'{"id": %d}\n' % one for one in mine), 1000 - number)

    assert await killed_everywhere(cluster, definition, feed) >= len(steps_of(definition))
    found = await committed_records(cluster, "rows")
    assert [json.loads(record.value or b"")["id"] for record in found] == numbers
    assert [record.key for record in found] == [str(number).encode() for number in numbers]


async def test_what_cannot_be_read_is_said(cluster: Cluster, directory: Path) -> None:
    put(directory / "bad.csv", b"a,b\n1\n")
    with pytest.raises(ConnectorError, match=r"bad.csv, line 2: 1 fields, but the header has 2"):
        await run_to_the_end(cluster, watched(directory))
    with pytest.raises(ConnectorError, match="there is no directory"):
        await run_to_the_end(cluster, watched(directory / "none"))
    put(directory / "bad.csv", b"a\n1\n")
    with pytest.raises(ConnectorError, match="has no column id, which should be its key"):
        await run_to_the_end(cluster, watched(directory, key="id"))


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("latin.csv", "id,name\n1,caf\u00e9\n".encode("latin-1")),
        ("huge.csv", b"id\n" + b"x" * 200_000 + b"\n"),
        ("plain.json.gz", b'{"id": 1}\n'),
        ("cut.json.gz", gzip.compress(b'{"id": 1}\n' * 1000)[:-20]),
        ("damaged.json.gz", gzip.compress(b'{"id": 1}\n' * 1000)[:20] + b"\xff" * 60),
        ("none.parquet", b"PAR1 and no more"),
    ],
    ids=["encoding", "field", "not gzip", "cut", "damaged", "not parquet"],
)
async def test_a_file_that_cannot_be_read_is_named(
    cluster: Cluster, directory: Path, name: str, data: bytes
) -> None:
    """It stays so, and is not tried again."""
    put(directory / name, data)
    with pytest.raises(ConnectorError, match=f"{name} cannot be read as (csv|json|parquet): "):
        await run_to_the_end(cluster, watched(directory))
