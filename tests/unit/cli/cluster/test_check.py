"""What `cluster check` and `cluster health` find in clusters that are not as they should be (R-OPS-9)."""

from __future__ import annotations

import pytest

from headrace.cli.cluster import check as cluster_check
from headrace.cli.cluster import health as cluster_health
from headrace.cli.cluster.partition_findings import (
    absent_brokers,
    count_under_replicated,
    leader_skew,
    partition_findings,
)
from headrace.cli.cluster.spread import spread_findings
from headrace.cli.common.findings import DOUBT, OK, WRONG, Finding
from headrace.client.address import Address
from headrace.client.admin import ConfigEntry
from headrace.client.view import BrokerView, ClusterView, PartitionView, TopicView
from headrace.model.topics import NO_TOPIC_ID


def cluster(
    brokers: int, replicas: tuple[int, ...] = (1,), in_sync: tuple[int, ...] | None = None, leader: int = 1
) -> ClusterView:
    partition = PartitionView(0, leader, 0, replicas, replicas if in_sync is None else in_sync, ())
    topic = TopicView("t", NO_TOPIC_ID, False, (partition,))
    members = {number: BrokerView(number, Address("h", number), None) for number in range(1, brokers + 1)}
    return ClusterView("c", 1, members, {"t": topic}, {})


def settings(**values: str | None) -> dict[str, ConfigEntry]:
    named = {name.replace("_", "."): value for name, value in values.items()}
    return {name: ConfigEntry(name, value, "file", False, True, False, None) for name, value in named.items()}


def states(findings: list[Finding]) -> list[str]:
    return [finding.state for finding in findings]


def test_fewer_than_three_brokers() -> None:
    assert states(cluster_check._broker_count(cluster(2))) == [DOUBT]
    assert states(cluster_check._broker_count(cluster(3))) == [OK]


def test_replication_factor_against_brokers() -> None:
    assert states(cluster_check._replication(cluster(2, (1, 2, 3)))) == [WRONG]
    assert states(cluster_check._replication(cluster(3, (1,)))) == [DOUBT]
    assert states(cluster_check._replication(cluster(3, (1, 2, 3)))) == [OK]
    assert states(cluster_check._replication(cluster(1, (1,)))) == [OK], "one broker cannot do better"


def test_minimum_in_sync() -> None:
    three = cluster(3, (1, 2, 3))
    assert states(cluster_check._minimum_in_sync(three, {"t": 3})) == [WRONG]
    assert states(cluster_check._minimum_in_sync(three, {"t": 1})) == [DOUBT]
    assert cluster_check._minimum_in_sync(three, {"t": 2}) == []


def placed(view: ClusterView, *places: tuple[str, str | None]) -> ClusterView:
    """On these hosts and racks."""
    brokers = {
        number: view.brokers[number]._replace(address=Address(host, number), rack=rack)
        for number, (host, rack) in enumerate(places, 1)
    }
    return view._replace(brokers=brokers)


def test_replicas_that_are_lost_together() -> None:
    view = cluster(3, (1, 2))
    assert spread_findings(cluster(1)) == []
    (finding,) = spread_findings(view)
    assert (finding.state, "one host" in finding.what) == (DOUBT, True)
    assert states(spread_findings(placed(view, ("a", None), ("b", None), ("c", None)))) == [OK]
    assert states(spread_findings(placed(view, ("a", None), ("a", None), ("c", None)))) == [DOUBT]
    hosts, racks = spread_findings(placed(view, ("a", "r"), ("b", "r"), ("c", "s")))
    assert (hosts.state, racks.state) == (OK, DOUBT)
    assert "t" in racks.what
    half = placed(view, ("a", "r"), ("b", None), ("c", None))
    assert states(spread_findings(half)) == [OK, WRONG]


def test_brokers_whose_files_differ() -> None:
    same = {1: settings(num_partitions="3", node_id="1"), 2: settings(num_partitions="3", node_id="2")}
    assert states(cluster_check._differences(same)) == [OK]
    differ = {1: settings(num_partitions="3"), 2: settings(num_partitions="4")}
    (finding,) = cluster_check._differences(differ)
    assert (finding.state, "3 on 1; 4 on 2" in finding.what) == (DOUBT, True)


def test_what_one_broker_was_given_at_run_time_is_not_sought_in_its_file() -> None:
    apart = {name: entry._replace(source="broker") for name, entry in settings(num_partitions="4").items()}
    (finding,) = cluster_check._differences({1: settings(num_partitions="3"), 2: apart})
    assert finding.advice is not None
    assert "`headrace cluster config --broker 2 --delete num.partitions`" in finding.advice


