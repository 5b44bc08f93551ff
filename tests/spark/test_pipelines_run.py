"""Declared pipelines with real Spark and a real broker: steps, sinks, dead letters, restarts. R-SPK-6."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pyarrow.parquet
import pytest
from pyspark.sql import SparkSession

from headrace.spark.pipelines.running.progress import malformed_in
from tests.spark.conftest import MakeTopic
from tests.spark.pipeline_runs import Runs, lines, objects
from tests.spark.topics import Topics


@pytest.fixture
def runs(spark: SparkSession, bootstrap: str, tmp_path: Path) -> Runs:
    return Runs(spark, bootstrap, tmp_path)


LOGS = """\
name: {name}
sources:
  raw:
    topic: {raw}
    format: json
    schema: "id int NOT NULL, ts timestamp, service string, level string"
    watermark: {{column: ts, delay: 10 minutes}}
steps:
  - name: parsed
    sql: |
      SELECT id, ts, service, lower(level) AS level, date(ts) AS day, _offset AS at_offset,
        string(_key) AS host, string(_headers[0].value) AS trace
      FROM raw
  - {{name: unique, from: parsed, deduplicate: {{columns: [id], within: 5 minutes}}}}
  - {{name: errors, from: unique, filter: "level = 'error'"}}
  - {{name: slim, from: errors, select: [id, "concat(service, '!') AS service", host]}}
sinks:
  errors: {{from: slim, topic: {raw}.errors, key: host, create: {{partitions: 2}}}}
  split: {{from: parsed, topic: "{raw}.of.{{service}}", create: {{partitions: 1}}}}
  archive: {{from: parsed, parquet: archive, partition_by: [day]}}
  screen: {{from: parsed, console: true}}
"""
SECOND = """\
name: {name}-2
sources:
  errors: {{topics: ["{raw}.errors"], format: json, schema: "id int, service string"}}
sinks:
  lines: {{from: errors, topic: {raw}.lines, format: csv, create: true, options: {{csv.delimiter: "|"}}}}
