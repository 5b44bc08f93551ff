"""Tests of a pipeline, run one after the other over given rows: no broker, no sinks, no checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession

from headrace.spark.pipelines.compiling.queries import has_dead_letters
from headrace.spark.pipelines.compiling.sources import malformed_records
from headrace.spark.pipelines.compiling.views import compile_views
from headrace.spark.pipelines.definition import Pipeline
from headrace.spark.pipelines.trying.cases import Case
from headrace.spark.pipelines.trying.comparing import Difference, compare
from headrace.spark.pipelines.trying.encoding import given_rows
from headrace.spark.pipelines.trying.openings import GivenOpening
from headrace.spark.pipelines.trying.shown_rows import shown_columns, shown_rows


@dataclass(frozen=True, slots=True)
class CaseResult:
    name: str
    differences: list[Difference] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return not self.differences


def run_case(session: SparkSession, pipeline: Pipeline, case: Case) -> CaseResult:
    rows = {
        source.name: given_rows(source, case.given[source.name])
        for source in pipeline.sources
        if source.name in case.given
    }
    opening = GivenOpening(session, rows)
    try:
        return CaseResult(case.name, list(_differences(session, pipeline, case, opening)))
    finally:
        drop_views(session, pipeline)


def drop_views(session: SparkSession, pipeline: Pipeline) -> None:
    for part in pipeline.views:
        session.catalog.dropTempView(part.name)


def _differences(
    session: SparkSession, pipeline: Pipeline, case: Case, opening: GivenOpening
) -> Iterator[Difference]:
    for name, expected in case.expect.items():
        view = view_of(session, pipeline, opening, name)
        found = compare(name, shown_columns(view), shown_rows(view), expected)
        if found is not None:
            yield found
    for source in pipeline.sources:
        wanted = case.malformed.get(source.name)
        if wanted is not None:
            count = malformed_records(opening, source).count() if has_dead_letters(source) else 0
            if count != wanted:
                yield Difference(source.name, problem=f"{count} records are malformed, expected {wanted}")
    for step in pipeline.steps:
        wanted = case.malformed.get(step.name)
        if wanted is not None:
            count = compile_views(session, pipeline, opening, [step.name]).malformed[step.name].count()
            if count != wanted:
                rows = "1 row" if count == 1 else f"{count} rows"
                yield Difference(step.name, problem=f"{step.text} failed for {rows}, expected {wanted}")


def view_of(session: SparkSession, pipeline: Pipeline, opening: GivenOpening, name: str) -> DataFrame:
    """The view of a source or step, or the input of the sink with that name."""
    inputs = {sink.name: sink.input for sink in pipeline.sinks}
    wanted = name if any(part.name == name for part in pipeline.views) else inputs[name]
    return compile_views(session, pipeline, opening, [wanted]).views[wanted]
