"""`headrace cluster health`: is anything wrong right now?"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import click

from headrace.cli.cluster.check import minimums_in_sync
from headrace.cli.cluster.partition_findings import (
    absent_brokers,
    leader_skew,
    partition_findings,
    topics_not_in_sync,
)
from headrace.cli.cluster.show import directories
from headrace.cli.common.errors import explain
from headrace.cli.common.findings import DOUBT, OK, WRONG, Finding, emit_findings, exit_by
from headrace.cli.common.options import Target, cluster_options, format_option
from headrace.cli.common.output import plural, size_text
from headrace.cli.common.session import run
from headrace.cli.common.store import why_unreachable, zookeeper_setting
from headrace.client.admin import controller_of
from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.reassigning import with_moves
from headrace.client.view import ClusterView
from headrace.config.coordination_settings import parse_zookeeper_connect
from headrace.model.errors import KafkaError

FULL = 0.9
FILLING = 0.8
_FULL_ADVICE = (
    "`headrace cluster logdirs --partitions` shows the largest. Lower their retention "
    "(`headrace topic alter TOPIC --set retention.ms=...`), add space, or move some away."
)


@click.command()
@format_option
@cluster_options
def health(target: Target, format: str) -> None:
    """Report problems with brokers, controller, partitions, disks and ZooKeeper. Exit code 1 if there are any."""

    async def work(cluster: Cluster) -> list[Finding]:
        view = await with_moves(cluster, await cluster.metadata())
        silent = await _silent_brokers(cluster, view)
        return [
            *_brokers(view, silent),
            *absent_brokers(view),
            *controller_finding(await controller_of(cluster), view, silent),
            *await _partitions(cluster, view, silent),
            *leader_skew(view),
            *await _disks(cluster, view, silent),
            *store_findings(await zookeeper_setting(cluster, view.brokers) or ""),
        ]

    findings = run(target, work)
    emit_findings(findings, format)
    exit_by(findings)


async def _silent_brokers(cluster: Cluster, view: ClusterView) -> dict[int, ClientError]:
    """The brokers of the cluster that cannot be reached from here, and why."""
    silent = {}
    for broker in view.brokers:
        try:
            await cluster.broker(broker)
        except ClientError as error:
            silent[broker] = error
    return silent


def _brokers(view: ClusterView, silent: Mapping[int, ClientError]) -> list[Finding]:
    advice = "Is the broker up, and can clients reach its advertised address? `headrace doctor` says more."
    return [
        Finding(OK, f"{plural(len(view.brokers) - len(silent), 'broker')} can be reached."),
        *(Finding(WRONG, f"Broker {one} cannot be reached: {error}.", advice) for one, error in silent.items()),
    ]


def controller_finding(controller: int, view: ClusterView, silent: Collection[int] = ()) -> list[Finding]:
    if controller in silent:
        what = f"There may be no controller: broker {controller}, the last one known, cannot be reached."
    elif controller in view.brokers:
        return [Finding(OK, f"Broker {controller} is the controller.")]
    else:
        what = "There is no controller."
    advice = (
        "Until one is elected, topics cannot change and leaders cannot move. That takes seconds if the brokers "
        "reach the coordination store, which /readyz of each says."
    )
    return [Finding(WRONG, what, advice)]


async def _partitions(cluster: Cluster, view: ClusterView, silent: Collection[int]) -> list[Finding]:
    minimums, unread = await minimums_in_sync(cluster, topics_not_in_sync(view))
    return [*unread, *partition_findings(view, minimums, silent)]


def store_findings(setting: str, why: Callable[[str], str | None] = why_unreachable) -> list[Finding]:
    """Which ZooKeeper servers can be reached from here, as findings. `setting` is zookeeper.connect."""
    servers = parse_zookeeper_connect(setting).servers if setting else ()
    lost = [server for server in servers if why(server) is not None]
    if not servers:
        return []
    if not lost:
        return [Finding(OK, f"{plural(len(servers), 'ZooKeeper server')} can be reached.")]
    left = f"{len(servers) - len(lost)} of {plural(len(servers), 'ZooKeeper server')} can be reached from here"
    which = f"Start ZooKeeper on {', '.join(lost)}"
    if len(lost) * 2 < len(servers):
        return [Finding(DOUBT, f"{left}.", f"{which}, before another is lost.")]
    advice = f"{which}. Until then records are read and written, but no leader is elected and no topic changes."
    if len(lost) == len(servers):
        advice = f"Only brokers need them, and their /readyz says whether they reach them. If not: {advice}"
        return [Finding(DOUBT, f"{left}.", advice)]
    return [Finding(WRONG, f"{left}: not a majority.", advice)]


async def _disks(cluster: Cluster, view: ClusterView, silent: Collection[int]) -> list[Finding]:
    try:
        found = await directories(cluster, tuple(broker for broker in view.brokers if broker not in silent))
    except (KafkaError, ClientError) as error:
        told = explain(error)
        return [Finding(DOUBT, f"Cannot read the data directories: {told.message}", told.advice or "")]
    findings = []
    for one in found:
        where = f"{one['path']} of broker {one['broker']}"
        if one["error"]:
            advice = failed_directory_advice(one["broker"], view)
            findings.append(Finding(WRONG, f"{where} is offline ({one['error']}).", advice))
        elif one["total_bytes"]:
            used = 1 - (one["free_bytes"] or 0) / one["total_bytes"]
            state = WRONG if used > FULL else DOUBT if used > FILLING else OK
            free = size_text(one["free_bytes"] or 0)
            advice = _FULL_ADVICE if state != OK else ""
            findings.append(Finding(state, f"{where}: the disk is {used:.0%} full, {free} free.", advice))
    return findings


def failed_directory_advice(broker: int, view: ClusterView) -> str:
    partitions = [one for topic in view.topics.values() for one in topic.partitions]
    waiting = sum(broker in one.offline for one in partitions)
    if not waiting:
        return (
            f"No partition needs it any more. Replace the disk, or take it out of log.dirs, and restart broker "
            f"{broker} when it suits you."
        )
    return (
        f"{plural(waiting, 'replica')} of broker {broker} {'is' if waiting == 1 else 'are'} offline; its log says "
        "why. Repair or replace the disk and restart the broker, which then copies what it lacks; or move them to "
        "other brokers now: `headrace partition move --offline`."
    )
