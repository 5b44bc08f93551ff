"""The use cases of R-SPK-5 that are not elsewhere: a deadline, and a model trained on an archive."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest
from pyspark.sql import SparkSession

from headrace.spark.pipelines.loading.files import load_pipeline
from tests.processes.spark.archive.archives import archived, make_archive
from tests.spark.pipeline_runs import Runs, lines, objects
from tests.spark.topics import Topics

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture
def runs(spark: SparkSession, bootstrap: str, tmp_path: Path) -> Runs:
    return Runs(spark, bootstrap, tmp_path)


@pytest.fixture(autouse=True)
def tidy(topics: Topics) -> Iterator[None]:
    """The examples name their topics themselves."""
    yield
    names = topics.admin.list_topics(timeout=60).topics
    topics.delete([name for name in names if name.startswith(("shop.", "deadlines", "fraud-scores"))])


def order(number: int, time: str) -> dict[str, Any]:
    return {"order_id": f"o{number}", "customer": "ann", "total": 5.0, "ordered_at": f"2026-01-01T{time}Z"}


def test_an_order_that_is_unpaid_after_15_minutes_is_told_once(runs: Runs, topics: Topics) -> None:
    topics.create("shop.orders", 2)
    topics.create("shop.payments", 1)
    topics.send("shop.orders", lines(*(order(number, f"10:0{number}:00") for number in range(4))))
    paid = {"o0": "10:05:00", "o1": "10:16:00", "o2": "10:17:01"}  # in time, just in time, too late
    paid["o9"] = "11:05:00"
    made = ({"order_id": one, "paid_at": f"2026-01-01T{at}Z"} for one, at in paid.items())
    topics.send("shop.payments", lines(*made))
    topics.send("shop.orders", lines(order(9, "11:00:00")))  # with its payment: the deadlines before have passed
    pipeline = load_pipeline(str(EXAMPLES / "pipelines" / "deadlines" / "pipeline.yml"))
    runs.once(pipeline)
    runs.once(pipeline)
    reminders = {row["order_id"]: row["due_at"][:19] for row in objects(topics, "shop.reminders")}
    assert reminders == {"o2": "2026-01-01T10:17:00", "o3": "2026-01-01T10:18:00"}
    assert len(objects(topics, "shop.reminders")) == 2


def payments(count: int) -> list[dict[str, Any]]:
    """Large ones abroad at night are frauds."""
    made = []
    for number in range(count):
        night, abroad, large = number % 2 == 0, number % 3 == 0, number % 5 == 0
        made.append(
            {
                "id": f"p{number}",
                "time": f"2026-01-{number % 28 + 1:02}T{'03' if night else '15'}:00:00Z",
                "amount": 2000.0 if large else 20.0,
                "country": "PE" if abroad else "NO",
                "home": "NO",
                "fraud": night and abroad and large,
            }
        )
    return made


def module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def test_a_model_learns_from_the_archive_and_scores_the_stream(
    runs: Runs, topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both with the same features, so that the scores are the same wherever they are computed."""
    labelled, archive, model = "shop.payments.labelled", tmp_path / "archive", tmp_path / "model.json"
    topics.create(labelled, 2)
    topics.create("shop.payments.new", 1)
    known = payments(600)
    topics.send(labelled, lines(*known))
    archived(make_archive(archive, topics.bootstrap, [labelled]), topics.bootstrap)
    command = [sys.executable, str(EXAMPLES / "model" / "train.py"), str(archive), labelled, str(model)]
    trained = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert (trained.returncode, trained.stdout) == (0, "Learned from 600 payments.\n"), trained.stderr

    monkeypatch.setenv("HEADRACE_MODEL", str(model))
    new = [{name: value for name, value in one.items() if name != "fraud"} for one in payments(60)]
    topics.send("shop.payments.new", lines(*new))
    runs.once(load_pipeline(str(EXAMPLES / "model" / "pipeline.yml")))
    scores = {row["id"]: row["score"] for row in objects(topics, "shop.payments.scores")}
    weights = np.array(json.loads(model.read_text())["weights"])
    expected = module(EXAMPLES / "model" / "features.py").score(pd.DataFrame(new), weights)
    assert scores == {one["id"]: round(float(value), 4) for one, value in zip(new, expected, strict=True)}
    frauds = {one["id"] for one in payments(60) if one["fraud"]}
    assert min(scores[one] for one in frauds) > max(score for one, score in scores.items() if one not in frauds)


def test_the_weights_are_the_best_ones_whatever_the_size_of_the_amounts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES / "model"))
    random = np.random.default_rng(7)
    made = pd.DataFrame(payments(5000)).assign(amount=random.uniform(1, 10_000, 5000))
    truth = np.array([0.7, 1.5, 1.2, -6])
    code = module(EXAMPLES / "model" / "features.py")
    made["fraud"] = random.random(5000) < code.score(made, truth)
    found = module(EXAMPLES / "model" / "train.py").train(made)
    seen = np.column_stack([code.features(made), np.ones(len(made))])
    slope = seen.T @ (code.score(made, found) - made["fraud"].to_numpy(np.float64)) / len(made)
    assert np.abs(slope).max() < 1e-4
    assert np.abs(found - truth).max() < 1
