"""`headrace archive create`: declares what an archive holds. Nothing is archived yet."""

from __future__ import annotations

import re
import uuid
from datetime import UTC, datetime

import click

from headrace.cli.archive.common import archive_argument, cluster_of, open_store, told_errors
from headrace.cli.common.errors import missing_topic
from headrace.cli.common.options import Target, cluster_options, complete_topics, size
from headrace.cli.common.output import note, plural

CODECS = ("zstd", "snappy", "gzip", "lz4", "none")
SMALLEST_FILE = 1_000_000


@click.command()
@archive_argument
@click.argument("topics", nargs=-1, metavar="[TOPIC]...", shell_complete=complete_topics)
@click.option(
    "--pattern", default="", metavar="REGEX", help="Topics whose whole name matches, including later ones."
)
@click.option(
    "--file-size",
    "file_bytes",
    type=size,
    default="128MiB",
    show_default=True,
    help="Approximate size of the records in a file, before compression.",
)
@click.option("-z", "--compression", type=click.Choice(CODECS), default="zstd", show_default=True)
@cluster_options
def create(
    target: Target, archive: str, topics: tuple[str, ...], pattern: str, file_bytes: int, compression: str
) -> None:
    """Create an archive in the folder ARCHIVE, or at an address such as s3://bucket/folder.

    \b
    headrace archive create backup orders payments
    headrace archive create s3://bucket/all --pattern 'shop\\..*'
    """
    if not topics and not pattern:
        raise click.UsageError("Give topics or a --pattern.")
    _check_pattern(pattern)
    if file_bytes < SMALLEST_FILE:
        raise click.UsageError(f"--file-size must be at least {SMALLEST_FILE // 1_000_000}MB.")
    with told_errors():
        store = open_store(archive)
        from headrace.spark.archive.archiving import chosen_topics
        from headrace.spark.archive.asking import cluster_id
        from headrace.spark.archive.manifest import Description
        from headrace.spark.archive.manifest import create as write

        with cluster_of(target) as cluster:
            description = Description(
                id=str(uuid.uuid4()),
                created=datetime.now(UTC).isoformat(timespec="seconds"),
                cluster_id=cluster_id(cluster),
                topics=topics,
                pattern=pattern,
                file_bytes=file_bytes,
                codec=compression,
            )
            there = chosen_topics(cluster, description)
            for name in topics:
                if name not in there:
                    raise missing_topic(name, list(cluster.topics()))
        write(store, description)
    note(f"Created an archive of {plural(len(there), 'topic')} in {archive}.")
    note(f"Fill it with: headrace archive run {archive}")


def _check_pattern(pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise click.BadParameter(f"{pattern!r} is not a valid pattern: {error}", param_hint="--pattern") from None
