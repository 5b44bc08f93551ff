"""Replicas that hold different tails when their leader dies, and elections of replicas that are not in sync."""

from __future__ import annotations

import re
import time
from contextlib import suppress

from headrace.testing.drills.scene import Scene, repeat
from headrace.testing.drills.workload import TOPIC, PartitionState, alter_topic
from headrace.testing.drills.zombies import probe_value
from headrace.testing.process_cluster import ClusterBroker, wait_until
from headrace.testing.raw_client import ConnectionClosed, RawClient, build_batch

ALONE_SECONDS = 1.0
"""How long a leader writes without its followers: less than a lease, so that nobody takes them for dead."""
TAIL_RECORDS = 50
TAIL_ACKS = 300
QUIET_SECONDS = 3.0
DROPPED = re.compile(rf"{TOPIC}-(\d+): dropped (\d+) records")


def write_alone(bootstrap: str, partitions: list[int]) -> None:
    """Records with acks=1 that no follower copies, so that they may be lost."""
    with suppress(ConnectionClosed, OSError), RawClient(bootstrap) as client:
        for partition in partitions:
            for _ in range(TAIL_RECORDS):
                client.produce(TOPIC, partition, build_batch([probe_value()]), acks=1)


def slow_follower(scene: Scene, seconds: float) -> None:
    """A replica in sync stops for a moment, and the two others die: it has whatever was acknowledged."""

    def act() -> None:
        slow = scene.chance.choice(sorted(scene.brokers))
        others = [broker for id, broker in scene.brokers.items() if id != slow]
        scene.note_fault(f"{slow} stops, the others die")
        scene.brokers[slow].pause()
        time.sleep(ALONE_SECONDS)
        for broker in others:
            broker.kill()
        scene.brokers[slow].resume()
        wait_until(
            lambda: all(state.leader == slow for state in scene.states().values()),
            "the replica that is left leads",
        )
        for broker in others:
            broker.start()
        scene.until_whole()
        scene.until_acked()

    repeat(scene, seconds, act)


def double_failover(scene: Scene, seconds: float) -> None:
    """Two leaders in a row die with tails of their own; the third leads, and both come back to its log."""

    def act() -> None:
        first = scene.leader()
        followers = [broker for id, broker in scene.brokers.items() if id != first]
        scene.note_fault(f"leader {first} dies with a tail")
        _die_with_tail(scene, first, followers)
        wait_until(
            lambda: all(state.leader not in (-1, first) for state in scene.states().values()),
            "another leader after the first death",
        )
        second = scene.leader()
        third = next(broker for id, broker in scene.brokers.items() if id not in (first, second))
        _die_with_tail(scene, second, [third])
        wait_until(
            lambda: all(state.leader == third.broker_id for state in scene.states().values()),
            "the third leads after the second death",
        )
        scene.brokers[first].start()
        scene.until_acked()
        scene.brokers[second].start()
        scene.until_whole()

    repeat(scene, seconds, act)


def _die_with_tail(scene: Scene, leader: int, followers: list[ClusterBroker]) -> None:
    led = [part for part, state in scene.states().items() if state.leader == leader]
    for broker in followers:
        broker.pause()
    began = time.monotonic()
    write_alone(scene.brokers[leader].bootstrap, led)
    time.sleep(max(0.0, ALONE_SECONDS - (time.monotonic() - began)))
    scene.brokers[leader].kill()
    for broker in followers:
        broker.resume()


def unclean_off(scene: Scene, seconds: float) -> None:
    """Only out-of-sync replicas are alive: no leader and no acknowledgement until the last in-sync one returns.

    Before the last one has acknowledged anything alone, the others have everything too, and may lead.
    """

    def act() -> None:
        last, others = _isolate(scene)
        scene.until_acked()
        scene.brokers[last].kill()
        for id in others:
            scene.brokers[id].start()
        time.sleep(QUIET_SECONDS)
        before = scene.workload.acked
        time.sleep(QUIET_SECONDS)
        scene.check(scene.workload.acked == before, "records were acknowledged although no in-sync replica lived")
        led = sorted(part for part, state in scene.states().items() if state.leader >= 0)
        scene.check(not led, f"partitions {led} were led although no in-sync replica lived")
        scene.brokers[last].start()
        scene.until_whole()
        scene.until_acked()

    repeat(scene, seconds, act)


def eligible(scene: Scene, seconds: float) -> None:
    """Two die, and then the last, which alone could commit nothing: the others have everything, and lead."""

    def act() -> None:
        last, others = _isolate(scene)
        scene.brokers[last].kill()
        for id in others:
            scene.brokers[id].start()
        wait_until(
            lambda: all(state.leader in others for state in scene.states().values()),
            "those who left an in-sync set that was too small lead",
        )
        scene.until_acked()
        scene.brokers[last].start()
        scene.until_whole()

    repeat(scene, seconds, act)


def unclean_on(scene: Scene, _: float) -> None:
    """The same with unclean election, and one replica enough for an ack: the loss is the tail, and is counted."""
    with scene.workload.held():  # else one that dies may have what the last gets too, and nothing is lost of it
        shared = {part: _acked_end(scene, part) for part in scene.states()}
        last, others = _isolate(scene)
    scene.until_acked(TAIL_ACKS)
    scene.workload.rest()
    scene.brokers[last].kill()
    ends = {part: _acked_end(scene, part) for part in shared}
    for id in others:
        scene.brokers[id].start()
    alter_topic(scene.bootstrap, {"unclean.leader.election.enable": "true"})
    wait_until(
        lambda: all(state.leader in others for state in scene.states().values()), "an unclean election everywhere"
    )
    scene.brokers[last].start()
    scene.until_whole()
    dropped: dict[int, int] = {}
    for part, count in DROPPED.findall(scene.brokers[last].log_text()):
        dropped[int(part)] = dropped.get(int(part), 0) + int(count)
    for part, end in ends.items():
        scene.lost_from[part] = end - dropped.get(part, 0)
        scene.check(
            scene.lost_from[part] >= shared[part],
            f"{TOPIC}-{part}: {dropped.get(part, 0)} records dropped, {end - shared[part]} were on one replica",
        )
    scene.notes.append(f"{sum(dropped.values())} records dropped and reported")
    scene.check(sum(dropped.values()) > 0, "no loss was reported")


def _acked_end(scene: Scene, partition: int) -> int:
    """After the last acknowledged record of a partition."""
    return max(
        (ack.offset + 1 for ack in list(scene.workload.history.acks) if ack.partition == partition), default=0
    )


def _isolate(scene: Scene) -> tuple[int, list[int]]:
    """Kill two, and wait until only the third is in the in-sync sets."""
    last = scene.chance.choice(sorted(scene.brokers))
    others = [id for id in scene.brokers if id != last]
    scene.note_fault(f"kill -9 all but {last}")
    for id in others:
        scene.brokers[id].kill()
    wait_until(
        lambda: all(state == PartitionState(last, (last,)) for state in scene.states().values()),
        "the last replica leads alone",
    )
    return last, others
