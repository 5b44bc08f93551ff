"""`headrace kafka-get-offsets`: Kafka's tool for offsets; prints `topic:partition:offset`."""

from __future__ import annotations

import re
from collections.abc import Callable

import click

from headrace.cli.common.options import Target, cluster_options
from headrace.cli.common.session import run
from headrace.cli.kafka_tools.shared import ignored
from headrace.cli.kafka_tools.topics import matching
from headrace.client.cluster import Cluster
from headrace.client.offsets import EARLIEST, LATEST, MAX_TIMESTAMP, FoundOffset, list_offsets
from headrace.model.topics import TopicPartition

_TIMES = {"latest": LATEST, "earliest": EARLIEST, "max-timestamp": MAX_TIMESTAMP}
Choice = tuple[str | None, Callable[[int], bool]]
_CHOICE = re.compile(r"([^:]*)(?::(\d*)(-(\d*))?)?")


@click.command("kafka-get-offsets")
@click.option("--topic", help="Regular expression.  [default: all topics]")
@click.option("--partitions", default="", metavar="0,1,...")
@click.option("--topic-partitions", default="", metavar="TOPIC:0,TOPIC:2-5,...", help="Ranges exclude the end.")
@click.option(
    "--time", "moment", default="latest", show_default=True, help="latest, earliest, max-timestamp or ms."
)
@click.option("--exclude-internal-topics", is_flag=True)
@ignored("--command-config")
@cluster_options
def kafka_get_offsets(
    target: Target,
    topic: str | None,
    partitions: str,
    topic_partitions: str,
    moment: str,
    exclude_internal_topics: bool,
) -> None:
    """Kafka's tool for offsets."""
    if topic_partitions and (topic or partitions):
        raise click.UsageError("--topic-partitions cannot be combined with --topic or --partitions.")
    try:
        time = _TIMES[moment] if moment in _TIMES else int(moment)
        numbers = {int(one) for one in partitions.split(",") if one.strip()}
    except ValueError:
        raise click.UsageError(
            "--time must be latest, earliest, max-timestamp or a number, and partitions must be numbers."
        ) from None
    choices: list[Choice] = [_choice(part) for part in topic_partitions.split(",") if part]
    if not choices:
        choices.append((topic, lambda number: not numbers or number in numbers))

    async def work(cluster: Cluster) -> dict[TopicPartition, FoundOffset]:
        wanted = {
            TopicPartition(one.name, partition.number): time
            for pattern, wants in choices
            for one in await matching(cluster, pattern, exclude_internal_topics)
            for partition in one.partitions
            if wants(partition.number)
        }
        return await list_offsets(cluster, wanted) if wanted else {}

    for partition, found in sorted(run(target, work).items()):
        if found.offset >= 0:
            click.echo(f"{partition.topic}:{partition.partition}:{found.offset}")


def _choice(text: str) -> Choice:
    match = _CHOICE.fullmatch(text.strip())
    if match is None:
        raise click.UsageError(f"--topic-partitions {text!r} is not of the form topic:0 or topic:2-5")
    name, first, span, last = match[1] or None, match[2], match[3], match[4]
    if span is None:
        return name, (lambda number: True) if not first else (lambda number: number == int(first))
    low, high = int(first or 0), int(last) if last else None
    return name, lambda number: number >= low and (high is None or number < high)
