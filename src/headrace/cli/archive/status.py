"""`headrace archive status`: what is archived of each partition, what happened to each offset, what is left."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.archive.common import archive_argument, cluster_of, open_store, told_errors
from headrace.cli.common.failure import FAILED, CommandError
from headrace.cli.common.options import Target, cluster_options, format_option
from headrace.cli.common.output import PEOPLE, Column, count, emit_rows, note, number, plural, size_text, warn

if TYPE_CHECKING:
    from headrace.model.topics import TopicPartition
    from headrace.spark.archive.manifest import ArchivedRange, Manifest

COLUMNS = (
    Column("topic", "TOPIC"),
    number("partition", "PARTITION"),
    number("start", "FROM"),
    number("end", "TO"),
    count("rows", "RECORDS"),
    count("markers", "MARKERS"),
    count("aborted", "ABORTED"),
    count("compacted", "COMPACTED"),
    count("lost", "LOST"),
    count("files", "FILES"),
    number("size", "SIZE"),
    count("lag", "NOT YET"),
)


@click.command()
@archive_argument
@click.option("--offline", is_flag=True, help="Do not ask the cluster how much remains to be archived.")
@format_option
@cluster_options
def status(target: Target, archive: str, offline: bool, format: str) -> None:
    """Show what ARCHIVE holds of each partition.

    FROM and TO are offsets; each of them is a record in a file, a marker of a transaction, a record of an aborted
    one, compacted away, or lost to retention before it was archived. Exit code 1 if offsets are missing.
    """
    with told_errors():
        store = open_store(archive)
        from headrace.spark.archive.manifest import load

        manifest = load(store)
        ends = {} if offline else _ends(target, manifest)
        problems = list(manifest.problems())
    rows = _rows(manifest, ends)
    if format in PEOPLE:
        shown = [{**row, "size": size_text(row["size"])} for row in rows]
        emit_rows(shown, COLUMNS, format, f"Nothing is archived yet. Run: headrace archive run {archive}")
        time = manifest.last.time if manifest.last else "never"
        note(f"{plural(sum(row['rows'] for row in rows), 'record')}; last run that found new records: {time}.")
    else:
        emit_rows(rows, COLUMNS, format)
    lost = sum(row["lost"] for row in rows)
    if lost:
        warn(f"{plural(lost, 'offset')} were deleted before they were archived.")
    if problems:
        raise CommandError("The archive is damaged or incomplete:\n" + "\n".join(problems), FAILED)


def _ends(target: Target, manifest: Manifest) -> dict[TopicPartition, int]:
    from headrace.model.topics import TopicPartition
    from headrace.spark.archive.archiving import check_cluster, chosen_topics
    from headrace.spark.archive.asking import committed_bounds

    with cluster_of(target) as cluster:
        check_cluster(cluster, manifest.description)
        topics = chosen_topics(cluster, manifest.description)
        places = [TopicPartition(name, one) for name, info in topics.items() for one in sorted(info.leaders)]
        return {place: end for place, (_, end) in committed_bounds(cluster, places).items()}


def _rows(manifest: Manifest, ends: Mapping[TopicPartition, int]) -> list[dict[str, Any]]:
    ranges: dict[TopicPartition, list[ArchivedRange]] = {place: [] for place in ends}
    for one in manifest.ranges:
        ranges.setdefault(one.place, []).append(one)
    return [
        {
            "topic": place.topic,
            "partition": place.partition,
            "start": mine[0].start if mine else None,
            "end": mine[-1].end if mine else None,
            **{name: sum(getattr(one, name) for one in mine) for name in COUNTS},
            "files": sum(len(one.files) for one in mine),
            "size": sum(one.size for one in mine),
            "lag": ends[place] - (mine[-1].end if mine else 0) if place in ends else None,
        }
        for place, mine in sorted(ranges.items())
    ]


COUNTS = ("rows", "markers", "aborted", "compacted", "lost")
