"""The invariants of a cluster, checked between the steps of a run (docs/architecture.md, "Simulation")."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.model.errors import KafkaError
from headrace.model.topics import TopicPartition
from headrace.replication.partition import Partition
from headrace.storage.log_config import LogConfig
from headrace.testing.sim.brokers import Machine
from headrace.testing.sim.deletions import Deletions
from headrace.testing.sim.ledger import Ledger
from headrace.testing.sim.store import NO_LEADER, WatchedStore
from headrace.testing.sim.world import World

STALE_SECONDS = 5.0
"""A little more than two session timeouts: a leader's own lease, and the silence allowed to followers."""

Replica = tuple[str, bytes, int]
"""Process, topic id, partition."""


class Checks:
    def __init__(self, world: World, store: WatchedStore, machines: Sequence[Machine]) -> None:
        self._world = world
        self._store = store
        self._machines = machines
        self.ledger = Ledger()
        self.deletions = Deletions(world, store, self.ledger)
        self._leaders: dict[tuple[bytes, int, int], str] = {}
        """The leader of a partition in an epoch."""
        self._looked: dict[Partition, tuple[int, int, int, int, int, LogConfig]] = {}
        """The state of a replica when it was last checked, and the number of changes in the store then."""
        self._cuts = 0
        """How often a replica became shorter, or was created: then all are checked again."""
        self._to_come: list[tuple[TopicPartition, int, bytes, str]] = []
        """Records that were read from a log that has failed or moved to other brokers since, or were acknowledged
        by it: it is not checked any more, but what clients were told must stay."""
        self._seen: dict[Replica, tuple[int, int, int]] = {}
        """For each replica, the epoch, the high watermark, and the offset up to which it was compared."""

    def look(self) -> None:
        """Check everything that has changed."""
        looked, changes = self._looked, self._store.changes + self._cuts
        for machine in self._machines:
            process = machine.process
            if process is None:
                continue
            for partition in machine.partitions():
                log = partition.log
                mark, config = partition.high_watermark, log.config
                now = partition.leader_epoch, mark, log.end_offset, changes, log.start_offset, config
                if looked.get(partition) == now:
                    continue
                if log.failure is not None:
                    self._look_at_start(machine, process.name, partition)  # others may already know its start
                    continue
                try:
                    self._look_at(machine, process.name, partition)
                except KafkaError:
                    if not machine.in_a_write:  # else its files may be between two states
                        raise
                if partition not in looked or looked[partition][2] > now[2]:
                    self._cuts += 1
                if not machine.in_a_write:
                    looked[partition] = now
                self._look_at_start(machine, process.name, partition)
        self.deletions.settle()

    def _look_at_start(self, machine: Machine, process: str, partition: Partition) -> None:
        if not machine.in_a_write and partition.topic_partition.topic in self.ledger.trimmed:
            self.deletions.look_at(machine, process, partition)

    def _look_at(self, machine: Machine, process: str, partition: Partition) -> None:
        name = f"{process} {partition.topic_partition}"
        log, mark, epoch = partition.log, partition.high_watermark, partition.leader_epoch
        key = process, partition.topic_id, partition.topic_partition.partition
        seen_epoch, seen_mark, compared = self._seen.get(key, (-1, 0, 0))
        if partition.is_leader:
            self._look_at_leader(machine, process, partition)
        if (seen_epoch, seen_mark) == (epoch, mark) or (machine.in_a_write and mark > log.end_offset):
            return
        known = machine.checkpointed.get(partition.topic_partition, 0)
        if key not in self._seen and not self._is_made_anew(partition) and mark < min(known, log.end_offset):
            self._world.violated(f"{name}: the high watermark is {mark} after a start, and was noted as {known}")
        stable = log.last_stable_offset(mark)
        if not log.start_offset <= stable <= mark <= log.end_offset:
            self._world.violated(
                f"{name}: log start {log.start_offset}, last stable {stable}, high watermark {mark}, end "
                f"{log.end_offset}"
            )
        if mark < seen_mark and epoch == seen_epoch and partition.is_leader:
            self._world.violated(f"{name}: the high watermark went back from {seen_mark} to {mark}")
        compared = min(compared, mark)
        problem = self.ledger.check(partition, compared)
        if problem is not None:
            self._world.violated(f"{name}: {problem}")
        self._seen[key] = epoch, mark, mark

    def _is_made_anew(self, partition: Partition) -> bool:
        """Whether this may be another incarnation: of a topic that comes and goes, or a replica that came back."""
        place = partition.topic_partition
        return place.topic.startswith("churn") or (place.topic, place.partition) in self._store.moved

    def _look_at_leader(self, machine: Machine, process: str, partition: Partition) -> None:
        place = partition.topic_partition
        key = partition.topic_id, place.partition, partition.leader_epoch
        if partition.image is not None and len(partition.image.replicas) == 1:
            process = machine.host  # an only replica continues in its epoch (docs/adr/0006)
        leader = self._leaders.setdefault(key, process)
        if leader == machine.host:
            self._leaders[key] = process  # there are more replicas now
        elif leader != process:
            self._world.violated(f"{place}: {leader} and {process} both lead in epoch {partition.leader_epoch}")
        state = self._store.states.get((place.topic, place.partition))
        if state is None or state.leader_epoch != partition.leader_epoch or state.leader != machine.id:
            return
        trusted = state.complete - self._store.lossy.get((place.topic, place.partition), set()) - {machine.id}
        for other in self._machines:
            if other.id in trusted and other.node is not None:
                copy = other.partition(place)
                if (
                    copy is not None
                    and copy.topic_id == partition.topic_id
                    and copy.log.failure is None
                    and copy.log.end_offset < partition.high_watermark
                ):
                    self._world.violated(
                        f"{place}: {process} has the high watermark {partition.high_watermark}, but broker "
                        f"{other.id} of {state} ends at {copy.log.end_offset}"
                    )

    # -- what clients were told

    def acknowledged(self, place: TopicPartition, offset: int, values: list[bytes]) -> None:
        """Check a response to acks=all: these values are committed at these offsets, now and forever."""
        self.look()
        for index, value in enumerate(values):
            self._must_stay(place, offset + index, value, "was acknowledged")

    def answered_as_leader(self, place: TopicPartition, broker: int, asked: float) -> None:
        """Check a response to acks=1, requested at `asked`: the broker must not have been replaced long before."""
        key = place.topic, place.partition
        state = self._store.states.get(key)
        if state is not None and state.leader not in (broker, NO_LEADER):
            seconds = asked - self._store.led_since[key]
            if seconds > STALE_SECONDS:
                self._world.violated(
                    f"{place}: broker {broker} answered as the leader {seconds:.1f} s after that of broker "
                    f"{state.leader} began"
                )

    def leads(self, place: TopicPartition, broker: int) -> bool:
        """Whether the store says that the broker leads; one that was just replaced may not know it yet."""
        state = self._store.states.get((place.topic, place.partition))
        return state is not None and state.leader == broker

    def was_read(self, place: TopicPartition, offset: int, value: bytes, source: str) -> None:
        """Check a record that a consumer got."""
        self._must_stay(place, offset, value, f"was read by a consumer of {source}")

    def _must_stay(
        self, place: TopicPartition, offset: int, value: bytes, what: str, at_the_end: bool = False
    ) -> None:
        committed = self.ledger.by_name(place)
        found = committed.values.get(offset) if committed is not None else None
        if found is None and not at_the_end and self._may_be_elsewhere(place):
            self._to_come.append((place, offset, value, what))
        elif found is None and self.deletions.may_be_gone(place, offset):
            self._world.count("deleted before anybody looked")
        elif found is None or found != value:
            self._world.violated(f"{place}: {value!r} {what} at {offset}, where {found!r} is committed")

    def _may_be_elsewhere(self, place: TopicPartition) -> bool:
        """Whether a replica that is no longer checked may have been the first to know of a committed record."""
        copies = [machine.partition(place) for machine in self._machines]
        failed = any(copy is not None and copy.log.failure is not None for copy in copies)
        return failed or (place.topic, place.partition) in self._store.moved

    # -- at the end

    def unhealed(self) -> list[str]:
        """Everything that is not as it should be once all faults are over."""
        problems = [f"broker {machine.id} is not up" for machine in self._machines if not machine.ready]
        for (topic, index), state in self._store.states.items():
            if state.leader < 0:
                problems.append(f"{topic}-{index} has no leader")
            elif set(state.isr) != set(state.replicas):
                problems.append(f"{topic}-{index} has in sync {state.isr} of {state.replicas}")
        return problems

    def describe(self) -> None:
        """Log the state of every replica, to find the reason."""
        for machine in self._machines:
            if machine.ready and machine.node is not None:
                image = machine.node.image
                epochs = {broker.id: broker.epoch for broker in image.brokers.values()}
                self._world.say(
                    f"{machine.host} sees the brokers {epochs} and the controller {image.controller_id}"
                )
            for partition in machine.partitions():
                leadership = partition.leadership
                role = "leads" if partition.is_leader else "follows" if partition.follows else "has no role"
                self._world.say(
                    f"{machine.host} {role} {partition.topic_partition} epoch {partition.leader_epoch} "
                    f"mark {partition.high_watermark} end {partition.log.end_offset} image {partition.image} "
                    + (
                        f"pending {leadership.pending} ends {leadership._ends} broker epochs {leadership._brokers}"
                        if leadership is not None
                        else ""
                    )
                )

    def differing(self) -> list[str]:
        """Replicas that are not at the end of the committed records: a group's timer may have written just now."""
        self.look()
        found = []
        for machine in self._machines:
            for partition in machine.partitions():
                end, committed = partition.log.end_offset, self.ledger.of(partition).end_offset
                if end != committed or partition.high_watermark != end:
                    found.append(
                        f"{partition.topic_partition} on broker {machine.id} ends at {end}, high watermark "
                        f"{partition.high_watermark}; {committed} is committed"
                    )
        return found

    def compare_replicas(self) -> None:
        """Check after healing that all replicas hold the same bytes, all of them committed."""
        self.look()
        to_come, self._to_come = self._to_come, []
        for place, offset, value, what in to_come:
            self._must_stay(place, offset, value, what, at_the_end=True)
        for machine in self._machines:
            for partition in machine.partitions():
                problem = self.ledger.check(partition, partition.log.start_offset)
                if problem is None and self.ledger.is_compacted(partition):
                    problem = self.ledger.lacking(partition)
                if problem is not None:
                    self._world.violated(f"{partition.topic_partition} on broker {machine.id}: {problem}")
