"""`headrace kafka-topics`: Kafka's topic tool, its flags and its output."""

from __future__ import annotations

import re

import click

from headrace.cli.common.failure import CommandError
from headrace.cli.common.options import Target, cluster_options, parse_pairs
from headrace.cli.common.output import note, warn
from headrace.cli.common.session import conclude, run, topics_of
from headrace.cli.kafka_tools.shared import exactly_one, ignored
from headrace.cli.topic.admin import KEYS_MOVE, grow, make_topics
from headrace.client.admin import (
    BROKER_DEFAULT,
    ConfigResource,
    NewTopic,
    delete_topics,
    describe_configs,
)
from headrace.client.cluster import Cluster
from headrace.client.reassigning import with_moves
from headrace.client.view import NO_LEADER, PartitionView, TopicView
from headrace.model.config_resources import ResourceType
from headrace.model.errors import ErrorCode
from headrace.model.topics import topic_id_text


@click.command("kafka-topics")
@click.option("--create", is_flag=True)
@click.option("--list", "list_all", is_flag=True)
@click.option("--describe", is_flag=True)
@click.option("--alter", is_flag=True)
@click.option("--delete", is_flag=True)
@click.option("--topic", help="Name; except with --create and --alter, a regular expression.")
@click.option("--partitions", type=click.IntRange(min=1))
@click.option("--replication-factor", type=click.IntRange(min=1))
@click.option("--replica-assignment", metavar="0:1,1:2,...", help="Brokers of each partition.")
@click.option("--config", "configs", multiple=True, metavar="KEY=VALUE")
@click.option("--if-not-exists", is_flag=True)
@click.option("--if-exists", is_flag=True)
@click.option("--exclude-internal", is_flag=True)
@click.option("--under-replicated-partitions", is_flag=True)
@click.option("--unavailable-partitions", is_flag=True)
@ignored("--command-config")
@cluster_options
def kafka_topics(
    target: Target,
    create: bool,
    list_all: bool,
    describe: bool,
    alter: bool,
    delete: bool,
    topic: str | None,
    partitions: int | None,
    replication_factor: int | None,
    replica_assignment: str | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
    if_exists: bool,
    exclude_internal: bool,
    under_replicated_partitions: bool,
    unavailable_partitions: bool,
) -> None:
    """Kafka's topic tool: --create, --list, --describe, --alter or --delete."""
    actions = {
        "--create": create,
        "--list": list_all,
        "--describe": describe,
        "--alter": alter,
        "--delete": delete,
    }
    action = exactly_one(actions)
    if topic is None and action in ("--create", "--alter", "--delete"):
        raise click.UsageError(f"{action} needs --topic.")
    if action == "--create":
        wanted = NewTopic(
            topic or "",
            BROKER_DEFAULT if replica_assignment else partitions or BROKER_DEFAULT,
            BROKER_DEFAULT if replica_assignment else replication_factor or BROKER_DEFAULT,
            parse_pairs(configs, "--config"),
            _assignment(replica_assignment),
        )
        _create(target, wanted, if_not_exists)
    elif action == "--list":
        _list(target, topic, exclude_internal)
    elif action == "--describe":
        shown = _Shown(under_replicated_partitions, unavailable_partitions, if_exists)
        _describe(target, topic, exclude_internal, shown)
    elif action == "--alter":
        if partitions is None:
            raise click.UsageError("--alter needs --partitions; settings change with kafka-configs.")
        run(target, lambda cluster: _grow(cluster, topic or "", partitions))
    else:
        _delete(target, topic or "", if_exists)


class _Shown:
    def __init__(self, under_replicated: bool, unavailable: bool, if_exists: bool) -> None:
        self.all = not (under_replicated or unavailable)
        self.under_replicated = under_replicated
        self.unavailable = unavailable
        self.if_exists = if_exists

    def wants(self, one: PartitionView) -> bool:
        lagging = self.under_replicated and one.under_replicated
        return self.all or lagging or (self.unavailable and one.leader == NO_LEADER)


