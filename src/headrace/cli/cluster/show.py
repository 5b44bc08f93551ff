"""`headrace cluster info|logdirs`."""

from __future__ import annotations

from typing import Any

import click

from headrace.cli.cluster.partition_findings import count_leaderless, count_under_replicated
from headrace.cli.common.options import Target, cluster_options, format_option
from headrace.cli.common.output import (
    PEOPLE,
    Column,
    Row,
    count,
    emit_data,
    emit_pairs,
    emit_rows,
    number,
    size_text,
)
from headrace.cli.common.session import run
from headrace.cli.common.store import store_name, zookeeper_setting
from headrace.client.admin import controller_of, describe_log_dirs
from headrace.client.cluster import Cluster
from headrace.client.errors import kafka_error
from headrace.client.reassigning import with_moves

BROKER_COLUMNS = (
    number("id", "ID"),
    Column("host", "HOST"),
    number("port", "PORT"),
    Column("rack", "RACK"),
    Column("controller", "CONTROLLER"),
    count("leaders", "LEADERS"),
    count("replicas", "REPLICAS"),
    count("in_sync", "IN-SYNC"),
)


@click.command()
@format_option
@cluster_options
def info(target: Target, format: str) -> None:
    """Show the cluster's id, its brokers and how partitions are spread over them."""

    async def work(cluster: Cluster) -> dict[str, Any]:
        view, controller = await with_moves(cluster, await cluster.metadata()), await controller_of(cluster)
        partitions = [one for topic in view.topics.values() for one in topic.partitions]
        brokers = [
            {
                "id": broker.id,
                "host": broker.address.host,
                "port": broker.address.port,
                "rack": broker.rack,
                "controller": broker.id == controller,
                "leaders": sum(one.leader == broker.id for one in partitions),
                "replicas": sum(broker.id in one.replicas for one in partitions),
                "in_sync": sum(broker.id in one.in_sync for one in partitions),
            }
            for broker in view.brokers.values()
        ]
        return {
            "cluster_id": view.cluster_id,
            "store": store_name(await zookeeper_setting(cluster, view.brokers)),
            "controller_id": controller,
            "topics": len(view.topics),
            "partitions": len(partitions),
            "under_replicated_partitions": count_under_replicated(view),
            "offline_partitions": count_leaderless(view),
            "brokers": brokers,
        }

    found = run(target, work)
    if format not in PEOPLE:
        emit_data(found, format)
        return
    emit_pairs(
        [
            ("Cluster", found["cluster_id"]),
            ("Store", found["store"]),
            ("Controller", found["controller_id"]),
            ("Topics", found["topics"]),
            ("Partitions", found["partitions"]),
            ("Under-replicated", found["under_replicated_partitions"]),
            ("Offline", found["offline_partitions"]),
        ]
    )
    click.echo()
    emit_rows(found["brokers"], BROKER_COLUMNS, format)


@click.command()
@click.option("--broker", "brokers", multiple=True, type=int, help="Only this one; may be repeated.")
@click.option("--partitions", "by_partition", is_flag=True, help="One line per partition.")
@format_option
@cluster_options
def logdirs(target: Target, brokers: tuple[int, ...], by_partition: bool, format: str) -> None:
    """Show the data directories of the brokers: used and free space, and with --partitions their content."""
    found = run(target, lambda cluster: directories(cluster, brokers))
    if format not in PEOPLE:
        emit_data(found, format)
    elif by_partition:
        rows: list[Row] = [
            {"broker": one["broker"], "path": one["path"], "size": size_text(partition["size_bytes"]), **partition}
            for one in found
            for partition in sorted(one["partition_list"], key=lambda part: -int(part["size_bytes"]))
        ]
        columns = [number("broker", "BROKER"), Column("topic", "TOPIC"), number("partition", "PARTITION")]
        emit_rows(rows, [*columns, number("size", "SIZE"), Column("path", "DIRECTORY")], format, "No partitions.")
    else:
        rows = [
            {**one, "used": size_text(one["used_bytes"]), "free": size_text(one["free_bytes"] or -1)}
            | {"total": size_text(one["total_bytes"] or -1)}
            for one in found
        ]
        columns = [number("broker", "BROKER"), Column("path", "DIRECTORY"), count("partitions", "PARTITIONS")]
        columns += [number("used", "USED"), number("free", "FREE"), number("total", "TOTAL")]
        emit_rows(rows, [*columns, Column("error", "ERROR")], format)


async def directories(cluster: Cluster, brokers: tuple[int, ...] = ()) -> list[dict[str, Any]]:
    view = await cluster.metadata([])
    found: list[dict[str, Any]] = []
    for broker in brokers or view.brokers:
        for directory in await describe_log_dirs(cluster, broker):
            partitions: list[dict[str, Any]] = [
                {"topic": topic.name, "partition": one.partition_index, "size_bytes": one.partition_size}
                for topic in directory.topics
                for one in topic.partitions
            ]
            found.append(
                {
                    "broker": broker,
                    "path": directory.log_dir,
                    "error": kafka_error(directory.error_code).code.name if directory.error_code else None,
                    "partitions": len(partitions),
                    "used_bytes": sum(int(one["size_bytes"]) for one in partitions),
                    "free_bytes": directory.usable_bytes if directory.usable_bytes >= 0 else None,
                    "total_bytes": directory.total_bytes if directory.total_bytes >= 0 else None,
                    "partition_list": partitions,
                }
            )
    return found
