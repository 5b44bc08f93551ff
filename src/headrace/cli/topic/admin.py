"""`headrace topic create|alter|add-partitions|trim|delete`: changes to topics."""

from __future__ import annotations

import click

from headrace.cli.common.completing import complete_topic_settings
from headrace.cli.common.errors import explain_kafka
from headrace.cli.common.failure import CommandError
from headrace.cli.common.offset_spec import SYNTAX, Kind, Span, resolve, span_type
from headrace.cli.common.options import (
    Target,
    cluster_options,
    complete_topics,
    confirm,
    format_option,
    parse_pairs,
    topic_argument,
    yes_option,
)
from headrace.cli.common.output import Row, count, emit_rows, note, number, plural, warn
from headrace.cli.common.session import chosen_partitions, conclude, run, topic_of, topics_of, wait_until
from headrace.client.admin import (
    BROKER_DEFAULT,
    ConfigResource,
    NewTopic,
    alter_configs,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
)
from headrace.client.cluster import Cluster
from headrace.client.offsets import offset_ranges
from headrace.model.config_resources import ConfigOperation, ResourceType
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicPartition

KEYS_MOVE = "Records with the same key may now go to a different partition; existing records do not move."


@click.command()
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...")
@click.option(
    "-p", "--partitions", type=click.IntRange(min=1), help="Number of partitions. Default: the broker's."
)
@click.option("-r", "--replication-factor", "--replicas", "replication_factor", type=click.IntRange(min=1))
@click.option(
    "-c",
    "--config",
    "--set",
    "configs",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting; may be repeated.",
    shell_complete=complete_topic_settings,
)
@click.option("--if-not-exists", is_flag=True, help="Do not fail if the topic already exists.")
@click.option("--dry-run", is_flag=True, help="Only check whether it would work.")
@cluster_options
def create(
    target: Target,
    topics: tuple[str, ...],
    partitions: int | None,
    replication_factor: int | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
    dry_run: bool,
) -> None:
    """Create topics."""
    settings = parse_pairs(configs, "--config")
    wanted = [
        NewTopic(name, partitions or BROKER_DEFAULT, replication_factor or BROKER_DEFAULT, settings)
        for name in dict.fromkeys(topics)
    ]
    outcomes = run(target, lambda cluster: make_topics(cluster, wanted, dry_run))
    for name, error in outcomes.items():
        if error is None:
            note(f"{'Would create' if dry_run else 'Created'} topic {name}.")
        elif error.code == ErrorCode.TOPIC_ALREADY_EXISTS and if_not_exists:
            note(f"Topic {name} already exists.")
            outcomes[name] = None
    conclude(outcomes)


async def make_topics(
    cluster: Cluster, topics: list[NewTopic], dry_run: bool = False
) -> dict[str, KafkaError | None]:
    """Create topics and wait until they can be used."""
    outcomes = await create_topics(cluster, topics, dry_run)
    made = [name for name, error in outcomes.items() if error is None]
    if made and not dry_run:
        await wait_until(
            cluster,
            lambda view: all(
                name in view.topics and all(one.leader >= 0 for one in view.topics[name].partitions)
                for name in made
            ),
            made,
            f"Creating {', '.join(made)}",
        )
    return {topic.name: outcomes[topic.name] for topic in topics}


@click.command()
@topic_argument
@click.option(
    "-s",
    "--set",
    "--config",
    "sets",
    multiple=True,
    metavar="KEY=VALUE",
    help="May be repeated.",
    shell_complete=complete_topic_settings,
)
@click.option(
    "-d",
    "--delete",
    "--unset",
    "unsets",
    multiple=True,
    metavar="KEY",
    help="Reset to the default; may be repeated.",
    shell_complete=complete_topic_settings,
)
@click.option("--dry-run", is_flag=True, help="Only check whether it would work.")
@cluster_options
def alter(target: Target, topic: str, sets: tuple[str, ...], unsets: tuple[str, ...], dry_run: bool) -> None:
    """Change settings of TOPIC; others keep their values."""
    changes = changes_of(sets, unsets)

    async def work(cluster: Cluster) -> None:
        await topic_of(cluster, topic)
        try:
            await alter_configs(cluster, ConfigResource(ResourceType.TOPIC, topic), changes, dry_run)
        except KafkaError as error:
            raise explain_kafka(error, f"topic {topic}") from None

    run(target, work)
    note(f"{'Would change' if dry_run else 'Changed'} {plural(len(changes), 'setting')} of {topic}.")


def changes_of(sets: tuple[str, ...], unsets: tuple[str, ...]) -> list[tuple[str, ConfigOperation, str | None]]:
    changes: list[tuple[str, ConfigOperation, str | None]] = [
        (name, ConfigOperation.SET, value) for name, value in parse_pairs(sets, "--set").items()
    ]
    changes += [(name, ConfigOperation.DELETE, None) for name in unsets]
    if not changes:
        raise click.UsageError("Name what to change: --set KEY=VALUE or --delete KEY.")
    return changes