def test_what_commands_set_on_single_brokers_is_no_difference_between_files() -> None:
    """A throttled move limits the brokers that take part in it; a drained broker is cordoned."""
    limited = settings(leader_replication_throttled_rate="1000000", cordoned_log_dirs="*", num_partitions="3")
    free = settings(leader_replication_throttled_rate="9223372036854775807", num_partitions="3")
    assert states(cluster_check._differences({1: limited, 2: free})) == [OK]


def test_defaults_that_cannot_work_or_lose_records() -> None:
    found = cluster_check._defaults(
        cluster(1), {1: settings(default_replication_factor="3", unclean_leader_election_enable="true")}
    )
    assert states(found) == [WRONG, DOUBT]
    three = {broker: settings(default_replication_factor="3") for broker in (1, 2)}
    (high,) = cluster_check._defaults(cluster(2, (1, 2)), three)
    assert "of brokers 1, 2 is" in high.what
    assert cluster_check._defaults(cluster(2, (1, 2, 3)), three) == [], "one that is down counts"


@pytest.mark.parametrize(
    ("connect", "state", "says"),
    [
        ("a:1/root", DOUBT, "single"),
        ("a:1,b:2/root", DOUBT, "even"),
        ("a:1,b:2,c:3/root", OK, "a:1,b:2,c:3/root"),
        (None, OK, "SQLite"),
    ],
)
def test_which_store_the_brokers_share(connect: str | None, state: str, says: str) -> None:
    (finding,) = cluster_check._store({1: settings(), 2: settings(zookeeper_connect=connect)})
    assert finding.state == state
    assert says in finding.what


def test_the_store_of_another_product_is_not_guessed() -> None:
    assert cluster_check._store({1: settings(num_partitions="1")}) == []


def test_health_of_partitions() -> None:
    assert states(partition_findings(cluster(3, (1, 2, 3)), {})) == [OK]
    (lagging,) = partition_findings(cluster(3, (1, 2, 3), in_sync=(1, 2)), {"t": 1})
    assert (lagging.state, lagging.what) == (WRONG, "1 partition is under-replicated: t 0.")
    assert "3 (1, behind" in lagging.advice
    (missing,) = partition_findings(cluster(2, (1, 2, 3), in_sync=(1, 2)), {"t": 1})
    assert "3 (1, down)" in missing.advice
    (leaderless,) = partition_findings(cluster(3, (1, 2, 3), in_sync=(2,), leader=-1), {})
    assert (leaderless.state, "a leader should be elected" in leaderless.advice.lower()) == (WRONG, True)
    (lost,) = partition_findings(cluster(2, (1, 3), in_sync=(3,), leader=-1), {})
    assert "Start the brokers with their in-sync replicas: 3." in lost.advice
    assert "elect TOPIC --unclean" in lost.advice
    refused, _ = partition_findings(cluster(3, (1, 2, 3), in_sync=(1,)), {"t": 2})
    assert (refused.state, "min.insync.replicas: t 0." in refused.what) == (WRONG, True)
    assert states(partition_findings(cluster(3, (2, 1, 3), leader=1), {})) == [DOUBT, OK]
    assert states(cluster_health.controller_finding(1, cluster(1))) == [OK]
    assert states(cluster_health.controller_finding(-1, cluster(1))) == [WRONG]


def test_what_a_broker_says_of_one_that_cannot_be_reached_is_doubted() -> None:
    """While the store is down nobody removes a broker that died, and the others still name it."""
    view = cluster(2, (2, 1), leader=2)
    (controller,) = cluster_health.controller_finding(2, view, [2])
    assert (controller.state, "broker 2, the last one known" in controller.what) == (WRONG, True)
    (led,) = partition_findings(view, {}, [2])
    assert (led.state, led.what) == (WRONG, "1 partition is led by a broker that cannot be reached: t 0.")
    assert partition_findings(view, {}, [1]) == [], "whether all replicas are in sync is not known"
    assert states(cluster_health.controller_finding(2, view, [1])) == [OK]


def test_an_even_ensemble() -> None:
    def told(servers: str) -> str:
        (finding,) = cluster_check._store({1: settings(zookeeper_connect=servers)})
        return f"{finding.state}: {finding.what} {finding.advice}"

    assert told("a:1") == f"{DOUBT}: Coordination: a single ZooKeeper server, a:1. " + (
        "While it is down no leader can be elected and no topic created. Run three."
    )
    assert "(2). One survives just as many failures; 3 survive more." in told("a:1,b:1/root")
    assert "(4). 3 survive just as many failures; 5 survive more." in told("a:1,b:1,c:1,d:1")
    assert told("a:1,b:1,c:1").startswith(OK)


