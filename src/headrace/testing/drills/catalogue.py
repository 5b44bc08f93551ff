"""The drills by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.testing.drills.churn import kill_controller
from headrace.testing.drills.damage import failed_directory, reboot, wiped_disk
from headrace.testing.drills.divergence import double_failover, eligible, slow_follower, unclean_off, unclean_on
from headrace.testing.drills.faults import kill_all, kill_leader_every, kill_two, none, rolling_restart
from headrace.testing.drills.groups import groups_through_failovers
from headrace.testing.drills.moves import move_under_load
from headrace.testing.drills.networks import (
    half_open,
    isolated_leader,
    leader_without_peers,
    one_way,
    slow_link,
    store_one_way,
    vanished_host,
)
from headrace.testing.drills.rolling import rolling_restart_with_clients
from headrace.testing.drills.scene import Fault
from headrace.testing.drills.stores import zookeeper_down, zookeeper_one_killed
from headrace.testing.drills.transactions import coordinators_die
from headrace.testing.drills.zombies import pause_leader


@dataclass(frozen=True, slots=True)
class Drill:
    about: str
    fault: Fault
    short_s: float
    full_s: float
    zookeepers: int | None = None
    """How many servers it needs; None if it runs without as well."""
    topic_configs: Mapping[str, str] = field(default_factory=dict)
    defect: str | None = None
    """How its brokers are launched, if not as they are."""
    mutant: str | None = None
    """The defect that it must find."""
    hosts: bool = False
    """Whether each broker is on a host of its own (`headrace.testing.hosts`), and ZooKeeper on another."""


DRILLS: dict[str, Drill] = {
    "no-fault": Drill("nothing happens", none, 5, 600),
    "kill-leader-20s": Drill("a leader is killed every 20 s", kill_leader_every(20), 20, 120),
    "kill-leader-5s": Drill("a leader is killed every 5 s", kill_leader_every(5), 10, 120),
    "kill-all": Drill("all brokers are killed at once", kill_all, 8, 60),
    "kill-two": Drill("any two of three are killed", kill_two, 8, 60),
    "kill-controller": Drill("the controller is killed while topics are made and deleted", kill_controller, 8, 60),
    "move-under-load": Drill(
        "all partitions move while the controller and brokers that copy are killed",
        move_under_load,
        1,
        60,
        mutant="move-at-once",
    ),
    "rolling-restart": Drill("one broker after the other is restarted", rolling_restart, 5, 60),
    "rolling-restart-clients": Drill(
        "the same five times under four ordinary clients: no error, no rebalance",
        rolling_restart_with_clients,
        1,
        60,
    ),
    "pause-leader": Drill(
        "a leader is stopped (SIGSTOP) beyond its lease", pause_leader(10), 1, 120, mutant="endless-lease"
    ),
    "slow-follower": Drill(
        "a follower in sync stops for a moment, the two others die",
        slow_follower,
        1,
        60,
        mutant="high-watermark-of-one",
    ),
    "double-failover": Drill(
        "two leaders in a row die with tails of their own",
        double_failover,
        1,
        60,
        mutant="ack-before-replication",
    ),
    "unclean-off": Drill(
        "only replicas out of sync live",
        unclean_off,
        1,
        40,
        topic_configs={"min.insync.replicas": "1"},
        mutant="elect-anybody",
    ),
    "eligible-leaders": Drill("the last in-sync replica, which could commit nothing, dies", eligible, 1, 40),
    "unclean-on": Drill(
        "the same with unclean election: the loss is the tail",
        unclean_on,
        1,
        1,
        topic_configs={"min.insync.replicas": "1"},
    ),
    "groups": Drill(
        "a classic and a KIP-848 group commit while leaders are killed", groups_through_failovers, 10, 60
    ),
    "coordinators": Drill(
        "the coordinator of a transaction is killed at each step; producers never come back",
        coordinators_die,
        1,
        60,
        mutant="forget-ends",
    ),
    "wiped-disk": Drill(
        "all die, and one returns first, with an empty disk", wiped_disk, 1, 40, mutant="trust-every-disk"
    ),
    "reboot": Drill(
        "all die, and one returns first, after a loss of power", reboot, 1, 40, mutant="trust-every-disk"
    ),
    "failed-directory": Drill(
        "one of a broker's two data directories fails", failed_directory, 1, 1, defect="failing-disk"
    ),
    "zookeeper-down": Drill("all ZooKeeper servers are down for 30 s", zookeeper_down, 12, 30, zookeepers=1),
    "zookeeper-one-killed": Drill(
        "the leader of three ZooKeeper servers is killed", zookeeper_one_killed(8), 1, 60, zookeepers=3
    ),
    "isolated-leader": Drill(
        "a leader is cut off from its peers and the store, not from clients",
        isolated_leader,
        1,
        60,
        zookeepers=1,
        mutant="endless-lease",
        hosts=True,
    ),
    "leader-without-peers": Drill(
        "a leader is cut off from its peers, not from the store",
        leader_without_peers,
        1,
        60,
        zookeepers=1,
        hosts=True,
    ),
    "one-way": Drill(
        "what one broker sends to another is lost, not the answers", one_way, 1, 60, zookeepers=1, hosts=True
    ),
    "store-one-way": Drill(
        "what ZooKeeper sends to a leader is lost", store_one_way, 1, 60, zookeepers=1, hosts=True
    ),
    "slow-link": Drill("the link of a leader's host is slow", slow_link, 1, 60, zookeepers=1, hosts=True),
    "vanished-host": Drill("a leader's host disappears silently", vanished_host, 1, 60, zookeepers=1, hosts=True),
    "half-open": Drill(
        "a broker restarts behind a dead link, and a client never comes back",
        half_open,
        1,
        60,
        zookeepers=1,
        hosts=True,
    ),
}
