"""`headrace pipeline init`: a pipeline file that runs, from what a topic's records look like."""

from __future__ import annotations

from pathlib import Path

import click

from headrace.cli.common.failure import FAILED, CommandError
from headrace.cli.common.login import asked_file
from headrace.cli.common.offset_spec import Kind, Point, resolve
from headrace.cli.common.options import Target, cluster_options
from headrace.cli.common.output import note, plural
from headrace.cli.common.session import run, topic_of
from headrace.cli.topic.consume import poll
from headrace.client.cluster import Cluster
from headrace.client.fetching import FetchLimits, RecordReader
from headrace.client.offsets import offset_ranges
from headrace.client.requests import READ_COMMITTED
from headrace.model.topics import TopicPartition


@click.command("init")
@click.argument("topic")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="[default: NAME.yml]")
@click.option("--name", help="Name of the pipeline.  [default: from the file or the topic]")
@click.option(
    "--records",
    type=click.IntRange(1),
    default=100,
    show_default=True,
    help="Records to look at.",
)
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@cluster_options
def init_pipeline(
    target: Target, topic: str, output: Path | None, name: str | None, records: int, force: bool
) -> None:
    """Write a pipeline file for TOPIC that runs: format and schema are guessed from its latest records.

    \b
    headrace pipeline init orders
    headrace pipeline preview orders.yml
    headrace pipeline run orders.yml
    """
    from headrace.spark.pipelines.definition import PipelineError
    from headrace.spark.pipelines.loading.files import load_pipeline
    from headrace.spark.pipelines.trying.first_file import first_file, pipeline_name
    from headrace.spark.pipelines.trying.inference import guess

    # Two pipelines of one topic need two names: checkpoints and groups are called by them.
    name = name or pipeline_name(topic if output is None else output.stem)
    path = output or Path(f"{name}.yml")
    if path.exists() and not force:
        raise CommandError(f"{path} already exists.", FAILED, "Use --output or --force.")
    values = run(target, lambda cluster: latest_values(cluster, topic, records))
    found = guess(values)
    bootstrap = ",".join(map(str, target.bootstrap))
    _write(path, first_file(topic, found, bootstrap, name))
    try:
        load_pipeline(path)
    except PipelineError as error:
        raise CommandError(str(error), FAILED) from None
    note(f"Wrote {path}: {_described(found.format, len(found.fields), len(values), found.malformed)}.")
    login = f" --client-config {asked}" if (asked := asked_file()) is not None else ""
    note(f"Next: `headrace pipeline preview {path}{login}`, then `headrace pipeline run {path}{login}`.")


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"Cannot write {path}: {error.strerror}.") from None


def _described(format: str, columns: int, records: int, malformed: int) -> str:
    said = f"{format} with {plural(columns, 'column')}" if format == "json" else format
    if not records:
        return f"{said}, because the topic has no records yet"
    said = f"{said}, from {plural(records, 'record')}"
    return f"{said}, {malformed} of them not JSON" if malformed else said


async def latest_values(cluster: Cluster, topic: str, count: int) -> list[bytes | None]:
    """The values of the latest records, spread evenly over the partitions."""
    places = [TopicPartition(topic, one.number) for one in (await topic_of(cluster, topic)).partitions]
    ranges = await offset_ranges(cluster, places, READ_COMMITTED)
    each = -(-count // len(places))
    begin = await resolve(cluster, Point(Kind.BEFORE_END, each), ranges)
    begin = {one: offset for one, offset in begin.items() if offset < ranges[one][1]}
    reader = RecordReader(cluster, begin, FetchLimits(isolation=READ_COMMITTED))
    values: list[bytes | None] = []
    while reader.positions and len(values) < count:
        for fetched in await poll(reader):
            values += [record.value for record in fetched.records()]
            if fetched.next_offset >= ranges[fetched.partition][1]:
                reader.drop(fetched.partition)
    return values[:count]
