"""`headrace kafka-transactions`: Kafka's tool for transactions, its flags and its columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from headrace.cli.common.options import Target
from headrace.cli.common.output import Column, Row, table_lines
from headrace.cli.common.session import run
from headrace.cli.kafka_tools.shared import ignored
from headrace.cli.txn.change import abort_hanging
from headrace.cli.txn.view import hanging_row, hanging_transactions, now_ms, partitions_of, producer_row
from headrace.client.address import Address, parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.client.transactions import (
    TransactionFilters,
    abort_transaction,
    describe_producers,
    describe_transaction,
    list_transactions,
)
from headrace.model.topics import TopicPartition

TIMEOUT_S = 30.0
MINUTE_S = 60.0
F = TypeVar("F", bound=Callable[..., Any])

LIST = (
    Column("transactional_id", "TransactionalId"),
    Column("coordinator", "Coordinator"),
    Column("producer_id", "ProducerId"),
    Column("state", "TransactionState"),
)
DESCRIBE = (
    Column("coordinator", "CoordinatorId"),
    Column("transactional_id", "TransactionalId"),
    Column("producer_id", "ProducerId"),
    Column("producer_epoch", "ProducerEpoch"),
    Column("state", "TransactionState"),
    Column("timeout_ms", "TransactionTimeoutMs"),
    Column("start_ms", "CurrentTransactionStartTimeMs"),
    Column("duration_ms", "TransactionDurationMs"),
    Column("partitions", "TopicPartitions"),
)
PRODUCERS = (
    Column("producer_id", "ProducerId"),
    Column("producer_epoch", "ProducerEpoch"),
    Column("coordinator_epoch", "LatestCoordinatorEpoch"),
    Column("last_sequence", "LastSequence"),
    Column("last_timestamp", "LastTimestamp"),
    Column("start_offset", "CurrentTransactionStartOffset"),
)
HANGING = (
    Column("topic", "Topic"),
    Column("partition", "Partition"),
    Column("producer_id", "ProducerId"),
    Column("producer_epoch", "ProducerEpoch"),
    Column("coordinator_epoch", "CoordinatorEpoch"),
    Column("start_offset", "StartOffset"),
    Column("last_timestamp", "LastTimestamp"),
    Column("idle_minutes", "Duration(min)"),
)


def _bootstrap(ctx: click.Context, param: click.Parameter, text: str) -> tuple[Address, ...]:
    try:
        return parse_bootstrap(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.group("kafka-transactions")
@click.option("--bootstrap-server", "bootstrap", required=True, metavar="HOST:PORT,...", callback=_bootstrap)
@ignored("--command-config")
@click.pass_context
def kafka_transactions(ctx: click.Context, bootstrap: tuple[Address, ...]) -> None:
    """Kafka's tool for transactions."""
    ctx.obj = Target(bootstrap, TIMEOUT_S)


def _print(rows: list[Row], columns: tuple[Column, ...]) -> None:
    for line in table_lines(rows, columns):
        click.echo(line)


@kafka_transactions.command("list")
@click.option("--duration-filter", type=int, default=-1, metavar="MS")
@click.option("--transactional-id-pattern")
@click.pass_obj
def list_command(target: Target, duration_filter: int, transactional_id_pattern: str | None) -> None:
    """List transactions."""
    filters = TransactionFilters(longer_than_ms=duration_filter, pattern=transactional_id_pattern)

    async def work(cluster: Cluster) -> list[Row]:
        return [entry._asdict() for entry in await list_transactions(cluster, filters)]

    _print(run(target, work), LIST)


@kafka_transactions.command()
@click.option("--transactional-id", required=True)
@click.pass_obj
def describe(target: Target, transactional_id: str) -> None:
    """Describe the state of a transactional id."""

    async def work(cluster: Cluster) -> list[Row]:
        state, _ = await describe_transaction(cluster, transactional_id)
        entries = await list_transactions(cluster, TransactionFilters(producer_ids=[state.producer_id]))
        started = state.transaction_start_time_ms
        return [
            {
                "coordinator": next((one.coordinator for one in entries), None),
                "transactional_id": transactional_id,
                "producer_id": state.producer_id,
                "producer_epoch": state.producer_epoch,
                "state": state.transaction_state,
                "timeout_ms": state.transaction_timeout_ms,
                "start_ms": started if started >= 0 else "None",
                "duration_ms": now_ms() - started if started >= 0 else "None",
                "partitions": ",".join(f"{one.topic}-{index}" for one in state.topics for index in one.partitions),
            }
        ]

    _print(run(target, work), DESCRIBE)


@kafka_transactions.command("describe-producers")
@click.option("--topic", required=True)
@click.option("--partition", type=int, required=True)
@ignored("--broker-id")
@click.pass_obj
def producers(target: Target, topic: str, partition: int) -> None:
    """Describe the producers of a partition."""

    async def work(cluster: Cluster) -> list[Row]:
        ((place, known),) = await describe_producers(cluster, [TopicPartition(topic, partition)])
        return [
            {
                **producer_row(place, one),
                "coordinator_epoch": one.coordinator_epoch,
                "last_timestamp": one.last_timestamp,
                "start_offset": one.current_txn_start_offset if one.current_txn_start_offset >= 0 else "None",
            }
            for one in known
        ]

    _print(run(target, work), PRODUCERS)


@kafka_transactions.command()
@click.option("--topic", required=True)
@click.option("--partition", type=int, required=True)
@click.option("--start-offset", type=int, required=True)
@ignored("--producer-id", "--producer-epoch", "--coordinator-epoch")
@click.pass_obj
def abort(target: Target, topic: str, partition: int, start_offset: int) -> None:
    """Abort a hanging transaction."""
    abort_hanging(target, TopicPartition(topic, partition), start_offset, yes=True)


@kafka_transactions.command("find-hanging")
@click.option("--broker-id", type=int)
@click.option("--max-transaction-timeout", type=int, default=15, metavar="MINUTES")
@click.option("--topic")
@click.option("--partition", type=int)
@click.pass_obj
def find_hanging(
    target: Target, broker_id: int | None, max_transaction_timeout: int, topic: str | None, partition: int | None
) -> None:
    """Find hanging transactions."""
    if topic is None and broker_id is None:
        raise click.UsageError("Give --broker-id or --topic.")
    if partition is not None and topic is None:
        raise click.UsageError("--partition needs --topic.")

    async def work(cluster: Cluster) -> list[Row]:
        places = await partitions_of(cluster, [topic] if topic else [], partition, broker_id)
        found = await hanging_transactions(cluster, places, max_transaction_timeout * MINUTE_S)
        return [
            {
                **hanging_row(one),
                "coordinator_epoch": one.open.producer.coordinator_epoch,
                "start_offset": one.open.producer.current_txn_start_offset,
                "last_timestamp": one.open.producer.last_timestamp,
                "idle_minutes": (now_ms() - one.open.producer.last_timestamp) // 60_000,
            }
            for one in found
        ]

    _print(run(target, work), HANGING)


@kafka_transactions.command("forceTerminateTransaction")
@click.option("--transactionalId", "transactional_id", required=True)
@click.pass_obj
def force_terminate(target: Target, transactional_id: str) -> None:
    """Abort the open transaction of a transactional id."""

    async def work(cluster: Cluster) -> None:
        await abort_transaction(cluster, transactional_id)

    run(target, work)
