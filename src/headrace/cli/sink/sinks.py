"""`headrace sink list|commit|abort`: what Spark's exactly-once sinks have decided and what they left open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from headrace.cli.common.errors import explain_client, explain_kafka
from headrace.cli.common.failure import NOT_FOUND, CommandError
from headrace.cli.common.login import asked_security
from headrace.cli.common.options import Target, cluster_options, confirm, format_option, yes_option
from headrace.cli.common.output import Column, count, emit_rows, note, number, plural
from headrace.client.errors import ClientError
from headrace.model.errors import KafkaError
from headrace.spark.client.cluster import BlockingCluster, ClusterSettings
from headrace.spark.sink.errors import SinkError
from headrace.spark.sink.once.decisions import SinkLogDamaged
from headrace.spark.sink.once.overview import SinkView, all_sinks, end_sink

T = TypeVar("T")
CLIENT_ID = "headrace-cli"
CONNECT_TIMEOUT_S = 5.0
COLUMNS = (
    Column("sink", "SINK"),
    number("batch", "BATCH"),
    Column("state", "STATE"),
    count("rows", "ROWS"),
    count("open", "OPEN"),
    Column("query", "QUERY", wide=True),
    Column("transactions", "TRANSACTIONS", wide=True),
)


@click.command("list")
@format_option
@cluster_options
def list_sinks(target: Target, format: str) -> None:
    """List the exactly-once sinks of Spark: the last batch that each has decided, and its open transactions.

    STATE is `done` when the batch is committed, `decided` while some of its transactions are not; then the next
    driver, or `headrace sink commit`, commits them. OPEN transactions of a sink whose query no longer runs block
    readers of committed records.
    """
    rows = _run(target, lambda cluster: [sink_row(view) for view in all_sinks(cluster)])
    emit_rows(rows, COLUMNS, format, "There are no exactly-once sinks.")


def sink_row(view: SinkView) -> dict[str, Any]:
    decision = view.log.decision
    return {
        "sink": view.sink_id,
        "query": decision.batch.query_id if decision is not None else None,
        "batch": decision.batch.batch_id if decision is not None else None,
        "state": "none" if decision is None else ("decided" if view.to_carry_out else "done"),
        "rows": decision.rows if decision is not None else None,
        "open": len(view.open_ids),
        "transactions": view.open_ids,
    }


@click.command()
@click.argument("name", metavar="SINK")
@yes_option
@cluster_options
def commit(target: Target, name: str, yes: bool) -> None:
    """Commit the decided batch of SINK, and abort its other open transactions.

    The next driver of the query would do the same first. A driver that is still running is fenced, and its query
    fails.
    """

    def work(cluster: BlockingCluster) -> None:
        view = _found(cluster, name)
        what = "commit what is decided and abort the rest" if view.to_carry_out else "abort what is not decided"
        confirm(f"{name} has {plural(len(view.open_ids), 'open transaction')}: {what}?", yes)
        end_sink(cluster, name, target.timeout_s)

    _run(target, work)
    note(f"{name}: nothing is open.")


@click.command()
@click.argument("name", metavar="SINK")
@click.option("--lose-decided", is_flag=True, help="Also abort a decided batch. Its rows are lost.")
@yes_option
@cluster_options
def abort(target: Target, name: str, lose_decided: bool, yes: bool) -> None:
    """Abort the open transactions of SINK. A driver that is still running is fenced, and its query fails."""

    def work(cluster: BlockingCluster) -> None:
        view = _found(cluster, name)
        decision = view.log.decision
        if view.to_carry_out and decision is not None and not lose_decided:
            raise CommandError(
                f"Batch {decision.batch.batch_id} of {name} is decided, and not all of it is committed.",
                advice=f"Commit it with `headrace sink commit {name}`, or lose its rows with --lose-decided.",
            )
        confirm(f"Abort {plural(len(view.open_ids), 'open transaction')} of {name}?", yes)
        end_sink(cluster, name, target.timeout_s, lose_decided=lose_decided)

    _run(target, work)
    note(f"{name}: nothing is open.")


def _found(cluster: BlockingCluster, name: str) -> SinkView:
    for view in all_sinks(cluster):
        if view.sink_id == name:
            return view
    raise CommandError(f"There is no sink {name}.", NOT_FOUND, "`headrace sink list` lists the sinks.")


def _run(target: Target, work: Callable[[BlockingCluster], T]) -> T:
    settings = ClusterSettings(
        ",".join(str(address) for address in target.bootstrap),
        client_id=CLIENT_ID,
        request_timeout_s=target.timeout_s,
        connect_timeout_s=min(CONNECT_TIMEOUT_S, target.timeout_s),
        security=asked_security(),
    )
    cluster = BlockingCluster(settings)
    try:
        return work(cluster)
    except KafkaError as error:
        raise explain_kafka(error) from None
    except ClientError as error:
        raise explain_client(error) from None
    except (SinkError, SinkLogDamaged) as error:
        raise CommandError(f"{str(error)[:1].upper()}{str(error)[1:]}.") from None
    finally:
        cluster.close()
