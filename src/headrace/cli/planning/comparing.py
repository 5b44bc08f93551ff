"""A plan beside the cluster that exists: what is enough, what is not, and when disks are full. Pure."""

from __future__ import annotations

from headrace.cli.common.output import duration_text, plural, size_text
from headrace.cli.planning.measure import MeasuredCluster
from headrace.cli.planning.sizing import DISK_HEADROOM, ClusterPlan


def compare(plan: ClusterPlan, found: MeasuredCluster) -> list[str]:
    """Sentences for people; the first says whether brokers must be added."""
    return [_brokers(plan, found), *_partitions(plan, found), *_disks(found)]


def _brokers(plan: ClusterPlan, found: MeasuredCluster) -> str:
    has = len(found.disks)
    if has >= plan.brokers:
        return f"{plural(has, 'broker')}: enough for {plan.brokers}."
    missing = plan.brokers - has
    largest = max(plan.broker_reasons, key=lambda reason: reason.need)
    return f"{plural(has, 'broker')}: add {missing} ({largest.what}: {largest.how})."


def _partitions(plan: ClusterPlan, found: MeasuredCluster) -> list[str]:
    text = f"{plural(found.partitions, 'partition')} in {plural(found.topics, 'topic')}"
    if found.partitions >= plan.partitions:
        return [f"{text}: enough for {plan.partitions}, if the load is spread over them."]
    return [f"{text}: the load needs {plan.partitions}. Adding partitions to a topic changes where its keys go."]


def _disks(found: MeasuredCluster) -> list[str]:
    """Which broker's disk is full first, if nothing were deleted."""
    if not found.disks or found.write_rate <= 0:
        return []
    stored = sum(disk.used_bytes for disk in found.disks.values())
    soonest: tuple[float, int, int] | None = None
    for broker, disk in found.disks.items():
        if disk.total_bytes is None or disk.free_bytes is None:
            continue
        share = disk.used_bytes / stored if stored else 1 / len(found.disks)
        grows = found.write_rate * found.replication * share
        room = disk.free_bytes - (1 - DISK_HEADROOM) * disk.total_bytes
        if grows > 0 and (soonest is None or room / grows < soonest[0]):
            soonest = (room / grows, broker, disk.free_bytes)
    if soonest is None:
        return []
    seconds, broker, free = soonest
    limit = f"{DISK_HEADROOM:.0%} full"
    if seconds <= 0:
        return [f"The disk of broker {broker} is more than {limit} now: {size_text(free)} are free."]
    if found.retention_s is not None and seconds > found.retention_s:
        return [f"Disks: retention ({duration_text(found.retention_s)}) deletes before they are {limit}."]
    return [f"The disk of broker {broker} is {limit} in {duration_text(seconds)} at the current rate."]
