"""`headrace kafka-leader-election`: Kafka's tool for electing leaders, its flags and its output."""

from __future__ import annotations

import json
from pathlib import Path

import click

from headrace.cli.common.failure import FAILED, CommandError
from headrace.cli.common.options import Target, cluster_options
from headrace.cli.common.session import run
from headrace.cli.kafka_tools.shared import exactly_one, ignored
from headrace.cli.partition.planning import named_partitions
from headrace.client.cluster import Cluster
from headrace.client.errors import Outcome
from headrace.client.reassigning import PREFERRED, UNCLEAN, elect_leaders
from headrace.model.errors import ErrorCode
from headrace.model.topics import TopicPartition

ELECTIONS = {"preferred": PREFERRED, "unclean": UNCLEAN}


@click.command("kafka-leader-election")
@click.option("--election-type", required=True, type=click.Choice(list(ELECTIONS), case_sensitive=False))
@click.option("--topic")
@click.option("--partition", type=int)
@click.option("--path-to-json-file", "path", metavar="FILE")
@click.option("--all-topic-partitions", "everything", is_flag=True)
@ignored("--admin.config", "--command-config")
@cluster_options
def kafka_leader_election(
    target: Target,
    election_type: str,
    topic: str | None,
    partition: int | None,
    path: str | None,
    everything: bool,
) -> None:
    """Kafka's tool for electing leaders: preferred or unclean."""
    exactly_one(
        {
            "--topic": topic is not None,
            "--path-to-json-file": path is not None,
            "--all-topic-partitions": everything,
        }
    )
    if (topic is None) != (partition is None):
        raise click.UsageError("--topic and --partition must be given together.")
    names = None
    if path is not None:
        names = _partitions(path)
    elif topic is not None:
        names = [f"{topic}:{partition}"]

    async def work(cluster: Cluster) -> dict[TopicPartition, Outcome]:
        asked = None if names is None else (await named_partitions(cluster, names))[1]
        return await elect_leaders(cluster, asked, ELECTIONS[election_type])

    _report(run(target, work), election_type.upper())


def _partitions(path: str) -> list[str]:
    """From {"partitions": [{"topic": "foo", "partition": 1}]}."""
    try:
        rows = json.loads(Path(path).read_text())["partitions"]
        return [f"{row['topic']}:{int(row['partition'])}" for row in rows]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CommandError(
            f"{path} names no partitions: {error}.",
            advice='Write {"partitions": [{"topic": "t", "partition": 0}]}.',
        ) from None


def _report(outcomes: dict[TopicPartition, Outcome], election: str) -> None:
    elected = [name for name, error in outcomes.items() if error is None]
    there = [name for name, error in outcomes.items() if error and error.code is ErrorCode.ELECTION_NOT_NEEDED]
    if elected:
        click.echo(f"Successfully completed leader election ({election}) for partitions {_names(elected)}")
    if there:
        click.echo(f"Valid replica already elected for partitions {_names(there)}")
    failed = {name: error for name, error in outcomes.items() if error and name not in there}
    for name, error in failed.items():
        text = f"{error.code.name}: {error.message}"
        click.echo(f"Error completing leader election ({election}) for partition: {name}: {text}")
    if failed:
        raise CommandError(f"{len(failed)} replica(s) could not be elected", FAILED)


def _names(partitions: list[TopicPartition]) -> str:
    return ", ".join(str(name) for name in sorted(partitions))
