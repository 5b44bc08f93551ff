"""`pipeline init`, `preview` and `test`, in this process: one Spark for all of it. R-BEY-4."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from headrace.cli.common.failure import CommandError
from headrace.cli.main import command_line
from tests.spark.conftest import MakeTopic
from tests.spark.topics import Topics

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "pipelines"
PIPELINE = """\
name: orders
sources:
  orders:
    topic: orders
    format: json
    schema: id string, at timestamp, customer string, cents bigint, state string
    watermark: {column: at, delay: 10 minutes}
  names: {table: customers, format: json, schema: "name string", key: customer string}
  lines: {topic: lines, format: csv, schema: "a int, b string"}
steps:
  - {name: paid, from: orders, filter: "state = 'paid'"}
  - {name: unique, from: paid, deduplicate: {columns: [id], within: 10 minutes}}
  - name: revenue
    sql: |
      SELECT window.start AS minute, sum(cents) / 100 AS euros, count(*) AS orders
      FROM unique GROUP BY window(at, '1 minute')
  - name: visits
    sql: |
      SELECT customer, session_window.start AS since, count(*) AS orders
      FROM orders GROUP BY session_window(at, '5 minutes'), customer
  - {name: named, sql: "SELECT u.id, n.name, u._key AS key FROM unique u JOIN names n ON u.customer = n.customer"}
  - {name: doubled, from: lines, python: "steps.py:double"}
sinks:
  revenue: {from: revenue, topic: orders.revenue, mode: update}
  visits: {from: visits, topic: orders.visits, mode: update}
  named: {from: named, topic: orders.named}
  doubled: {from: doubled, topic: doubled}
"""
STEPS = "def double(lines):\n    return lines.selectExpr('a * 2 AS a', 'b')\n"
TESTS = """\
tests:
  - name: paid orders count once
    given:
      orders: &orders
        - {id: o-1, at: "2026-03-01T10:00:07Z", customer: ada, cents: 1250, state: paid, _key: k}
        - {id: o-1, at: 2026-03-01T10:00:08Z, customer: ada, cents: 1250, state: paid}
        - {id: o-2, at: "2026-03-01T10:00:41Z", customer: bob, cents: 300, state: open}
        - '{"id": "o-3", "at": "2026-03'
        - {id: o-4, at: "2026-03-01T10:09:00Z", customer: ada, cents: 990, state: paid}
      names: [{customer: ada, name: Ada}, {customer: bob, name: Bob}]
    expect:
      revenue:
        - {minute: "2026-03-01T10:09:00Z", euros: 9.9, orders: 1}
        - {minute: 2026-03-01T10:00:00Z, euros: 12.5, orders: 1}
      named: [{id: o-1, name: Ada, key: k}, {id: o-4, name: Ada}]
    malformed: {orders: 1}
  - name: visits are sessions
    given: {orders: *orders}
    expect:
      visits:
        - {customer: ada, since: "2026-03-01T10:00:07Z", orders: 2}
        - {customer: ada, since: "2026-03-01T10:09:00Z", orders: 1}
        - {customer: bob, since: "2026-03-01T10:00:41Z", orders: 1}
  - name: python
    given: {lines: [{a: 2, b: "x,y"}, "3,z"]}
    expect: {doubled: [{a: 4, b: "x,y"}, {a: 6, b: z}]}
"""
WRONG = """\
tests:
  - name: expects too much
    given: {lines: [{a: 2, b: x}]}
    expect: {doubled: [{a: 5}], lines: [{c: 1}]}
    malformed: {lines: 1}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADRACE_STATE_DIR", str(tmp_path / "state"))
    return tmp_path


@dataclass(frozen=True, slots=True)
class Done:
    stdout: str
    stderr: str


def headrace(*arguments: str, code: int = 0) -> Done:
    """The command in this process, where Spark runs already."""
    done = CliRunner().invoke(command_line, list(arguments), standalone_mode=False)
    problem = done.exception
    if problem is not None and not isinstance(problem, CommandError):
        raise problem
    ended = problem.code if isinstance(problem, CommandError) else (done.return_value or 0)
    said = f"{done.stderr}{problem.format_message() if isinstance(problem, CommandError) else ''}"
    assert ended == code, f"{done.stdout}\n{said}"
    return Done(done.stdout, said)


