"""Problems of partitions: no leader, not enough replicas, leaders on too few brokers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from headrace.cli.common.findings import DOUBT, OK, WRONG, Finding
from headrace.cli.common.output import plural
from headrace.client.view import NO_LEADER, ClusterView, PartitionView

SHOWN = 5
SKEW = 1.5
"""How many times its share a broker may lead before it is reported."""
FEWEST_TO_COMPARE = 4
"""The minimum of leaders per broker: below it differences say nothing."""

Named = tuple[str, PartitionView]


def absent_brokers(view: ClusterView) -> list[Finding]:
    """Brokers that hold replicas but are down."""
    held = Counter(replica for _, one in _all(view) for replica in one.replicas if replica not in view.brokers)
    return [
        Finding(
            WRONG,
            f"Broker {broker} is down; it holds {plural(count, 'replica')}.",
            "Start it: it catches up and rejoins by itself. If it runs, it is cut off; /readyz says from what. "
            "If it is lost, move its replicas to other brokers: `headrace partition move --offline`.",
        )
        for broker, count in sorted(held.items())
    ]


def partition_findings(
    view: ClusterView, minimums: Mapping[str, int], silent: Collection[int] = ()
) -> list[Finding]:
    """`minimums` is min.insync.replicas by topic, for the topics with fewer replicas in sync than they have;
    `silent` brokers are members of the cluster and cannot be reached."""
    partitions = _all(view)
    cut_off = [(name, one) for name, one in partitions if one.leader in silent]
    doubtful = any(broker in silent for _, one in partitions for broker in one.in_sync)
    offline = [(name, one) for name, one in partitions if one.leader == NO_LEADER]
    lagging = [(name, one) for name, one in partitions if one.leader != NO_LEADER and one.under_replicated]
    refused = [
        (name, one)
        for name, one in partitions
        if one.leader != NO_LEADER and len(one.in_sync) < min(minimums.get(name, 1), one.factor)
    ]
    minimal = [(name, one) for name, one in lagging if len(one.in_sync) == minimums.get(name, 0)]
    misplaced = [
        (name, one)
        for name, one in partitions
        if one.leader not in (NO_LEADER, *one.replicas[:1])
        and one.replicas[0] in one.in_sync  # else it cannot lead
    ]
    findings = []
    if offline:
        advice = f"They cannot be read or written. {_bring_back(view, offline)}"
        findings.append(Finding(WRONG, f"{_count(offline)} without a leader: {_some(offline)}", advice))
    if cut_off:
        advice = "They cannot be read or written from here until it can be reached, or others lead."
        what = f"{_count(cut_off)} led by a broker that cannot be reached: {_some(cut_off)}"
        findings.append(Finding(WRONG, what, advice))
    if refused:
        advice = "acks=all is refused there until enough replicas are in sync again."
        findings.append(Finding(WRONG, f"{_count(refused)} below min.insync.replicas: {_some(refused)}", advice))
    if minimal:
        advice = "With one replica fewer, acks=all is refused there: bring the missing ones back first."
        findings.append(Finding(DOUBT, f"{_count(minimal)} at min.insync.replicas: {_some(minimal)}", advice))
    if lagging:
        advice = f"Not in sync, by broker: {_behind(view, lagging)}."
        findings.append(Finding(WRONG, f"{_count(lagging)} under-replicated: {_some(lagging)}", advice))
    if misplaced:
        advice = (
            "This is normal after a failover. `headrace partition elect --all` gives leadership back "
            "to the preferred replicas."
        )
        findings.append(
            Finding(DOUBT, f"{_count(misplaced)} not led by the preferred replica: {_some(misplaced)}", advice)
        )
    if not offline and not lagging and not doubtful:
        whole = "The partition has" if len(partitions) == 1 else f"All {len(partitions):,} partitions have"
        coming = sum(len(set(one.adding) - set(one.in_sync)) for _, one in partitions)
        moves = f"; moves are adding {plural(coming, 'replica')}" if coming else ""
        findings.append(Finding(OK, f"{whole} a leader and all replicas in sync{moves}."))
    return findings


def _bring_back(view: ClusterView, offline: Sequence[Named]) -> str:
    """Which replicas could lead again, and how to bring them back."""
    holders = sorted({broker for _, one in offline for broker in one.in_sync})
    down = [str(broker) for broker in holders if broker not in view.brokers]
    failed = sorted({broker for _, one in offline for broker in one.in_sync if _disk_failed(view, one, broker)})
    advice = []
    if down:
        advice.append(f"Start the brokers with their in-sync replicas: {', '.join(down)}.")
    if failed:
        brokers = ", ".join(map(str, failed))
        advice.append(
            f"Their in-sync replicas are on the failed disk of broker {brokers}: mount it again, restart."
        )
    if advice and any(set(one.replicas) - set(one.offline) - set(one.in_sync) for _, one in offline):
        advice.append(
            "If they are lost for good, `headrace partition elect TOPIC --unclean` elects one that lacks records."
        )
    return " ".join(advice) or "A leader should be elected within seconds; if not, look at the controller's log."


def _disk_failed(view: ClusterView, partition: PartitionView, broker: int) -> bool:
    """Whether the broker is alive but has lost this replica."""
    return broker in partition.offline and broker in view.brokers


def _behind(view: ClusterView, lagging: Sequence[Named]) -> str:
    """The brokers whose replicas are behind, how many, and why: `3 (12, down), 1 (4, failed or full disk)`."""
    counts: Counter[tuple[int, str]] = Counter()
    for _, one in lagging:
        for broker in one.missing:
            failed = _disk_failed(view, one, broker)
            why = "failed or full disk" if failed else "behind, see its log" if broker in view.brokers else "down"
            counts[broker, why] += 1
    return ", ".join(f"{broker} ({count}, {why})" for (broker, why), count in counts.most_common(SHOWN))


def leader_skew(view: ClusterView) -> list[Finding]:
    """Brokers that lead much more than their share, and so do more of the work."""
    led = Counter(one.leader for _, one in _all(view) if one.leader in view.brokers)
    share = led.total() / max(len(view.brokers), 1)
    if len(view.brokers) < 2 or share < FEWEST_TO_COMPARE:
        return []
    broker, most = led.most_common(1)[0]
    if most <= SKEW * share:
        return [Finding(OK, "Leaders are spread evenly over the brokers.")]
    least = min(view.brokers, key=lambda one: led[one])
    fewest = led[least] or "none"
    what = f"Broker {broker} leads {most} partitions and broker {least} {fewest}; an even share is {share:.0f}."
    advice = "After a failover: `headrace partition elect --all`. Otherwise: `headrace partition balance`."
    return [Finding(DOUBT, what, advice)]


def topics_not_in_sync(view: ClusterView) -> list[str]:
    """The topics that may have too few replicas in sync for acks=all."""
    return [
        topic.name
        for topic in view.topics.values()
        if any(len(one.in_sync) < len(one.replicas) for one in topic.partitions)
    ]


def count_under_replicated(view: ClusterView) -> int:
    return sum(one.under_replicated for _, one in _all(view))


def count_leaderless(view: ClusterView) -> int:
    return sum(one.leader == NO_LEADER for _, one in _all(view))


def _all(view: ClusterView) -> list[Named]:
    return [(topic.name, one) for topic in view.topics.values() for one in topic.partitions]


def _count(partitions: list[Named]) -> str:
    return f"{len(partitions)} {'partition is' if len(partitions) == 1 else 'partitions are'}"


def _some(partitions: Iterable[Named]) -> str:
    """Partitions by topic, such as `orders 0, 1, 2; payments 0.`"""
    by_topic: dict[str, list[int]] = {}
    for name, one in partitions:
        by_topic.setdefault(name, []).append(one.number)
    texts = []
    for name, numbers in list(by_topic.items())[:SHOWN]:
        more = ", ..." if len(numbers) > SHOWN else ""
        texts.append(f"{name} {', '.join(map(str, numbers[:SHOWN]))}{more}")
    more = f"; and {plural(len(by_topic) - SHOWN, 'other topic')}" if len(by_topic) > SHOWN else ""
    text = "; ".join(texts) + more
    return text if text.endswith(".") else text + "."
