"""Where the replicas are: whether the loss of one host or one rack takes all of a partition with it."""

from __future__ import annotations

from collections.abc import Callable

from headrace.cli.common.findings import DOUBT, OK, WRONG, Finding
from headrace.cli.common.output import plural
from headrace.client.view import BrokerView, ClusterView

SHOWN = 5


def spread_findings(view: ClusterView) -> list[Finding]:
    return [*_hosts(view), *_racks(view)]


def _hosts(view: ClusterView) -> list[Finding]:
    if len(view.brokers) < 2:
        return []
    hosts = {broker.address.host for broker in view.brokers.values()}
    if len(hosts) == 1:
        advice = (
            "The replicas survive a crashed process, but not the loss of the machine or its "
            "disk. Use several machines."
        )
        return [Finding(DOUBT, f"All brokers are on one host, {hosts.pop()}.", advice)]
    return _together(view, lambda broker: broker.address.host, "host")


def _racks(view: ClusterView) -> list[Finding]:
    racks = {broker.rack for broker in view.brokers.values()}
    if None in racks and len(racks) > 1:
        advice = "Set broker.rack on all brokers, or on none."
        return [Finding(WRONG, "Some brokers have broker.rack set and others do not.", advice)]
    if None in racks or len(racks) < 2:
        return []
    return _together(view, lambda broker: broker.rack or "", "rack")


def _together(view: ClusterView, place: Callable[[BrokerView], str], kind: str) -> list[Finding]:
    """Topics with partitions whose replicas are all in one place, although there are others."""
    topics = []
    for topic in view.topics.values():
        for partition in topic.partitions:
            held = [view.brokers[replica] for replica in partition.replicas if replica in view.brokers]
            if len(partition.replicas) > 1 and len({place(broker) for broker in held}) == 1:
                topics.append(topic.name)
                break
    if not topics:
        return [Finding(OK, f"Replicas are spread over {kind}s.")]
    listed = ", ".join(topics[:SHOWN]) + (", ..." if len(topics) > SHOWN else "")
    where = "in" if kind == "rack" else "on"
    what = f"{plural(len(topics), 'topic')} with all replicas of a partition {where} one {kind}: {listed}."
    brokers = ",".join(str(broker) for broker in view.brokers)
    advice = (
        f"They are lost with that {kind}: `headrace partition move {topics[0]} --brokers {brokers}` spreads them."
    )
    return [Finding(DOUBT, what, advice)]
