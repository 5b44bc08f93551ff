"""`headrace pipeline reset`: the next run of a pipeline starts over, or replays from a point.

The checkpoint is moved aside, not deleted. A point that was asked for is kept beside the run's other files, and
`run` uses it in place of the file's `starting` until the next reset.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.cli.common.failure import FAILED, CommandError
from headrace.cli.common.offset_spec import END, START, Kind, Point, parse_point
from headrace.cli.common.options import bootstrap_override, client_config_option, confirm, yes_option
from headrace.cli.common.output import note, plural, warn
from headrace.cli.pipeline.briefly import good_pipelines
from headrace.cli.pipeline.check import command_settings
from headrace.spark.pipelines.running.run_files import AlreadyRuns, Claim, RunFiles, run_files

if TYPE_CHECKING:
    from headrace.spark.pipelines.definition import Pipeline

START_FILE = "starting.json"
SYNTAX = "earliest, latest, an offset N, -N (the last N of each partition), or @TIME (@-2h, @2026-01-31T12:00)"


def _point(ctx: click.Context, param: click.Parameter, text: str | None) -> Point | None:
    try:
        return None if text is None else parse_point(text, time.time_ns() // 1_000_000, SYNTAX)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None


@click.command("reset")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--to", "point", callback=_point, metavar="WHERE", help=f"Where to start: {SYNTAX}.")
@click.option("--checkpoint", metavar="DIRECTORY", help="The directory given to `run --checkpoint`.")
@yes_option
@bootstrap_override
@client_config_option
def reset_pipeline(
    file: Path, point: Point | None, checkpoint: str | None, yes: bool, bootstrap: str | None
) -> None:
    """Make the next run of pipeline FILE start over, at `starting:` in the file or at the point given with --to.

    The old checkpoint is moved aside. Sinks keep what was written: topics and Parquet files get the rows again.

    \b
    headrace pipeline reset orders.yml                 start where the file says
    headrace pipeline reset orders.yml --to @-2h       replay the last two hours
    """
    (pipeline,) = good_pipelines([file])
    files = run_files(pipeline.name)
    place = _checkpoint(pipeline, files, checkpoint)
    starting = None if point is None else _starting(pipeline, point, bootstrap)
    where = "where the file says" if point is None else _in_words(point)
    if point is None and not place.exists() and not (files.directory / START_FILE).exists():
        note(f"Pipeline {pipeline.name} has no checkpoint: its next run starts {where}.")
        return
    confirm(f"The next run of pipeline {pipeline.name} will start {where}. Reset it?", yes)
    try:
        with Claim(files):
            moved = _move_aside(place)
            _write_starting(files, starting)
            if facts := files.read():
                files.write({**facts, "queries": [], "totals": {}})
    except AlreadyRuns as error:
        advice = f"Stop it with `headrace pipeline stop {pipeline.name}`."
        raise CommandError(f"P{str(error)[1:]}.", FAILED, advice) from None
    except OSError as error:
        raise CommandError(f"Cannot move {place} aside: {error.strerror}.") from None
    note(f"Reset pipeline {pipeline.name}: its next run starts {where}.")
    if moved:
        note(f"The old checkpoint is {moved}.")


def _in_words(point: Point) -> str:
    if point in (START, END):
        return "at the first record" if point == START else "at the end"
    return {
        Kind.TIME: f"at {_moment(point)}",
        Kind.OFFSET: f"at offset {point.value}",
        Kind.AFTER_START: f"{plural(point.value, 'record')} after the first one of each partition",
        Kind.BEFORE_END: f"at the last {plural(point.value, 'record')} of each partition",
    }[point.kind]


def _moment(point: Point) -> str:
    moment = datetime.fromtimestamp(point.value / 1000, UTC).isoformat(timespec="milliseconds")
    return moment.replace("+00:00", "Z")


def _checkpoint(pipeline: Pipeline, files: RunFiles, given: str | None) -> Path:
    shared = given or pipeline.checkpoint
    if shared is None:
        return files.checkpoint
    if "://" in shared and not shared.startswith("file://"):
        raise CommandError(
            f"The checkpoint {shared} is not on this machine.",
            FAILED,
            f"Remove {shared.rstrip('/')}/{pipeline.name} with the tools of that storage.",
        )
    return Path(shared.removeprefix("file://")) / pipeline.name


def _move_aside(place: Path) -> Path | None:
    if not place.exists():
        return None
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    aside = place.with_name(f"{place.name}.reset-{stamp}")
    place.rename(aside)
    return aside


def _write_starting(files: RunFiles, starting: Mapping[str, str] | None) -> None:
    path = files.directory / START_FILE
    if starting is None:
        path.unlink(missing_ok=True)
    else:
        path.write_text(json.dumps(starting))


def replayed(pipelines: Iterable[Pipeline]) -> list[Pipeline]:
    """With the points that `reset --to` left: they count only while there is no checkpoint, as `starting` does."""
    return [_with_starting(pipeline) for pipeline in pipelines]


def _with_starting(pipeline: Pipeline) -> Pipeline:
    try:
        starting = json.loads((run_files(pipeline.name).directory / START_FILE).read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return pipeline
    sources = tuple(
        replace(source, starting=starting[source.name]) if source.name in starting else source
        for source in pipeline.sources
    )
    return replace(pipeline, sources=sources)


def _starting(pipeline: Pipeline, point: Point, bootstrap: str | None) -> dict[str, str]:
    """By source, what its option `startingOffsets` takes."""
    streams = [source for source in pipeline.sources if source.kind == "topics"]
    if not streams:
        raise CommandError(f"{pipeline.path} reads no topic: there is nothing to replay.")
    if point in (START, END):
        return {source.name: "earliest" if point == START else "latest" for source in streams}
    if point.kind is Kind.TIME:
        return {source.name: _moment(point) for source in streams}
    from headrace.spark.pipelines.definition import DEFAULT_BOOTSTRAP

    address = bootstrap or pipeline.bootstrap or DEFAULT_BOOTSTRAP
    if any(source.pattern for source in streams):
        raise CommandError("Offsets need topics by name; this pipeline reads a pattern.", FAILED, "Use @TIME.")
    offsets = _offsets(pipeline, address, [name for source in streams for name in source.topics], point)
    return {source.name: json.dumps({name: offsets[name] for name in source.topics}) for source in streams}


def _offsets(pipeline: Pipeline, bootstrap: str, names: list[str], point: Point) -> dict[str, dict[str, int]]:
    from headrace.cli.common.errors import explain_client, explain_kafka
    from headrace.client.errors import ClientError
    from headrace.model.errors import KafkaError
    from headrace.model.topics import TopicPartition
    from headrace.spark.client.cluster import EARLIEST, LATEST, BlockingCluster

    settings = command_settings(pipeline, bootstrap)
    try:
        with closing(BlockingCluster(settings)) as cluster:
            topics = cluster.topics(names)
            places = [TopicPartition(one, number) for one in names for number in topics[one].leaders]
            first = cluster.list_offsets(dict.fromkeys(places, EARLIEST))
            end = cluster.list_offsets(dict.fromkeys(places, LATEST))
    except KafkaError as error:
        raise explain_kafka(error) from None
    except ClientError as error:
        raise explain_client(error) from None
    if point.kind is Kind.OFFSET and all(one and one.offset < point.value for one in end.values()):
        warn(f"All partitions end before offset {point.value}: only new records will be read.")
    found: dict[str, dict[str, int]] = {}
    for place in places:
        begins, ends = first[place], end[place]
        assert begins is not None
        assert ends is not None
        wanted = {
            Kind.OFFSET: point.value,
            Kind.AFTER_START: begins.offset + point.value,
            Kind.BEFORE_END: ends.offset - point.value,
        }[point.kind]
        inside = min(max(wanted, begins.offset), ends.offset)
        found.setdefault(place.topic, {})[str(place.partition)] = inside
    return found
