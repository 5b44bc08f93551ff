"""Spark's own `kafka` connector works with Headrace unchanged, and reads what our format reads (R-SPK-8).

The connector needs jars and a Spark of its own, which Maven and pip bring the first time: only with `--with-java`.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from headrace.client.partitioner import partition_for_key
from headrace.testing.spark_connector import fetch_connector
from tests.spark.conftest import MakeTopic
from tests.spark.topics import Topics

ROOT = Path(__file__).resolve().parent.parent.parent
TIMEOUT_S = 600
EARLY_MS, LATE_MS = 1_700_000_000_123, 1_700_000_900_456
KEYS = [str(number) for number in range(50)]

Rows = list[list[Any]]


def run_driver(spec: dict[str, Any]) -> dict[str, dict[str, Rows]]:
    connector = fetch_connector(ROOT)
    spec = {**spec, "jars": [str(jar) for jar in connector.jars]}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    done = subprocess.run(
        [str(connector.python), str(Path(__file__).with_name("connector_driver.py")), json.dumps(spec)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr[done.stderr.find("Traceback") :][:5000]
    found: dict[str, dict[str, Rows]] = json.loads(done.stdout.splitlines()[-1])
    return found


def fill(topics: Topics, name: str) -> None:
    """Two moments, keys, headers, nulls, and every codec."""
    topics.send(name, [f"early-{key}" for key in KEYS], keys=KEYS, timestamp_ms=EARLY_MS, codec="zstd")
    topics.send(name, ["h"], keys=["1"], headers=[("a", b"1"), ("b", None)], timestamp_ms=EARLY_MS, codec="gzip")
    topics.send(name, [None, ""], keys=[None, ""], timestamp_ms=EARLY_MS, codec="lz4")
    topics.send(name, [f"late-{key}" for key in KEYS], keys=KEYS, timestamp_ms=LATE_MS, codec="snappy")


@pytest.mark.java
@pytest.mark.timeout(TIMEOUT_S)
def test_connector_reads_and_writes(topics: Topics, make_topic: MakeTopic, tmp_path: Path) -> None:
    """Batch, stream, pattern and timestamp reads; batch and stream writes."""
    prefix = topics.new_name("connector")
    first, second = make_topic(f"{prefix}-a", partitions=3), make_topic(f"{prefix}-b")
    sink = make_topic(partitions=4)
    fill(topics, first)
    topics.send(second, ["other"])
    places = {"topic": first, "pattern": f"^{prefix}-.*$", "sink": sink, "since_ms": LATE_MS}
    found = run_driver({"bootstrap": topics.bootstrap, "folder": str(tmp_path), **places})

    assert found["kafka"] == found["headrace"]
    expected = expected_rows(topics, first)
    rows = found["kafka"]
    assert rows["batch"] == rows["stream"] == expected
    assert rows["pattern"] == expected + expected_rows(topics, second, [0])
    assert rows["timestamp"] == [row for row in expected if row[5] >= LATE_MS * 1000]
    assert len(rows["timestamp"]) == len(KEYS)
    check_written(topics, sink, expected)


def expected_rows(topics: Topics, name: str, partitions: list[int] | None = None) -> Rows:
    """As the driver gives them; in JSON, Spark writes bytes as base64 and leaves nulls out."""
    rows: Rows = []
    for record in topics.read(name, partitions or [0, 1, 2]):
        key, value = (None if data is None else data.decode() for data in (record.key, record.value))
        headers = '[{"key":"a","value":"MQ=="},{"key":"b"}]' if record.headers else None
        place = [record.topic, record.partition, record.offset]
        rows.append([key, value, *place, record.timestamp_ms * 1000, record.timestamp_type, headers])
    return rows


def check_written(topics: Topics, sink: str, source: Rows) -> None:
    written = topics.read(sink, range(4))
    batch = [record for record in written if (record.value or b"").startswith(b"batch-")]
    assert Counter(record.value for record in batch) == Counter(b"batch-%d" % number for number in range(100))
    for record in batch:
        assert record.headers == (("h", b"x"),)
        assert record.partition == partition_for_key(record.key or b"", 4)
    streamed = Counter(record.value for record in written if record not in batch)
    assert streamed == Counter(None if row[1] is None else f"stream-{row[1]}".encode() for row in source)
