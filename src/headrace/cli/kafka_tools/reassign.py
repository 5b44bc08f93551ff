"""`headrace kafka-reassign-partitions`: Kafka's tool for moving partitions, its flags, files and output."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from headrace.cli.common.errors import explain_kafka
from headrace.cli.common.failure import FAILED, CommandError
from headrace.cli.common.options import Target, cluster_options
from headrace.cli.common.session import run
from headrace.cli.kafka_tools.shared import exactly_one, ignored
from headrace.cli.partition import throttle as throttling
from headrace.cli.partition.move import broker_list
from headrace.cli.partition.planning import (
    Move,
    assignment,
    named_partitions,
    places,
    plan_text,
    read_plan,
)
from headrace.client.cluster import Cluster
from headrace.client.errors import Outcome
from headrace.client.reassigning import alter_reassignments, list_reassignments
from headrace.metadata.balancing import Replicas, balance
from headrace.model.errors import ErrorCode
from headrace.model.topics import TopicPartition

Plan = Mapping[TopicPartition, Replicas]
NO_THROTTLE = -1


@click.command("kafka-reassign-partitions")
@click.option("--generate", is_flag=True)
@click.option("--execute", is_flag=True)
@click.option("--verify", is_flag=True)
@click.option("--cancel", is_flag=True)
@click.option("--list", "listing", is_flag=True)
@click.option("--reassignment-json-file", "path", metavar="FILE")
@click.option("--topics-to-move-json-file", "topics_path", metavar="FILE")
@click.option("--broker-list", type=broker_list, metavar="1,2,3")
@click.option("--throttle", type=int, default=NO_THROTTLE, metavar="BYTES/S")
@click.option("--preserve-throttles", is_flag=True)
@click.option("--additional", is_flag=True)
@click.option("--disallow-replication-factor-change", "keeps_factor", is_flag=True)
@ignored("--command-config", "--replica-alter-log-dirs-throttle")
@ignored("--disable-rack-aware", flag=True)
@cluster_options
def kafka_reassign_partitions(
    target: Target,
    generate: bool,
    execute: bool,
    verify: bool,
    cancel: bool,
    listing: bool,
    path: str | None,
    topics_path: str | None,
    broker_list: Replicas | None,
    throttle: int,
    preserve_throttles: bool,
    additional: bool,
    keeps_factor: bool,
) -> None:
    """Kafka's tool for moving partitions: --generate, --execute, --verify, --cancel or --list."""
    action = exactly_one(
        {
            "--generate": generate,
            "--execute": execute,
            "--verify": verify,
            "--cancel": cancel,
            "--list": listing,
        }
    )
    if action == "--list":
        lines = run(target, _listed)
    elif action == "--generate":
        if topics_path is None or broker_list is None:
            raise click.UsageError("--generate needs --topics-to-move-json-file and --broker-list.")
        topics = _topics(topics_path)
        lines = run(target, lambda cluster: _generated(cluster, topics, broker_list))
    else:
        if path is None:
            raise click.UsageError(f"{action} needs --reassignment-json-file.")
        plan = read_plan(path)
        if action == "--verify":
            lines = run(target, lambda cluster: _verified(cluster, plan, preserve_throttles))
        elif action == "--cancel":
            lines = run(target, lambda cluster: _cancelled(cluster, plan, preserve_throttles))
        else:
            lines = run(target, lambda cluster: _executed(cluster, plan, throttle, additional, keeps_factor))
    for line in lines:
        click.echo(line)


