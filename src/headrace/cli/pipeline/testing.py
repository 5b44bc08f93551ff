"""`headrace pipeline test`: a pipeline over given rows, compared with expected ones; needs no broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.common.failure import FAILED, NOT_FOUND, CommandError, cannot_read
from headrace.cli.common.output import emit_data, headings_in_bold, note, plural
from headrace.cli.pipeline.briefly import brief_spark, good_pipelines
from headrace.cli.pipeline.check import require_spark

if TYPE_CHECKING:
    from headrace.spark.pipelines.definition import Pipeline
    from headrace.spark.pipelines.trying.comparing import Difference
    from headrace.spark.pipelines.trying.running_cases import CaseResult

MOST_ROWS = 5


@click.command("test")
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(path_type=Path, dir_okay=False), metavar="FILE..."
)
@click.option(
    "--cases",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File with the tests.  [default: NAME.test.yml beside FILE]",
)
@click.option("-k", "only", metavar="TEXT", help="Only tests whose name contains this.")
@click.option("--format", "format", type=click.Choice(("table", "json")), default="table", show_default=True)
def test_pipelines(files: tuple[Path, ...], cases: Path | None, only: str | None, format: str) -> None:
    """Test pipeline FILEs: rows in and rows expected are in NAME.test.yml beside each. No broker is needed.

    All rows of a test are one batch, so windows show their final rows. Exit code 1 if a test fails.
    """
    require_spark()
    if cases is not None and len(files) > 1:
        raise click.UsageError("--cases needs exactly one FILE.")
    results = {}
    for pipeline in good_pipelines(files):
        results[pipeline.path] = _run(pipeline, cases, only or "")
    outcomes = [one for found in results.values() for one in found]
    if format == "json":
        emit_data([_as_data(path, one) for path, found in results.items() for one in found], format)
    else:
        for one in outcomes:
            _show(one)
    if not outcomes:
        raise CommandError("No test was run.", FAILED)
    failed = sum(not one.passed for one in outcomes)
    note(f"{plural(len(outcomes), 'test')}: {len(outcomes) - failed} passed, {failed} failed.")
    if failed:
        raise click.exceptions.Exit(FAILED)


def _run(pipeline: Pipeline, given: Path | None, only: str) -> list[CaseResult]:
    from headrace.spark.pipelines.trying.cases import CaseError, cases_beside, load_cases
    from headrace.spark.pipelines.trying.running_cases import run_case

    path = given or cases_beside(Path(pipeline.path))
    if not path.exists():
        advice = "Write one (docs/pipelines.md shows how), or name it with --cases."
        raise CommandError(f"There are no tests for {pipeline.path}: no file {path}.", NOT_FOUND, advice)
    try:
        cases = [case for case in load_cases(path, pipeline) if only in case.name]
        if not cases:
            return []
        with brief_spark(pipeline) as session:
            return [run_case(session, pipeline, case) for case in cases]
    except CaseError as error:
        raise CommandError(f"{error}.".replace("..", "."), FAILED) from None
    except OSError as error:
        raise cannot_read(path, error) from None


def _show(outcome: CaseResult) -> None:
    word, color = ("ok    ", "green") if outcome.passed else ("FAILED", "red")
    click.echo(f"{click.style(word, color) if headings_in_bold() else word}  {outcome.name}")
    for difference in outcome.differences:
        for line in _lines(difference):
            click.echo(f"        {difference.view}: {line}")


def _lines(difference: Difference) -> list[str]:
    if difference.problem is not None:
        return [difference.problem]
    lines = []
    for word, rows in (("missing   ", difference.missing), ("unexpected", difference.unexpected)):
        lines += [f"{word} {json.dumps(row, ensure_ascii=False)}" for row in rows[:MOST_ROWS]]
        if len(rows) > MOST_ROWS:
            lines.append(f"{word} ... and {len(rows) - MOST_ROWS} more rows")
    return lines


def _as_data(path: str, outcome: CaseResult) -> dict[str, Any]:
    return {
        "file": path,
        "name": outcome.name,
        "passed": outcome.passed,
        "differences": [
            {
                "view": one.view,
                "problem": one.problem,
                "missing": list(one.missing),
                "unexpected": list(one.unexpected),
            }
            for one in outcome.differences
        ],
    }
