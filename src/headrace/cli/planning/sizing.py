"""How large a cluster must be: arithmetic with its reasons (R-TOP-7). Pure; the command is in `plan`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from headrace.cli.common.output import duration_text, plural, size_text

DISK_HEADROOM = 0.7
"""A disk is planned to be this full: the rest is for a failed broker's share and what is not deleted yet."""
NETWORK_HEADROOM = 0.7
FEWEST_BROKERS = 3
STORE = "to store"


@dataclass(frozen=True, slots=True)
class ExpectedLoad:
    throughput: int
    """Bytes a second that producers write at the peak, now."""
    average_share: float
    """What is written on average, as a share of the peak: disks fill by the average."""
    growth: float
    """How many times as much is to be borne."""
    groups: int
    consumer_speed: int
    """Bytes a second that one consumer of the slowest group works off."""
    retention_s: float
    replication: int


@dataclass(frozen=True, slots=True)
class Machine:
    disk: int
    network: int
    broker_speed: int
    """Bytes a second that one broker writes, replicas included."""
    partition_speed: int
    """Bytes a second for one partition."""
    partitions_per_broker: int


class SizingReason(NamedTuple):
    what: str
    how: str
    need: int


class ClusterPlan(NamedTuple):
    partitions: int
    brokers: int
    disk_per_broker: int
    network_in_per_broker: int
    network_out_per_broker: int
    partition_reasons: tuple[SizingReason, ...]
    broker_reasons: tuple[SizingReason, ...]
    notes: tuple[str, ...]


def decide(load: ExpectedLoad, machine: Machine) -> ClusterPlan:
    peak = load.throughput * load.growth
    partition_reasons = _partition_reasons(load, machine, peak)
    stored = peak * load.average_share * load.retention_s * load.replication
    partitions = max(reason.need for reason in partition_reasons)
    broker_reasons = _broker_reasons(load, machine, peak, stored, partitions)
    brokers = max(reason.need for reason in broker_reasons)
    spread = math.ceil(partitions / brokers) * brokers
    notes = []
    if spread != partitions:
        notes.append(
            f"{spread} partitions instead of {partitions}, so that all {brokers} brokers lead equally many."
        )
    others = max(reason.need for reason in broker_reasons if reason.what != STORE)
    if brokers > others:
        notes.append(
            "Disk space decides. "
            f"With larger disks, or less retention, {plural(others, 'broker')} would be enough."
        )
    if load.replication < 2:
        notes.append("With one replica, losing a broker loses its records.")
    return ClusterPlan(
        spread,
        brokers,
        math.ceil(stored / brokers / DISK_HEADROOM),
        math.ceil(peak * load.replication / brokers),
        math.ceil(peak * (load.groups + load.replication - 1) / brokers),
        partition_reasons,
        broker_reasons,
        tuple(notes),
    )


def _partition_reasons(load: ExpectedLoad, machine: Machine, peak: float) -> tuple[SizingReason, ...]:
    return (
        SizingReason(
            "to write",
            f"{_rate(peak)} / {_rate(machine.partition_speed)} for one partition",
            math.ceil(peak / machine.partition_speed),
        ),
        SizingReason(
            "to read",
            f"{_rate(peak)} / {_rate(load.consumer_speed)} for one consumer",
            math.ceil(peak / load.consumer_speed),
        ),
    )


def _broker_reasons(
    load: ExpectedLoad, machine: Machine, peak: float, stored: float, partitions: int
) -> tuple[SizingReason, ...]:
    usable_disk, usable_network = machine.disk * DISK_HEADROOM, machine.network * NETWORK_HEADROOM
    written = peak * load.replication
    read = peak * (load.groups + load.replication - 1)
    replicas = partitions * load.replication
    safe = max(load.replication, FEWEST_BROKERS) if load.replication > 1 else 1
    return (
        SizingReason(
            "to survive",
            f"{load.replication} replicas, and one broker may be down" if load.replication > 1 else "one replica",
            safe,
        ),
        SizingReason(
            STORE,
            f"{size_text(int(stored))} over {duration_text(load.retention_s)}"
            f" with {plural(load.replication, 'replica')}"
            f" / {size_text(int(usable_disk))} ({DISK_HEADROOM:.0%} full)",
            math.ceil(stored / usable_disk),
        ),
        SizingReason(
            "network in",
            f"{_rate(written)} with replicas / {_rate(usable_network)} ({NETWORK_HEADROOM:.0%} of a link)",
            math.ceil(written / usable_network),
        ),
        SizingReason(
            "network out",
            f"{_rate(read)} to {plural(load.groups, 'group')}, {plural(load.replication - 1, 'follower')} "
            f"/ {_rate(usable_network)}",
            math.ceil(read / usable_network),
        ),
        SizingReason(
            "to append",
            f"{_rate(written)} with replicas / {_rate(machine.broker_speed)} for one broker",
            math.ceil(written / machine.broker_speed),
        ),
        SizingReason(
            "to hold",
            f"{plural(replicas, 'replica')} / {machine.partitions_per_broker:,} per broker",
            math.ceil(replicas / machine.partitions_per_broker),
        ),
    )


def _rate(size: float) -> str:
    return f"{size / 1e6:,.1f} MB/s"