def test_rows_in_and_rows_expected(spark: SparkSession, folder: Path) -> None:
    (folder / "orders.yml").write_text(PIPELINE)
    (folder / "steps.py").write_text(STEPS)
    headrace("pipeline", "test", "orders.yml", code=4)
    (folder / "orders.test.yml").write_text(TESTS)
    done = headrace("pipeline", "test", "orders.yml")
    assert done.stdout == "ok      paid orders count once\nok      visits are sessions\nok      python\n"
    assert "3 tests: 3 passed, 0 failed." in done.stderr
    (folder / "wrong.yml").write_text(WRONG)
    failed = headrace("pipeline", "test", "orders.yml", "--cases", "wrong.yml", code=1)
    assert failed.stdout == (
        "FAILED  expects too much\n"
        '        doubled: missing    {"a": 5}\n'
        '        doubled: unexpected {"a": 4}\n'
        "        lines: there is no column c. It has a, b.\n"
        "        lines: 0 records are malformed, expected 1\n"
    )
    (one,) = json.loads(headrace("pipeline", "test", "orders.yml", "-k", "sessions", "--format", "json").stdout)
    assert (one["name"], one["passed"]) == ("visits are sessions", True)


def test_rows_for_which_a_function_fails_are_counted(spark: SparkSession, folder: Path) -> None:
    file = str(EXAMPLES / "payments" / "pipeline.yml")
    assert headrace("pipeline", "test", file).stdout == "ok      payments of all providers are alike\n"
    (folder / "wrong.yml").write_text(
        'tests: [{given: {raw: [{provider: a, amount: "1", currency: x}]}, malformed: {payments: 3}}]\n'
    )
    failed = headrace("pipeline", "test", file, "--cases", "wrong.yml", code=1)
    assert "        payments: rules.py:payments failed for 1 row, expected 3\n" in failed.stdout


def test_from_a_topic_to_rows(
    spark: SparkSession, bootstrap: str, topics: Topics, make_topic: MakeTopic, folder: Path
) -> None:
    topic = make_topic(partitions=2)
    values = [b'{"id": %d, "at": "2026-03-01T10:00:0%dZ", "tags": ["a"]}' % (n, n) for n in range(9)]
    topics.send(topic, values[:5], partition=0)
    topics.send(topic, [*values[5:], b"{broken"], partition=1)
    headrace("pipeline", "init", topic, "-o", "p.yml", "-b", bootstrap)
    assert "\nname: p\n" in Path("p.yml").read_text(), "not that of another pipeline of the topic"
    again = headrace("pipeline", "init", topic, "-o", "p.yml", "-b", bootstrap, code=1)
    assert "p.yml already exists." in again.stderr
    headrace("pipeline", "init", "no-such-topic", "-b", bootstrap, code=4)
    shown = headrace("pipeline", "preview", "p.yml", "-n", "20", "--format", "jsonl")
    rows = [json.loads(line) for line in shown.stdout.splitlines()]
    assert sorted(row["id"] for row in rows) == list(range(9))
    assert rows[0]["at"].startswith("2026-03-01T10:00:0")
    assert "1 record of source" in shown.stderr
    few = headrace("pipeline", "preview", "p.yml", "selected", "-n", "20", "--records", "4", "--format", "jsonl")
    assert sorted(json.loads(line)["id"] for line in few.stdout.splitlines()) == [3, 4, 8]
    one = headrace("pipeline", "preview", "p.yml", "selected", "-n", "1", "--format", "jsonl")
    assert len(one.stdout.splitlines()) == 1
    assert "id" in headrace("pipeline", "preview", "p.yml").stdout.splitlines()[0].lower()
    headrace("pipeline", "preview", "p.yml", "selectd", code=4)
    headrace("pipeline", "preview", "none.yml", code=4)
    headrace("pipeline", "preview", "p.yml", "-b", "127.0.0.1:1", code=3)
    assert len(topics.admin.list_topics(topic, timeout=60).topics) == 1
