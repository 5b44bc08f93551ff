"""`headrace txn list|describe|producers|find-hanging`: transactions as they are."""

from __future__ import annotations

from typing import Any

import click

from headrace.cli.common.options import Target, cluster_options, complete_topics, duration, format_option
from headrace.cli.common.output import PEOPLE, Column, elapsed, emit_rows, note, number
from headrace.cli.common.session import chosen_partitions, run, topic_of
from headrace.cli.txn.view import (
    hanging_row,
    hanging_transactions,
    partitions_of,
    producer_row,
    state_row,
)
from headrace.client.cluster import Cluster
from headrace.client.transactions import (
    TransactionFilters,
    describe_producers,
    describe_transaction,
    list_transactions,
)
from headrace.model.topics import TopicPartition

LIST_COLUMNS = (
    Column("transactional_id", "TRANSACTIONAL-ID"),
    Column("state", "STATE"),
    number("producer_id", "PRODUCER-ID"),
    number("coordinator", "COORDINATOR"),
)
STATE_COLUMNS = (
    Column("transactional_id", "TRANSACTIONAL-ID"),
    Column("state", "STATE"),
    Column("prepared", "PREPARED"),
    number("producer_id", "PRODUCER-ID"),
    number("producer_epoch", "EPOCH"),
    number("timeout_ms", "TIMEOUT-MS"),
    elapsed("open_seconds", "OPEN-FOR"),
    Column("partitions", "PARTITIONS"),
    Column("start_time", "START-TIME", wide=True),
    Column("coordinator", "COORDINATOR", wide=True),
)
PRODUCER_COLUMNS = (
    Column("topic", "TOPIC"),
    number("partition", "PARTITION"),
    number("producer_id", "PRODUCER-ID"),
    number("producer_epoch", "EPOCH"),
    number("last_sequence", "LAST-SEQUENCE"),
    Column("last_time", "LAST-TIME"),
    number("transaction_start_offset", "OPEN-SINCE-OFFSET"),
    number("coordinator_epoch", "COORDINATOR-EPOCH", wide=True),
)
HANGING_COLUMNS = (
    Column("topic", "TOPIC"),
    number("partition", "PARTITION"),
    number("producer_id", "PRODUCER-ID"),
    number("producer_epoch", "EPOCH"),
    number("transaction_start_offset", "START-OFFSET"),
    elapsed("idle_seconds", "IDLE-FOR"),
    Column("transactional_id", "TRANSACTIONAL-ID"),
    Column("reason", "REASON"),
    number("coordinator_epoch", "COORDINATOR-EPOCH", wide=True),
    Column("last_time", "LAST-TIME", wide=True),
)


@click.command("list")
@click.argument("pattern", required=False, metavar="[PATTERN]")
@click.option("--state", "states", multiple=True, metavar="STATE", help="Ongoing, Empty, ...; may be repeated.")
@click.option("--producer-id", "producer_ids", type=int, multiple=True, help="May be repeated.")
@click.option("--longer-than", type=duration, metavar="TIME", help="Open for longer than this: 30s, 10m, 2h.")
@format_option
@cluster_options
def list_command(
    target: Target,
    pattern: str | None,
    states: tuple[str, ...],
    producer_ids: tuple[int, ...],
    longer_than: float | None,
    format: str,
) -> None:
    """List the transactional ids, or those whose whole name matches the regular expression PATTERN.

    \b
    headrace txn list --state Ongoing --longer-than 10m    open for a long time
    """
    if longer_than is not None and not states:
        states = ("Ongoing", "PrepareCommit", "PrepareAbort")
    filters = TransactionFilters(
        states, producer_ids, -1 if longer_than is None else int(longer_than * 1000), pattern or None
    )

    async def work(cluster: Cluster) -> list[dict[str, Any]]:
        return [entry._asdict() for entry in await list_transactions(cluster, filters)]

    filtered = pattern or states or producer_ids or longer_than is not None
    empty = "No transaction matches." if filtered else "There are no transactional ids."
    emit_rows(run(target, work), LIST_COLUMNS, format, empty)


@click.command()
@click.argument("transactional_ids", nargs=-1, required=True, metavar="TRANSACTIONAL-ID...")
@format_option
@cluster_options
def describe(target: Target, transactional_ids: tuple[str, ...], format: str) -> None:
    """Show transactions: state, producer, how long they have been open, and their partitions.

    PREPARED transactions have no timeout: they stay open until they are committed or aborted by name.
    """

    async def work(cluster: Cluster) -> list[dict[str, Any]]:
        return [state_row(*await describe_transaction(cluster, name)) for name in dict.fromkeys(transactional_ids)]

    emit_rows(run(target, work), STATE_COLUMNS, format)


@click.command()
@click.argument("topic", shell_complete=complete_topics)
@click.option("-p", "--partition", "partitions", type=int, multiple=True, help="May be repeated. Default: all.")
@format_option
@cluster_options
def producers(target: Target, topic: str, partitions: tuple[int, ...], format: str) -> None:
    """Show the producers known to the leaders of TOPIC's partitions, and their open transactions."""

    async def work(cluster: Cluster) -> list[dict[str, Any]]:
        view = await topic_of(cluster, topic)
        wanted = [TopicPartition(topic, index) for index in chosen_partitions(view, partitions)]
        found = await describe_producers(cluster, wanted)
        return [producer_row(partition, one) for partition, known in found for one in known]

    emit_rows(run(target, work), PRODUCER_COLUMNS, format, f"No producer has written to {topic} recently.")


@click.command("find-hanging")
@click.option("-t", "--topic", "topics", multiple=True, shell_complete=complete_topics, help="May be repeated.")
@click.option(
    "--idle",
    type=duration,
    default="15m",
    show_default=True,
    metavar="TIME",
    help="Idle for at least this long; use transaction.max.timeout.ms or more.",
)
@format_option
@cluster_options
def find_hanging(target: Target, topics: tuple[str, ...], idle: float, format: str) -> None:
    """Find transactions that are open in a partition and that no coordinator will ever end.

    Readers of committed records stop before them. Since partitions ask the coordinator before a transaction begins
    in them (KIP-890) there should be none; other and older clusters can have them.
    """

    async def work(cluster: Cluster) -> list[dict[str, Any]]:
        found = await hanging_transactions(cluster, await partitions_of(cluster, topics), idle)
        return [hanging_row(one) for one in found]

    rows = run(target, work)
    emit_rows(rows, HANGING_COLUMNS, format, "No hanging transactions.")
    if rows and format in PEOPLE:
        note("To end one: headrace txn abort --topic TOPIC --partition N --start-offset OFFSET")
