"""`headrace plan`: how many partitions, brokers and disks a load needs, and why (R-TOP-7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from headrace.cli.common.options import duration, format_option, size
from headrace.cli.common.output import PEOPLE, emit_data, emit_pairs, size_text
from headrace.cli.planning.sizing import ClusterPlan, ExpectedLoad, Machine, SizingReason, decide


@click.command()
@click.option(
    "-t", "--throughput", type=size, required=True, metavar="RATE", help="Peak write rate, such as 50MB/s."
)
@click.option(
    "--average",
    "average_share",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.5,
    show_default=True,
    help="Average write rate as a share of the peak.",
)
@click.option(
    "--growth", type=click.FloatRange(min=1), default=2.0, show_default=True, help="Growth factor to plan for."
)
@click.option(
    "-g",
    "--groups",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="Consumer groups that read everything.",
)
@click.option(
    "-c",
    "--consumer-speed",
    type=size,
    default="10MB",
    show_default=True,
    metavar="RATE",
    help="Throughput of one consumer.",
)
@click.option("-r", "--retention", "retention_s", type=duration, default="7d", show_default=True)
@click.option("--replication", type=click.IntRange(min=1), default=3, show_default=True)
@click.option("--disk", type=size, default="2TB", show_default=True, help="Per broker.")
@click.option("--network", type=size, default="125MB", show_default=True, metavar="RATE", help="Per broker.")
@click.option(
    "--broker-speed",
    type=size,
    default="100MB",
    show_default=True,
    metavar="RATE",
    help="Write rate of one broker; `headrace perf produce` measures it.",
)
@click.option("--partition-speed", type=size, default="20MB", show_default=True, metavar="RATE")
@click.option("--partitions-per-broker", type=click.IntRange(min=1), default=2000, show_default=True)
@format_option
def plan(format: str, **given: Any) -> None:
    """Work out how many partitions, brokers and disks a load needs, and explain why.

    Rates are bytes per second (50MB/s, 200k), durations are 7d or 12h. Plan for growth: partitions can
    be added later, but then keys map to other partitions.
    """
    if given["throughput"] <= 0 or given["consumer_speed"] <= 0 or given["partition_speed"] <= 0:
        raise click.UsageError("Rates must be above zero.")
    load_names = (
        "throughput",
        "average_share",
        "growth",
        "groups",
        "consumer_speed",
        "retention_s",
        "replication",
    )
    machine_names = ("disk", "network", "broker_speed", "partition_speed", "partitions_per_broker")
    if min(given[name] for name in machine_names) <= 0:
        raise click.UsageError("Disk, network and speed of a broker must be above zero.")
    decided = decide(
        ExpectedLoad(**{name: given[name] for name in load_names}),
        Machine(**{name: given[name] for name in machine_names}),
    )
    if format in PEOPLE:
        _print(decided)
    else:
        emit_data(_as_data(decided), format)


def _print(plan: ClusterPlan) -> None:
    emit_pairs(
        [
            ("Partitions", plan.partitions),
            ("Brokers", plan.brokers),
            ("Disk per broker", size_text(plan.disk_per_broker)),
            (
                "Network per broker",
                f"{plan.network_in_per_broker / 1e6:,.1f} MB/s in, "
                f"{plan.network_out_per_broker / 1e6:,.1f} MB/s out",
            ),
        ]
    )
    for title, reasons in (("Partitions", plan.partition_reasons), ("Brokers", plan.broker_reasons)):
        click.echo(f"\n{title}: the largest of")
        for reason in reasons:
            mark = "*" if reason.need == max(one.need for one in reasons) else " "
            click.echo(f" {mark}{reason.need:>5}  {reason.what:<12} {reason.how}")
    for note in plan.notes:
        click.echo(f"\n{note}")


def _as_data(plan: ClusterPlan) -> dict[str, Any]:
    def listed(reasons: Sequence[SizingReason]) -> list[dict[str, Any]]:
        return [{"what": one.what, "how": one.how, "need": one.need} for one in reasons]

    return {
        "partitions": plan.partitions,
        "brokers": plan.brokers,
        "disk_per_broker_bytes": plan.disk_per_broker,
        "network_in_per_broker_bytes_per_second": plan.network_in_per_broker,
        "network_out_per_broker_bytes_per_second": plan.network_out_per_broker,
        "partition_reasons": listed(plan.partition_reasons),
        "broker_reasons": listed(plan.broker_reasons),
        "notes": list(plan.notes),
    }
