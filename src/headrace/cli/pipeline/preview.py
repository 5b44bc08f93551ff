"""`headrace pipeline preview`: some rows of any source or step, over recent records; nothing is written."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.common.failure import NOT_FOUND, CommandError
from headrace.cli.common.options import bootstrap_override, client_config_option, format_option
from headrace.cli.common.output import Column, emit_rows, note, plural
from headrace.cli.pipeline.briefly import brief_spark, good_pipelines
from headrace.cli.pipeline.check import check_topics_of, command_settings, require_spark

if TYPE_CHECKING:
    from headrace.spark.pipelines.compiling.views import Views
    from headrace.spark.pipelines.definition import Pipeline


@click.command("preview")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.argument("name", required=False)
@click.option("-n", "--rows", type=click.IntRange(1), default=10, show_default=True, help="How many rows to show.")
@click.option(
    "--records",
    type=click.IntRange(1),
    default=1000,
    show_default=True,
    help="How many of the latest records of each source to read.",
)
@format_option
@bootstrap_override
@client_config_option
def preview_pipeline(
    file: Path, name: str | None, rows: int, records: int, format: str, bootstrap: str | None
) -> None:
    """Show rows of the source or step NAME of a pipeline FILE, without writing anything.

    Without NAME: what the first sink would write. The latest records are read as one batch, so that windows show
    what they have so far.

    \b
    headrace pipeline preview orders.yml
    headrace pipeline preview orders.yml revenue -n 3 --format json
    """
    require_spark()
    (pipeline,) = good_pipelines([file])
    wanted = _view(pipeline, name)
    address = check_topics_of(pipeline, bootstrap)
    found, columns, malformed = _rows(pipeline, wanted, address, rows, records)
    emit_rows(found, [Column(one, one) for one in columns], format, f"{wanted} has no rows.")
    functions = {step.name: step.text for step in pipeline.steps}
    for part, (count, reason) in malformed.items():
        if part in functions:
            note(f"{functions[part]} failed for {plural(count, 'row')} of step {part}: {reason}.")
        else:
            note(f"{plural(count, 'record')} of source {part} could not be decoded: {reason}.")


def _view(pipeline: Pipeline, name: str | None) -> str:
    if name is None:
        return pipeline.sinks[0].input
    names = [part.name for part in pipeline.views]
    sinks = {sink.name: sink.input for sink in pipeline.sinks}
    if name in names or name in sinks:
        return name if name in names else sinks[name]
    existing = ", ".join(dict.fromkeys([*names, *sinks]))
    raise CommandError(f"{pipeline.path} has no source, step or sink {name}.", NOT_FOUND, f"It has {existing}.")


def _rows(
    pipeline: Pipeline, wanted: str, bootstrap: str, rows: int, records: int
) -> tuple[list[dict[str, Any]], list[str], dict[str, tuple[int, str]]]:
    """The rows, the names of the columns, and for each source or step how much was malformed."""
    from headrace.spark.client.cluster import BlockingCluster
    from headrace.spark.pipelines.compiling.views import compile_views
    from headrace.spark.pipelines.trying.openings import RecentOpening
    from headrace.spark.pipelines.trying.running_cases import drop_views
    from headrace.spark.pipelines.trying.shown_rows import shown_columns, shown_rows

    settings = command_settings(pipeline, bootstrap)
    with brief_spark(pipeline) as session, closing(BlockingCluster(settings)) as cluster:
        opening = RecentOpening(session, cluster, bootstrap, records)
        try:
            made = compile_views(session, pipeline, opening, [wanted])
            view = made.views[wanted]
            return shown_rows(view, rows), shown_columns(view), _malformed(pipeline, wanted, opening, made)
        finally:
            drop_views(session, pipeline)


def _malformed(pipeline: Pipeline, wanted: str, opening: Any, made: Views) -> dict[str, tuple[int, str]]:
    from headrace.spark.pipelines.compiling.queries import has_dead_letters
    from headrace.spark.pipelines.compiling.sources import malformed_records
    from headrace.spark.pipelines.definition import Source
    from headrace.spark.pipelines.formats.decoding import REASON
    from headrace.spark.pipelines.graph import upstream

    found = {}
    for part in upstream(pipeline, wanted):
        if isinstance(part, Source):
            left_out = malformed_records(opening, part) if has_dead_letters(part) else None
        else:
            left_out = made.malformed.get(part.name)
        reasons = [] if left_out is None else [row[0] for row in left_out.select(REASON).collect()]
        if reasons:
            found[part.name] = (len(reasons), str(reasons[0]))
    return found
