"""`headrace txn commit|abort`: transactions ended by name, and one that hangs where it hangs."""

from __future__ import annotations

from typing import Any

import click

from headrace.cli.common.failure import NOT_FOUND, TIMED_OUT, CommandError
from headrace.cli.common.options import (
    Target,
    cluster_options,
    complete_topics,
    confirm,
    format_option,
    yes_option,
)
from headrace.cli.common.output import PEOPLE, emit_data, note, plural
from headrace.cli.common.session import run
from headrace.cli.txn.view import OPEN, state_row
from headrace.client.cluster import Cluster
from headrace.client.transactions import (
    abort_transaction,
    describe_transaction,
    end_prepared,
    open_transactions,
    write_abort_marker,
)
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import TopicPartition

POLL_SECONDS = 0.05


@click.command()
@click.argument("transactional_id", metavar="TRANSACTIONAL-ID")
@yes_option
@format_option
@cluster_options
def commit(target: Target, transactional_id: str, yes: bool, format: str) -> None:
    """Commit the open transaction of TRANSACTIONAL-ID on behalf of its producer, which is fenced.

    Use it for a prepared transaction whose producer will not return, when you know that the other parts of the
    distributed transaction were committed. Records that its producer never sent are missing.
    """
    _end(target, transactional_id, "commit", yes, format)


@click.command()
@click.argument("transactional_id", required=False, metavar="[TRANSACTIONAL-ID]")
@click.option("--topic", shell_complete=complete_topics, help="Topic of a hanging transaction.")
@click.option("--partition", type=int, help="Its partition.")
@click.option("--start-offset", type=int, help="Its first offset; `find-hanging` shows all three.")
@yes_option
@format_option
@cluster_options
def abort(
    target: Target,
    transactional_id: str | None,
    topic: str | None,
    partition: int | None,
    start_offset: int | None,
    yes: bool,
    format: str,
) -> None:
    """Abort the open transaction of TRANSACTIONAL-ID and fence its producer, or abort a hanging one.

    \b
    headrace txn abort payments-7
    headrace txn abort --topic orders --partition 3 --start-offset 1200
    """
    where = (topic, partition, start_offset)
    if (transactional_id is None) == (where == (None, None, None)):
        raise click.UsageError("Give either a TRANSACTIONAL-ID or --topic, --partition and --start-offset.")
    if transactional_id is not None:
        _end(target, transactional_id, "abort", yes, format)
        return
    if topic is None or partition is None or start_offset is None:
        raise click.UsageError("--topic, --partition and --start-offset must be given together.")
    abort_hanging(target, TopicPartition(topic, partition), start_offset, yes)


def _end(target: Target, transactional_id: str, action: str, yes: bool, format: str) -> None:
    async def work(cluster: Cluster) -> dict[str, Any]:
        state, coordinator = await describe_transaction(cluster, transactional_id)
        if state.transaction_state != OPEN:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"No transaction of {transactional_id} is open: its state is {state.transaction_state}",
            )
        row = state_row(state, coordinator)
        what = "prepared transaction" if row["prepared"] else "transaction"
        where = plural(len(row["partitions"]), "partition")
        confirm(f"{action.capitalize()} the {what} of {transactional_id} in {where}?", yes)
        if action == "commit":
            await end_prepared(cluster, transactional_id, commit=True)
        else:
            await abort_transaction(cluster, transactional_id)
        return state_row(*await _ended(cluster, transactional_id))

    row = run(target, work)
    if format in PEOPLE:
        note(f"{transactional_id}: {row['state']}")
    else:
        emit_data(row, format)


async def _ended(cluster: Cluster, transactional_id: str) -> Any:
    """Every partition has its marker."""
    clock = cluster.env.clock
    deadline = clock.monotonic() + cluster.settings.request_timeout_s
    while True:
        found = await describe_transaction(cluster, transactional_id)
        if found[0].transaction_state not in (OPEN, "PrepareCommit", "PrepareAbort"):
            return found
        if clock.monotonic() > deadline:
            raise CommandError(f"{transactional_id} has ended, but some partitions lack their marker.", TIMED_OUT)
        await clock.sleep(POLL_SECONDS)


def abort_hanging(target: Target, partition: TopicPartition, start_offset: int, yes: bool) -> None:
    """An abort marker in one partition, in the name of a producer that has a transaction open there."""

    async def work(cluster: Cluster) -> None:
        found = [
            one
            for one in await open_transactions(cluster, [partition])
            if one.producer.current_txn_start_offset == start_offset
        ]
        if not found:
            raise CommandError(
                f"No transaction that began at offset {start_offset} is open in {partition}.",
                NOT_FOUND,
                f"`headrace txn producers {partition.topic} -p {partition.partition}` shows open transactions.",
            )
        (one,) = found
        confirm(f"Abort the transaction of producer {one.producer.producer_id} in {partition}?", yes)
        await write_abort_marker(cluster, one)
        note(f"Aborted the transaction of producer {one.producer.producer_id} in {partition}.")

    run(target, work)