"""


def event(number: int, service: str = "web", level: str = "ERROR", clock: str = "00:00:00") -> dict[str, object]:
    return {"id": number, "ts": f"2026-01-01T{clock}Z", "service": service, "level": level}


def test_a_log_pipeline_from_end_to_end_and_again(runs: Runs, make_topic: MakeTopic, topics: Topics) -> None:
    raw = make_topic()
    headers: list[tuple[str, str | bytes | None]] = [("trace", "abc")]
    sent = lines(event(1), event(2, level="info"), event(1), event(3, "db"), event(4, "a/b"))
    topics.send(raw, sent, keys=["h1", "h2", "h1", "h3", "h4"], headers=headers)
    topics.send(raw, ['{"id": "x"}', b"\xff", None], keys=["bad", None, None], headers=headers)
    pipeline = runs.load("logs", LOGS.format(name=raw, raw=raw))
    reports = runs.once(pipeline)

    assert set(reports) == {raw}, "one query reads the topic for all sinks and the dead letters"
    assert sum(report["numInputRows"] for report in reports[raw]) == 8
    errors = topics.read(f"{raw}.errors", range(2))
    assert sorted((record.key, record.value) for record in errors) == [
        (b"h1", b'{"id":1,"service":"web!","host":"h1"}'),
        (b"h3", b'{"id":3,"service":"db!","host":"h3"}'),
        (b"h4", b'{"id":4,"service":"a/b!","host":"h4"}'),
    ]
    assert sorted(row["id"] for row in objects(topics, f"{raw}.of.web")) == [1, 1, 2]
    (other,) = objects(topics, f"{raw}.of.a_b")
    assert (other["service"], other["level"], other["at_offset"]) == ("a/b", "error", 4)
    assert (other["day"], other["host"], other["trace"]) == ("2026-01-01", "h4", "abc")
    archive = runs.spark.read.parquet(str(runs.folder / "archive"))
    assert sorted(row["id"] for row in archive.collect()) == [1, 1, 2, 3, 4]
    assert [str(path.name) for path in (runs.folder / "archive").glob("day=*")] == ["day=2026-01-01"]

    letters = topics.read(f"{raw}.dead-letter")
    assert [(letter.key, letter.value) for letter in letters] == [
        (b"bad", b'{"id": "x"}'),
        (None, b"\xff"),
        (None, None),
    ]
    told = dict(letters[0].headers or ())
    assert re.fullmatch(rb"20..-..-..T..:..:..\.\d{3}Z", told.pop("headrace.origin.timestamp") or b"")
    assert told == {
        "trace": b"abc",
        "headrace.error.reason": b"'id' is not a value of type int: x",
        "headrace.error.pipeline": raw.encode(),
        "headrace.error.source": b"raw",
        "headrace.origin.topic": raw.encode(),
        "headrace.origin.partition": b"0",
        "headrace.origin.offset": b"5",
    }
    reasons = [dict(letter.headers or ())["headrace.error.reason"] for letter in letters]
    assert reasons[1:] == [b"the value is not UTF-8 text", b"the value is null"]
    assert sum(map(malformed_in, reports[raw])) == 3

    # It goes on where it stopped, and knows the duplicates of before, for as long as it is told to.
    more = [event(5, clock="00:00:09"), event(3, "db", clock="00:00:09"), event(6, clock="01:00:00")]
    topics.send(raw, [*lines(*more), "{"], keys=["h5", "h3", "h6", None])
    runs.once(pipeline)
    assert sorted(row["id"] for row in objects(topics, f"{raw}.errors", 2)) == [1, 3, 4, 5, 6]
    assert len(topics.read(f"{raw}.dead-letter")) == 4
    assert topics.committed(raw, raw) in (8, 12), "it trails by a batch at most"
    topics.send(raw, lines(event(1, clock="01:00:01"), event(6, clock="01:00:01")), keys=["h1", "h6"])
    runs.once(pipeline)
    assert sorted(row["id"] for row in objects(topics, f"{raw}.errors", 2)) == [1, 1, 3, 4, 5, 6]
    files = pyarrow.parquet.read_table(str(runs.folder / "archive"))
    assert sorted(files.column("id").to_pylist()) == [1, 1, 1, 2, 3, 3, 4, 5, 6, 6], (
        "all readers see each row once"
    )

    # A pipeline that reads what this one writes.
    runs.once(runs.load("second", SECOND.format(name=raw, raw=raw)), only={"lines"})
    written = sorted(record.value or b"" for record in topics.read(f"{raw}.lines"))
    assert written == [b"1|web!", b"1|web!", b"3|db!", b"4|a/b!", b"5|web!", b"6|web!"]


STATEFUL = """\
name: {name}
sources:
  views:
    topic: {views}
    format: json
    schema: "id int, at timestamp, page string"
    watermark: {{column: at, delay: 1 minute}}
  clicks: {{topic: {clicks}, format: csv, schema: "view int, clicked timestamp", dead_letter: false}}
steps:
  - {{name: marked, from: clicks, watermark: {{column: clicked, delay: 1 minute}}}}
  - name: per_minute
    sql: |
      SELECT window(at, '1 minute').start AS minute, page, count(*) AS n
      FROM views GROUP BY window(at, '1 minute'), page
  - {{name: totals, sql: "SELECT page, count(*) AS n FROM views GROUP BY page"}}
  - name: clicked
    sql: |
      SELECT v.id, v.page, c.clicked FROM views v JOIN marked c
      ON v.id = c.view AND c.clicked BETWEEN v.at AND v.at + INTERVAL 1 MINUTE
sinks:
  per_minute: {{from: per_minute, topic: {views}.per-minute, create: true}}
  totals:
    from: totals
    topic: {views}.totals
    key: page
    mode: update
    create: {{config: {{cleanup.policy: compact}}}}
  all: {{from: totals, topic: {views}.all, key: page, mode: complete, create: true}}
  clicked: {{from: clicked, topic: {views}.clicked, create: true}}