def test_a_failed_disk_of_a_broker_that_is_up() -> None:
    """Starting the broker is no help: it runs."""
    view = cluster(3, (1, 2), in_sync=(2,), leader=2)
    (partition,) = view.topics["t"].partitions
    failed = view._replace(topics={"t": view.topics["t"]._replace(partitions=(partition._replace(offline=(1,)),))})
    lagging = next(one for one in partition_findings(failed, {"t": 1}) if "under-replicated" in one.what)
    assert "1 (1, failed or full disk)" in lagging.advice
    assert "partition move --offline" in cluster_health.failed_directory_advice(1, failed)
    assert "No partition needs it" in cluster_health.failed_directory_advice(1, view)
    alone = partition._replace(leader=-1, in_sync=(1,), offline=(1,))
    gone = view._replace(topics={"t": view.topics["t"]._replace(partitions=(alone,))})
    (leaderless,) = partition_findings(gone, {})
    assert "failed disk of broker 1" in leaderless.advice


def test_who_cannot_lead_yet_is_not_asked_to() -> None:
    found = partition_findings(cluster(2, (3, 1, 2), in_sync=(1, 2), leader=1), {})
    assert not any("preferred" in finding.what for finding in found)


@pytest.mark.parametrize(
    ("down", "state", "says"),
    [
        ((), OK, "3 ZooKeeper servers can be reached"),
        (("b:1",), DOUBT, "Start ZooKeeper on b:1, before"),
        (("a:1", "b:1"), WRONG, "1 of 3 ZooKeeper servers can be reached from here: not a majority."),
        (("a:1", "b:1", "c:1"), DOUBT, "/readyz"),
    ],
)
def test_zookeeper_without_a_majority(down: tuple[str, ...], state: str, says: str) -> None:
    (finding,) = cluster_health.store_findings("a:1,b:1,c:1/root", lambda one: "refused" if one in down else None)
    assert (finding.state, says in finding.what + finding.advice) == (state, True), finding
    assert cluster_health.store_findings("") == []


def test_a_broker_that_is_down_is_named() -> None:
    (finding,) = absent_brokers(cluster(2, (1, 2, 3)))
    assert finding.what == "Broker 3 is down; it holds 1 replica."
    assert "`headrace partition move --offline`" in finding.advice
    assert absent_brokers(cluster(3, (1, 2, 3))) == []


@pytest.mark.parametrize(("led", "state"), [((8, 8, 8), OK), ((20, 2, 2), DOUBT), ((3, 0, 0), None)])
def test_leaders_on_few_brokers(led: tuple[int, ...], state: str | None) -> None:
    view = cluster(3)
    leaders = [broker for broker, count in enumerate(led, 1) for _ in range(count)]
    partitions = tuple(PartitionView(number, one, 0, (one,), (one,), ()) for number, one in enumerate(leaders))
    skewed = view._replace(topics={"t": view.topics["t"]._replace(partitions=partitions)})
    assert [finding.state for finding in leader_skew(skewed)] == ([] if state is None else [state])


def test_many_partitions_are_told_by_topic() -> None:
    view = cluster(3, (1, 2, 3), in_sync=(1,))
    (one,) = view.topics["t"].partitions
    partitions = tuple(one._replace(number=number) for number in range(7))
    topics = {name: TopicView(name, NO_TOPIC_ID, False, partitions) for name in "abcdefg"}
    (finding,) = partition_findings(view._replace(topics=topics), {})
    assert finding.what.startswith("49 partitions are under-replicated: a 0, 1, 2, 3, 4, ...; b 0")
    assert finding.what.endswith("and 2 other topics.")


def test_partitions_at_their_minimum() -> None:
    minimal, _ = partition_findings(cluster(3, (1, 2, 3), in_sync=(1, 2)), {"t": 2})
    assert (minimal.state, "at min.insync.replicas" in minimal.what) == (DOUBT, True)


def test_what_a_move_adds_is_not_missed_and_can_stand_in() -> None:
    """Kafka's rule: the replicas in sync, of whatever kind, against those from before the move."""
    view = cluster(4, (3, 4, 1, 2), in_sync=(1, 2))

    def moving(in_sync: tuple[int, ...]) -> ClusterView:
        (partition,) = view.topics["t"].partitions
        partition = partition._replace(in_sync=in_sync, adding=(3, 4), replicas=(1, 2, 3, 4))
        return view._replace(topics={"t": view.topics["t"]._replace(partitions=(partition,))})

    (fine,) = partition_findings(moving((1, 2)), {"t": 2})
    assert (fine.state, "moves are adding 2 replicas" in fine.what) == (OK, True)
    assert states(partition_findings(moving((1, 3)), {"t": 2})) == [OK]
    refused, lagging = partition_findings(moving((1,)), {"t": 2})
    assert "below min.insync.replicas" in refused.what
    assert lagging.advice == "Not in sync, by broker: 2 (1, behind, see its log)."
    assert count_under_replicated(moving((1, 2))) == 0
    assert count_under_replicated(moving((1,))) == 1
