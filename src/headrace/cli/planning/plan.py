"""`headrace plan`: how many partitions, brokers and disks a load needs, and why (R-TOP-7)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import click
from click.core import ParameterSource

from headrace.cli.common.failure import CommandError
from headrace.cli.common.options import Target, cluster_options, duration, format_option, size
from headrace.cli.common.output import PEOPLE, duration_text, emit_data, emit_pairs, note, size_text
from headrace.cli.common.session import run
from headrace.cli.planning.comparing import compare
from headrace.cli.planning.measure import MeasuredCluster, measure
from headrace.cli.planning.sizing import ClusterPlan, ExpectedLoad, Machine, SizingReason, decide


@click.command()
@click.option(
    "-t",
    "--throughput",
    type=size,
    metavar="RATE",
    help="Peak write rate, such as 50MB/s.  [required without -b]",
)
@click.option(
    "--measure",
    "measure_s",
    type=duration,
    default="10s",
    show_default=True,
    help="How long to measure the write rate of the cluster given with -b.",
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
@cluster_options
@click.pass_context
def plan(ctx: click.Context, /, target: Target, format: str, measure_s: float, **given: Any) -> None:
    """Work out how many partitions, brokers and disks a load needs, and explain why.

    Rates are bytes per second (50MB/s, 200k), durations are 7d or 12h. Plan for growth: partitions can
    be added later, but then keys map to other partitions.

    With -b it plans for that cluster: write rate, replication factor, retention, groups and
    disks are taken from it unless they are given, and the result is compared with what it has.
    """
    named = ctx.get_parameter_source("bootstrap") is ParameterSource.COMMANDLINE
    found: MeasuredCluster | None = None
    if named or (given["throughput"] is None and target.bootstrap_given):
        if format in PEOPLE:
            note(f"Measuring for {duration_text(measure_s)} ...")
        found = run(target, lambda cluster: measure(cluster, cluster.env.clock, measure_s))
        given |= _from_cluster(ctx, given, found)
    if given["throughput"] is None:
        raise click.UsageError("Give --throughput RATE, or measure a cluster with -b HOST:PORT.")
    _show(_decided(given), found, format)


def _from_cluster(ctx: click.Context, given: dict[str, Any], found: MeasuredCluster) -> dict[str, Any]:
    """What the cluster says in place of the defaults; what was given counts."""
    if given["throughput"] is None and found.write_rate < 1:
        raise CommandError(
            "Nothing was written to the cluster while it was measured.",
            advice="Give the peak with --throughput, or measure for longer: --measure 5m.",
        )
    totals = [disk.total_bytes for disk in found.disks.values() if disk.total_bytes]
    said: dict[str, Any] = {
        "throughput": math.ceil(found.write_rate / given["average_share"]),
        "groups": found.groups,
        "replication": found.replication,
        "retention_s": found.retention_s,
        "disk": min(totals, default=None),
    }
    return {
        name: value
        for name, value in said.items()
        if value is not None and ctx.get_parameter_source(name) is not ParameterSource.COMMANDLINE
    }


def _decided(given: dict[str, Any]) -> ClusterPlan:
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
    return decide(
        ExpectedLoad(**{name: given[name] for name in load_names}),
        Machine(**{name: given[name] for name in machine_names}),
    )


def _show(decided: ClusterPlan, found: MeasuredCluster | None, format: str) -> None:
    if format not in PEOPLE:
        now = {} if found is None else {"cluster": _cluster_data(decided, found)}
        emit_data(_as_data(decided) | now, format)
        return
    if found is not None:
        emit_pairs(_facts(found))
        click.echo("\nThe load needs:")
    _print(decided)
    if found is not None:
        click.echo("\nThe cluster has")
        for text in compare(decided, found):
            click.echo(f"  {text}")


def _facts(found: MeasuredCluster) -> list[tuple[str, Any]]:
    return [
        ("Brokers", len(found.disks)),
        ("Topics", f"{found.topics:,}, with {found.partitions:,} partitions and {found.replicas:,} replicas"),
        ("Stored", size_text(sum(disk.used_bytes for disk in found.disks.values()))),
        ("Written", f"{size_text(round(found.write_rate))}/s, without replicas"),
        ("Fastest partition", f"{size_text(round(found.fastest_partition))}/s"),
        ("Groups", found.groups),
    ]


def _cluster_data(decided: ClusterPlan, found: MeasuredCluster) -> dict[str, Any]:
    return {
        "brokers": len(found.disks),
        "topics": found.topics,
        "partitions": found.partitions,
        "replicas": found.replicas,
        "replication": found.replication,
        "groups": found.groups,
        "stored_bytes": sum(disk.used_bytes for disk in found.disks.values()),
        "write_bytes_per_second": round(found.write_rate),
        "fastest_partition_bytes_per_second": round(found.fastest_partition),
        "retention_seconds": found.retention_s,
        "notes": compare(decided, found),
    }


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
    for text in plan.notes:
        click.echo(f"\n{text}")


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