"""


def test_windows_updates_and_a_join_of_two_streams(runs: Runs, make_topic: MakeTopic, topics: Topics) -> None:
    views, clicks = make_topic(), make_topic()

    def view(number: int, clock: str, page: str = "a") -> str:
        return lines({"id": number, "at": f"2026-01-01T{clock}Z", "page": page})[0]

    topics.send(views, [view(1, "00:00:10"), view(2, "00:00:20"), view(3, "00:00:30", "b"), view(4, "00:10:00")])
    topics.send(clicks, ["1,2026-01-01T00:00:40Z", "2,2026-01-01T00:05:00Z", "3,2026-01-01T00:00:35Z", "nonsense"])
    pipeline = runs.load("stateful", STATEFUL.format(name=views, views=views, clicks=clicks))
    reports = runs.once(pipeline, only={"per_minute", "totals", "clicked"})
    assert set(reports) == {f"{views}.{part}" for part in ("per_minute", "totals", "clicked")}
    assert sum(map(malformed_in, reports[f"{views}.clicked"])) == 1, "counted all the same"
    assert topics.config(f"{views}.totals", "cleanup.policy") == "compact"
    start = "2026-01-01T00:00:00.000000Z"
    windows = sorted(objects(topics, f"{views}.per-minute"), key=lambda row: row["page"])
    assert windows == [{"minute": start, "page": "a", "n": 2}, {"minute": start, "page": "b", "n": 1}]
    joined = sorted(objects(topics, f"{views}.clicked"), key=lambda row: row["id"])
    assert [(row["id"], row["clicked"][11:19]) for row in joined] == [(1, "00:00:40"), (3, "00:00:35")]

    topics.send(views, [view(5, "00:11:00", "b"), view(6, "00:00:00", "late")])
    runs.once(pipeline, only={"per_minute", "totals", "all"})
    totals = [(record.key, record.value) for record in topics.read(f"{views}.totals")]
    assert (b"b", b'{"page":"b","n":2}') in totals
    assert sum(key == b"a" for key, _ in totals) == 1
    assert sorted(row["n"] for row in objects(topics, f"{views}.all")[-3:]) == [1, 2, 3]
    assert all(row["page"] != "late" for row in objects(topics, f"{views}.per-minute"))


TABLES = """\
name: {name}
sources:
  views: {{topic: {views}, format: text}}
  users: {{table: {users}, format: json, schema: "country string", key: id}}
  pages:
    files: "pages/*.csv"
    table: true
    schema: "page string, title string"
    options: {{csv.header: "true"}}
  more: {{files: "more/*.json", format: json, schema: "page string"}}
steps:
  - {{name: viewed, sql: "SELECT split(value, ' ')[0] AS id, split(value, ' ')[1] AS page FROM views"}}
  - name: named
    sql: |
      SELECT v.id, u.country, p.title FROM viewed v
      LEFT JOIN users u ON v.id = u.id LEFT JOIN pages p ON v.page = p.page
sinks:
  named: {{from: named, topic: {views}.named, create: true}}
  files: {{from: more, topic: {views}.files, format: text, create: true}}
"""


def test_a_table_follows_its_topic_while_a_query_runs(runs: Runs, make_topic: MakeTopic, topics: Topics) -> None:
    views, users = make_topic(), make_topic(partitions=2, configs={"cleanup.policy": "compact"})
    for folder in ("pages", "more"):
        (runs.folder / folder).mkdir()
    (runs.folder / "pages" / "a.csv").write_text("page,title\nhome,Welcome\n")
    (runs.folder / "more" / "a.json").write_text('{"page": "x"}\n\n{"page": \n')
    topics.send(users, lines({"country": "CH"}, {"country": "IT"}), keys=["1", "2"])
    pipeline = runs.load("tables", TABLES.format(name=views, views=views, users=users))

    def answer(count: int) -> dict[str, str]:
        deadline = time.monotonic() + 240
        while len(found := objects(topics, f"{views}.named")) < count:
            assert time.monotonic() < deadline, found
            time.sleep(0.2)
        return dict(found[count - 1])

    with runs.running(pipeline, "named"):
        topics.send(views, ["1 home"])
        assert answer(1) == {"id": "1", "country": "CH", "title": "Welcome"}
        topics.send(users, lines({"country": "DE"}), keys=["1"])
        topics.send(users, [None], keys=["2"])
        topics.send(views, ["1 other"])
        assert answer(2) == {"id": "1", "country": "DE"}
        topics.send(views, ["2 home"])
        assert answer(3) == {"id": "2", "title": "Welcome"}

    reports = runs.once(pipeline, only={"files", "more"})
    assert [record.value for record in topics.read(f"{views}.files")] == [b"x"]
    (letter,) = topics.read(f"{views}.dead-letter")
    assert letter.value == b'{"page": '
    told = dict(letter.headers or ())
    assert told["headrace.error.reason"] == b"the value is not valid JSON"
    assert (told["headrace.origin.file"] or b"").endswith(b"/more/a.json")
    assert set(reports) == {f"{views}.files"}
