"""The example pipelines do what they say, over a real broker. The log pipeline is the demo's, see tests/e2e."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.spark.pipelines.definition import Pipeline
from headrace.spark.pipelines.loading.files import load_pipeline
from tests.spark.pipeline_runs import Runs, lines, objects
from tests.spark.topics import Topics

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "pipelines"
WAIT_S = 400.0


@pytest.fixture
def runs(spark: SparkSession, bootstrap: str, tmp_path: Path) -> Runs:
    return Runs(spark, bootstrap, tmp_path)


@pytest.fixture(autouse=True)
def tidy(topics: Topics) -> Iterator[None]:
    """The examples name their topics themselves."""
    yield
    names = topics.admin.list_topics(timeout=60).topics
    topics.delete([name for name in names if name.startswith(("activity.", "metrics.", "activity-", "metrics-"))])


def example(*path: str) -> Pipeline:
    return load_pipeline(str(EXAMPLES.joinpath(*path)))


def wait_for(test: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not test():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def view(number: int, user: str, page: str, minute: int = 0) -> dict[str, str]:
    return {"id": f"v{number}", "time": f"2026-01-01T10:{minute:02}:00Z", "user_id": user, "page": page}


def set_users(topics: Topics, **countries: str | None) -> None:
    values = [c and json.dumps({"name": user.title(), "country": c}) for user, c in countries.items()]
    topics.send("activity.users", values, keys=list(countries))


def test_activity_follows_the_table_of_users_and_feeds_the_report(runs: Runs, topics: Topics) -> None:
    """R-SPK-6: a join with a compacted topic that follows its updates; a split; a pipeline that feeds another."""
    topics.create("activity.views", 2)
    topics.create("activity.users", 1, {"cleanup.policy": "compact"})
    set_users(topics, ann="NO", bob="PE")
    first = lines(view(1, "ann", "/blog/one"), view(2, "bob", "/shop/cart"), view(2, "bob", "/shop/cart"))
    topics.send("activity.views", [*first, *lines(view(3, "eve", "/")), "no view at all"])
    activity = example("activity", "pipeline.yml")

    with runs.running(activity, "enriched"):
        wait_for(lambda: "activity.enriched" in topics.admin.list_topics(timeout=60).topics)
        wait_for(lambda: len(objects(topics, "activity.enriched", 3)) == 3)
        set_users(topics, ann="SE", bob=None)
        topics.send("activity.views", lines(view(4, "ann", "/blog/two", 1), view(5, "bob", "/blog/one", 7)))
        wait_for(lambda: len(objects(topics, "activity.enriched", 3)) == 5)
    enriched = {row["id"]: (row["name"], row["country"]) for row in objects(topics, "activity.enriched", 3)}
    assert enriched == {
        "v1": ("Ann", "NO"),
        "v2": ("Bob", "PE"),
        "v3": ("guest", "unknown"),
        "v4": ("Ann", "SE"),
        "v5": ("guest", "unknown"),
    }

    runs.once(activity)
    assert len(topics.read("activity.dead-letter")) == 1
    sections = {name: objects(topics, f"activity.section.{name}") for name in ("blog", "shop", "home")}
    assert {name: sorted(row["id"] for row in rows) for name, rows in sections.items()} == {
        "blog": ["v1", "v4", "v5"],
        "shop": ["v2"],
        "home": ["v3"],
    }

    runs.once(example("activity", "report.yml"), only={"report"})
    last = {(row["since"], row["country"]): row["views"] for row in objects(topics, "activity.report")}
    assert last == {
        ("2026-01-01T10:00:00.000000Z", "NO"): 1,
        ("2026-01-01T10:00:00.000000Z", "PE"): 1,
        ("2026-01-01T10:00:00.000000Z", "SE"): 1,
        ("2026-01-01T10:00:00.000000Z", "unknown"): 1,
        ("2026-01-01T10:05:00.000000Z", "unknown"): 1,
    }


def sample(second: int, host: str, metric: str, value: object) -> str:
    return f"2026-01-01T10:00:{second:02}Z,{host},{metric},{value}"


def test_metrics_are_summed_up_and_give_alarms(runs: Runs, topics: Topics) -> None:
    """CSV in, a table from a file, windows that are written once they are closed, and dead letters."""
    topics.create("metrics.samples", 1)
    topics.send("metrics.samples", [sample(second, "web1", "cpu", second / 10) for second in range(10)])
    topics.send(
        "metrics.samples", [sample(5, "web1", "disk", 0.5), "what,is,this", sample(6, "web1", "cpu", "hot")]
    )
    topics.send("metrics.samples", [sample(58, "web1", "cpu", 0.1)])  # closes the windows before it
    metrics = example("metrics", "pipeline.yml")
    assert metrics.schedule_s == 60
    runs.once(metrics)

    summed = objects(topics, "metrics.summed", 3)
    assert sorted(summed, key=lambda row: str(row["metric"])) == [
        {
            "time": "2026-01-01T10:00:00.000000Z",
            "host": "web1",
            "metric": "cpu",
            "samples": 10,
            "mean": 0.45,
            "highest": 0.9,
            "p95": 0.855,
        },
        {
            "time": "2026-01-01T10:00:00.000000Z",
            "host": "web1",
            "metric": "disk",
            "samples": 1,
            "mean": 0.5,
            "highest": 0.5,
            "p95": 0.5,
        },
    ]
    assert objects(topics, "metrics.alarms") == []
    topics.send("metrics.samples", [sample(59, "web2", "cpu", 0.99), sample(59, "web2", "disk", 0.84)])
    runs.once(metrics, only={"alarms"})
    assert objects(topics, "metrics.alarms") == [
        {
            "time": "2026-01-01T10:00:59.000000Z",
            "host": "web2",
            "metric": "cpu",
            "value": 0.99,
            "allowed": 0.95,
        }
    ]
    letters = topics.read("metrics.dead-letter")
    assert [letter.value for letter in letters] == [b"what,is,this", sample(6, "web1", "cpu", "hot").encode()]
    headers = dict(letters[1].headers or ())
    assert headers["headrace.origin.topic"] == b"metrics.samples"
    assert headers["headrace.origin.offset"] == b"12"
    assert headers["headrace.error.pipeline"] == b"metrics"
