"""`headrace cluster health`: is anything wrong right now?"""

from __future__ import annotations

from collections.abc import Sequence

import click

from headrace.cli.cluster.show import directories
from headrace.cli.common.findings import DOUBT, OK, WRONG, Finding, emit_findings, exit_by
from headrace.cli.common.options import Target, cluster_options, format_option
from headrace.cli.common.output import plural, size_text
from headrace.cli.common.session import run
from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.view import NO_LEADER, ClusterView
from headrace.model.errors import KafkaError

FULL = 0.9
FILLING = 0.8
SHOWN = 5


@click.command()
@format_option
@cluster_options
def health(target: Target, format: str) -> None:
    """Say whether anything is wrong: brokers, controller, partitions, disks. Exit code 1 if something is."""

    async def work(cluster: Cluster) -> list[Finding]:
        view = await cluster.metadata()
        return [*await _brokers(cluster, view), *_controller(view), *_partitions(view), *await _disks(cluster)]

    findings = run(target, work)
    emit_findings(findings, format)
    exit_by(findings)


async def _brokers(cluster: Cluster, view: ClusterView) -> list[Finding]:
    findings = []
    for broker in view.brokers:
        try:
            await cluster.broker(broker)
        except ClientError as error:
            advice = "Is the broker up, and can clients reach its advertised address? `headrace doctor` says more."
            findings.append(Finding(WRONG, f"Broker {broker} cannot be reached: {error}.", advice))
    reached = len(view.brokers) - len(findings)
    return [Finding(OK, f"{plural(reached, 'broker')} can be reached."), *findings]


def _controller(view: ClusterView) -> list[Finding]:
    if view.controller_id in view.brokers:
        return [Finding(OK, f"Broker {view.controller_id} is the controller.")]
    return [
        Finding(WRONG, "There is no controller.", "Topics cannot change and leaders cannot move until there is.")
    ]


def _partitions(view: ClusterView) -> list[Finding]:
    partitions = [
        (f"{topic.name}-{one.number}", one) for topic in view.topics.values() for one in topic.partitions
    ]
    offline = [name for name, one in partitions if one.leader == NO_LEADER]
    lagging = [
        name for name, one in partitions if one.leader != NO_LEADER and len(one.in_sync) < len(one.replicas)
    ]
    misplaced = [name for name, one in partitions if one.leader not in (NO_LEADER, *one.replicas[:1])]
    findings = []
    if offline:
        findings.append(
            Finding(
                WRONG, f"{_count(offline)} without a leader: {_some(offline)}", "Start the brokers that hold them."
            )
        )
    if lagging:
        advice = "A broker is down or behind; `headrace topic describe` shows which."
        findings.append(Finding(WRONG, f"{_count(lagging)} under-replicated: {_some(lagging)}", advice))
    if misplaced:
        findings.append(
            Finding(DOUBT, f"{_count(misplaced)} led by another than the preferred replica: {_some(misplaced)}")
        )
    if not offline and not lagging:
        findings.append(
            Finding(OK, f"All of {plural(len(partitions), 'partition')} have a leader and all replicas.")
        )
    return findings


def _count(names: Sequence[str]) -> str:
    return f"{len(names)} {'partition is' if len(names) == 1 else 'partitions are'}"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else ".")


async def _disks(cluster: Cluster) -> list[Finding]:
    try:
        found = await directories(cluster)
    except (KafkaError, ClientError) as error:
        return [Finding(DOUBT, f"The data directories cannot be looked at: {error}.")]
    findings = []
    for one in found:
        where = f"{one['path']} of broker {one['broker']}"
        if one["error"]:
            findings.append(Finding(WRONG, f"{where} is offline ({one['error']}).", "Look at the broker's log."))
        elif one["total_bytes"]:
            used = 1 - (one["free_bytes"] or 0) / one["total_bytes"]
            state = WRONG if used > FULL else DOUBT if used > FILLING else OK
            free = size_text(one["free_bytes"] or 0)
            advice = "Lower retention, or add space." if state != OK else ""
            findings.append(Finding(state, f"{where}: the disk is {used:.0%} full, {free} free.", advice))
    return findings
