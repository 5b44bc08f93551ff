"""What a drill acts on, and what it finds."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headrace.testing.drills.workload import PARTITIONS, TOPIC, PartitionState, Workload, states
from headrace.testing.hosts import Host, Hosts
from headrace.testing.process_cluster import ClusterBroker, ProcessCluster, wait_until
from headrace.testing.replica_files import differ_below_noted
from headrace.testing.zookeeper import ZooKeeperEnsemble

HEAL_SECONDS = 120.0
ELECTED = re.compile(r"Broker (\d+) is the controller, epoch (\d+)")


@dataclass(frozen=True, slots=True)
class Event:
    when: float
    what: str
    is_fault: bool


@dataclass(slots=True)
class Scene:
    cluster: ProcessCluster
    workload: Workload
    chance: random.Random
    zookeeper: ZooKeeperEnsemble | None = None
    hosts: Hosts | None = None
    """The hosts, if each broker is on one of its own, and ZooKeeper on the next."""
    events: list[Event] = field(default_factory=list)
    """The events, and when they happened."""
    problems: list[str] = field(default_factory=list)
    """Problems beyond those that the history of the load shows."""
    notes: list[str] = field(default_factory=list)
    """Notes for the report."""
    lost_from: dict[int, int] = field(default_factory=dict)
    """Partitions with an unclean election: acks from this offset on are lost by intention."""

    @property
    def brokers(self) -> Mapping[int, ClusterBroker]:
        return self.cluster.brokers

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers.values() if broker.running)

    def states(self) -> dict[int, PartitionState]:
        return states(self.bootstrap)

    def states_by(self, bootstrap: str) -> dict[int, PartitionState]:
        """The states of partitions as these brokers see them."""
        return states(bootstrap)

    def leader(self) -> int:
        """The leader of some partition that is running."""
        leaders = {state.leader for state in self.states().values()}
        return self.chance.choice(sorted(id for id in leaders if id >= 0 and self.brokers[id].running))

    @property
    def times(self) -> list[float]:
        """When faults were caused."""
        return [event.when for event in self.events if event.is_fault]

    def note_fault(self, what: str) -> None:
        self.events.append(Event(time.monotonic(), what, True))

    def note_event(self, what: str) -> None:
        """Note an event that is not a fault: a start, a link that is healed."""
        self.events.append(Event(time.monotonic(), what, False))

    def host(self, broker_id: int) -> Host:
        assert self.hosts is not None
        return self.hosts.all[broker_id - 1]

    def others(self, broker_id: int) -> str:
        """The bootstrap servers without this broker."""
        return ",".join(broker.bootstrap for id, broker in self.brokers.items() if id != broker_id)

    def check(self, holds: bool, otherwise: str) -> None:
        if not holds:
            self.problems.append(otherwise)

    def is_whole(self) -> bool:
        """Whether every partition has a leader and is in sync, also in the view of brokers that were cut off."""
        everybody = tuple(sorted(self.brokers))
        asked = [self.bootstrap] if self.hosts is None else [one.bootstrap for one in self.brokers.values()]
        views = [self.states_by(bootstrap).values() for bootstrap in asked]
        return all(state.leader >= 0 and state.in_sync == everybody for view in views for state in view)

    def until_whole(self) -> None:
        wait_until(self.is_whole, "in-sync sets full again", HEAL_SECONDS)

    def until_acked(self, more: int = 100) -> None:
        """Wait until `more` further records are acknowledged."""
        goal = self.workload.acked + more
        wait_until(lambda: self.workload.acked >= goal, "records acknowledged again", HEAL_SECONDS)

    def replica_dirs(self, partition: int) -> list[Path]:
        return [broker.partition_dir(TOPIC, partition) for broker in self.brokers.values()]

    def check_noted(self) -> None:
        """Check after a kill that the files are the same below the smallest high watermark that a broker noted."""
        differing = [part for part in range(PARTITIONS) if differ_below_noted(self.replica_dirs(part))]
        self.check(not differing, f"replicas of {differing} differ below their high watermarks after the kill")

    def check_controllers(self) -> None:
        """Check that there was one controller for each epoch, according to the brokers' logs."""
        elected: dict[int, set[int]] = {}
        for broker in self.brokers.values():
            for broker_id, epoch in ELECTED.findall(broker.log_text()):
                elected.setdefault(int(epoch), set()).add(int(broker_id))
        several = {epoch: ids for epoch, ids in elected.items() if len(ids) > 1}
        self.check(not several, f"several controllers in one epoch: {several}")


Fault = Callable[[Scene, float], None]
"""Causes faults for about that many seconds."""


def repeat(scene: Scene, seconds: float, act: Callable[[], None]) -> None:
    """Call `act` at least once, and again until the time is over."""
    end = time.monotonic() + seconds
    act()
    while time.monotonic() < end:
        act()
