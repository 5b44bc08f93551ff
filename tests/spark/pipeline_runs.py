"""Pipelines for tests: written to a file, run until all that is there is processed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.spark.pipelines.checking.spark import check_spark
from headrace.spark.pipelines.compiling.checkpoint_folders import CheckpointPlace
from headrace.spark.pipelines.compiling.queries import QueryPlan, build_queries
from headrace.spark.pipelines.definition import Pipeline
from headrace.spark.pipelines.explaining.sql_errors import explain_failure
from headrace.spark.pipelines.loading.files import load_pipeline
from headrace.spark.pipelines.running.session import make_session
from tests.spark.topics import Topics

ONCE = {"availableNow": True}
WAIT_S = 280


@dataclass(frozen=True)
class Runs:
    """Of the pipelines of one test, whose files and checkpoints are in one folder."""

    spark: SparkSession
    bootstrap: str
    folder: Path

    def load(self, name: str, text: str) -> Pipeline:
        path = self.folder / f"{name}.yml"
        path.write_text(text)
        return load_pipeline(str(path))

    def plans(self, pipeline: Pipeline) -> list[QueryPlan]:
        session = make_session(pipeline.spark, pipeline.name)
        assert check_spark(pipeline, session) == []
        checkpoint = str(self.folder / "checkpoints" / pipeline.name)
        return build_queries(pipeline, session, bootstrap=self.bootstrap, checkpoint=CheckpointPlace(checkpoint))

    def once(self, pipeline: Pipeline, only: set[str] | None = None) -> dict[str, list[dict[str, Any]]]:
        """The progress reports of each query by its name, after all have processed what is there.

        `only`: the queries with one of these sinks, or with the dead letters of one of these sources.
        """
        plans = [plan for plan in self.plans(pipeline) if only is None or only & {*plan.sinks, *plan.letters}]
        queries = [(plan, plan.start(ONCE)) for plan in plans]
        return {plan.name: finished(pipeline, plan.name, query) for plan, query in queries}

    @contextmanager
    def running(self, pipeline: Pipeline, part: str) -> Iterator[StreamingQuery]:
        (plan,) = (plan for plan in self.plans(pipeline) if part in plan.sinks)
        query = plan.start({"processingTime": "200 milliseconds"})
        try:
            yield query
        finally:
            query.stop()

    def failure(self, pipeline: Pipeline, part: str) -> str:
        """What the user is told of a query that must fail."""
        (plan,) = (plan for plan in self.plans(pipeline) if part in plan.sinks)
        try:
            plan.start(ONCE).awaitTermination(WAIT_S)
        except Exception as error:
            return explain_failure(error, pipeline, plan.name).message
        raise AssertionError("the query did not fail")


def finished(pipeline: Pipeline, name: str, query: StreamingQuery) -> list[dict[str, Any]]:
    try:
        assert query.awaitTermination(WAIT_S), f"{name} is still running"
    except Exception as error:
        raise AssertionError(explain_failure(error, pipeline, name).message) from error
    return [json.loads(report.json) for report in query.recentProgress]


def objects(topics: Topics, topic: str, partitions: int = 1) -> list[Any]:
    """The values of a topic, out of JSON."""
    return [json.loads(record.value or b"null") for record in topics.read(topic, range(partitions))]


def lines(*rows: Any) -> list[str]:
    return [json.dumps(row) for row in rows]