def _assignment(text: str | None) -> list[list[int]]:
    try:
        return [[int(broker) for broker in part.split(":")] for part in text.split(",")] if text else []
    except ValueError:
        raise click.UsageError(f"--replica-assignment {text!r} is not of the form 0:1,1:2") from None


def _create(target: Target, wanted: NewTopic, if_not_exists: bool) -> None:
    outcomes = run(target, lambda cluster: make_topics(cluster, [wanted]))
    error = outcomes[wanted.name]
    if error is not None and error.code == ErrorCode.TOPIC_ALREADY_EXISTS and if_not_exists:
        return
    conclude(outcomes)
    click.echo(f"Created topic {wanted.name}.")


async def _grow(cluster: Cluster, topic: str, total: int) -> None:
    await topics_of(cluster, [topic])
    warn(KEYS_MOVE)
    await grow(cluster, topic, total)


async def matching(cluster: Cluster, pattern: str | None, exclude_internal: bool = False) -> list[TopicView]:
    topics = (await with_moves(cluster, await cluster.metadata())).topics.values()
    try:
        wanted = re.compile(pattern or ".*")
    except re.error as error:
        raise CommandError(f"--topic {pattern!r} is not a valid regular expression: {error}.", 2) from None
    found = [one for one in topics if wanted.fullmatch(one.name) and not (exclude_internal and one.internal)]
    if not found and pattern is not None:
        await topics_of(cluster, [pattern])  # raises, with the nearest name
    return found


def _list(target: Target, pattern: str | None, exclude_internal: bool) -> None:
    async def work(cluster: Cluster) -> list[TopicView]:
        topics = (await cluster.metadata()).topics.values()
        wanted = re.compile(pattern or ".*")
        return [one for one in topics if wanted.fullmatch(one.name) and not (exclude_internal and one.internal)]

    for topic in run(target, work):
        click.echo(topic.name)


def _describe(target: Target, pattern: str | None, exclude_internal: bool, shown: _Shown) -> None:
    async def work(cluster: Cluster) -> list[str]:
        try:
            topics = await matching(cluster, pattern, exclude_internal)
        except CommandError:
            if shown.if_exists:
                return []
            raise
        return [line for topic in topics for line in await _lines(cluster, topic, shown)]

    for line in run(target, work):
        click.echo(line)


async def _lines(cluster: Cluster, topic: TopicView, shown: _Shown) -> list[str]:
    lines = []
    if shown.all:
        entries = await describe_configs(cluster, ConfigResource(ResourceType.TOPIC, topic.name))
        settings = ",".join(f"{entry.name}={entry.value}" for entry in entries if not entry.is_default)
        lines.append(
            f"Topic: {topic.name}\tTopicId: {topic_id_text(topic.id)}\tPartitionCount: {len(topic.partitions)}"
            f"\tReplicationFactor: {topic.replication_factor}\tConfigs: {settings}"
        )
    for one in topic.partitions:
        if shown.wants(one):
            leader = "none" if one.leader == NO_LEADER else one.leader
            replicas, in_sync = (",".join(map(str, ids)) for ids in (one.replicas, one.in_sync))
            lines.append(
                f"\tTopic: {topic.name}\tPartition: {one.number}\tLeader: {leader}"
                f"\tReplicas: {replicas}\tIsr: {in_sync}\tElr: \tLastKnownElr: "
            )
    return lines


def _delete(target: Target, pattern: str, if_exists: bool) -> None:
    async def work(cluster: Cluster) -> list[str]:
        try:
            names = [topic.name for topic in await matching(cluster, pattern)]
        except CommandError:
            if if_exists:
                return []
            raise
        conclude(await delete_topics(cluster, names))
        return names

    for name in run(target, work):
        note(f"Deleted topic {name}.")