@click.command("add-partitions")
@topic_argument
@click.option("-n", "--count", type=click.IntRange(min=1), help="Number of partitions to add.")
@click.option("-t", "--total", type=click.IntRange(min=1), help="Number of partitions afterwards.")
@yes_option
@click.option("--dry-run", is_flag=True, help="Only check whether it would work.")
@cluster_options
def add_partitions(
    target: Target, topic: str, count: int | None, total: int | None, yes: bool, dry_run: bool
) -> None:
    """Add partitions to TOPIC. Keys will map to other partitions; existing records do not move."""
    if (count is None) == (total is None):
        raise click.UsageError("Give one of --count (how many more) and --total (how many in all).")

    async def work(cluster: Cluster) -> tuple[int, int]:
        now = len((await topic_of(cluster, topic)).partitions)
        wanted = now + count if count is not None else total
        assert wanted is not None
        if wanted > now and not dry_run:
            warn(KEYS_MOVE)
            confirm(f"Grow {topic} from {now} to {wanted} partitions? This cannot be undone.", yes)
        await grow(cluster, topic, wanted, dry_run)
        return now, wanted

    before, after = run(target, work)
    note(f"{'Would grow' if dry_run else 'Grew'} {topic} from {before} to {after} partitions.")


async def grow(cluster: Cluster, topic: str, total: int, dry_run: bool = False) -> None:
    try:
        await create_partitions(cluster, topic, total, dry_run)
    except KafkaError as error:
        raise explain_kafka(error, f"topic {topic}") from None
    if not dry_run:
        await wait_until(
            cluster, lambda view: len(view.topic(topic).partitions) >= total, [topic], f"Growing {topic}"
        )


@click.command()
@topic_argument
@click.option("-p", "--partition", "partitions", multiple=True, type=int, help="Only this one; may be repeated.")
@click.option(
    "-o",
    "--before",
    "span",
    type=span_type,
    required=True,
    metavar="WHERE",
    help=f"Delete everything before: {SYNTAX}.",
)
@yes_option
@format_option
@cluster_options
def trim(target: Target, topic: str, partitions: tuple[int, ...], span: Span, yes: bool, format: str) -> None:
    """Delete the records of TOPIC before an offset or a time."""
    if span.end is not None:
        raise click.BadParameter("this takes a single offset or time, not a range", param_hint="--before")

    async def work(cluster: Cluster) -> list[Row]:
        chosen = chosen_partitions(await topic_of(cluster, topic), partitions)
        ranges = await offset_ranges(cluster, [TopicPartition(topic, one) for one in chosen])
        before = await resolve(cluster, span.begin, ranges)
        if span.begin.kind is Kind.OFFSET:
            _refuse_beyond_end(before, ranges)
        doomed = sum(max(0, before[one] - ranges[one][0]) for one in before)
        if doomed == 0:
            note("There are no records before that offset.")
            return []
        confirm(f"Delete {plural(doomed, 'record')} from {topic}? This cannot be undone.", yes)
        done = await delete_records(cluster, before)
        conclude({str(one): result if isinstance(result, KafkaError) else None for one, result in done.items()})
        return [
            {"topic": topic, "partition": one.partition, "deleted": max(0, before[one] - ranges[one][0])}
            | {"log_start_offset": done[one], "log_end_offset": ranges[one][1]}
            for one in before
        ]

    columns = [number("partition", "PARTITION"), count("deleted", "DELETED")]
    columns += [number("log_start_offset", "LOG-START-OFFSET"), number("log_end_offset", "LOG-END-OFFSET")]
    emit_rows(run(target, work), columns, format)


def _refuse_beyond_end(before: dict[TopicPartition, int], ranges: dict[TopicPartition, tuple[int, int]]) -> None:
    for one, offset in before.items():
        if offset > ranges[one][1]:
            raise CommandError(f"{one} ends at {ranges[one][1]}: offset {offset} does not exist.")


@click.command()
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...", shell_complete=complete_topics)
@click.option("--if-exists", is_flag=True, help="Do not fail if the topic does not exist.")
@yes_option
@cluster_options
def delete(target: Target, topics: tuple[str, ...], if_exists: bool, yes: bool) -> None:
    """Delete topics and every record in them."""

    async def work(cluster: Cluster) -> dict[str, KafkaError | None]:
        names = list(dict.fromkeys(topics))
        if if_exists:
            known = (await cluster.metadata()).topics
            names = [name for name in names if name in known]
        if not names:
            return {}
        await topics_of(cluster, names)
        confirm(f"Delete {plural(len(names), 'topic')} ({', '.join(names)}) with every record?", yes)
        outcomes = await delete_topics(cluster, names)
        gone = [name for name, error in outcomes.items() if error is None]
        await wait_until(
            cluster,
            lambda view: not any(name in view.topics for name in gone),
            gone,
            f"Deleting {', '.join(gone)}",
        )
        return {name: outcomes[name] for name in names}

    outcomes = run(target, work)
    for name, error in outcomes.items():
        if error is None:
            note(f"Deleted topic {name}.")
    conclude(outcomes)