def _topics(path: str) -> list[str]:
    """From {"topics": [{"topic": "foo"}], "version": 1}."""
    try:
        return [row["topic"] for row in json.loads(Path(path).read_text())["topics"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CommandError(
            f"{path} names no topics: {error}.", advice='Write {"version": 1, "topics": [{"topic": "t"}]}.'
        ) from None


async def _listed(cluster: Cluster) -> list[str]:
    moving = await list_reassignments(cluster)
    if not moving:
        return ["No partition reassignments found."]
    lines = ["Current partition reassignments:"]
    for name, state in sorted(moving.items()):
        line = f"{name}: replicas: {_ids(state.replicas)}."
        line += f" adding: {_ids(state.adding)}." if state.adding else ""
        lines.append(line + (f" removing: {_ids(state.removing)}." if state.removing else ""))
    return lines


async def _generated(cluster: Cluster, topics: Sequence[str], brokers: Replicas) -> list[str]:
    view, names = await named_partitions(cluster, topics)
    there = assignment(view)
    now = {name: there[name] for name in names}
    allowed = {id: place for id, place in places(view).items() if id in brokers}
    if unknown := [broker for broker in brokers if broker not in allowed]:
        raise CommandError(f"There is no broker {unknown[0]} in the cluster.")
    if any(len(replicas) > len(allowed) for replicas in now.values()):
        raise CommandError("There are fewer brokers in --broker-list than replicas.")
    proposed = {**now, **balance(allowed, now)}
    return [
        "Current partition replica assignment",
        plan_text(now),
        "",
        "Proposed partition reassignment configuration",
        plan_text(proposed),
    ]


async def _executed(cluster: Cluster, plan: Plan, rate: int, additional: bool, keeps_factor: bool) -> list[str]:
    view, _ = await named_partitions(cluster, [f"{name.topic}:{name.partition}" for name in plan])
    if not additional and await list_reassignments(cluster):
        raise CommandError(
            "Cannot execute because there is an existing partition assignment.",
            advice="Use --additional to override this and create a new partition assignment in addition to it.",
        )
    there = assignment(view)
    now = {name: there[name] for name in plan}
    if keeps_factor and (other := [name for name, to in plan.items() if len(to) != len(now[name])]):
        raise CommandError(f"The replication factor of {other[0]} may not change.")
    lines = ["Current partition replica assignment", "", plan_text(now), ""]
    lines.append("Save this to use as the --reassignment-json-file option during rollback")
    if rate != NO_THROTTLE:
        await throttling.limit(cluster, [Move(name, now[name], to, 0) for name, to in plan.items()], rate)
        lines += [
            "Warning: You must run --verify periodically, until the reassignment completes, to ensure the "
            "throttle is removed.",
            f"The inter-broker throttle limit was set to {rate} B/s",
        ]
    _refuse(await alter_reassignments(cluster, plan))
    plural = "s" if len(plan) > 1 else ""
    lines.append(f"Successfully started partition reassignment{plural} for {_names(plan)}")
    return lines


async def _verified(cluster: Cluster, plan: Plan, preserve_throttles: bool) -> list[str]:
    moving = await list_reassignments(cluster)
    view = await cluster.metadata(dict.fromkeys(name.topic for name in plan))
    there = assignment(view)
    lines = ["Status of partition reassignment:"]
    for name, to in sorted(plan.items()):
        if name in moving:
            lines.append(f"Reassignment of partition {name} is still in progress.")
        elif there.get(name) == to:
            lines.append(f"Reassignment of partition {name} is completed.")
        else:
            now = _ids(there.get(name, ()))
            lines.append(
                f"There is no active reassignment of partition {name}, but replica set is {now} rather than "
                f"{_ids(to)}."
            )
    if not moving and not preserve_throttles:
        lines += ["", *await _cleared(cluster, plan)]
    return lines


async def _cleared(cluster: Cluster, plan: Plan) -> list[str]:
    brokers = ",".join(str(broker) for broker in (await cluster.metadata([])).brokers)
    topics = list(dict.fromkeys(name.topic for name in plan))
    await throttling.lift(cluster, topics)
    return [
        f"Clearing broker-level throttles on brokers {brokers}",
        f"Clearing topic-level throttles on topic{'s' if len(topics) > 1 else ''} {','.join(topics)}",
    ]


async def _cancelled(cluster: Cluster, plan: Plan, preserve_throttles: bool) -> list[str]:
    moving = await list_reassignments(cluster)
    names = [name for name in plan if name in moving]
    if not names:
        lines = ["None of the specified partition reassignments are active."]
    else:
        outcomes = await alter_reassignments(cluster, dict.fromkeys(names))
        gone = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        _refuse({name: error for name, error in outcomes.items() if error is None or error.code is not gone})
        lines = [f"Successfully cancelled partition reassignments for: {_names(names)}"]
    return lines if preserve_throttles else [*lines, *await _cleared(cluster, plan)]


def _refuse(outcomes: Mapping[TopicPartition, Outcome]) -> None:
    failed = [explain_kafka(error, str(name)).message for name, error in outcomes.items() if error is not None]
    if failed:
        raise CommandError("Error reassigning partition(s):\n" + "\n".join(failed), FAILED)


def _ids(replicas: Sequence[int]) -> str:
    return ",".join(str(one) for one in replicas)


def _names(partitions: Plan | Sequence[TopicPartition]) -> str:
    return ",".join(str(name) for name in sorted(partitions))
